"""run.json: counts, state, and what it refuses for the sake of captions that are there."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from models.errors import RequestError
from serving.folders.done import Done
from serving.folders.outputs import Destination, Existing
from serving.folders.summary import RunFile, Summary
from tests.serving.folders.support import as_nobody, become_nobody, row

OPTIONS: dict[str, Any] = {
    "models": [{"model": "fake", "decode": {"name": "beam", "options": {"beams": 3}}}],
    "score": False,
}


def run_file(place: Path, kind: str = "jsonl", root: str | None = None, **options: Any) -> RunFile:
    existing = options.pop("existing", Existing.SKIP)
    return RunFile(kind, Destination(place, existing, apart=kind == "txt"), {**OPTIONS, **options}, root)


def written(place: Path, state: Any = "finished", **options: Any) -> Path:
    """The output and its record, as a run leaves them."""
    place.touch()
    run_file(place, **options).write(state, Summary())
    return place


def record(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return content


def test_counts_of_a_run() -> None:
    summary = Summary(copies=1, done=Counter({Done.BEFORE: 2, Done.NAMED_AGAIN: 1}))
    for each in (row("a", "x"), row("b", error="empty"), row("\udcff", error="empty"), row("c", error="truncated")):
        summary.add(each)
    summary.skipped["hidden"] += 3
    assert (summary.captioned, summary.failed, summary.pictures) == (1, 3, 7)
    assert summary.failures == {"empty": ["b", "\\xff"], "truncated": ["c"]}
    assert summary.line().startswith(
        "1 captioned (1 of them copies of others); 3 failed; 2 done before; 1 named again; left out: 3 hidden ("
    )


def test_the_record_of_a_run(tmp_path: Path) -> None:
    summary = Summary()
    summary.add(row("a", "x"))
    summary.add(row("b", error="empty"))
    file = run_file(tmp_path / "x.jsonl", root=str(tmp_path / "pictures"))
    file.write("running", summary)
    assert record(tmp_path)["state"] == "running" and record(tmp_path)["ended"] is None
    file.write("finished", summary)
    found = record(tmp_path)
    assert (found["state"], found["output"]) == ("finished", "x.jsonl")
    assert found["counts"] == {
        **{"captioned": 1, "copies": 0, "failed": 1},
        **{"done_before": 0, "named_again": 0, "left_out": {}},
    }
    assert found["failures"] == {"empty": ["b"]}
    assert found["options"] == {**OPTIONS, "format": "jsonl", "existing": "skip", "pictures_of": "pictures"}
    assert found["began"] <= found["ended"] and found["images_per_s"] > 0 and found["seconds"] >= 0
    assert {path.name for path in tmp_path.iterdir()} == {"run.json"}


@pytest.mark.parametrize(("state", "expected"), [("running", True), ("stopped", True), ("finished", False)])
def test_only_a_run_that_did_not_end_goes_on(tmp_path: Path, state: str, expected: bool) -> None:
    place = written(tmp_path / "x.jsonl", state)
    assert run_file(place).goes_on() is expected
    assert not run_file(place, score=True).goes_on()
    assert not run_file(place, existing=Existing.OVERWRITE).goes_on()
    assert not run_file(tmp_path / "y.jsonl").goes_on()


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b" \n"])
def test_a_record_that_a_power_failure_emptied_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    file = run_file(tmp_path / "x.jsonl")
    file.check()
    file.check_options()
    assert not file.goes_on()
    file.write("finished", Summary())


@pytest.mark.parametrize("content", [b'{"name": "mine"}', b"[1]", b"not json", b"\xff", b"[" * 100_000])
def test_a_file_of_others_under_this_name_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RequestError, match="run.json' is not of limner.*: move it, or name another --out"):
        run_file(tmp_path / "x.jsonl").check()


def test_a_folder_that_takes_no_record_is_told_before_anything_is_written() -> None:
    with as_nobody() as place:
        (place / "x.jsonl").touch(0o666)
        place.chmod(0o555)
        become_nobody()
        with pytest.raises(
            RequestError, match="run.json', the record of the run, cannot be written: its folder is read-only"
        ):
            run_file(place / "x.jsonl").check()


def test_other_options_are_refused_by_name(tmp_path: Path) -> None:
    place = written(tmp_path / "x.jsonl")
    run_file(place).check_options()

    def refusal(**options: Any) -> str:
        with pytest.raises(RequestError) as refused:
            run_file(place, **options).check_options()
        return refused.value.detail

    hint = ": name another --out, or --existing overwrite"
    assert refusal(score=True) == f"'x.jsonl' holds captions made with score false, not true{hint}"
    other = [{"model": "fake", "decode": {"name": "beam", "options": {"beams": 5}}}]
    assert refusal(models=other) == f"'x.jsonl' holds captions made with beams 3, not 5{hint}"
    assert "models " in refusal(models=[*OPTIONS["models"], other[0]])
    assert "made with new null, not 1" in refusal(new=1)


def test_pictures_of_another_folder_are_refused(tmp_path: Path) -> None:
    """Their names are relative: the captions of one folder would pass for those of the other."""
    place = written(tmp_path / "x.jsonl", root=str(tmp_path / "one"))
    run_file(place, root=f"{tmp_path}/two/../one/").check_options()
    for root in (str(tmp_path / "two"), None):
        with pytest.raises(RequestError, match='made with pictures_of "one", not '):
            run_file(place, root=root).check_options()
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    run_file(moved / "x.jsonl", root=str(moved / "one")).check_options()


@pytest.mark.parametrize(
    ("kind", "state", "refused"),
    [
        ("metadata", "finished", False),
        ("metadata", "stopped", True),
        ("txt", "stopped", False),
        ("csv", "finished", True),
    ],
)
def test_where_others_may_write_as_well_only_what_waits_is_held(
    tmp_path: Path, kind: str, state: str, refused: bool
) -> None:
    place = tmp_path if kind == "txt" else tmp_path / "metadata.jsonl"
    written(place, state, kind=kind)
    file = run_file(place, kind, score=True)
    if refused:
        with pytest.raises(RequestError, match="made with score false, not true"):
            file.check_options()
    else:
        file.check_options()
    elsewhere = run_file(place, kind, root="/elsewhere")
    with pytest.raises(RequestError, match="pictures_of"):
        elsewhere.check_options()


def test_captions_that_are_gone_hold_nothing(tmp_path: Path) -> None:
    written(tmp_path / "x.jsonl").unlink()
    run_file(tmp_path / "x.jsonl", score=True).check_options()


def test_several_outputs_of_one_folder_keep_their_records(tmp_path: Path) -> None:
    """A run of another file in between, and the first still goes on."""
    stopped = written(tmp_path / "x.csv", "stopped", kind="csv")
    for name in ("y.jsonl", "z.jsonl", "y.jsonl"):
        written(tmp_path / name, score=True)
    assert set(record(tmp_path)["others"]) == {"x.csv", "z.jsonl"}
    assert run_file(stopped, "csv").goes_on()
    with pytest.raises(RequestError, match="'z.jsonl' holds captions made with score true, not false"):
        run_file(tmp_path / "z.jsonl").check_options()
    written(stopped, kind="csv")
    assert set(record(tmp_path)["others"]) == {"y.jsonl", "z.jsonl"} and not run_file(stopped, "csv").goes_on()
