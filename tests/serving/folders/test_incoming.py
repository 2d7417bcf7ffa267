"""What is written to a pipe, as it is written."""

import io
import os
import tempfile

import pytest

from serving.folders import incoming
from serving.folders.incoming import as_they_come


@pytest.fixture(autouse=True)
def _short_lulls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "LULL_S", 0.01)


@pytest.mark.parametrize("end", [b"\n", b"\0"])
def test_pieces_and_the_moments_without_any(end: bytes) -> None:
    ours, theirs = os.pipe()
    with open(theirs, "wb", buffering=0) as writer, open(ours, "rb") as reader:
        found = as_they_come(reader, end)
        assert next(found) is None
        writer.write(b"a" + end + b"b" + end + b"c")
        assert [next(found) for _ in range(4)] == [b"a", b"b", None, None]
        writer.write(b"d" + end)
        assert next(found) == b"cd"
        writer.write(b"x" * 50_000 + end + b"last")
        writer.close()
        assert [piece for piece in found if piece is not None] == [b"x" * 50_000, b"last"]


def test_files_and_memory_have_no_such_moments() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"a\n\nb")
        file.seek(0)
        assert list(as_they_come(file, b"\n")) == [b"a", b"", b"b"]
    assert list(as_they_come(io.BytesIO(b"a\nb\n"), b"\n")) == [b"a", b"b"]
    assert list(as_they_come(io.BytesIO(b""), b"\n")) == []
