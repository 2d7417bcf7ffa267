"""Files, folders, archives, lists and standard input as streams of pictures."""

import gzip
import io
import json
import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from models.errors import RequestError
from models.images import DEFAULT_LIMITS
from serving.folders.pictures import Picture
from serving.folders.sources import Sources
from tests.serving.folders.support import HOSTILE_NAMES, as_nobody, become_nobody, limner, listed, write_pictures
from tests.serving.support import png


def names(found: list[Picture]) -> list[str]:
    return [picture.name for picture in found]


def stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_picture_is_called_by_its_path(tmp_path: Path) -> None:
    write_pictures(tmp_path, "a.png")
    [picture] = listed(tmp_path / "a.png")
    assert picture == Picture(str(tmp_path / "a.png"), str(tmp_path / "a.png"))


def test_equal_names_within_several_paths_are_told_apart(tmp_path: Path) -> None:
    one, two = (write_pictures(tmp_path / name, "a.png", "sub/b.png") for name in ("one", "two"))
    found = listed(one, two, recursive=True)
    assert names(found) == [str(folder / name) for folder in (one, two) for name in ("a.png", "sub/b.png")]
    archives = [write_tar(tmp_path / f"{name}.tar", {"a.png": png()}) for name in ("one", "two")]
    assert names(listed(*archives)) == [f"{archive}/a.png" for archive in archives]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a.png\nsub/b.png\n", ["a.png", "sub/b.png"]),
        (b"\xef\xbb\xbfa.png\r\n\r\n  \r\nsub/b.png", ["a.png", "sub/b.png"]),
        (b"# a comment is a name\n", ["# a comment is a name"]),
        (b" a.png \n", [" a.png "]),
        (b"not utf-8 \xff.png\n", ["not utf-8 \udcff.png"]),
        (b"nul\0.png\n", ["nul\0.png"]),
        (b"", []),
    ],
)
def test_a_list_has_a_path_per_line_relative_to_it(tmp_path: Path, content: bytes, expected: list[str]) -> None:
    (tmp_path / "LIST.TXT").write_bytes(content)
    found = listed(tmp_path / "LIST.TXT")
    assert names(found) == expected
    assert [picture.path for picture in found] == [os.path.join(tmp_path, name) for name in expected]
    assert all(picture.named for picture in found)


def test_absolute_paths_and_folders_in_a_list_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"/elsewhere/a.png\n{tmp_path}\n")
    assert [picture.path for picture in listed(tmp_path / "list.txt")] == ["/elsewhere/a.png", str(tmp_path)]


def test_a_json_list_names_its_pictures_under_one_of_three_keys(tmp_path: Path) -> None:
    lines = [
        b'\xef\xbb\xbf{"file_name": "a.png", "text": "known"}\r\n',
        b"\n",
        b'{"path": "b.png"}\n',
        b'{"image": "c \\ud83d\\ude00.png"}\n',
        b'{"file_name": "half \\ud83d.png"}\n',
        b"\0\0\0\n",
        b'{"file_name": 7}\n',
        b"[1]\n",
        b"not json \xff\n",
        b"[" * 100_000 + b"\n",
        b'{"file_name": "last.png"}',
    ]
    path = tmp_path / "list.jsonl"
    path.write_bytes(b"".join(lines))
    found = listed(path)
    good = [picture.name for picture in found if picture.error is None]
    assert good == ["a.png", "b.png", "c \U0001f600.png", "half \ud83d.png", "last.png"]
    bad = {picture.name: picture.error for picture in found if picture.error is not None}
    assert list(bad) == [f"{path}:{number}" for number in (7, 8, 9, 10)]
    assert {error.code for error in bad.values()} == {"unreadable"}
    detail = f"line 7 of {str(path)!r} is no JSON object with a text in file_name or path or image"
    assert bad[f"{path}:7"].detail == detail


@pytest.mark.parametrize("name", ["list.txt", "list.jsonl"])
def test_a_list_that_cannot_be_read_fails_in_its_turn(name: str) -> None:
    with as_nobody() as place:
        write_pictures(place, "a.png", name)
        (place / name).chmod(0)
        become_nobody()
        found = listed(place / name, place / "a.png")
        assert [picture.error and picture.error.code for picture in found] == ["unreadable", None]


def test_a_list_is_read_as_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    with path.open("wb") as file:
        file.writelines(b"%d.png\n" % number for number in range(50_000))
    found = iter(Sources([str(path)]))
    assert next(found).name == "0.png"
    with path.open("ab") as file:
        file.write(b"added later.png\n")
    assert sum(1 for _ in found) == 50_000


def test_standard_input_has_a_path_per_line_or_between_nuls(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin(monkeypatch, b"a.png\r\nsub/b.png\n\nc.png")
    assert names(listed("-")) == ["a.png", "sub/b.png", "c.png"]
    hostile = [*HOSTILE_NAMES, b"carriage return\r"]
    stdin(monkeypatch, b"\0".join([*hostile, b""]))
    found = list(Sources(["-"], null=True))
    assert [os.fsencode(picture.name) for picture in found] == hostile


def test_standard_input_that_is_closed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(RequestError, match="'-' is standard input, which is closed"):
        Sources(["-"]).check()
    with pytest.raises(RequestError, match="which is closed"):
        Sources([__file__, "-"]).check()


@pytest.mark.parametrize("null", [False, True])
def test_lines_of_standard_input_come_as_they_are_written(monkeypatch: pytest.MonkeyPatch, null: bool) -> None:
    """Somebody may feed it by and by."""
    ours, theirs = os.pipe()
    with open(theirs, "wb", buffering=0) as writer, open(ours, "rb") as reader:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(reader))
        found = iter(Sources(["-"], null=null))
        for name in (b"a.png", b"b.png"):
            writer.write(name + (b"\0" if null else b"\n"))
            assert next(found).name == name.decode()


def write_tar(path: Path, members: dict[str, bytes], *more: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix in (".gz", ".tgz") else "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in more:
            archive.addfile(member)
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize("name", ["a.tar", "A.TAR", "a.tar.gz", "a.tgz"])
def test_pictures_of_an_archive_in_its_order(tmp_path: Path, name: str) -> None:
    members = {"b/2.JPG": png("blue"), "2.txt": b"blue", "2.json": b"{}", "a/1.png": png("red"), "cls": b"7"}
    path = write_tar(tmp_path / name, members)
    sources = Sources([str(path)])
    found = list(sources)
    assert names(found) == ["b/2.JPG", "a/1.png"]
    assert [picture.data for picture in found] == [png("blue"), png("red")]
    assert all(picture.in_archive and picture.path == str(path) for picture in found)
    assert sources.skipped == {"other member": 3}


def test_members_that_are_no_files_or_litter_are_left_out(tmp_path: Path) -> None:
    path = write_tar(
        tmp_path / "a.tar",
        {"a.png": png(), "._a.png": b"x", "__MACOSX/._a.png": b"x", ".hidden/a.png": png(), "./b.png": png()},
        special("link.png", tarfile.SYMTYPE, "/etc/passwd"),
        special("hard.png", tarfile.LNKTYPE, "a.png"),
        special("fifo.png", tarfile.FIFOTYPE),
        special("device.png", tarfile.CHRTYPE),
        special("folder.png", tarfile.DIRTYPE),
    )
    sources = Sources([str(path)])
    assert names(list(sources)) == ["a.png", "./b.png"]
    assert sources.skipped == {"other member": 5, "hidden": 2, "system file": 1}


def test_names_of_members_are_names_only(tmp_path: Path) -> None:
    """Nothing is unpacked; what lies in the file system under such a name is not touched."""
    hostile = ["../../up.png", "/etc/root.png", "same.png", "not utf-8 \udcff.png"]
    path = write_tar(tmp_path / "a.tar", {name: png() for name in hostile})
    with tarfile.open(path, "a") as archive:
        again = tarfile.TarInfo("same.png")
        again.size = 5
        archive.addfile(again, io.BytesIO(b"other"))
    found = listed(path)
    assert names(found) == [*hostile, "same.png"]
    assert found[-1].data == b"other"


def test_a_member_that_is_too_large_is_passed_over(tmp_path: Path) -> None:
    huge = tarfile.TarInfo("huge.png")
    huge.size = DEFAULT_LIMITS.max_bytes + 1
    path = tmp_path / "a.tgz"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(huge, io.BytesIO(bytes(huge.size)))
    path = write_and_append(path, "after.png")
    first, second = listed(path)
    assert first.error is not None and (first.error.code, first.data) == ("too_large", None)
    assert second.name == "after.png"


def write_and_append(path: Path, name: str) -> Path:
    """The compressed archive with one more member, as another file."""
    content = gzip.decompress(path.read_bytes())
    plain = path.with_name("plain.tar")
    plain.write_bytes(content)
    with tarfile.open(plain, "a") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(png())
        archive.addfile(member, io.BytesIO(png()))
    return plain


@pytest.mark.parametrize("name", ["a.tar", "a.tgz"])
@pytest.mark.parametrize("damage", ["cut", "empty", "other", "header"])
def test_a_damaged_archive_is_one_failure_after_what_could_be_read(tmp_path: Path, name: str, damage: str) -> None:
    path = write_tar(tmp_path / "whole.tar", {f"{n}.png": os.urandom(3_000) for n in range(9)})
    content = path.read_bytes()
    third = 2 * 3_584
    if damage == "header":
        content = content[:third] + bytes(range(256)) * 2 + content[third + 512 :]
    if name.endswith("z"):
        content = gzip.compress(content)
    (path := tmp_path / name).write_bytes(
        {"cut": content[: len(content) // 2], "empty": b"", "other": b"<html>" * 500, "header": content}[damage]
    )
    found = listed(path)
    error = found[-1].error
    assert error is not None and error.code == "unreadable"
    assert error.detail.startswith(f"the archive {str(path)!r} is cut short or damaged (")
    assert all(picture.error is None for picture in found[:-1])
    assert len(found) < 9 and (damage != "cut" or len(found) > 1)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_header_of_gigabytes_is_not_read(tmp_path: Path, kind: bytes) -> None:
    """It is a few kilobytes of zeros compressed."""
    header = tarfile.TarInfo("huge")
    header.type, header.size = kind, 200 << 20
    path = tmp_path / "a.tgz"
    with gzip.open(path, "wb", 1) as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            member = tarfile.TarInfo("before.png")
            member.size = len(png())
            archive.addfile(member, io.BytesIO(png()))
            archive.fileobj.write(header.tobuf())  # type: ignore[union-attr]
        for _ in range(200):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    found = listed(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [each.error and each.error.code for each in found] == [None, "unreadable"]
    assert found[1].error and "a header of 209715200 bytes" in found[1].error.detail
    assert peak < 4 << 20


def test_headers_of_headers_without_end_are_a_damaged_archive(tmp_path: Path) -> None:
    header = tarfile.TarInfo("more")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 512
    (tmp_path / "a.tar").write_bytes((header.tobuf() + b"x" * 512) * 5_000)
    [found] = listed(tmp_path / "a.tar")
    assert found.error is not None and found.error.code == "unreadable"


def test_long_names_and_many_members_are_read_within_bounds(tmp_path: Path) -> None:
    members = {f"{'long/' * 60}{number}.png": b"x" for number in range(3_000)}
    path = write_tar(tmp_path / "a.tar", members)
    tracemalloc.start()
    assert sum(1 for _ in Sources([str(path)])) == 3_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_archives_in_a_folder_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tar(tmp_path / "a.tar", {"a.png": png()})
    write_tar(tmp_path / "b.TGZ", {"b.png": png()})
    assert limner(tmp_path, "--workers", "0") == 2
    told = "(archives are read where they are named themselves); left out: 2 archive"
    assert told in capsys.readouterr().err
    write_pictures(tmp_path, "c.png")
    assert limner(tmp_path, "--out", tmp_path / "x.jsonl", "--workers", "0") == 0
    assert "left out: 2 archive; archives are read where they are named themselves" in capsys.readouterr().err


def test_an_archive_with_nothing_in_it(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", {})
    with pytest.raises(RequestError, match="no pictures in"):
        Sources([str(path)]).check()


def test_what_looks_like_a_list_or_an_archive_and_is_a_folder(tmp_path: Path) -> None:
    for name in ("a.tar", "b.txt", "c.jsonl"):
        write_pictures(tmp_path / name, "x.png")
        assert names(listed(tmp_path / name)) == ["x.png"]


def test_nothing_to_caption_is_told_before_a_picture_is_opened(tmp_path: Path) -> None:
    def refusal(*paths: Path) -> str:
        with pytest.raises(RequestError) as refused:
            Sources([str(path) for path in paths]).check()
        return refused.value.detail

    (tmp_path / "empty").mkdir()
    assert refusal(tmp_path / "nowhere") == f"{str(tmp_path / 'nowhere')!r} does not exist"
    assert refusal(tmp_path / "empty") == f"no pictures in {str(tmp_path / 'empty')!r}"
    write_pictures(tmp_path / "full", "sub/a.png", ".DS_Store")
    where = str(tmp_path / "full")
    hint = "(-r looks into subfolders too); left out: 1 folder, 1 hidden"
    assert refusal(tmp_path / "full") == f"no pictures in {where!r} {hint}"
    (tmp_path / "list.txt").write_text("\n\n")
    assert refusal(tmp_path / "list.txt") == f"no pictures in {str(tmp_path / 'list.txt')!r}"


def test_a_place_that_may_not_be_searched_is_not_called_absent() -> None:
    with as_nobody() as place:
        write_pictures(place / "closed", "a.png")
        (place / "closed").chmod(0)
        become_nobody()
        Sources([str(place / "closed" / "a.png")]).check()  # it fails in its turn, and says why


def test_how_many_there_are(tmp_path: Path) -> None:
    write_pictures(tmp_path, "a.png", "b.png", "c.png")
    sources = Sources([str(tmp_path)])
    assert sources.more_than(2) and not sources.more_than(3)
    assert Sources(["-"]).more_than(10**9)
    tar = write_tar(tmp_path / "a.tar", {"a.png": png()})
    assert sources.can_be_counted and not Sources([str(tar)]).can_be_counted and not Sources(["-"]).can_be_counted


def test_what_names_are_relative_to(tmp_path: Path) -> None:
    write_pictures(tmp_path, "a.png")
    tar = write_tar(tmp_path / "a.tar", {"a.png": png()})
    (tmp_path / "list.jsonl").write_text(json.dumps({"file_name": "a.png"}))
    root = str(tmp_path)
    assert [Sources([path]).root for path in (root, str(tar), f"{root}/list.jsonl")] == [root, str(tar), root]
    assert [Sources([path]).root for path in (f"{root}/a.png", "a.png", "-")] == [None, ".", "."]
    assert Sources([root, str(tar)]).root is None
    assert Sources([root, "a"]).root == "."
