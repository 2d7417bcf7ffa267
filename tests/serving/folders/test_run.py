"""Whole runs: what they tell and how they end; stopped, killed or out of room they go on where they were."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from models.errors import CheckpointError
from serving.folders.done import Done
from serving.folders.job import FolderJob
from serving.folders.outputs import Destination, open_output
from serving.folders.run import LocalStage, run
from serving.folders.sources import Sources
from serving.folders.summary import Summary
from serving.local_models import Wish
from tests.serving.folders.support import ending, json_rows, limner, write_pictures

ROOT = Path(__file__).parents[3]
NAMES = [f"{number:02d}.png" for number in range(12)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "pictures", *NAMES)


def record(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return content


def names(path: Path) -> list[str]:
    return [row["file_name"] for row in json_rows(path)]


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever loads a model fails."""

    def load(self: FolderJob) -> None:
        raise CheckpointError("missing_file", "a model was loaded")

    monkeypatch.setattr(FolderJob, "load", load)


def test_a_run_and_the_same_again(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x.jsonl"
    assert limner(folder, "--out", out, "--batch-size", "5", "--workers", "0") == 0
    assert names(out) == NAMES
    assert capsys.readouterr().err.startswith("12 captioned; 0 failed (")
    assert record(tmp_path)["state"] == "finished" and record(tmp_path)["counts"]["captioned"] == 12


def test_what_is_all_done_loads_no_model(
    folder: Path, tmp_path: Path, no_model: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.jsonl"
    out.write_text("".join(json.dumps({"file_name": name, "captions": [], "error": None}) + "\n" for name in NAMES))
    before = out.read_bytes()
    assert limner(folder, "--out", out) == 0
    assert capsys.readouterr().err.startswith("0 captioned; 0 failed; 12 done before (")
    assert out.read_bytes() == before
    assert limner(folder, "--out", tmp_path / "new.jsonl", "--workers", "0") == 2
    assert capsys.readouterr().err == "error: missing_file: a model was loaded\n"
    assert record(tmp_path)["output"] == "x.jsonl"  # there is no run of the other to tell of


@pytest.mark.parametrize("existing", ["overwrite", "skip"])
@pytest.mark.parametrize("kind", ["jsonl", "csv", "webdataset"])
def test_a_run_that_cannot_begin_leaves_what_was_there(folder: Path, tmp_path: Path, kind: str, existing: str) -> None:
    out = tmp_path / "out" / ("shards" if kind == "webdataset" else f"x.{kind}")
    out.parent.mkdir()
    words = ["--format", kind, "--out", out, "--workers", "0"]
    assert limner(folder, *words) == 0
    before = {path: path.read_bytes() for path in out.parent.rglob("*") if path.is_file()}
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "readme.md").write_text("no picture")
    assert limner(tmp_path / "none", *words, "--existing", existing) == 2
    assert limner(folder, *words, "--existing", existing, "--score", "--scorer", "nosuch") in (1, 2)
    assert {path: path.read_bytes() for path in out.parent.rglob("*") if path.is_file()} == before


def test_both_sidecars_of_a_picture_have_runs_of_their_own(folder: Path) -> None:
    places = [open_output(kind, Destination(folder)) for kind in ("txt", "caption")]
    for place in places:
        place.open(go_on=False)
    assert len(list(folder.glob(".*limner-journal"))) == 2
    for place in places:
        place.close()


def test_the_record_is_no_place_for_captions(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert limner(folder, "--out", tmp_path / "run.json", "--format", "jsonl") == 2
    assert "run.json is where the record of the run goes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["{tmp}/nowhere"], "'{tmp}/nowhere' does not exist"),
        (["{tmp}/empty"], "no pictures in '{tmp}/empty'"),
        (["{tmp}/other"], "no pictures in '{tmp}/other'; left out: 2 not a picture"),
        (
            ["{tmp}/pictures", "--out", "{tmp}/nowhere/x.jsonl"],
            "{tmp}/nowhere/x.jsonl' cannot be written: No such",
        ),
        (["{tmp}/pictures", "--format", "txt", "--out", "{tmp}/file"], "'{tmp}/file' cannot be a folder: File exists"),
        (["{tmp}/pictures", "--out", "/dev/null", "--format", "jsonl"], "'/dev/null' is not a regular file"),
        (["{tmp}/pictures", "--out", "", "--format", "csv"], "--out '.' is a folder: name a file in it"),
        (["{tmp}/pictures", "--out", "/", "--format", "jsonl"], "--out '/' is a folder: name a file in it"),
        (["{tmp}/pictures", "--min-clip-score", "nan"], "min_clip_score: nan is no score"),
        (["{tmp}/pictures", "--out", "{tmp}/mine/x.csv"], "'{tmp}/mine/run.json' is not of limner"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line_before_a_model_loads(
    folder: Path, tmp_path: Path, no_model: None, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    for name in ("empty", "other", "mine"):
        (tmp_path / name).mkdir()
    for path in ("other/notes.txt", "other/page.html", "file", "mine/run.json"):
        (tmp_path / path).write_text("<html>")
    assert limner(*(word.format(tmp=tmp_path) for word in words)) == 2
    [line] = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("error: invalid_request: ") and why.format(tmp=tmp_path) in line


def test_nothing_but_failures_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name in ("a.jpg", "b.jpg"):
        (folder / name).write_text("<html>")
    assert limner(folder, "--out", tmp_path / "x.jsonl", "--workers", "0") == 1
    *failures, line = capsys.readouterr().err.splitlines()
    assert [failure.split(":")[1] for failure in failures] == [" not_an_image"] * 2
    assert line.startswith("0 captioned; 2 failed (")
    assert record(tmp_path)["failures"] == {"not_an_image": ["a.jpg", "b.jpg"]}
    assert [row["error"]["code"] for row in json_rows(tmp_path / "x.jsonl")] == ["not_an_image"] * 2


def test_other_options_than_those_of_the_captions_that_are_there(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [folder, "--out", tmp_path / "x.jsonl", "--workers", "0"]
    assert limner(*words) == 0
    before = (tmp_path / "x.jsonl").read_bytes()
    capsys.readouterr()
    assert limner(*words, "--option", "beams=2") == 2
    assert "'x.jsonl' holds captions made with beams 3, not 2: name another --out" in capsys.readouterr().err
    other = write_pictures(tmp_path / "other", NAMES[3])
    assert limner(other, *words[1:]) == 2
    assert 'made with pictures_of "pictures", not "other"' in capsys.readouterr().err
    assert (tmp_path / "x.jsonl").read_bytes() == before
    assert limner(*words, "--option", "beams=2", "--existing", "overwrite") == 0


def test_one_of_several_equal_pictures_is_captioned(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "twin.png").write_bytes((folder / NAMES[0]).read_bytes())
    assert limner(folder, "--out", tmp_path / "x.jsonl", "--dedupe", "--workers", "0") == 0
    rows = {row["file_name"]: row["captions"] for row in json_rows(tmp_path / "x.jsonl")}
    assert len(rows) == 13 and rows["twin.png"] == rows[NAMES[0]]
    assert capsys.readouterr().err.startswith("13 captioned (1 of them copies of others); 0 failed (")
    assert record(tmp_path)["counts"]["copies"] == 1


@pytest.mark.parametrize("kind", ["jsonl", "csv", "txt"])
def test_what_a_list_names_twice_is_not_what_was_done_before(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    names = tmp_path / "names.txt"
    words = [names, "--format", kind, "--workers", "0", *(() if kind == "txt" else ("--out", tmp_path / f"x.{kind}"))]
    for listed, told in (
        ("ab", "2 captioned; 0 failed ("),
        ("abcbac", "1 captioned; 0 failed; 2 done before; 3 named again ("),
    ):
        names.write_text("".join(f"{folder}/{NAMES['abc'.index(each)]}\n" for each in listed))
        assert limner(*words) == 0
        assert capsys.readouterr().err.startswith(told)


def parts(folder: Path, out: Path, kind: str, until: Callable[[Summary], bool]) -> tuple[bool, Summary]:
    """A run that is asked to stop when ``until`` says so."""
    summary = Summary()
    job = FolderJob(Wish("fake"), device="cpu", threads=1)
    output = open_output(kind, Destination(out))
    with ending(output):
        output.open(go_on=True)
        stage = LocalStage(job.load, batch_size=2, workers=0)
        finished = run(Sources([str(folder)]), stage, output, summary, stop=lambda: until(summary))
    return finished, summary


@pytest.mark.parametrize("kind", ["jsonl", "csv", "txt"])
def test_a_run_that_was_stopped_goes_on(folder: Path, tmp_path: Path, kind: str) -> None:
    out = folder if kind == "txt" else tmp_path / f"x.{kind}"
    finished, summary = parts(folder, out, kind, lambda summary: summary.captioned >= 4)
    assert not finished and 4 <= summary.captioned < 12
    finished, rest = parts(folder, out, kind, lambda summary: False)
    assert finished and rest.captioned + rest.done[Done.BEFORE] == 12
    assert (rest.captioned, rest.done[Done.BEFORE]) == (12 - summary.captioned, summary.captioned)


def test_pictures_that_come_and_go_meanwhile(folder: Path, tmp_path: Path) -> None:
    def until(summary: Summary) -> bool:
        if summary.captioned == 2:
            (folder / NAMES[-1]).unlink(missing_ok=True)
        return False

    finished, summary = parts(folder, tmp_path / "x.jsonl", "jsonl", until)
    assert finished and summary.captioned == 11 and summary.failures == {"unreadable": [NAMES[-1]]}


@contextmanager
def tmpfs(place: Path, bytes_: int) -> Iterator[Path]:
    """A disk of its own, or a skipped test where mounting is not allowed."""
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={bytes_}", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "txt"])
def test_a_full_disk_is_told_in_one_line_and_the_run_goes_on_later(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    with tmpfs(tmp_path / "disk", 64 * 1024) as disk:
        filler = disk / "filler"
        where = ["--out", disk / name, *(["--format", "txt"] if name == "txt" else [])]
        words = [folder, *where, "--workers", "0", "--batch-size", "1"]
        filler.write_bytes(bytes((64 - 8 - 8 * (name == "txt")) * 1024))
        assert limner(*words, "--num-captions", "3") == 1
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
        assert len(lines) == 1 and lines[0].startswith(f"error: {disk}") and "No space left on device" in lines[0]
        filler.unlink()
        assert limner(*words, "--num-captions", "3") == 0
        told = capsys.readouterr().err
        assert "0 failed" in told
        if name == "x.jsonl":
            assert sorted(names(disk / name)) == NAMES and "done before" in told
        assert not list(disk.rglob(".*"))


class Typed:
    """``limner caption`` in a process of its own, which is fed names one by one."""

    def __init__(self, out: Path, workers: int, batch_size: int = 1) -> None:
        words = [
            "--model",
            "fake",
            "--device",
            "cpu",
            "--batch-size",
            str(batch_size),
            "--workers",
            str(workers),
            "--out",
            str(out),
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "models.cli", "caption", "-", *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.out = out
        self.told: list[str] = []
        assert self.process.stderr is not None
        self._reader = threading.Thread(target=lambda: self.told.extend(self.process.stderr or ()), daemon=True)
        self._reader.start()

    def feed(self, *names: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.writelines(f"{name}\n" for name in names)
        self.process.stdin.flush()

    def wait_for_rows(self, number: int) -> None:
        give_up = time.monotonic() + 120
        while not self.out.exists() or self.out.read_bytes().count(b"\n") < number:
            assert self.process.poll() is None and time.monotonic() < give_up, self.told
            time.sleep(0.02)

    def end(self) -> tuple[int, str]:
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(120)
        self._reader.join(30)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code, "".join(self.told)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_cleanly(folder: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    out = tmp_path / "x.jsonl"
    paths = [str(folder / name) for name in NAMES]
    typed = Typed(out, workers=0)
    typed.feed(*paths[:4])
    typed.wait_for_rows(2)
    typed.process.send_signal(number)
    assert typed.process.wait(120) == code  # whoever writes the names has not ended, and may never
    ended, told = typed.end()
    assert ended == code and "stopping when" in told
    assert told.splitlines()[-1] == "stopped: the same command goes on from here"
    content = out.read_bytes()
    assert content.endswith(b"\n") and names(out) == paths[: content.count(b"\n")] != []
    assert record(tmp_path)["state"] == "stopped" and record(tmp_path)["counts"]["captioned"] == len(names(out))


def test_names_that_come_by_and_by_are_not_kept_waiting(folder: Path, tmp_path: Path) -> None:
    """Neither for a batch nor for what is opened ahead of it."""
    out = tmp_path / "x.jsonl"
    paths = [str(folder / name) for name in NAMES]
    typed = Typed(out, workers=1, batch_size=8)
    for number in (1, 2, 5):
        typed.feed(*paths[len(names(out)) if out.exists() else 0 : number])
        typed.wait_for_rows(number)
    assert typed.end()[0] == 0
    assert names(out) == paths[:5]


def test_no_worker_outlives_a_run_that_was_killed(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    paths = [str(folder / name) for name in NAMES]
    typed = Typed(out, workers=2)
    typed.feed(*paths[:8])
    typed.wait_for_rows(2)
    workers = psutil.Process(typed.process.pid).children(recursive=True)
    assert len(workers) >= 2
    typed.process.kill()
    assert typed.end()[0] == -signal.SIGKILL
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive
    assert record(tmp_path)["state"] == "running"
    before = names(out)
    again = Typed(out, workers=0)
    again.feed(*paths)
    assert again.end()[0] == 0
    assert sorted(names(out)) == paths and names(out)[: len(before)] == before


def test_a_folder_is_listed_once_and_once_to_count(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    real = os.listdir

    def listdir(path: str) -> list[str]:
        listed.append(str(path))
        return real(path)

    monkeypatch.setattr("serving.folders.listing.os.listdir", listdir)
    assert limner(folder, "--out", tmp_path / "x.jsonl", "--batch-size", "16") == 0
    assert 1 <= listed.count(str(folder)) <= 2
