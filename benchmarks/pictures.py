"""Pictures to measure with: made on the spot, and the photographs in ``examples/`` where there are any."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
_SIZES_PX = ((500, 375), (375, 500), (640, 480), (1024, 768))


def jpeg_files(count: int) -> list[bytes]:
    """``count`` JPEG files: the example photographs first, then random pictures of common sizes."""
    photographs = [path.read_bytes() for path in sorted(EXAMPLES.glob("*.jp*g"))][:count]
    made = [random_jpeg(_SIZES_PX[number % len(_SIZES_PX)], number) for number in range(count - len(photographs))]
    return photographs + made


def random_jpeg(size_px: tuple[int, int], seed: int) -> bytes:
    """A JPEG file of soft random colours: it takes about as long to decode as a photograph of its size."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize(
        size_px, Image.Resampling.BICUBIC
    )
    grain = rng.normal(0, 12, (size_px[1], size_px[0], 3))
    picture = Image.fromarray(np.clip(np.asarray(coarse) + grain, 0, 255).astype(np.uint8))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()
