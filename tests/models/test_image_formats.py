"""Content sniffing and the checks of headers before decoding."""

import struct
import zlib

import pytest
from PIL import Image

from models.errors import ImageError
from models.image_formats import sniff
from models.images import load_image
from tests.support import CASES, encoded


def _code(data: bytes) -> str:
    with pytest.raises(ImageError) as caught:
        load_image(data)
    return caught.value.code


@pytest.mark.parametrize(
    ("head", "format"),
    [
        (b"\xff\xd8\xff\xe0", "JPEG"),
        (b"II+\0", "TIFF"),
        (b"\0\0\0\x1cftypmif1\0\0\0\0mif1heic", "HEIF"),
        (b"\0\0\0\x1cftypmif1\0\0\0\0mif1avif", "AVIF"),
        (b"P6\n# a comment\n4 4 255\n", "PPM"),
    ],
)
def test_sniff_accepts(head: bytes, format: str) -> None:
    assert sniff(head) == format


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\xef\xbb\xbf\n<svg xmlns='x'>", "SVG"),
        (b"<!-- made by hand -->\n<SVG>", "SVG"),
        (b"%!PS-Adobe-3.0", "PostScript"),
        (b"%PDF-1.7", "PDF"),
        (b"8BPS\0\1", "Photoshop"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
        (b"SIMPLE  =                    T", "FITS"),
        (b"P3 4 4 255 ", "PNM text or PAM"),
        (b"\0\0\0\x18ftypmp42", "video"),
    ],
)
def test_sniff_refuses_other_pictures_by_name(head: bytes, name: str) -> None:
    with pytest.raises(ImageError, match=f"{name} is not read: send JPEG") as caught:
        sniff(head)
    assert caught.value.code == "unsupported_format"


@pytest.mark.parametrize(
    "head",
    [
        b"BMW is a car maker from Bavaria, said the text file",
        b"P6 is how this sentence begins",
        b"<!DOCTYPE html><html><body><svg></svg></body></html>",
        b"<html><svg></svg></html>",
        b"version https://git-lfs.github.com/spec/v1",
        b"\0\0\1\0\0\0",
        b"RIFF\0\0\0\0WAVEfmt ",
    ],
)
def test_sniff_tells_text_and_other_data_from_pictures(head: bytes) -> None:
    with pytest.raises(ImageError) as caught:
        sniff(head)
    assert caught.value.code == "not_an_image"


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("progressive", [False, True])
def test_plainest_jpegs_pass_the_check_of_bytes_per_pixel(mode: str, progressive: bool) -> None:
    """One colour, coarsest quality, best tables: nothing that an encoder writes is smaller."""
    picture = Image.new(mode, (4000, 3000))
    assert load_image(encoded(picture, "JPEG", quality=1, progressive=progressive, optimize=True)).size == (4000, 3000)


@pytest.mark.parametrize("mode", ["1", "P", "RGBA"])
def test_plainest_pngs_pass_the_check_of_bytes_per_pixel(mode: str) -> None:
    picture = Image.new(mode, (2000, 1500))
    assert load_image(encoded(picture, "PNG", compress_level=9)).size == (2000, 1500)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "BMP", "PPM"])
def test_a_header_that_claims_more_than_the_data_can_hold_is_refused(format: str) -> None:
    data = encoded(Image.new("RGB", (1234, 999)), format)
    claimed = {
        "JPEG": data.replace(struct.pack(">HH", 999, 1234), struct.pack(">HH", 7900, 7900)),
        "PNG": _resized_png(data, 7900, 7900),
        "BMP": data.replace(struct.pack("<ii", 1234, 999), struct.pack("<ii", 7900, 7900)),
        "PPM": data.replace(b"1234 999", b"7900 7900"),
    }[format]
    with pytest.raises(ImageError, match="cannot hold 7900 x 7900 pixels") as caught:
        load_image(claimed[:1000])
    assert caught.value.code == "truncated"


def _resized_png(png: bytes, width: int, height: int) -> bytes:
    header = b"IHDR" + struct.pack(">II", width, height) + png[24:29]
    return png[:12] + header + struct.pack(">I", zlib.crc32(header)) + png[33:]


def test_a_png_that_claims_a_huge_frame_is_refused() -> None:
    assert _code(_resized_png(encoded(Image.new("RGB", (8, 8)), "PNG"), 2**31 - 1, 2**31 - 1)) == "too_large"
    assert _code(_resized_png(encoded(Image.new("RGB", (8, 8)), "PNG"), 12_000, 10_000)) == "too_large"


def _progressive(extra_scans: int) -> bytes:
    """A JPEG whose last scan, some ten bytes, is repeated."""
    data = encoded(Image.new("L", (64, 48), 90), "JPEG", progressive=True, optimize=True)
    scan = data[data.rfind(b"\xff\xda") : -2]
    return data[:-2] + scan * extra_scans + data[-2:]


def test_a_jpeg_of_countless_scans_is_refused() -> None:
    assert load_image(_progressive(20)).size == (64, 48)
    assert _code(_progressive(2000)) == "too_large"


def test_what_follows_a_jpeg_is_not_counted_as_scans() -> None:
    """Phones append a video, in which the two bytes of the marker come by chance."""
    assert load_image(_progressive(0) + b"\0\xff\xda\0" * 500).size == (64, 48)


def test_rare_encodings_that_only_python_decodes_are_refused() -> None:
    assert _code(b"P5 2 1 1023\n" + struct.pack(">HH", 512, 1023)) == "unsupported_format"


def test_large_text_chunks_do_not_lose_a_png() -> None:
    loaded = load_image((CASES / "images/bomb_text_chunk.png").read_bytes())
    assert loaded.format == "PNG"
