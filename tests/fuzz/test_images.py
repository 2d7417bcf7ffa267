"""Damaged pictures: an ImageError with its code or an RGB picture within the limits, in bounded time and memory."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import strategies as st

from models.errors import ImageError
from models.images import ImageLimits, load_image
from tests.fuzz.mutations import damaged_pictures, originals
from tests.fuzz.support import fuzz

_LIMITS = ImageLimits(max_pixels=2_000_000)
_MOST_MIB = 100
"""More than the process held before; 2 million pixels take up to 42 MB."""
_STATUS = Path("/proc/self/status")
_OF_DATA = {"empty", "not_an_image", "unsupported_format", "truncated", "too_large", "too_small"}


def _loads_or_says_why(data: bytes) -> None:
    with _bounded_memory():
        try:
            loaded = load_image(data, _LIMITS)
        except ImageError as error:
            assert error.code in _OF_DATA
            assert 0 < len(error.detail) < 500
            return
    assert loaded.image.mode == "RGB"
    assert loaded.image.size == loaded.size
    assert loaded.image.width * loaded.image.height <= _LIMITS.max_pixels
    assert loaded.image.info == {}
    assert len(loaded.image.tobytes()) == 3 * loaded.size[0] * loaded.size[1]


@contextmanager
def _bounded_memory() -> Iterator[None]:
    if not _STATUS.exists():  # no Linux
        yield
        return
    (_STATUS.parent / "clear_refs").write_text("5", encoding="ascii")  # forget the peak so far
    before = _memory_mib("VmRSS")
    yield
    assert _memory_mib("VmHWM") - before < _MOST_MIB


def _memory_mib(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+)", _STATUS.read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1]) // 1024


@pytest.mark.parametrize("data", originals(), ids=lambda data: f"{data[:8]!r}")
def test_the_undamaged_ones(data: bytes) -> None:
    _loads_or_says_why(data)


@fuzz(700, data=damaged_pictures())
def test_damaged_pictures(data: bytes) -> None:
    _loads_or_says_why(data)


@fuzz(200, head=st.sampled_from(sorted({data[:20] for data in originals()})), rest=st.binary(max_size=300))
def test_the_first_bytes_of_a_picture_and_then_anything(head: bytes, rest: bytes) -> None:
    _loads_or_says_why(head + rest)
