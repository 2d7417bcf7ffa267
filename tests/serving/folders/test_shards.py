"""WebDataset shards: the training reader takes them, new ones follow old ones, others' archives are left alone."""

import json
import tarfile
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from models.errors import RequestError
from serving.folders import shards as module
from serving.folders.outputs import Destination, Existing, open_output
from serving.folders.pictures import Picture
from tests.serving.folders.support import (
    as_nobody,
    become_nobody,
    ending,
    limner,
    listed,
    row,
    write_out,
    write_pictures,
)
from tests.serving.support import png
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
        assert [member.name for member in (picture, text, about)] == ["a.png", "a.txt", "a.json"]
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


def names(out: Path) -> list[str]:
    found = []
    for path in sorted(out.glob("*.tar")):
        with tarfile.open(path) as archive:
            found += archive.getnames()[::3]
    return found


def test_samples_are_called_as_their_pictures_and_each_once(tmp_path: Path) -> None:
    source = write_pictures(tmp_path / "pictures", "a.jpg", "a.png", "a_png.png", "v1.2/b.c.png", "d", "sub/a.jpg")
    found = listed(source, recursive=True)
    write_out("webdataset", tmp_path / "out", found, [row(each.name, "one") for each in found])
    assert names(tmp_path / "out") == [
        *("a.jpg", "a_png.png", "a_png_png.png", "d.png", "sub/a.jpg", "v1_2/b_c.png"),
    ]
    other = [Picture(name, str(source / "a.jpg")) for name in ("/a.jpg", "../a.bmp", "a.tif")]
    write_out("webdataset", tmp_path / "out", other, [row(each.name, "one") for each in other])
    assert names(tmp_path / "out")[6:] == ["a_jpg.jpg", "a_bmp.bmp", "a_tif.tif"]
    dataset = read_dataset("webdataset", {"path": "*.tar", "images_root": tmp_path / "out"})
    assert len({example.image_id for example in dataset.splits["train"]}) == 9


def test_pictures_that_are_gone_in_the_end_are_told(folder: Path, tmp_path: Path) -> None:
    output = open_output("webdataset", Destination(tmp_path / "out"))
    found = listed(folder)
    with ending(output):
        output.open(go_on=False)
        output.begin()
        output.write([(each, row(each.name, "one")) for each in found])
        (folder / "b.png").unlink()
        (folder / "c.png").unlink()
        lost = output.finish(each for each in found if each.name != "c.png")  # not even listed any more
    assert {each["file_name"]: each["error"]["code"] for each in lost} == {"b.png": "unreadable", "c.png": "unreadable"}
    assert all("was captioned, but is in no shard: " in each["error"]["detail"] for each in lost)
    assert not any(each["captions"] for each in lost)
    assert held(tmp_path / "out") == {"00000.tar": ["a", "d", "e"], "00001.tar": ["f", "g"]}


def test_a_run_counts_them_as_failed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = module.Shards.finish

    def finish(self: module.Shards, pictures: Iterable[Picture]) -> list[dict[str, Any]]:
        (folder / "b.png").unlink()
        return real(self, pictures)

    monkeypatch.setattr(module.Shards, "finish", finish)
    assert limner(folder, "--format", "webdataset", "--out", tmp_path / "out", "--workers", "0") == 1
    error, line = capsys.readouterr().err.splitlines()
    assert "'b.png' was captioned, but is in no shard" in error and line.startswith("6 captioned; 1 failed (")


def test_rows_wait_on_the_disk_not_in_memory(tmp_path: Path) -> None:
    found = [Picture(f"{number}.png", "b.tar", in_archive=True, data=png()) for number in range(600)]
    output = open_output("webdataset", Destination(tmp_path / "out"))
    with ending(output):
        output.open(go_on=False)
        output.begin()
        output.write([(each, row(each.name, "x" * 20_000)) for each in found])
        tracemalloc.start()
        output.finish(iter(found))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4 << 20  # of 12 MB


def test_shards_in_a_folder_that_cannot_be_listed_are_not_written_over() -> None:
    with as_nobody() as place:
        source = write_pictures(place / "pictures", *(f"{name}.png" for name in "ab"))
        out = place / "out"
        write(out, source, "a")
        before = (out / "00000.tar").read_bytes()
        out.chmod(0o733)
        become_nobody()
        with pytest.raises(RequestError, match="cannot be listed: Permission denied"):
            write(out, source, "b")
        assert out.joinpath("00000.tar").read_bytes() == before
