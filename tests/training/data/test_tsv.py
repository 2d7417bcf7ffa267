"""Tables of image and caption."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models.errors import DataError, RequestError
from training.data import Dataset, build_reader, read_dataset

Reader = Callable[..., Dataset]


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    """Writes a file and reads it; images are not looked for unless asked."""

    def write_and_read(content: str | bytes, **options: Any) -> Dataset:
        path = tmp_path / "captions.tsv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        reader = build_reader("tsv", {"path": path, "images_root": tmp_path, "on_missing": "keep", **options})
        return reader.read()

    return write_and_read


def captions(dataset: Dataset) -> dict[str, tuple[str, ...]]:
    return {example.image_id: example.captions for example in dataset.splits["train"]}


def told(dataset: Dataset) -> list[tuple[str, str]]:
    return [(defect.position, defect.reason) for defect in dataset.report.defects]


def test_lines_of_one_image_are_its_captions_wherever_they_stand(read: Reader) -> None:
    dataset = read("image\tcaption\na.jpg\tone\nb.jpg\ttwo\n./a.jpg\tthree\n")
    assert captions(dataset) == {"a.jpg": ("one", "three"), "b.jpg": ("two",)}
    assert told(dataset) == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_byte_order_marks_and_line_ends_do_not_matter(read: Reader, encoding: str, end: str) -> None:
    text = end.join(["image\tcaption", "", "a.jpg\tein Mädchen", "", ""])
    assert captions(read(text.encode(encoding))) == {"a.jpg": ("ein Mädchen",)}


def test_columns_may_be_elsewhere_and_more(read: Reader) -> None:
    dataset = read("title \turl\t file\nA cat\thttp\ta.jpg\n", image_column="file", caption_column="title")
    assert captions(dataset) == {"a.jpg": ("A cat",)}


def test_rows_that_cannot_be_used_are_told_by_line(read: Reader) -> None:
    lines = ["image\tcaption", "a.jpg\tone", "", "a.jpg", "a.jpg\tone\ttab", "\tno name", "b.jpg\t ", "a.jpg\tone"]
    lines += ["../c.jpg\tup", "/etc/passwd\troot", "a.jpg\t" + "x" * 10_001, "a.jpg\t" + "x" * 200_000]
    dataset = read("\n".join(lines))
    assert captions(dataset) == {"a.jpg": ("one",)}
    assert told(dataset) == [
        ("line 4", "row has 1 cells, the header 2"),
        ("line 5", "row has 3 cells, the header 2"),
        ("line 6", "no file name"),
        ("line 8", "row repeats an earlier one"),
        ("line 12", "row is no table row (field larger than field limit (131072))"),
        ("line 11", "caption is longer than 10000 characters"),
        ("line 7", "empty caption"),
        ("line 7", "image without captions"),
        ("line 9", "path leaves the image folder"),
        ("line 10", "path leaves the image folder"),
    ]


def test_a_line_in_another_encoding_is_told_and_the_option_reads_it(read: Reader) -> None:
    content = "image\tcaption\na.jpg\tit’s\nb.jpg\tplain\n".encode("cp1252")
    dataset = read(content)
    assert captions(dataset) == {"b.jpg": ("plain",)}
    assert told(dataset) == [("line 2", "row is not utf-8")]
    assert captions(read(content, encoding="cp1252")) == {"a.jpg": ("it’s",), "b.jpg": ("plain",)}


def test_quotes_are_characters_unless_the_file_is_quoted(read: Reader) -> None:
    content = 'image\tcaption\na.jpg\t"stop" on a sign\nb.jpg\t"a ""b"""\n'
    assert captions(read(content)) == {"a.jpg": ('"stop" on a sign',), "b.jpg": ('"a ""b"""',)}
    dataset = read(content, quoted=True)
    assert captions(dataset) == {"b.jpg": ('a "b"',)}
    assert told(dataset) == [("line 2", "row is no table row ('\t' expected after '\"')")]


def test_unicode_line_breaks_and_nul_end_no_line(read: Reader) -> None:
    dataset = read("image\tcaption\na.jpg\ta cat\u2028sits\x85here\x00now\n")
    assert captions(dataset) == {"a.jpg": ("a cat sits here now",)}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a.jpg\ta cat\n", "needs the columns 'image' and 'caption'; it has: a.jpg, a cat"),
        ("image,caption\na.jpg,a cat\n", "it has: image,caption"),
        ("image\tcaption\timage\n", "names a column twice"),
        (b"\xff\xfei\x00m", "is no text in utf-16"),
    ],
)
def test_files_without_the_header_are_refused(read: Reader, content: str | bytes, says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        read(content)
    assert caught.value.code == "wrong_schema"


@pytest.mark.parametrize("content", ["", "image\tcaption\n", "image\tcaption\na.jpg\t\n"])
def test_nothing_to_use_is_no_data(read: Reader, tmp_path: Path, content: str) -> None:
    read(content)
    with pytest.raises(DataError) as caught:
        read_dataset("tsv", {"path": tmp_path / "captions.tsv", "images_root": tmp_path})
    assert caught.value.code == "no_data"


@pytest.mark.parametrize("encoding", ["no such", "base64", ""])
def test_unknown_encodings_are_refused(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(RequestError, match="encoding"):
        build_reader("tsv", {"path": tmp_path, "images_root": tmp_path, "encoding": encoding})
