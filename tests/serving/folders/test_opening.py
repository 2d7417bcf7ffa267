"""Pictures opened by worker processes, or in this one, and what becomes of those that cannot be."""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from models.images import DEFAULT_LIMITS, LoadedImage
from serving.folders import opening
from serving.folders.opening import Opener, batches, open_picture
from serving.folders.pictures import Opened, Picture
from serving.messages import Failure
from tests.serving.folders.support import HOSTILE_NAMES, as_nobody, become_nobody, listed, write_pictures
from tests.serving.support import png


def failure(opened: Opened) -> Failure:
    assert isinstance(opened.content, Failure)
    return opened.content


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_picture_of_any_name_is_opened(tmp_path: Path, name: bytes) -> None:
    [picture] = listed(write_pictures(tmp_path, name))
    opened = open_picture(picture)
    assert isinstance(opened.content, LoadedImage) and opened.px == 24 * 16
    assert opened.picture == picture and opened.digest is None


def test_content_decides_and_not_the_suffix(tmp_path: Path) -> None:
    write_pictures(tmp_path, "a.jpg", "b.JPEG", "c", "d.txt")
    (tmp_path / "e.jpg").write_bytes(b"<html><body>404</body></html>")
    (tmp_path / "f.png").write_bytes(b"")
    (tmp_path / "g.webp").write_bytes(png()[:60])
    (tmp_path / "h.md").write_text("# notes")
    (tmp_path / "i").write_bytes(b"")
    (tmp_path / "j.pdf").write_bytes(b"%PDF-1.7")
    (tmp_path / "k.jpg").write_bytes(b"%PDF-1.7")
    (tmp_path / "l.dat").write_bytes(png()[:60])
    found = [open_picture(picture) for picture in listed(tmp_path)]
    assert all(isinstance(each.content, LoadedImage) for each in found[:4])
    told = {each.picture.name: failure(each).code for each in found[4:] if not each.is_no_picture}
    assert told == {
        "e.jpg": "not_an_image",
        "f.png": "empty",
        "g.webp": "truncated",
        "k.jpg": "unsupported_format",
        "l.dat": "truncated",
    }
    assert [each.picture.name for each in found if each.is_no_picture] == ["h.md", "i", "j.pdf"]
    assert all(repr(each.picture.path) in failure(each).detail for each in found[4:])


def test_what_is_no_picture_by_its_first_bytes_is_not_read_on(tmp_path: Path) -> None:
    """A film beside the pictures is no picture that is too large."""
    for name in ("film.mkv", "film.jpg"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(DEFAULT_LIMITS.max_bytes + 1)
    named, other = (open_picture(picture) for picture in listed(tmp_path))
    assert (failure(named).code, failure(other).code) == ("too_large", "not_an_image")
    assert other.is_no_picture and not named.is_no_picture


def test_what_cannot_be_opened_at_all(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.png")
    (tmp_path / "loop.png").symlink_to("loop.png")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "broken.png").symlink_to("nowhere")
    names = ["broken.png", "fifo.png", "folder.png", "loop.png", "missing.png", "nul\0.png", "half \ud83d.png"]
    for name in names:
        opened = open_picture(Picture(name, str(tmp_path / name)))
        assert failure(opened).code == "unreadable"
        assert repr(str(tmp_path / name)) in failure(opened).detail
    known = Failure("unreadable", "its source knew")
    assert failure(open_picture(Picture("a", "a", error=known))) == known


def test_without_the_right_to_read_it() -> None:
    with as_nobody() as place:
        write_pictures(place, "a.png")
        (place / "a.png").chmod(0)
        become_nobody()
        opened = open_picture(listed(place)[0])
        assert failure(opened) == Failure("unreadable", f"{str(place / 'a.png')!r} cannot be read: Permission denied")


def test_a_member_of_an_archive_leaves_its_bytes_behind() -> None:
    opened = open_picture(Picture("in/a.png", "b.tar", in_archive=True, data=png()), digest=True)
    assert isinstance(opened.content, LoadedImage) and opened.picture.data is None
    assert opened.digest == hashlib.sha256(png()).digest()
    bad = open_picture(Picture("in/a.png", "b.tar", in_archive=True, data=b"<html>"), digest=True)
    assert failure(bad).detail.startswith("'in/a.png' in 'b.tar': ")
    assert bad.digest == hashlib.sha256(b"<html>").digest()


def test_no_memory_for_a_picture_costs_that_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(opening, "read_bytes", none_left)
    [picture] = listed(write_pictures(tmp_path, "a.png"))
    assert failure(open_picture(picture)).code == "too_large"


def test_no_more_is_opened_ahead_than_was_asked_for(tmp_path: Path) -> None:
    write_pictures(tmp_path, *(f"{number:02d}.png" for number in range(40)))
    taken = 0

    def source() -> Iterator[Picture]:
        nonlocal taken
        for picture in listed(tmp_path):
            taken += 1
            yield picture

    with Opener(0, ahead=8) as opener:
        opened = opener.open(source())
        next(opened)
        assert taken == 1  # in this process nothing is


@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_waits_for_what_may_come_later(tmp_path: Path, workers: int) -> None:
    first, second, third = listed(write_pictures(tmp_path, "a.png", "b.png", "c.png"))
    asked: list[str] = []

    def source() -> Iterator[Picture | None]:
        for picture in (None, first, second, None, None, third):
            asked.append(picture.name if picture else "")
            yield picture

    with Opener(workers, ahead=8) as opener:
        found = batches(opener.open(source()), 8)
        assert [each.picture for each in next(found)] == [first, second]
        assert asked == ["", "a.png", "b.png", ""]
        assert [[each.picture for each in batch] for batch in found] == [[third]]


@pytest.mark.parametrize("workers", [0, 1])
def test_how_small_is_asked_once_and_only_for_pictures(tmp_path: Path, workers: int) -> None:
    (tmp_path / "a.txt").write_text("# notes")
    (tmp_path / "b").write_bytes(b"")
    asked: list[int] = []

    def draft_px() -> int:
        asked.append(60)
        return 60

    with Opener(workers, ahead=8, draft_px=draft_px) as opener:
        assert all(each is not None and each.is_no_picture for each in opener.open(listed(tmp_path)))
    assert asked == []
    for name in ("c.jpg", "d"):
        Image.new("RGB", (320, 240)).save(tmp_path / name, "JPEG")
    with Opener(workers, ahead=8, draft_px=draft_px) as opener:
        found = [each for each in opener.open(listed(tmp_path)) if each is not None]
    assert [each.px for each in found] == [0, 0, 80 * 60, 80 * 60]
    assert asked == [60]


def test_large_pictures_are_held_by_few() -> None:
    opener = Opener(0, ahead=100)
    assert opener._room([]) == 3  # before any was seen: as if of 64 million pixels
    assert opener._room([384]) == 100
    assert opener._room([384, 48_000_000]) == 4
    assert opener._room([10**12]) == 1


def test_worker_processes_keep_the_order_and_outlive_what_brings_one_down(tmp_path: Path) -> None:
    """One picture kills the process that opens it: it fails alone, those under way with it are opened again."""
    names = [f"{number:02d}.png" for number in range(12)]
    write_pictures(tmp_path, *names)
    (tmp_path / "05.png").write_bytes(b"no picture")
    with Opener(2, ahead=6, digest=True) as opener:
        pictures = [
            EndsItsProcess(each.name, each.path) if each.name in ("03.png", "08.png") else each
            for each in listed(tmp_path)
        ]
        found = list(opener.open(pictures))
        workers = [
            process for pool in (opener._pool, opener._single) if pool for process in (pool._processes or {}).values()
        ]
    assert [each.picture.name for each in found] == names
    told = {each.picture.name: failure(each).code for each in found if isinstance(each.content, Failure)}
    assert told == {"03.png": "unreadable", "05.png": "not_an_image", "08.png": "unreadable"}
    assert failure(found[3]).detail.endswith("brought its decoder down: it is damaged, or needs too much memory")
    assert found[0].digest == hashlib.sha256((tmp_path / "00.png").read_bytes()).digest()
    deadline = time.monotonic() + 30
    for worker in workers:  # not joined: its pool does that, and of two who wait for a process one is told nothing
        while worker.exitcode is None:
            assert time.monotonic() < deadline, f"{worker} has not ended"
            time.sleep(0.01)


class EndsItsProcess(Picture):
    """Stands for a picture whose decoder crashes: the process that it is sent to ends at once."""

    def __reduce__(self) -> tuple[object, ...]:
        return (os._exit, (1,))


def opened_of(*sides: int) -> list[Opened]:
    return [
        Opened(Picture(str(side), ""), LoadedImage(Image.new("L", (side, side)), (side, side), "PNG"))
        if side
        else Opened(Picture("no", "", named=False), Failure("not_an_image", ""))
        for side in sides
    ]


def test_a_batch_is_so_many_pictures_or_so_many_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "HELD_PX", 1_000)

    def sizes(*sides: int) -> list[list[int]]:
        return [[int(each.px**0.5) for each in batch] for batch in batches(iter(opened_of(*sides)), 3)]

    assert sizes(1, 2, 3, 4) == [[1, 2, 3], [4]]
    assert sizes(1, 0, 2, 0, 0, 3, 4) == [[1, 0, 2, 0, 0, 3], [4]]  # what is no picture comes along
    assert sizes(30, 11, 2, 40, 1) == [[30, 11], [2, 40], [1]]
    assert sizes() == []
    assert [len(batch) for batch in sizes(*[0] * 400)] == [192, 192, 16]
