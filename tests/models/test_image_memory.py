"""How much memory the largest pictures of each format take while they are decoded."""

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.support import CASES, encoded

_SIDE = 2500
_MOST_BYTES_PER_PIXEL = 21
"""WebP: four bytes for each pixel of the decoder's two canvases, of its answer, of Pillow's copy, of the RGB picture.
64 million pixels are 1.3 GB."""

_MEASURE = """
import re, sys
from models.images import read_image
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
before = peak()
assert read_image(sys.argv[1]).size == (int(sys.argv[2]), int(sys.argv[2]))
sys.stdout.write(str(peak() - before))
"""


def _plain(mode: str) -> Image.Image:
    return Image.new(mode, (_SIDE, _SIDE))


def _exif() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def _heic() -> bytes:
    pillow_heif = pytest.importorskip("pillow_heif", reason="the extra limner[heif] is not installed")
    buffer, fast = io.BytesIO(), {"preset": "ultrafast"}
    pillow_heif.from_pillow(_plain("RGBA")).save(buffer, quality=10, exif=_exif().tobytes(), enc_params=fast)
    return buffer.getvalue()


def _deflated(mode: str) -> bytes:
    return encoded(_plain(mode), "TIFF", compression="tiff_adobe_deflate", tiffinfo={274: 6})


_LARGEST: dict[str, Callable[[], bytes]] = {
    "jpeg": lambda: encoded(_plain("CMYK"), "JPEG", exif=_exif(), progressive=True),
    "png": lambda: encoded(_plain("RGBA"), "PNG", exif=_exif(), compress_level=1),
    "gif": lambda: encoded(_plain("P"), "GIF", transparency=0),
    "webp": lambda: encoded(_plain("RGBA"), "WEBP", exif=_exif(), lossless=True, quality=0, method=0),
    "avif": lambda: encoded(_plain("RGBA"), "AVIF", exif=_exif(), speed=10),
    "heic": _heic,
    "tiff": lambda: _deflated("F"),
    "tiff alpha": lambda: _deflated("LA"),
    "bmp": lambda: encoded(_plain("RGB"), "BMP"),
    "ppm": lambda: encoded(_plain("1"), "PPM"),
}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
@pytest.mark.parametrize("format", _LARGEST)
def test_peak_per_pixel(format: str, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(_LARGEST[format]())
    command = [sys.executable, "-c", _MEASURE, str(tmp_path / "picture"), str(_SIDE)]
    peak = subprocess.run(command, check=True, capture_output=True, text=True, cwd=CASES.parents[1]).stdout
    assert int(peak) / _SIDE**2 < _MOST_BYTES_PER_PIXEL
