"""Pictures as large as phones make them, from small photographs: enlarged and grained, or laid side by side."""

import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

Size = tuple[int, int]

_GRAIN = 8.0
"""Standard deviation of the noise in each pixel, of 255 levels: as in a photograph taken indoors."""


class Enlarger:
    """Makes pictures of one size. Without grain an enlarged one would have nothing that a coarser one could lose."""

    def __init__(self, size_px: Size) -> None:
        self._size_px = size_px
        self._rng = np.random.default_rng(0)
        shape = (size_px[1], size_px[0], 3)
        self._grain = self._rng.normal(0, _GRAIN, shape).round().astype(np.int16)

    def enlarged(self, image: Image.Image) -> Image.Image:
        """The picture, Lanczos, with grain that differs from call to call."""
        self._grain = np.roll(self._grain, int(self._rng.integers(1, self._grain.shape[0])), axis=0)
        pixels = np.asarray(image.resize(self._size_px, Image.Resampling.LANCZOS), dtype=np.int16)
        return Image.fromarray(_levels(pixels + self._grain))

    def mosaic(self, images: Sequence[Image.Image], tile_px: Size) -> Image.Image:
        """Pictures drawn from these side by side, hardly resized: each of their pixels has its own detail."""
        whole = Image.new("RGB", self._size_px)
        for top in range(0, self._size_px[1], tile_px[1]):
            for left in range(0, self._size_px[0], tile_px[0]):
                tile = images[int(self._rng.integers(len(images)))]
                whole.paste(tile.resize(tile_px, Image.Resampling.LANCZOS), (left, top))
        return whole


def encoded(image: Image.Image, kind: str = "JPEG", quality: int = 90) -> bytes:
    """The picture as a file."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **({"compress_level": 1} if kind == "PNG" else {"quality": quality}))
    return buffer.getvalue()


def _levels(values: npt.NDArray[np.int16]) -> npt.NDArray[np.uint8]:
    return np.clip(values, 0, 255).astype(np.uint8)
