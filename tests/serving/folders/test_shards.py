"""WebDataset shards: the training reader takes them, new ones follow old ones, others' archives are left alone."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from models.errors import RequestError
from serving.folders import shards as module
from serving.folders.outputs import Existing
from tests.serving.folders.support import listed, row, write_out, write_pictures
from training.data import read_dataset


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "pictures", *(f"{name}.png" for name in "abcdefg"))


@pytest.fixture(autouse=True)
def _three_in_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_PICTURES", 3)


def write(out: Path, source: Path, names: str, **options: Any) -> list[str]:
    rows = [row(f"{name}.png", f"{name} one", "two") for name in names]
    found = [picture for picture in listed(source) if picture.name[0] in names]
    return [each["file_name"][0] for each in write_out("webdataset", out, found, rows, **options)]


def held(out: Path) -> dict[str, list[str]]:
    """The pictures of each shard."""
    found = {}
    for path in sorted(out.glob("*.tar")):
        with tarfile.open(path) as archive:
            rows = [archive.extractfile(name) for name in archive.getnames() if name.endswith(".json")]
            found[path.name] = [json.load(file)["file_name"][0] for file in rows if file]
    return found


def test_the_reader_of_data_sets_takes_them(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, folder, "abcdefg")
    assert held(out) == {"00000.tar": ["a", "b", "c"], "00001.tar": ["d", "e", "f"], "00002.tar": ["g"]}
    assert {path.name for path in out.iterdir()} == set(held(out))
    dataset = read_dataset("webdataset", {"path": "*.tar", "images_root": out})
    assert [example.captions for example in dataset.splits["train"]] == [(f"{name} one",) for name in "abcdefg"]
    assert not dataset.report.defects
    with tarfile.open(out / "00000.tar") as archive:
        picture, text, about = archive.getmembers()[:3]
        assert [member.name.split(".")[1] for member in (picture, text, about)] == ["png", "txt", "json"]
        file = archive.extractfile(picture)
        assert file is not None and file.read() == (folder / "a.png").read_bytes()
        file = archive.extractfile(about)
        assert file is not None and json.load(file) == row("a.png", "a one", "two")


def test_new_shards_follow_those_that_are_there(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, folder, "abcd")
    (out / "00000.tar").unlink()  # moved elsewhere, say
    assert write(out, folder, "cdefg") == ["c", "e", "f", "g"]
    assert held(out) == {"00001.tar": ["d"], "00002.tar": ["c", "e", "f"], "00003.tar": ["g"]}
    assert write(out, folder, "cdefg") == []


def test_overwrite_leaves_no_shard_of_before(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, folder, "abcdefg")
    write(out, folder, "gf", existing=Existing.OVERWRITE)
    assert held(out) == {"00000.tar": ["f", "g"]}


def test_a_killed_run_goes_on(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed amid the pictures, then amid the shards: what one of them holds is in no other."""
    out = tmp_path / "out"
    write(out, folder, "abcde", killed=True)
    assert held(out) == {}
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        real, calls = module._add, 0

        def add(*arguments: Any) -> int:
            nonlocal calls
            calls += 1
            if calls == 5:
                raise RuntimeError
            return real(*arguments)

        patch.setattr(module, "_add", add)
        write(out, folder, "abcdefg", go_on=True)
    assert held(out) == {"00000.tar": ["a", "b", "c"]}
    assert write(out, folder, "abcdefg", go_on=True) == []
    assert held(out) == {"00000.tar": ["a", "b", "c"], "00001.tar": ["d", "e", "f"], "00002.tar": ["g"]}
    assert not list(out.glob(".*"))


@pytest.mark.parametrize("existing", [Existing.SKIP, Existing.OVERWRITE])
def test_archives_of_others_are_refused_and_untouched(folder: Path, tmp_path: Path, existing: Existing) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with tarfile.open(out / "00000.tar", "w") as archive:
        archive.add(folder / "a.png", "a.png")
    before = (out / "00000.tar").read_bytes()
    with pytest.raises(RequestError, match="is no shard of captions .*: move it"):
        write(out, folder, "a", existing=existing)
    assert (out / "00000.tar").read_bytes() == before
    (out / "00000.tar").rename(out / "2017.tar")
    write(out, folder, "a", existing=existing)
    assert (out / "2017.tar").read_bytes() == before


def test_failures_are_not_in_them(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    rows = [row("a.png", error="truncated"), row("b.png", "one")]
    write_out("webdataset", out, listed(folder)[:2], rows)
    assert held(out) == {"00000.tar": ["b"]}


def test_odd_names_make_plain_keys(tmp_path: Path) -> None:
    source = write_pictures(tmp_path / "pictures", b"no \xff.v1.PNG", "b.json", "c", "d.txt", "../pictures/e\n.png")
    found = listed(source)
    write_out("webdataset", tmp_path / "out", found, [row(each.name, "one") for each in found])
    names = []
    for path in sorted((tmp_path / "out").iterdir()):
        with tarfile.open(path) as archive:
            names += archive.getnames()
    assert [name for name in names if name.endswith(".png")] == names[::3]
    assert {name.split(".", 1)[1] for name in names} == {"png", "txt", "json"}


def test_a_picture_that_is_named_twice_is_there_once(folder: Path, tmp_path: Path) -> None:
    write_out("webdataset", tmp_path / "out", listed(folder)[:1] * 2, [row("a.png", "one")])
    assert held(tmp_path / "out") == {"00000.tar": ["a"]}


def test_a_picture_that_is_gone_by_the_end_is_left_out(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, folder, "ab", killed=True)
    (folder / "a.png").unlink()
    write(out, folder, "ab", go_on=True)
    assert held(out) == {"00000.tar": ["b"]}


def test_a_file_is_no_folder(folder: Path) -> None:
    with pytest.raises(RequestError, match="cannot be a folder: File exists"):
        write(folder / "a.png", folder, "a")
