"""Names of shards, and tars that are not as they should be."""

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models.errors import DataError
from tests.training.data.tiny import write_tar
from training.data.shards import find_shards, open_tar, read_shard


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["s-{00..02}.tar"], ["s-00.tar", "s-01.tar", "s-02.tar"]),
        (["s-{02..01}.tar"], ["s-02.tar", "s-01.tar"]),
        (["s-0{0,2}.tar"], ["s-00.tar", "s-02.tar"]),
        (["{s,t}-0{0..1}.tar"], ["s-00.tar", "s-01.tar", "t-00.tar", "t-01.tar"]),
        (["s-*.tar"], ["s-00.tar", "s-01.tar", "s-02.tar"]),
        (["t-0?.tar", "t-00.tar"], ["t-00.tar", "t-01.tar"]),
        (["n-{9..10}.tar"], ["n-9.tar", "n-10.tar"]),
        (["{x}.tar"], ["{x}.tar"]),
    ],
)
def test_patterns(tmp_path: Path, patterns: list[str], found: list[str]) -> None:
    touch(tmp_path, "s-00.tar", "s-01.tar", "s-02.tar", "t-00.tar", "t-01.tar", "n-9.tar", "n-10.tar", "{x}.tar")
    assert find_shards(patterns, tmp_path) == [tmp_path / name for name in found]


def test_a_folder_with_wildcards_in_its_name_is_a_folder(tmp_path: Path) -> None:
    touch(tmp_path / "a[1]*", "0.tar")
    assert find_shards(["*.tar"], tmp_path / "a[1]*") == [tmp_path / "a[1]*" / "0.tar"]


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("gone.tar", "there is no file .*gone.tar"),
        ("s-{0..1}.tar", r"s-1\.tar \(of s-\{0\.\.1\}\.tar\)"),
        ("x*.tar", "there is no file"),
        ("folder.tar", "there is no file"),
        ("pipe:touch owned; cat s-0.tar", "no command is run"),
        ("https://example.org/s-0.tar", "only local shards"),
        ("{0..999999999}.tar", "more than 100000 shards"),
    ],
)
def test_what_is_not_there_is_refused_by_name(tmp_path: Path, pattern: str, says: str) -> None:
    touch(tmp_path, "s-0.tar")
    (tmp_path / "folder.tar").mkdir()
    with pytest.raises(DataError, match=says) as caught:
        find_shards([pattern], tmp_path)
    assert caught.value.code == "no_data"
    assert not Path("owned").exists()


@pytest.mark.parametrize(
    ("pack", "says"),
    [
        (gzip.compress, "compressed by gzip"),
        (bz2.compress, "compressed by bzip2"),
        (lzma.compress, "compressed by xz"),
        (lambda content: b"<html>" + content, "is no plain tar"),
        (lambda content: b"", "empty file"),
    ],
)
def test_other_files_are_refused_by_what_they_are(tmp_path: Path, pack: Callable[[bytes], bytes], says: str) -> None:
    path = write_tar(tmp_path / "0.tar", {"1.txt": b"x"})
    path.write_bytes(pack(path.read_bytes()))
    with pytest.raises(DataError, match=says) as caught:
        open_tar(path)
    assert caught.value.code == "wrong_schema"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda content: content[:2048], "no end mark at byte 2048"),
        (lambda content: content[:2048] + b"x" * 512 + content[2048:], "no end mark at byte 2048"),
        (lambda content: content[:1300], "no end mark"),
        (lambda content: content[:1540], "it ends within 2.txt"),
        (lambda content: content, ""),
        (lambda content: content[:2560], ""),
    ],
)
def test_damage_is_told(tmp_path: Path, change: Callable[[bytes], bytes], says: str) -> None:
    path = write_tar(tmp_path / "0.tar", {"1.txt": b"x", "2.txt": b"y" * 10})
    path.write_bytes(change(path.read_bytes()))
    with open_tar(path) as tar:
        shard = read_shard(tar, path.stat().st_size)
    assert says in shard.damage and bool(says) == bool(shard.damage)
    assert list(shard.samples)[0] == "1"


def header(**fields: Any) -> bytes:
    member = tarfile.TarInfo("1.txt")
    for name, value in fields.items():
        setattr(member, name, value)
    return member.tobuf(tarfile.GNU_FORMAT if member.size < 0 else tarfile.PAX_FORMAT)


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (header(size=-512), "the header of 1.txt has a size below 0"),  # tarfile goes back by so much, for ever
        (header(pax_headers={"GNU.sparse.map": "a,b"}), "invalid literal"),
    ],
)
def test_headers_that_mean_harm_are_damage(tmp_path: Path, start: bytes, says: str) -> None:
    whole = write_tar(tmp_path / "0.tar", {"0.txt": b"x"}).read_bytes()
    for number, content in enumerate((whole[:1024] + start + whole, start + whole)):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(content)
        try:
            with open_tar(path) as tar:
                found = read_shard(tar, path.stat().st_size).damage
        except DataError as error:
            found = error.detail
        assert says in found


def test_links_and_repeated_members_are_told(tmp_path: Path) -> None:
    path = tmp_path / "0.tar"
    with tarfile.open(path, "w") as tar:
        for name, kind in (("a.png", tarfile.SYMTYPE), ("b.png", tarfile.LNKTYPE), ("c.png", tarfile.FIFOTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
        for name in ("d", "e.png", "e.PNG"):
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if name == "d" else tarfile.REGTYPE
            tar.addfile(member)
    with open_tar(path) as tar:
        shard = read_shard(tar, path.stat().st_size)
    assert {key: list(members) for key, members in shard.samples.items()} == {"e": ["png"]}
    assert shard.odd == [
        *((f"{key}.png", "member is not a regular file") for key in "abc"),
        ("e.PNG", "member is there twice"),
    ]
