"""Files that are whole or absent, also where a link leads to them."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from serving.folders.unfinished import drafted, sweep, whole
from tests.serving.folders.support import limner, write_pictures

LEFT = ".0123456789abcdef.limner-unfinished"
_KILLED = """
import os, signal, sys
from pathlib import Path
from serving.folders.unfinished import whole
with whole(Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGKILL)
"""
NAMES = [f"{number:02d}.png" for number in range(12)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "pictures", *NAMES)


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    with pytest.raises(ZeroDivisionError), whole(tmp_path / "file") as other:
        other.write_text("half")
        raise ZeroDivisionError
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "before")]


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "metadata.jsonl"])
def test_an_output_that_is_a_link_stays_one(folder: Path, tmp_path: Path, name: str) -> None:
    for place in ("there", "here"):
        (tmp_path / place).mkdir()
    link, file = tmp_path / "here" / name, tmp_path / "there" / "captions"
    link.symlink_to("../there/captions")  # which is not there yet
    words = [folder, "--out", link, "--workers", "0"]
    assert limner(*words) == 0
    before = file.read_bytes()
    assert before.count(b"\n") >= 12 and link.is_symlink()
    (folder / "broken.png").write_bytes(b"<html>")
    assert [limner(*words) for _ in range(2)] == [1, 1]  # the second finds a failure to take out
    assert link.is_symlink() and set(before.splitlines()) <= set(file.read_bytes().splitlines())
    assert {path.name for path in file.parent.iterdir()} == {"captions"}
    (tmp_path / "there" / "captions").unlink()
    (tmp_path / "there").rmdir()
    assert limner(*words) == 2


def leave_one(folder: Path) -> None:
    """What a run leaves that was killed while it wrote."""
    subprocess.run([sys.executable, "-c", _KILLED, folder / "x"], check=False)
    assert len(left_in(folder)) == 1


def left_in(folder: Path) -> list[Path]:
    return list(folder.rglob(".*.limner-unfinished"))


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "metadata", "webdataset", "txt", "txt beside"])
def test_a_run_that_completes_removes_what_killed_ones_left(folder: Path, tmp_path: Path, kind: str) -> None:
    out = {"webdataset": tmp_path / "out", "txt": tmp_path / "out", "txt beside": folder}.get(
        kind, tmp_path / "out" / "x"
    )
    place = out if out.is_dir() else tmp_path / "out"
    place.mkdir(exist_ok=True)
    leave_one(place)
    where = [] if kind == "txt beside" else ["--out", out]
    assert limner(folder, "--format", kind.split()[0], *where, "--workers", "0") == 0
    assert not left_in(tmp_path)


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_also_where_a_link_leads_to_the_output(folder: Path, tmp_path: Path, kind: str) -> None:
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    link = tmp_path / "here" / f"x.{kind}"
    link.symlink_to("../there/captions")
    leave_one(tmp_path / "there")
    assert limner(folder, "--out", link, "--workers", "0") == 0
    assert not left_in(tmp_path)


def test_what_another_run_is_writing_stays(tmp_path: Path) -> None:
    with drafted(tmp_path / "shard") as (other, file), whole(tmp_path / "file") as under_way:
        file.write(b"half")
        under_way.write_text("new")  # opens it once more, and closes that
        sweep(tmp_path)
        assert other.exists() and under_way.exists()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"shard": "half", "file": "new"}


def test_only_files_of_ours_are_removed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    (tmp_path / LEFT).symlink_to("precious")
    others = {".7.limner-unfinished", "0123456789abcdef.limner-unfinished", f"{LEFT}.txt"}
    for name in others:
        (tmp_path / name).touch()
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"precious", LEFT, *others}
    os.mkfifo(tmp_path / LEFT.replace("0", "f"))
    sweep(tmp_path)  # does not wait
    sweep(tmp_path / "nothing")


def test_a_file_that_was_swept_before_it_was_locked_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, times = fcntl.flock, 0

    def swept_first(file: object, how: int) -> None:
        nonlocal times
        times += 1
        if times == 1:
            for path in left_in(tmp_path):
                path.unlink()
        if times == 2:
            raise BlockingIOError
        lock(file, how)  # type: ignore[arg-type]

    monkeypatch.setattr(fcntl, "flock", swept_first)
    with whole(tmp_path / "file") as other:
        other.write_text("new")
    assert times == 3 and [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "new")]
