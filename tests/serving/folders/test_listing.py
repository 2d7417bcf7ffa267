"""What may be a picture below a folder, and what is left out and counted."""

import os
import socket
import subprocess
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from serving.folders.listing import walk
from serving.folders.pictures import Picture
from tests.serving.folders.support import HOSTILE_NAMES, as_nobody, become_nobody, write_pictures


def look(folder: Path, recursive: bool = True) -> tuple[list[Picture], Counter[str]]:
    skipped: Counter[str] = Counter()
    return list(walk(str(folder), recursive, skipped)), skipped


def names(found: list[Picture]) -> list[str]:
    return [picture.name for picture in found]


def test_each_folder_in_order_of_its_names_bytes(tmp_path: Path) -> None:
    write_pictures(tmp_path, "b/2.png", "b/1.png", "a.png", "c.png", "B.png")
    found, skipped = look(tmp_path)
    assert names(found) == ["B.png", "a.png", "b/1.png", "b/2.png", "c.png"]
    assert [picture.path for picture in found] == [str(tmp_path / picture.name) for picture in found]
    assert not skipped
    found, skipped = look(tmp_path, recursive=False)
    assert (names(found), skipped) == (["B.png", "a.png", "c.png"], {"folder": 1})


def test_names_are_those_of_the_system_byte_for_byte(tmp_path: Path) -> None:
    write_pictures(tmp_path, *HOSTILE_NAMES)
    found, skipped = look(tmp_path)
    assert [os.fsencode(picture.name) for picture in found] == sorted(HOSTILE_NAMES)
    assert all(os.path.isfile(picture.path) and picture.named for picture in found) and not skipped


def test_litter_is_left_out_and_counted(tmp_path: Path) -> None:
    write_pictures(tmp_path, "a.png", ".hidden.png", "._a.png", ".git/x.png", "__MACOSX/a.png", "@eaDir/a.png")
    write_pictures(tmp_path, ".DS_Store", "Thumbs.db", "desktop.ini", "$RECYCLE.BIN/a.png", "Icon\r")
    found, skipped = look(tmp_path)
    assert (names(found), skipped) == (["a.png"], {"hidden": 4, "system file": 6})


def test_files_of_a_run_are_left_out_and_not_counted(tmp_path: Path) -> None:
    write_pictures(
        tmp_path, "a.png", ".a.csv.limner-journal", ".limner-journal", ".7.limner-unfinished", ".7.limner-run"
    )
    found, skipped = look(tmp_path)
    assert (names(found), skipped) == (["a.png"], {})


def test_only_suffixes_of_pictures_make_a_file_one_that_must_be_a_picture(tmp_path: Path) -> None:
    write_pictures(tmp_path, "A.JPG", "b.Jfif", "c", "d.txt", "e.tar.gz")
    found, _ = look(tmp_path)
    assert {picture.name: picture.named for picture in found} == {
        "A.JPG": True,
        "b.Jfif": True,
        "c": False,
        "d.txt": False,
        "e.tar.gz": False,
    }


def test_links_to_folders_are_not_followed_and_links_to_pictures_are(tmp_path: Path) -> None:
    write_pictures(tmp_path / "in", "sub/a.png")
    (tmp_path / "in" / "sub" / "up").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "linked.png").symlink_to("sub/a.png")
    (tmp_path / "in" / "broken.png").symlink_to("nowhere.png")
    (tmp_path / "in" / "loop.png").symlink_to("loop.png")
    found, skipped = look(tmp_path / "in")
    assert names(found) == ["broken.png", "linked.png", "loop.png", "sub/a.png"]  # broken ones fail when opened
    assert skipped == {"linked folder": 1}
    (tmp_path / "link").symlink_to("in")
    assert names(look(tmp_path / "link")[0]) == names(found)  # a link that was named is meant


def test_what_is_no_regular_file_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.png")
    (tmp_path / "folder.png").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "socket.png"))
        found, skipped = look(tmp_path)
    assert (names(found), skipped) == ([], {"not a regular file": 2})


def test_a_folder_that_cannot_be_listed_fails_in_its_turn() -> None:
    with as_nobody() as place:
        write_pictures(place, "a.png", "b/x.png", "c.png")
        (place / "b").chmod(0)
        become_nobody()
        found, _ = look(place)
        assert names(found) == ["a.png", "b", "c.png"]
        error = found[1].error
        assert error is not None
        assert (error.code, error.detail) == (
            "unreadable",
            f"the folder {str(place / 'b')!r} cannot be listed: Permission denied",
        )
        [root] = look(place / "b")[0]
        assert root.error is not None and root.name == str(place / "b")


def test_a_folder_that_vanishes_while_it_is_listed(tmp_path: Path) -> None:
    write_pictures(tmp_path, "a.png", "b/x.png", "c.png")
    found = walk(str(tmp_path), True, Counter())
    assert next(found).name == "a.png"
    (tmp_path / "b" / "x.png").unlink()
    (tmp_path / "b").rmdir()
    rest = list(found)
    assert names(rest) == ["b", "c.png"]  # by now it might be a file: it fails when opened
    assert not rest[0].named


@pytest.mark.parametrize("depth", [1_200, 5_000])
def test_folders_nest_as_deep_as_the_system_lets_them(tmp_path: Path, depth: int) -> None:
    """Deeper than Python's recursion goes; beyond the longest path the rest is one failure."""
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(os.open("a.png", os.O_CREAT, dir_fd=at))
    os.close(at)
    found, _ = look(tmp_path)
    [picture] = found
    fits = len(str(tmp_path)) + 2 * depth + len("/a.png") < os.pathconf("/", "PC_PATH_MAX")
    assert picture.named is fits and (picture.name == "d/" * depth + "a.png") is fits
    subprocess.run(["rm", "-r", tmp_path / "d"], check=True)  # what pytest would use to clean up has such a limit


def test_many_files_are_listed_in_little_memory_and_the_first_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more than the names of the folders on the way down is held, or asked for before the first is there."""
    write_pictures(tmp_path, "0/a.png")
    for number in range(1, 21):
        (tmp_path / str(number)).mkdir()
    asked: list[str] = []
    real = os.listdir

    def listdir(folder: str) -> list[str]:
        asked.append(folder)
        return real(folder) or [f"{number:06d}.png" for number in range(1_000)]

    monkeypatch.setattr(os, "listdir", listdir)
    found = walk(str(tmp_path), True, Counter())
    assert next(found).name == "0/a.png" and len(asked) == 2
    tracemalloc.start()
    try:
        assert sum(1 for _ in found) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 500_000  # all of them would take five million bytes
    finally:
        tracemalloc.stop()
