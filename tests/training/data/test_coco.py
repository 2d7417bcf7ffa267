"""The COCO reader on files made here; the given ones are in ``test_cases.py``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models.errors import DataError, RequestError
from tests.support import CASES, SHARED, needs_shared
from training.data import Dataset, build_reader, read_dataset

Reader = Callable[..., Dataset]


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    """Writes a captions file and reads it; images are not looked for unless asked."""

    def write_and_read(images: list[Any], annotations: list[Any], **options: Any) -> Dataset:
        path = tmp_path / "captions.json"
        path.write_text(json.dumps({"images": images, "annotations": annotations}), encoding="utf-8")
        return read_dataset("coco", {"path": path, "images_root": tmp_path, "on_missing": "keep", **options})

    return write_and_read


def image(image_id: Any, name: Any = None) -> dict[str, Any]:
    return {"id": image_id, "file_name": f"{image_id}.jpg" if name is None else name}


def caption(image_id: Any, text: Any = "a cat", annotation_id: Any = None) -> dict[str, Any]:
    return {"image_id": image_id, "caption": text, **({} if annotation_id is None else {"id": annotation_id})}


def told(dataset: Dataset) -> list[tuple[str, str, str]]:
    return [(defect.position, defect.reason, defect.effect) for defect in dataset.report.defects]


def test_ids_of_any_kind_are_compared_as_text(read: Reader) -> None:
    big = 2**53 + 1
    dataset = read(
        [image(1), image("2"), image(big), image(big - 1), image(3.0)],
        [caption("1"), caption(2), caption(big, "big"), caption(str(big - 1), "less"), caption(3)],
    )
    assert [example.image_id for example in dataset.split("train")] == ["1", "2", str(big), str(big - 1), "3"]
    assert [example.captions[0] for example in dataset.split("train")[2:4]] == ["big", "less"]


def test_rows_that_fit_nothing_are_told_by_position(read: Reader) -> None:
    dataset = read(
        [image(1), "text", {"file_name": "x.jpg"}, image(True), image(5)],
        [caption(1), 7, caption(99), {"caption": "no image"}, caption(1, ""), caption(1, 3), {"image_id": 1}],
    )
    assert [example.image_id for example in dataset.split("train")] == ["1"]
    assert told(dataset) == [
        ("images[1]", "entry is not an object (str)", "dropped"),
        ("images[2]", "no id", "dropped"),
        ("images[3]", "no id", "dropped"),
        ("annotations[1]", "entry is not an object (int)", "dropped"),
        ("annotations[2]", "no image with this id", "dropped"),
        ("annotations[3]", "no image with this id", "dropped"),
        ("annotations[4]", "empty caption", "dropped"),
        ("annotations[5]", "caption is not text (int)", "dropped"),
        ("annotations[6]", "caption is not text (NoneType)", "dropped"),
        ("images[4]", "image without captions", "dropped"),
    ]


def test_an_id_that_stands_for_two_files_is_left_out_with_its_captions(read: Reader) -> None:
    dataset = read([image(1), image(2), image(1, "other.jpg")], [caption(1), caption(2, "a dog")])
    assert [(example.image_id, example.captions) for example in dataset.split("train")] == [("2", ("a dog",))]
    assert {(position, reason) for position, reason, _ in told(dataset)} == {
        ("images[0]", "id stands for two files"),
        ("images[2]", "id stands for two files"),
        ("annotations[0]", "id stands for two files"),
    }


def test_a_repeated_annotation_counts_once_and_a_reused_id_does_not_lose_its_text(read: Reader) -> None:
    again = caption(1, "a cat", 10)
    dataset = read([image(1)], [again, again, caption(1, "a dog", 10), caption(1, "a cat", 11)])
    assert dataset.split("train")[0].captions == ("a cat", "a dog", "a cat")
    assert told(dataset) == [
        ("annotations[1]", "annotation repeats an earlier one", "dropped"),
        ("annotations[2]", "annotation id is used twice", "kept"),
    ]


def test_two_ids_of_one_file_share_a_source_and_are_told(read: Reader) -> None:
    dataset = read([image(1, "a.jpg"), image(2, "./a.jpg")], [caption(1), caption(2, "a dog")])
    first, second = dataset.split("train")
    assert first.source == second.source
    (defect,) = dataset.report.defects
    assert (defect.position, defect.reason, defect.effect) == ("images[1]", "picture has two ids", "kept")
    assert defect.detail == "same picture as image 1"


def test_each_split_has_its_file_and_its_folder(tmp_path: Path) -> None:
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "1.jpg").touch()
        content = {"images": [image(1)], "annotations": [caption(1, f"a cat in {split}"), caption(9)]}
        (tmp_path / f"{split}.json").write_text(json.dumps(content), encoding="utf-8")
    options = {
        "path": {split: tmp_path / f"{split}.json" for split in ("train", "val")},
        "images_root": {split: tmp_path / split for split in ("train", "val", "test")},
    }
    dataset = read_dataset("coco", options)
    assert dataset.split("train")[0].path == tmp_path / "train" / "1.jpg"
    assert [(example.image_id, example.captions) for example in dataset.split("val")] == [("1.jpg", ("a cat in val",))]
    assert [position for position, _, _ in told(dataset)] == [
        "train: annotations[1]",
        "val: annotations[1]",
        "val: images[0]",  # its id is that of another picture, in train
    ]


def test_the_same_picture_in_two_splits_stays_in_the_first(tmp_path: Path) -> None:
    for split in ("train", "test"):
        content = {"images": [image(split, "a.jpg")], "annotations": [caption(split)]}
        (tmp_path / f"{split}.json").write_text(json.dumps(content), encoding="utf-8")
    paths = {split: tmp_path / f"{split}.json" for split in ("train", "test")}
    dataset = build_reader("coco", {"path": paths, "images_root": tmp_path, "on_missing": "keep"}).read()
    assert dataset.report.images == {"train": 1, "val": 0, "test": 0}
    assert told(dataset) == [("test: images[0]", "image is already in split 'train'", "dropped")]


def test_a_file_that_is_not_there_is_an_error_unless_skipped(read: Reader, tmp_path: Path) -> None:
    images, captions = [image(1), image(2)], [caption(1), caption(2)]
    (tmp_path / "2.jpg").touch()
    with pytest.raises(DataError) as caught:
        read(images, captions, on_missing="error")
    assert caught.value.code == "missing_image" and "1.jpg" in caught.value.detail
    dataset = read(images, captions, on_missing="skip")
    assert [example.image_id for example in dataset.split("train")] == ["2"]
    assert [(defect.position, defect.image_id) for defect in dataset.report.missing] == [("images[0]", "1")]


def test_split_names_what_one_file_is(read: Reader) -> None:
    assert read([image(1)], [caption(1)], split="val").report.images == {"train": 0, "val": 1, "test": 0}


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("karpathy.json", "in Karpathy's format"),
        ("coco_results.json", "a results file"),
        ("blip_karpathy_val.json", "is a list"),
    ],
)
def test_other_files_are_refused_by_what_they_are(file: str, says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        read_dataset("coco", {"path": CASES / "data" / file, "images_root": CASES})
    assert caught.value.code == "wrong_schema"


def test_a_split_without_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"path has the splits \['val'\], images_root \['train'\]"):
        build_reader("coco", {"path": {"val": "x.json"}, "images_root": {"train": tmp_path}})
    with pytest.raises(RequestError, match="path names no split"):
        build_reader("coco", {"path": {}, "images_root": tmp_path})
    with pytest.raises(RequestError, match="dev"):
        build_reader("coco", {"path": {"dev": "x.json"}, "images_root": tmp_path})


@needs_shared
def test_the_real_sample() -> None:
    root = SHARED / "coco_sample"
    dataset = read_dataset("coco", {"path": root / "captions.json", "images_root": root / "images"})
    assert (dataset.report.images["train"], dataset.report.pairs["train"]) == (80, 400)
    assert dataset.report.defects == ()
