"""The karpathy reader on the given files and on hostile ones made here."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models.errors import DataError, RequestError, UnknownNameError
from tests.support import CASES, SHARED, needs_shared
from training.data import Dataset, read_dataset

DATA = CASES / "data"
Reader = Callable[..., Dataset]


def read_case(name: str, on_missing: str = "keep") -> Dataset:
    return read_dataset("karpathy", {"path": DATA / name, "images_root": DATA, "on_missing": on_missing})


def wanted(file: str) -> dict[str, Any]:
    cases = json.loads((CASES / "data.json").read_text(encoding="utf-8"))["cases"]
    return next(case["want"] for case in cases if case["file"] == f"data/{file}")


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    """Writes a file (bytes, or anything JSON) and reads it; images are not looked for unless asked."""

    def write_and_read(content: Any, **options: Any) -> Dataset:
        path = tmp_path / "dataset.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return read_dataset("karpathy", {"path": path, "images_root": tmp_path, "on_missing": "keep", **options})

    return write_and_read


def image(image_id: Any = 1, *captions: Any, **fields: Any) -> dict[str, Any]:
    sentences = [{"raw": caption} for caption in captions or ("a cat",)]
    return {"cocoid": image_id, "filename": f"{image_id}.jpg", "split": "train", "sentences": sentences, **fields}


def file_of(*images: Any) -> dict[str, Any]:
    return {"images": list(images)}


# The given files


def test_restval_joins_train_and_its_file_is_under_val2014() -> None:
    dataset, want = read_case("karpathy.json"), wanted("karpathy.json")
    assert dataset.report.images == {"train": want["train_images"], "val": want["val"], "test": want["test"]}
    assert dataset.report.pairs["train"] == want["train_pairs"]
    restval = dataset.split("train")[2]
    assert restval.path == DATA / "val2014" / "COCO_val2014_000000000021.jpg"
    assert restval.captions[0] == "Picture 21, wording 0."  # stripped, case and punctuation kept


def test_odd_entries_are_counted_with_position_and_reason() -> None:
    dataset, want = read_case("karpathy_odd.json"), wanted("karpathy_odd.json")
    assert dataset.report.images["train"] == want["train_images"]
    assert dataset.report.pairs["train"] == want["train_pairs"]
    assert [(item.position, item.image_id, item.reason) for item in dataset.report.dropped] == [
        ("images[1]", "32", "image without captions"),
        ("images[3]", "22", "unknown split 'dev'"),
    ]
    assert dataset.split("train")[1].path == DATA / "COCO_val2014_000000000021.jpg"  # Flickr style: no filepath
    assert dataset.report.summary() == (
        "train: 2 images, 10 captions; val: 0 images, 0 captions; test: 1 images, 5 captions; "
        "1 dropped (image without captions); 1 dropped (unknown split 'dev')"
    )


def test_flat_list_is_one_split_and_its_path_is_the_id() -> None:
    want = wanted("blip_karpathy_val.json")
    options = {"path": DATA / "blip_karpathy_val.json", "images_root": DATA, "flat_split": "val"}
    (example,) = read_dataset("karpathy", options).split("val")
    assert (1, len(example.captions)) == (want["images"], want["references"])
    assert example.image_id == "val2014/COCO_val2014_000000000022.jpg"
    assert example.captions == ("first", "second")


@pytest.mark.parametrize(
    ("file", "code", "says"),
    [
        ("coco_cut.json", "not_json", "coco_cut.json is not JSON"),
        ("coco_results.json", "wrong_schema", "a results file"),
        ("coco_instances.json", "wrong_schema", "COCO instances file"),
        ("coco_ok.json", "wrong_schema", "COCO captions file"),
        ("coco_empty.json", "no_data", "no usable image"),
        ("absent.json", "no_data", "cannot read"),
    ],
)
def test_other_files_are_refused_by_what_they_are(file: str, code: str, says: str) -> None:
    with pytest.raises(DataError) as caught:
        read_case(file)
    assert caught.value.code == code
    assert says in caught.value.detail


def test_missing_images_are_an_error_that_lists_them() -> None:
    with pytest.raises(DataError) as caught:
        read_case("karpathy.json", "error")
    assert caught.value.code == "missing_image"
    assert "images missing: 2 (" in caught.value.detail
    assert "COCO_train2014_000000000031.jpg" in caught.value.detail


def test_missing_images_can_be_skipped_and_are_counted() -> None:
    dataset = read_case("karpathy.json", "skip")
    assert [example.image_id for example in dataset.split("train")] == ["21"]
    assert [(defect.position, Path(defect.detail).name) for defect in dataset.report.missing] == [
        ("images[0]", "COCO_train2014_000000000031.jpg"),
        ("images[1]", "COCO_train2014_000000000032.jpg"),
    ]
    assert dataset.report.summary().endswith("2 missing (no such image file)")


def test_only_the_asked_splits_are_looked_for() -> None:
    options = {"path": DATA / "karpathy.json", "images_root": DATA}
    assert len(read_dataset("karpathy", options, splits=["test"]).split("test")) == 1


# Encodings and schema


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_byte_order_marks_are_tolerated(read: Reader, encoding: str) -> None:
    content = json.dumps(file_of(image(1, "ein Mädchen")), ensure_ascii=False).encode(encoding)
    assert read(content).split("train")[0].captions == ("ein Mädchen",)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"[" * 100_000, b"\x81 not utf-8"])
def test_what_is_not_json_is_refused(read: Reader, content: bytes) -> None:
    with pytest.raises(DataError) as caught:
        read(content)
    assert caught.value.code == "not_json"


@pytest.mark.parametrize("content", [1, "text", None, [], {}, {"images": 3}, {"images": [1]}, [[]], {"a": 1}])
def test_other_schemas_are_refused(read: Reader, content: Any) -> None:
    with pytest.raises(DataError) as caught:
        read(content)
    assert caught.value.code == "wrong_schema"


def test_entries_that_are_none_cost_only_themselves(read: Reader) -> None:
    dataset = read(file_of(image(1), None, 5, image(2)))
    assert len(dataset.split("train")) == 2
    assert [(item.position, item.reason) for item in dataset.report.dropped] == [
        ("images[1]", "entry is not an object (NoneType)"),
        ("images[2]", "entry is not an object (int)"),
    ]
    flat = read([{"image": "1.jpg", "caption": "a cat"}, {"image": "2.jpg"}, 7], flat_split="val")
    assert len(flat.split("val")) == 1
    assert [(item.position, item.reason) for item in flat.report.dropped] == [
        ("[1]", "row has no image and caption"),
        ("[2]", "row has no image and caption"),
    ]


# Captions


@pytest.mark.parametrize("bad", ["", "   ", "\n\u2028", None, 7, 1.5, True, ["a", "list"], {"raw": "nested"}])
def test_unusable_captions_are_dropped_with_their_position(read: Reader, bad: Any) -> None:
    dataset = read(file_of(image(1, "kept", bad)))
    assert dataset.split("train")[0].captions == ("kept",)
    (dropped,) = dataset.report.dropped
    assert (dropped.position, dropped.image_id) == ("images[0].sentences[1]", "1")
    expected = "empty caption" if isinstance(bad, str) else f"caption is not text ({type(bad).__name__})"
    assert dropped.reason == expected


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        (" A Dog runs . ", "A Dog runs ."),
        ("a\r\ncat\u2028sits\x0bhere\x85now", "a cat sits here now"),
        ("Ma\u0308dchen", "M\u00e4dchen"),
        ("nul\x00byte \ud800", "nul byte \ufffd"),
    ],
)
def test_captions_become_one_line_of_nfc(read: Reader, raw: str, clean: str) -> None:
    assert read(file_of(image(1, raw))).split("train")[0].captions == (clean,)


def test_images_may_have_any_number_of_captions(read: Reader) -> None:
    dataset = read(file_of(image(1, "a"), image(2, *"abcdefghi"), image(3, sentences=[])))
    assert [len(example.captions) for example in dataset.split("train")] == [1, 9]
    assert dataset.report.pairs == {"train": 10, "val": 0, "test": 0}


def test_no_usable_caption_at_all_is_no_data(read: Reader) -> None:
    with pytest.raises(DataError, match="image without captions"):
        read(file_of(image(1, sentences=None)))


# Ids and duplicates


def test_ids_are_text_and_big_ones_stay_exact(read: Reader) -> None:
    big = 2**53 + 1
    dataset = read(file_of(image(big - 1), image(big), image("007"), image(None, imgid=5, filename="five.jpg")))
    assert [example.image_id for example in dataset.split("train")] == [str(big - 1), str(big), "007", "5"]


def test_an_entry_without_id_gets_its_path(read: Reader) -> None:
    (example,) = read(file_of(image(None, filepath="a", filename="b.jpg"))).split("train")
    assert example.image_id == "a/b.jpg"


def test_a_repeated_entry_is_merged_and_does_not_double_its_captions(read: Reader) -> None:
    dataset = read(file_of(image(1, "a cat", "a cat", "a dog"), image(1, "a cat", "a bird")))
    (example,) = dataset.split("train")
    assert example.captions == ("a cat", "a cat", "a dog", "a bird")
    (defect,) = dataset.report.of("kept")
    assert (defect.position, defect.reason) == ("images[1]", "image is listed again, its captions are joined")


def test_one_id_for_two_files_keeps_both(read: Reader) -> None:
    dataset = read(file_of(image(1, "a cat"), image(1, "a dog", filename="other.jpg")))
    assert [(e.image_id, e.captions) for e in dataset.split("train")] == [("1", ("a cat",)), ("other.jpg", ("a dog",))]
    (defect,) = dataset.report.of("kept")
    assert (defect.position, defect.reason) == ("images[1]", "id is taken by another picture, its path is its id")


def test_an_image_cannot_be_in_two_splits(read: Reader) -> None:
    dataset = read(file_of(image(1, "a cat"), image(1, "a cat", split="test")))
    assert dataset.report.images == {"train": 1, "val": 0, "test": 0}
    assert dataset.report.dropped_by_reason == {"image is already in split 'train'": 1}


# Paths


@pytest.mark.parametrize(
    "fields",
    [
        {"filename": "../outside.jpg"},
        {"filepath": "..", "filename": "x.jpg"},
        {"filepath": "a/../..", "filename": "x.jpg"},
        {"filename": "/etc/passwd"},
        {"filename": "C:\\x.jpg"},
        {"filename": "..\\x.jpg"},
        {"filename": "x\x00.jpg"},
        {"filename": "x\ud800.jpg"},
    ],
)
def test_paths_that_leave_the_image_folder_are_refused(read: Reader, fields: dict[str, str]) -> None:
    dataset = read(file_of(image(1), image(2, **fields)))
    assert [example.image_id for example in dataset.split("train")] == ["1"]
    assert dataset.report.dropped_by_reason == {"path leaves the image folder": 1}


def test_a_detour_inside_the_folder_is_fine(read: Reader, tmp_path: Path) -> None:
    (example,) = read(file_of(image(1, filepath="a/../b", filename="..x.jpg"))).split("train")
    assert example.path == tmp_path / "b" / "..x.jpg"


@pytest.mark.parametrize("name", [None, "", 3])
def test_an_entry_without_file_name_is_dropped(read: Reader, name: Any) -> None:
    dataset = read(file_of(image(1), image(2, filename=name)))
    assert dataset.report.dropped_by_reason == {"no file name": 1}


# The door


def test_unknown_format_and_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="karpathy"):
        read_dataset("tar", {})
    with pytest.raises(RequestError, match="images_root: is required"):
        read_dataset("karpathy", {"path": tmp_path})
    with pytest.raises(RequestError, match="on_missing"):
        read_dataset("karpathy", {"path": tmp_path, "images_root": tmp_path, "on_missing": "ignore"})


def test_an_empty_split_names_the_splits_there_are() -> None:
    with pytest.raises(DataError, match="no images; splits with images: train, test"):
        read_case("karpathy_odd.json").split("val")


@needs_shared
def test_the_real_flickr8k_file() -> None:
    root = SHARED / "flickr8k"
    dataset = read_dataset("karpathy", {"path": root / "dataset_flickr8k.json", "images_root": root / "images"})
    assert dataset.report.images == {"train": 5500, "val": 500, "test": 1000}
    assert dataset.report.pairs == {"train": 27500, "val": 2500, "test": 5000}
    assert dataset.report.defects == ()
