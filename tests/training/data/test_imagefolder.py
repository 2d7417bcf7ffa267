"""The ImageFolder reader on folders made here; the given one is in ``test_cases.py``."""

import json
from pathlib import Path
from typing import Any

import pytest

from models.errors import DataError
from tests.training.data.tiny import picture
from training.data import Dataset, build_reader, read_dataset


def rows(*rows: Any) -> str:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


def row(name: str, text: Any = "a cat") -> dict[str, Any]:
    return {"file_name": name, "text": text}


def write(folder: Path, files: dict[str, str | None]) -> Path:
    """The folder with these files: text, or None for a picture."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(picture() if content is None else content.encode())
    return folder


def read(folder: Path, **options: Any) -> Dataset:
    return build_reader("imagefolder", {"path": folder, **options}).read()


def told(dataset: Dataset) -> list[tuple[str, str, str]]:
    return [(defect.position, defect.reason, defect.effect) for defect in dataset.report.defects]


def test_split_folders_have_their_own_metadata(tmp_path: Path) -> None:
    text = rows(row("1.png"))
    splits = ("train", "validation", "test")
    files = {
        f"{split}/{name}": content
        for split in splits
        for name, content in {"metadata.jsonl": text, "1.png": None}.items()
    }
    dataset = read(write(tmp_path, files))
    assert dataset.report.images == {"train": 1, "val": 1, "test": 1}
    assert dataset.split("val")[0].path == tmp_path / "validation" / "1.png"
    assert {reason for _, reason, _ in told(dataset)} == {"id is taken by another picture, its path is its id"}


def test_one_file_may_list_the_split_folders(tmp_path: Path) -> None:
    listed = ["train/1.png", "dev/2.png", "test/3.png", "4.png", "more/5.png"]
    files: dict[str, str | None] = {name: None for name in listed}
    dataset = read(write(tmp_path, {**files, "metadata.jsonl": rows(*map(row, listed))}), split="val")
    held = {split: [example.image_id for example in examples] for split, examples in dataset.splits.items()}
    assert held == {"train": ["train/1.png"], "val": ["dev/2.png", "4.png", "more/5.png"], "test": ["test/3.png"]}
    assert told(dataset) == []


def test_positions_name_the_file_where_there_are_several(tmp_path: Path) -> None:
    files = {"train/metadata.jsonl": rows("{", row("1.png")), "train/1.png": None}
    dataset = read(write(tmp_path, {**files, "metadata.csv": "file_name,text\n2.png,\n", "2.png": None}))
    assert told(dataset) == [
        ("metadata.csv: line 2", "empty caption", "dropped"),
        ("metadata.csv: line 2", "image without captions", "dropped"),
        ("train/metadata.jsonl: line 1", "row is not JSON", "dropped"),
    ]


def test_rows_that_cannot_be_used_are_told_by_line(tmp_path: Path) -> None:
    text = rows(row("1.png"), "[1]", "not json", row(""), row("1.png", None), row("1.png"), row("1.png", ["b", 3, "b"]))
    dataset = read(write(tmp_path, {"metadata.jsonl": "\n" + text + rows(row("../up.png")), "1.png": None}))
    assert dataset.split("train")[0].captions == ("a cat", "b", "b")
    assert told(dataset) == [
        ("line 3", "row is not an object", "dropped"),
        ("line 4", "row is not JSON", "dropped"),
        ("line 5", "no file name", "dropped"),
        ("line 7", "row repeats an earlier one", "dropped"),
        ("line 6", "caption is not text (NoneType)", "dropped"),
        ("line 8 [1]", "caption is not text (int)", "dropped"),
        ("line 9", "path leaves the image folder", "dropped"),
    ]


@pytest.mark.parametrize("name", [".", "./", "a/.."])
def test_a_name_of_the_folder_itself_costs_only_its_row(tmp_path: Path, name: str) -> None:
    dataset = read(write(tmp_path, {"metadata.jsonl": rows(row("1.png"), row(name)), "1.png": None}), on_missing="skip")
    assert len(dataset.split("train")) == 1
    assert [position for position, _, _ in told(dataset)] == ["line 2"]


def test_a_line_in_another_encoding_costs_only_itself(tmp_path: Path) -> None:
    write(tmp_path, {"1.png": None})
    content = (
        json.dumps(row("1.png", "it’s"), ensure_ascii=False).encode("cp1252") + b"\n" + rows(row("1.png")).encode()
    )
    (tmp_path / "metadata.jsonl").write_bytes(content)
    assert told(read(tmp_path)) == [("line 1", "row is not utf-8", "dropped")]
    assert read(tmp_path, encoding="cp1252").split("train")[0].captions == ("it’s", "a cat")


def test_a_csv_cell_without_end_is_told_and_not_read_to_the_end_of_the_file(tmp_path: Path) -> None:
    text = 'file_name,text\n1.png,"two\r\nlines, one cell"\n1.png,"no end\n1.png,a cat\n'
    dataset = read(write(tmp_path, {"metadata.csv": text, "1.png": None}))
    assert dataset.split("train")[0].captions == ("two lines, one cell",)
    assert told(dataset) == [("line 4", "row is no table row (unexpected end of data)", "dropped")]


def test_pictures_without_a_row_are_told_and_other_files_are_not(tmp_path: Path) -> None:
    names = ["1.png", "sub/2.JPG", "sub/3.webp", "._1.png", ".hidden/4.png", ".5.png"]
    files: dict[str, str | None] = {name: None for name in names}
    write(tmp_path, {**files, "Thumbs.db": "x", "1.txt": "x", "metadata.jsonl": rows(row("1.png"))})
    defects = read(tmp_path).report.defects
    assert [defect.position for defect in defects] == [str(tmp_path / name) for name in ("sub/2.JPG", "sub/3.webp")]
    assert {(defect.reason, defect.effect) for defect in defects} == {("picture without a row", "dropped")}
    assert read(tmp_path, on_missing="keep").report.defects == ()


def test_a_folder_shared_with_other_lists_is_not_searched(tmp_path: Path) -> None:
    write(tmp_path, {"images/1.png": None, "images/2.png": None, "lists/metadata.jsonl": rows(row("1.png"))})
    dataset = read(tmp_path / "lists" / "metadata.jsonl", images_root=tmp_path / "images")
    assert told(dataset) == [] and dataset.report.images["train"] == 1
    write(tmp_path, {"images/metadata.jsonl": rows(row("1.png"))})
    assert len(told(read(tmp_path / "images", images_root=tmp_path / "images"))) == 1


def test_two_files_or_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"holds no metadata\.jsonl or metadata\.csv, nor do its split folders"
    ) as caught:
        read(tmp_path)
    assert caught.value.code == "no_data"
    write(tmp_path, {"metadata.jsonl": rows(row("1.png")), "metadata.csv": "file_name,text\n", "1.png": None})
    with pytest.raises(DataError, match="give the one that counts as path") as caught:
        read(tmp_path)
    assert caught.value.code == "wrong_schema"
    assert read_dataset("imagefolder", {"path": tmp_path / "metadata.jsonl"}).report.images["train"] == 1


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    write(tmp_path, {"metadata.csv": "image,prompt,extra\n1.png,NA,x\n", "1.png": None})
    dataset = read(tmp_path, image_column="image", caption_column="prompt")
    assert dataset.split("train")[0].captions == ("NA",)
    with pytest.raises(DataError, match="needs the columns 'file_name' and 'text'; it has: image, prompt, extra"):
        read(tmp_path)


def test_a_folder_that_cannot_be_listed_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(DataError, match=r"cannot list .*loop: Too many levels of symbolic links") as caught:
        read(tmp_path / "loop")
    assert caught.value.code == "no_data"
