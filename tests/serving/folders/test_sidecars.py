"""Captions beside their pictures: what is kept, what is added, what is told apart."""

import os
import threading
from pathlib import Path

import pytest

from models.errors import RequestError
from serving.folders import sidecars as module
from serving.folders.outputs import Destination, Existing, open_output
from serving.folders.pictures import Picture
from tests.serving.folders.support import (
    HOSTILE_NAMES,
    as_nobody,
    become_nobody,
    listed,
    no_space,
    row,
    write_out,
    write_pictures,
)

SKIP, OVERWRITE, APPEND, PREPEND = Existing.SKIP, Existing.OVERWRITE, Existing.APPEND, Existing.PREPEND


def beside(folder: Path, *texts: str, existing: Existing = SKIP, **options: bool) -> list[str | None]:
    """One run over a folder, with these captions of every picture; the codes of what failed."""
    found = [picture for picture in listed(folder, recursive=True) if picture.named]
    rows = write_out("txt", folder, found, [row(each.name, *texts) for each in found], existing=existing, **options)
    return [each["error"] and each["error"]["code"] for each in rows]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_pictures(tmp_path, "a.png", "sub/b.JPG")


def test_a_text_beside_each_picture_and_nothing_else(folder: Path) -> None:
    assert beside(folder, "one", "two\n  lines ") == [None, None]
    assert (folder / "a.txt").read_bytes() == (folder / "sub" / "b.txt").read_bytes() == b"one\ntwo lines\n"
    assert {path.name for path in folder.rglob("*")} == {"a.png", "a.txt", "sub", "b.JPG", "b.txt"}
    assert beside(folder, "other") == []


def test_the_other_suffix(folder: Path) -> None:
    found = listed(folder)
    write_out("caption", folder, found, [row("a.png", "one")])
    assert (folder / "a.caption").read_bytes() == b"one\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"new\n"),
        (b" \r\n\t", b"new\n"),
        (b"\xef\xbb\xbf", b"new\n"),
        (b"\0" * 40, b"new\n"),
        (b"torn by a power fail\0\0\0", b"new\n"),
        (b"kept", b"kept"),
        (b"\xef\xbb\xbfkept \r\n", b"\xef\xbb\xbfkept \r\n"),
        (b"caf\xe9", b"caf\xe9"),
        ("ä".encode("utf-16"), "ä".encode("utf-16")),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
    ],
)
def test_captions_that_are_there_stay_byte_for_byte(folder: Path, before: bytes, after: bytes) -> None:
    (folder / "a.txt").write_bytes(before)
    beside(folder, "new")
    assert (folder / "a.txt").read_bytes() == after
    assert (folder / "sub" / "b.txt").read_bytes() == b"new\n"


@pytest.mark.parametrize(
    ("existing", "before", "after"),
    [
        (OVERWRITE, b"old\n", b"new\n"),
        (APPEND, b"old", b"old\nnew\n"),
        (APPEND, b"old\r\nolder\r\n", b"old\r\nolder\nnew\n"),
        (APPEND, b"\xef\xbb\xbfold\n", b"\xef\xbb\xbfold\nnew\n"),
        (APPEND, b"caf\xe9\n", b"caf\xe9\nnew\n"),
        (APPEND, b"", b"new\n"),
        (PREPEND, b"old", b"new\nold"),
        (PREPEND, b"old\r\n", b"new\nold\r\n"),
        (PREPEND, b"\xef\xbb\xbfold\n", b"\xef\xbb\xbfnew\nold\n"),
        (PREPEND, b"\0\0", b"new\n"),
    ],
)
def test_what_becomes_of_them_and_twice_is_once(folder: Path, existing: Existing, before: bytes, after: bytes) -> None:
    (folder / "a.txt").write_bytes(before)
    for _ in range(2):
        assert beside(folder, "new", existing=existing) == [None, None]
        assert (folder / "a.txt").read_bytes() == after
        assert (folder / "sub" / "b.txt").read_bytes() == b"new\n"


@pytest.mark.parametrize("existing", [APPEND, PREPEND])
def test_several_captions_are_added_once_together(folder: Path, existing: Existing) -> None:
    (folder / "a.txt").write_bytes(b"old\n")
    for _ in range(2):
        beside(folder, "one", "two", existing=existing)
    expected = [b"old", b"one", b"two"] if existing is APPEND else [b"one", b"two", b"old"]
    assert (folder / "a.txt").read_bytes().splitlines() == expected


@pytest.mark.parametrize("existing", [OVERWRITE, APPEND, PREPEND])
@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "äb".encode("utf-16-le")])
def test_what_is_no_text_is_never_written_over(folder: Path, existing: Existing, content: bytes) -> None:
    (folder / "a.txt").write_bytes(content)
    assert beside(folder, "new", existing=existing) == ["unwritable", None]
    assert (folder / "a.txt").read_bytes() == content


def test_utf_16_is_not_added_to(folder: Path) -> None:
    (folder / "a.txt").write_bytes("ä".encode("utf-16"))
    assert beside(folder, "new", existing=APPEND) == ["unwritable", None]
    assert beside(folder, "new", existing=OVERWRITE) == [None, None]


def test_pictures_that_differ_in_suffix_only_have_texts_of_their_own(tmp_path: Path) -> None:
    names = ["a.jpg", "A.png", "b.jpg", "b", "c.jpg", "c.jpg.png", "d.jpg", "d.md", "e.jpg"]
    write_pictures(tmp_path, *names, "e/x.png")
    found = listed(tmp_path)
    write_out("txt", tmp_path, found, [row(each.name, each.name) for each in found])
    texts = {path.name: path.read_text().strip() for path in tmp_path.glob("*.txt")}
    assert texts == {
        "a.jpg.txt": "a.jpg",
        "A.png.txt": "A.png",
        "b.jpg.txt": "b.jpg",
        "b.txt": "b",
        "c.txt": "c.jpg",
        "c.jpg.png.txt": "c.jpg.png",
        "d.txt": "d.jpg",
        "d.md.txt": "d.md",
        "e.txt": "e.jpg",
    }


def test_an_entry_that_cannot_be_looked_at_does_not_make_pictures_share_a_text(tmp_path: Path) -> None:
    write_pictures(tmp_path, "a.jpg", "a.png")
    (tmp_path / "self").symlink_to("self")
    assert beside(tmp_path, "new") == [None, None]
    assert {path.name for path in tmp_path.glob("*.txt")} == {"a.jpg.txt", "a.png.txt"}


def test_in_a_folder_that_cannot_be_listed_each_picture_has_a_text_of_its_own() -> None:
    with as_nobody() as place:
        folder = write_pictures(place / "pictures", "a.jpg", "a.png")
        folder.chmod(0o733)
        become_nobody()
        found = [picture for name in ("a.jpg", "a.png") for picture in listed(folder / name)]
        rows = write_out("txt", folder, found, [row(each.name, each.name) for each in found])
        assert [each["error"] for each in rows] == [None, None]
        assert (folder / "a.jpg.txt").read_text() != (folder / "a.png.txt").read_text()


def test_names_that_the_system_takes(tmp_path: Path) -> None:
    write_pictures(tmp_path, *HOSTILE_NAMES)
    assert set(beside(tmp_path, "new")) == {None}
    assert len(list(tmp_path.glob("*.txt"))) == len(HOSTILE_NAMES)


def test_a_name_without_room_for_the_suffix_fails_alone(tmp_path: Path) -> None:
    write_pictures(tmp_path, "x" * 255, "y" * 250 + ".jpeg", "a.png")
    found = listed(tmp_path)
    rows = write_out("caption", tmp_path, found, [row(each.name, "new") for each in found])
    assert [each["error"] and each["error"]["code"] for each in rows] == [None, "unwritable", "unwritable"]
    assert "File name too long" in rows[1]["error"]["detail"] and rows[1]["captions"] == []
    assert {path.name for path in tmp_path.glob("*.caption")} == {"a.caption"}


def test_a_text_that_cannot_be_written_fails_alone(folder: Path) -> None:
    (folder / "a.txt").mkdir()
    assert beside(folder, "new") == ["unwritable", None]
    (folder / "a.txt").rmdir()
    os.mkfifo(folder / "a.txt")
    assert beside(folder, "new") == ["unwritable"]


def test_a_caption_of_nothing_is_no_caption(folder: Path) -> None:
    assert beside(folder, " \n ") == ["no_caption", "no_caption"]
    assert not list(folder.glob("*.txt"))
    assert beside(folder, "new") == [None, None]


def test_a_picture_that_failed_leaves_no_text(folder: Path) -> None:
    found = listed(folder)
    [written] = write_out("txt", folder, found, [row("a.png", error="truncated")])
    assert written["error"]["code"] == "truncated" and not (folder / "a.txt").exists()


@pytest.mark.parametrize("existing", list(Existing))
def test_what_a_killed_run_did_not_write_comes_from_its_journal(folder: Path, existing: Existing) -> None:
    """Killed between journal and texts, or amid the texts."""
    for name in ("a.txt", "sub/b.txt"):
        (folder / name).write_bytes(b"" if existing is SKIP else b"old\n")
    beside(folder, "new", existing=existing, killed=True)
    (folder / "sub" / "b.txt").write_bytes(b"" if existing is SKIP else b"old\n")
    assert beside(folder, "never used", existing=existing, go_on=True) == []
    expected = {SKIP: b"new\n", OVERWRITE: b"new\n", APPEND: b"old\nnew\n", PREPEND: b"new\nold\n"}[existing]
    assert (folder / "a.txt").read_bytes() == (folder / "sub" / "b.txt").read_bytes() == expected
    assert not list(folder.glob(".*"))


def test_a_run_with_other_options_does_not_take_up_the_journal(folder: Path) -> None:
    beside(folder, "one", killed=True)
    (folder / "a.txt").unlink()
    beside(folder, "two", go_on=False)
    assert (folder / "a.txt").read_bytes() == b"two\n"


def test_a_folder_of_their_own_mirrors_the_names(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "deep"
    found = listed(folder, recursive=True)
    write_out("txt", out, found, [row(each.name, each.name) for each in found], apart=True)
    assert {str(path.relative_to(out)) for path in out.rglob("*.txt")} == {"a.txt", "sub/b.txt"}


def test_names_that_lead_out_of_the_folder_fail_alone(tmp_path: Path) -> None:
    names = ["../up.png", "/etc/root.png", "sub/../../x.png", "ok.png", "nul\0.png", "ok.txt/x.png"]
    found = [Picture(name, "a.tar", in_archive=True) for name in names]
    rows = write_out("txt", tmp_path / "out", found, [row(name, "new") for name in names], apart=True)
    codes = {each["file_name"]: each["error"] and each["error"]["code"] for each in rows}
    assert codes == {name: None if name == "ok.png" else "unwritable" for name in names}
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["ok.txt"]


def test_pictures_from_elsewhere_lie_below_the_folder_by_their_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pictures(tmp_path / "work", "a.png", "sub/b.png")
    write_pictures(tmp_path / "other", "c.png", "..d.png")
    monkeypatch.chdir(tmp_path / "work")
    names = [f"{tmp_path}/other/c.png", "../other/..d.png", "sub/../a.png", "./sub/b.png", "a.png"]
    found = [Picture(name, name) for name in names]
    rows = write_out("txt", tmp_path / "out", found, [row(name, name) for name in names], apart=True)
    assert [each["error"] for each in rows] == [None] * 4  # the last is the third once more
    below = str(tmp_path).lstrip("/")
    written = {str(path.relative_to(tmp_path / "out")): path.read_text() for path in (tmp_path / "out").rglob("*.txt")}
    places = [f"{below}/other/c.txt", f"{below}/other/..d.txt", "a.txt", "sub/b.txt"]
    assert written == {place: f"{name}\n" for place, name in zip(places, names, strict=False)}
    assert write_out("txt", tmp_path / "out", found, [row(name, "new") for name in names], apart=True) == []


def test_members_of_an_archive_that_differ_in_suffix_only(tmp_path: Path) -> None:
    """It is read once, so that the first keeps the short name; the next run finds the same names."""
    names = ["1.jpg", "sub/1.jpg", "1.png", "2.png"]
    found = [Picture(name, "a.tar", in_archive=True) for name in names]
    for _ in range(2):
        write_out("txt", tmp_path, found, [row(name, name) for name in names], apart=True)
        texts = {str(path.relative_to(tmp_path)): path.read_text().strip() for path in tmp_path.rglob("*.txt")}
        assert texts == {"1.txt": "1.jpg", "sub/1.txt": "sub/1.jpg", "1.png.txt": "1.png", "2.txt": "2.png"}


@pytest.mark.parametrize("existing", [SKIP, OVERWRITE, APPEND, PREPEND])
def test_a_member_that_failed_keeps_its_name(tmp_path: Path, existing: Existing) -> None:
    """Else the next picture of its stem would take it, and the next run take that one's captions for its own."""
    found = [Picture(name, "a.tar", in_archive=True) for name in ("a.jpg", "a.png")]
    for _ in range(2):
        rows = [row("a.jpg", error="truncated"), row("a.png", "of a.png")]
        left = write_out("txt", tmp_path, found, rows, apart=True, existing=existing)
        assert (left[0]["file_name"], left[0]["error"]["code"]) == ("a.jpg", "truncated")
        assert {path.name: path.read_text() for path in tmp_path.glob("*.txt")} == {"a.png.txt": "of a.png\n"}


@pytest.mark.parametrize("existing", [APPEND, PREPEND])
def test_a_caption_that_stands_anywhere_is_not_added_again(folder: Path, existing: Existing) -> None:
    for texts in (["one"], ["two"], ["one"], ["two", "three", "three"], ["one", "two", "three"]):
        beside(folder, *texts, existing=existing)
    assert sorted((folder / "a.txt").read_text().splitlines()) == ["one", "three", "two"]


def test_every_damaged_line_of_a_list_fails(tmp_path: Path) -> None:
    (tmp_path / "list.jsonl").write_text("x\n{}\n[]\n")
    found = listed(tmp_path / "list.jsonl")
    rows = write_out("txt", tmp_path / "out", found, [row(each.name, error="unreadable") for each in found], apart=True)
    assert [each["error"]["code"] for each in rows] == ["unreadable"] * 3


def test_a_member_whose_captions_cannot_be_written_is_named(tmp_path: Path) -> None:
    names = ["x" * 300 + ".png", "2.png"]
    found = [Picture(name, "a.tar", in_archive=True) for name in names]
    rows = write_out(
        "txt", tmp_path, found, [row(name, *texts) for name, texts in zip(names, ["a", " "], strict=True)], apart=True
    )
    first, second = (each["error"]["detail"] for each in rows)
    assert first == f"the captions of {names[0]!r} in 'a.tar' cannot be written: File name too long"
    assert second == "'2.png' in 'a.tar': the model wrote nothing"


def test_a_place_that_cannot_be_written_is_told_at_once() -> None:
    with as_nobody() as place:
        write_pictures(place, "a.png")
        become_nobody()
        for destination in (Destination(place), Destination(place / "new", apart=True)):
            with pytest.raises(RequestError, match="Permission denied"):
                open_output("txt", destination).open(go_on=False)
    with pytest.raises(RequestError, match="cannot be a folder: File exists"):
        open_output("txt", Destination(Path(__file__), apart=True)).open(go_on=False)


def test_a_full_disk_stops_the_run_and_the_next_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(module, "_replace", no_space)
        beside(folder, "new", killed=True)
    assert beside(folder, "never used", go_on=True) == []
    assert (folder / "a.txt").read_bytes() == b"new\n"


def test_two_threads_write_texts_of_one_folder(tmp_path: Path) -> None:
    """What is taken up from the journal is written beside what the model writes meanwhile."""
    together = threading.Barrier(2)

    def write(name: str) -> None:
        together.wait(30)
        for _ in range(200):
            module._replace(tmp_path / name, name.encode() * 100)
            assert (tmp_path / name).read_bytes() == name.encode() * 100

    failed: list[object] = []
    before, threading.excepthook = threading.excepthook, failed.append
    try:
        threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        threading.excepthook = before
    assert not failed and {path.name for path in tmp_path.iterdir()} == {"a", "b"}
