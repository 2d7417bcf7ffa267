"""The loader over every given case, its limits, damaged data and odd paths."""

import io
import json
import os
import random
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageOps

from models.errors import ImageError
from models.images import DEFAULT_LIMITS, ImageLimits, load_image, read_image, sniff_file
from tests.support import CASES, encoded

_CASES: list[dict[str, Any]] = json.loads((CASES / "images.json").read_text("utf-8"))["cases"]
_QUADRANTS = {"tl": (220, 30, 30), "tr": (30, 170, 50), "bl": (40, 60, 210), "br": (235, 210, 40)}


def _corners(image: Image.Image) -> dict[str, Any]:
    right, bottom = image.width - 3, image.height - 3
    places = {"tl": (2, 2), "tr": (right, 2), "bl": (2, bottom), "br": (right, bottom)}
    return {name: image.getpixel(place) for name, place in places.items()}


def _distance(image: Image.Image, probe: dict[str, Any]) -> Any:
    """The largest difference of any channel of any corner from the expected colours."""
    corners = _corners(image)
    return max(abs(a - b) for name, colour in probe.items() for a, b in zip(corners[name], colour, strict=True))


def _quadrants(width: int = 64, height: int = 48) -> Image.Image:
    image = Image.new("RGB", (width, height))
    for name, colour in _QUADRANTS.items():
        left, top = (width // 2) * (name[1] == "r"), (height // 2) * (name[0] == "b")
        image.paste(colour, (left, top, left + width // 2, top + height // 2))
    return image


def _with_orientation(value: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = value
    return exif


@pytest.mark.parametrize("case", _CASES, ids=lambda case: str(case["file"]))
def test_given_case(case: dict[str, Any]) -> None:
    try:
        loaded = read_image(CASES / case["file"])
    except ImageError as error:
        assert f"error: {error.code}" in [case["expect"], *case.get("also_ok", [])], error.detail
        return
    assert "caption" in [case["expect"], *case.get("also_ok", [])]
    assert loaded.image.mode == "RGB"
    assert loaded.size == loaded.image.size
    if "size" in case:
        assert loaded.size == tuple(case["size"])
    if "probe" in case:
        assert _distance(loaded.image, case["probe"]) <= case.get("tol", 12), _corners(loaded.image)


def test_given_cases_are_captioned_where_that_is_the_first_choice() -> None:
    """``also_ok`` allows refusals; these are the only pictures for which we need it."""
    refused = set()
    for case in _CASES:
        try:
            read_image(CASES / case["file"])
        except ImageError:
            if case["expect"] == "caption":
                refused.add(case["file"])
    assert refused == {"images/plain.tga", "images/favicon.ico"}


@pytest.mark.parametrize(
    ("file", "format", "notes"),
    [
        ("stereo_mpo.jpg", "JPEG", ()),
        ("jpeg_named.png", "JPEG", ()),
        ("plain.heic", "HEIF", ()),
        ("animated.webp", "WEBP", ("first of 2 frames",)),
        ("animated_600_frames.gif", "GIF", ("first of several frames",)),
        ("palette_transparent.gif", "GIF", ()),
        ("multipage.tif", "TIFF", ("first of several pages",)),
        ("gray16_be.tif", "TIFF", ()),
        ("float_hdr.tif", "TIFF", ("values from -100 to 3100 stretched to the visible range",)),
    ],
)
def test_format_and_notes(file: str, format: str, notes: tuple[str, ...]) -> None:
    loaded = read_image(CASES / "images" / file)
    assert (loaded.format, loaded.notes) == (format, notes)


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_every_orientation_is_turned_once(format: str, value: int) -> None:
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # members of Image.Transpose that undo the tag's turn
    stored = _quadrants() if value == 1 else _quadrants().transpose(Image.Transpose(undo[value]))
    loaded = load_image(encoded(stored, format, exif=_with_orientation(value)))
    assert loaded.size == loaded.image.size == (64, 48)
    assert _distance(loaded.image, _QUADRANTS) <= 24
    assert ImageOps.exif_transpose(loaded.image).size == (64, 48)  # nothing is left to turn


def test_heic_is_turned_once() -> None:
    pillow_heif = pytest.importorskip("pillow_heif", reason="the extra limner[heif] is not installed")
    buffer = io.BytesIO()
    stored = _quadrants().transpose(Image.Transpose.ROTATE_90)
    pillow_heif.from_pillow(stored).save(buffer, exif=_with_orientation(6).tobytes(), quality=95)
    loaded = load_image(buffer.getvalue())
    assert loaded.size == (64, 48)
    assert _distance(loaded.image, _QUADRANTS) <= 24


def test_heic_without_the_optional_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif.as_plugin", None)
    with pytest.raises(ImageError, match=r"pip install limner\[heif\]") as caught:
        read_image(CASES / "images/plain.heic")
    assert caught.value.code == "unsupported_format"


def test_draft_decodes_smaller_and_tells_the_full_size() -> None:
    jpeg = encoded(_quadrants(800, 600).transpose(Image.Transpose.ROTATE_90), "JPEG", exif=_with_orientation(6))
    loaded = load_image(jpeg, draft_px=150)
    assert (loaded.image.size, loaded.size) == ((200, 150), (800, 600))
    assert _distance(loaded.image, _QUADRANTS) <= 12
    assert load_image(jpeg, draft_px=151).image.size == (400, 300)
    assert load_image(jpeg, draft_px=700).image.size == (800, 600)
    assert load_image(encoded(_quadrants(800, 600), "PNG"), draft_px=150).image.size == (800, 600)


def test_a_strip_whose_resizing_would_take_gigabytes_is_refused() -> None:
    with pytest.raises(ImageError, match="65535 on a side") as caught:
        load_image(encoded(Image.new("1", (65_536, 1)), "PNG"))
    assert caught.value.code == "too_large"
    assert load_image(encoded(Image.new("1", (65_535, 1)), "PNG")).size == (65_535, 1)


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (ImageLimits(max_bytes=100), "too_large"),
        (ImageLimits(max_pixels=64 * 48 - 1), "too_large"),
        (ImageLimits(max_side_px=63), "too_large"),
        (ImageLimits(min_side_px=49), "too_small"),
    ],
)
def test_limits(limits: ImageLimits, code: str) -> None:
    data = encoded(_quadrants(), "PNG")
    exact = ImageLimits(max_bytes=len(data), max_pixels=64 * 48, max_side_px=64, min_side_px=48)
    assert load_image(data, exact).size == (64, 48)
    with pytest.raises(ImageError) as caught:
        load_image(data, limits)
    assert caught.value.code == code


@pytest.mark.parametrize("convert", [bytes, bytearray, memoryview])
def test_any_bytes_are_taken(convert: Any) -> None:
    assert load_image(convert(encoded(_quadrants(), "PNG"))).size == (64, 48)
    with pytest.raises(ImageError) as caught:
        load_image(convert(b""))
    assert caught.value.code == "empty"


def test_what_is_no_bytes_is_a_programming_error() -> None:
    with pytest.raises(TypeError):
        load_image(5)  # type: ignore[arg-type]


def test_only_image_errors_come_out_of_damaged_data() -> None:
    random_ = random.Random(20)
    originals = [path.read_bytes() for path in sorted((CASES / "images").iterdir()) if path.stat().st_size < 20_000]
    outcomes = set()
    for _ in range(300):
        data = bytearray(random_.choice(originals))
        for _ in range(random_.randint(1, 12)):
            place = random_.randrange(len(data))
            data[place : place + random_.randint(0, 8)] = random_.randbytes(random_.randint(1, 8))
        try:
            outcomes.add(load_image(data, ImageLimits(max_pixels=1_000_000)).image.mode)
        except ImageError as error:
            outcomes.add(error.code)
    assert {"RGB", "truncated", "not_an_image"} <= outcomes


def test_random_bytes_are_no_image() -> None:
    random_ = random.Random(21)
    for _ in range(100):
        with pytest.raises(ImageError) as caught:
            load_image(b"\x00" + random_.randbytes(random_.randint(0, 400)))
        assert caught.value.code == "not_an_image"


def test_threads_do_not_disturb_each_other_or_the_warning_filters() -> None:
    data = (CASES / "images/exif_offset_past_end.jpg").read_bytes()  # Pillow warns of its metadata
    before, failures = list(warnings.filters), []

    def load() -> None:
        try:
            for _ in range(40):
                load_image(data)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert list(warnings.filters) == before


_PEAK_SCRIPT = """
import re, sys
from models.errors import ImageError
from models.images import read_image
def peak_kib():  # of this program alone: ru_maxrss would begin with that of the process that started it
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
before = peak_kib()
for path in sys.argv[1:]:
    try:
        read_image(path)
    except ImageError:
        pass
assert "torch" not in sys.modules
sys.stdout.write(str((peak_kib() - before) // 1024))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_bombs_cost_little_memory() -> None:
    bombs = [str(path) for path in sorted((CASES / "images").glob("bomb_*"))]
    assert len(bombs) == 4
    command = [sys.executable, "-c", _PEAK_SCRIPT, *bombs]
    peak_mib = subprocess.run(command, check=True, capture_output=True, text=True, cwd=CASES.parents[1]).stdout
    assert int(peak_mib) < 40


def _unreadable(path: Path | str) -> str:
    with pytest.raises(ImageError) as caught:
        read_image(path)
    assert caught.value.code == "unreadable"
    return caught.value.detail


def test_paths_that_are_no_readable_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "forest.png").mkdir()
    (tmp_path / "dangling.png").symlink_to(tmp_path / "nowhere.png")
    assert "not a regular file" in _unreadable(tmp_path / "pipe.png")
    assert "directory" in _unreadable(tmp_path / "forest.png")
    assert "No such file" in _unreadable(tmp_path / "dangling.png")
    assert "missing.png" in _unreadable(tmp_path / "missing.png")
    assert "too long" in _unreadable(tmp_path / ("x" * 300))
    assert "not a regular file" in _unreadable("/dev/null")
    _unreadable("nul\0byte.png")


def test_files_and_links_to_files_are_read_and_errors_name_them(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9\n.png")  # a name that is not UTF-8, with a line break
    odd.write_bytes(encoded(_quadrants(), "PNG"))
    (tmp_path / "link.png").symlink_to(odd)
    assert read_image(odd).size == read_image(str(tmp_path / "link.png")).size == (64, 48)
    odd.write_bytes(b"hello")
    with pytest.raises(ImageError, match="not_an_image") as caught:
        read_image(odd)
    assert caught.value.detail.isprintable()
    assert "caf\\udce9\\n.png" in caught.value.detail


def test_size_of_a_file_is_checked_before_it_is_read(tmp_path: Path) -> None:
    sparse = tmp_path / "huge.png"
    with sparse.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ImageError, match=str(1 << 40)) as caught:
        read_image(sparse)
    assert caught.value.code == "too_large"


def test_the_format_of_a_file_is_told_by_its_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    path.write_bytes(encoded(Image.new("RGB", (2, 2)), "JPEG") + bytes(DEFAULT_LIMITS.max_bytes))
    assert sniff_file(path) == "JPEG"
    for content, code in ((b"", "not_an_image"), (b"%PDF-1.7", "unsupported_format"), (b"<html>", "not_an_image")):
        path.write_bytes(content)
        with pytest.raises(ImageError, match="large.png'") as refused:
            sniff_file(path)
        assert refused.value.code == code
    with pytest.raises(ImageError, match="it is not a regular file|Is a directory") as refused:
        sniff_file(tmp_path)
    assert refused.value.code == "unreadable"
