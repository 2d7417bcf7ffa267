"""The journal: what it says is done after its writer ended at any moment, and whose file it refuses."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from models.errors import RequestError
from serving.folders import journal as module
from serving.folders.journal import Journal
from serving.output import json_line
from tests.serving.folders.support import as_nobody, become_nobody, json_rows, no_space, row


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "captions.jsonl"


def done(path: Path, **options: Any) -> set[str]:
    """What a run would find done; the file is as that run would leave it."""
    journal = Journal(path)
    names = journal.open(**options)
    journal.close()
    return names


def names(path: Path) -> list[str]:
    return [row["file_name"] for row in json_rows(path)]


A, B, C = (json_line(row(name, f"caption of {name}")) for name in "abc")


def test_rows_are_in_the_file_as_soon_as_they_are_added(path: Path) -> None:
    journal = Journal(path)
    assert journal.open() == set()
    journal.append([row("a", "x"), row("b", error="truncated")])
    journal.append([])
    assert json_rows(path) == [row("a", "x"), row("b", error="truncated")] == list(journal.rows())
    journal.close()
    journal.close()
    assert done(path) == {"a"}
    assert names(path) == ["a"]  # what failed comes again


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (A + B, "ab"),
        (A + B[:-1], "a"),
        (A + B[:30], "a"),
        (A[:30], ""),
        (A[:5], ""),
        (A + b"\0" * 4096, "a"),
        (b"\0" * 4096, ""),
        (A + B[:30] + C, "a"),  # two in one line: which caption belongs to which cannot be told
        (A + B[:30] + b"\n" + C, "ac"),
        (b"\n\n" + A + b" \r\n" + B, "ab"),
        (A + b"\xff\xfe garbage\n" + B, "ab"),
        (b"\xef\xbb\xbf" + A.replace(b"\n", b"\r\n") + B, "ab"),
        (A + B + A, "ab"),
        (A + json_line(row("a", error="truncated")), ""),
        (json_line(row("a", error="truncated")) + A, "a"),
        (A + b"[" * 100_000 + b"\n" + B, "ab"),
        (b"", ""),
    ],
)
def test_what_is_done_after_any_end(path: Path, content: bytes, expected: str) -> None:
    path.write_bytes(content)
    assert done(path) == set(expected)
    if expected:
        assert sorted(names(path)) == sorted(expected)  # whole rows only, each once
        clean = path.read_bytes()
        assert done(path) == set(expected) and path.read_bytes() == clean
        journal = Journal(path)
        journal.open()
        journal.append([row("new", "x")])
        journal.close()
        assert sorted(names(path)) == sorted([*expected, "new"])
    else:
        assert not path.exists()  # an empty file says nothing


def test_every_cut_of_a_file_keeps_the_rows_before_it(path: Path) -> None:
    whole = A + B + C
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert len(done(path)) == whole[:length].count(b"\n")


def test_the_last_row_of_a_name_counts(path: Path) -> None:
    path.write_bytes(A + json_line(row("a", "another")))
    done(path)
    assert json_rows(path) == [row("a", "another")]


def test_names_of_any_bytes_and_half_surrogates(path: Path) -> None:
    hostile = ["two\nlines", "\udcff\udcfe", "\ud83d", "\U0001f431", "x" * 255]
    journal = Journal(path)
    journal.open()
    journal.append([row(name, "x") for name in hostile])
    journal.close()
    with path.open("ab") as file:
        file.write(b"\n")
    assert done(path) == set(hostile)
    assert done(path) == set(hostile)


@pytest.mark.parametrize(
    "content",
    [
        b"from an earlier run",
        b"a.png\nb.png\n",
        b'{"file_name": "a.png", "text": "of a data set"}\n',
        A + b'{"file_name": "b.png", "text": "of a data set"}\n',
        A + b'{"other": 1}\n',
        b'{"file_name": "", "captions": []}\n',
        b"[]\n",
        b"\x89PNG\r\n\x1a\n",
    ],
)
def test_a_file_of_something_else_is_refused_and_untouched(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(RequestError, match="holds something other than rows of captions: name another file"):
        done(path)
    assert path.read_bytes() == content
    assert done(path, fresh=True) == set()
    assert path.read_bytes() == content
    journal = Journal(path)
    journal.open(fresh=True)
    journal.clear()
    journal.close()
    assert not path.exists()


def test_rows_of_several_arms_are_rows(path: Path) -> None:
    path.write_bytes(json_line({"file_name": "a", "arms": [], "error": None}))
    assert done(path) == {"a"}


def test_one_process_writes_at_a_time(path: Path) -> None:
    path.write_bytes(A)
    first = Journal(path)
    first.open()
    with pytest.raises(RequestError, match="another run is writing '.*captions.jsonl'"):
        done(path)
    with pytest.raises(RequestError, match="another run is writing"):
        done(path, fresh=True)
    assert path.read_bytes() == A
    first.close()
    assert done(path) == {"a"}


def test_the_lock_holds_after_the_file_was_cleaned(path: Path) -> None:
    path.write_bytes(A + b"\n")
    first = Journal(path)
    first.open()
    with pytest.raises(RequestError, match="another run"):
        done(path)
    first.append([row("b", "x")])
    first.close()
    assert names(path) == ["a", "b"]


def test_a_file_that_another_run_puts_away_meanwhile_is_not_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its opening and its locking: rows would go to a file that has no name any more."""
    path.write_bytes(A)
    real, calls = fcntl.flock, 0

    def flock(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            path.unlink()
        if calls == 2:
            path.unlink()
            path.write_bytes(B)
        real(*arguments)

    monkeypatch.setattr(module.fcntl, "flock", flock)
    journal = Journal(path)
    assert journal.open() == {"b"} and calls == 3
    journal.append([row("c", "x")])
    journal.close()
    assert names(path) == ["b", "c"]


@pytest.mark.parametrize("kind", ["folder", "fifo", "missing", "device", "long"])
def test_what_cannot_be_a_journal(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.jsonl"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "missing":
        path = tmp_path / "nowhere" / "x.jsonl"
    elif kind == "device":
        path = Path("/dev/null")
    else:
        path = tmp_path / ("x" * 300)
    with pytest.raises(RequestError, match="is a folder|is not a regular file|cannot be written: (No such|File name)"):
        done(path, fresh=True)
    assert Path("/dev/null").is_char_device()


def test_without_the_right_to_write() -> None:
    with as_nobody() as place:
        path = place / "x.jsonl"
        path.write_bytes(A)
        path.chmod(0o444)
        become_nobody()
        for each in (path, place / "new.jsonl"):
            with pytest.raises(RequestError, match="cannot be written: Permission denied"):
                done(each)


def test_a_full_disk_leaves_whole_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(path)
    journal.open()
    journal.append([row("a", "x")])
    monkeypatch.setattr(module.os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        journal.append([row("b", "x")])
    journal.close()
    assert names(path) == ["a", "b"]


def test_rows_under_no_name_are_not_written(path: Path) -> None:
    """A removed, renamed or replaced file: whoever goes on would caption for nobody."""
    for take_away in (path.unlink, lambda: path.rename(path.with_name("old")), lambda: _replace(path)):
        journal = Journal(path)
        journal.open()
        journal.append([row("a", "x")])
        take_away()
        with pytest.raises(FileNotFoundError, match="was taken away while it was written") as error:
            journal.append([row("b", "x")])
        assert error.value.filename == str(path)
        journal.close()
        path.unlink(missing_ok=True)


def _replace(path: Path) -> None:
    path.unlink()
    path.write_bytes(A)


def test_a_file_that_somebody_took_away(path: Path) -> None:
    journal = Journal(path)
    journal.open()
    journal.append([row("a", "x")])
    path.unlink()
    journal.close()
    journal.remove()
    assert not path.exists()


def test_a_long_file(path: Path) -> None:
    with path.open("wb") as file:
        for number in range(20_000):
            file.write(b'{"file_name": "%d.png", "captions": [], "error": null}\n' % number)
        file.write(B[:20])
    assert len(done(path)) == 20_000
    assert path.read_bytes().count(b"\n") == 20_000
    assert json.loads(path.read_bytes().splitlines()[-1])["file_name"] == "19999.png"
