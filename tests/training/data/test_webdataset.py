"""The WebDataset reader: pictures and captions out of tars."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from models.errors import DataError, ImageError
from tests.support import encoded
from tests.training.data.tiny import picture, write_tar
from training.data import Dataset, build_reader, read_dataset
from training.data.webdataset import MOST_CAPTION_BYTES

PNG = picture()


def read(folder: Path, members: Mapping[str, bytes], **options: Any) -> Dataset:
    write_tar(folder / "0.tar", members)
    return build_reader("webdataset", {"path": "0.tar", "images_root": folder, **options}).read()


def told(dataset: Dataset) -> list[tuple[str, str, str]]:
    return [(defect.position, defect.reason, defect.effect) for defect in dataset.report.defects]


def captions(dataset: Dataset) -> dict[str, tuple[str, ...]]:
    return {example.image_id: example.captions for example in dataset.splits["train"]}


def test_a_sample_is_what_precedes_the_first_dot_in_any_order(tmp_path: Path) -> None:
    members = {
        "a/1.txt": b"one",
        "b/1.png": PNG,
        "a/1.PNG": PNG,
        "b/1.txt": "\ufeffzwei Mädchen".encode(),
        "b/1.cls": b"7",
    }
    dataset = read(tmp_path, members)
    assert captions(dataset) == {"a/1": ("one",), "b/1": ("zwei Mädchen",)}
    assert [example.file_name for example in dataset.split("train")] == ["a/1.PNG", "b/1.png"]
    assert told(dataset) == []


def test_pictures_are_read_from_their_place_in_the_tar(tmp_path: Path) -> None:
    colours = [(220, 30, 30), (30, 60, 220)]
    members = {
        name: content
        for i, c in enumerate(colours)
        for name, content in {f"{i}.png": picture(c), f"{i}.txt": b"x"}.items()
    }
    for example, colour in zip(read(tmp_path, members).split("train"), colours, strict=True):
        assert example.read() == picture(colour)
        assert example.load().image.getpixel((0, 0)) == colour
        assert example.path == tmp_path / "0.tar"


def test_json_members_hold_a_text_or_several(tmp_path: Path) -> None:
    contents = [{"caption": "one"}, {"caption": ["two", "three", 4]}, {"text": "x"}, [1]]
    members = {f"{number}.json": json.dumps(content).encode() for number, content in enumerate(contents)}
    members |= {f"{number}.jpg": PNG for number in range(5)} | {"4.json": b"{"}
    dataset = read(tmp_path, members)
    assert captions(dataset) == {"0": ("one",), "1": ("two", "three")}
    assert [entry for entry in told(dataset) if entry[1] != "image without captions"] == [
        ("0.tar: 1.json [2]", "caption is not text (int)", "dropped"),
        ("0.tar: 2.json", "caption member has no field 'caption'", "dropped"),
        ("0.tar: 3.json", "caption member has no field 'caption'", "dropped"),
        ("0.tar: 4.json", "caption member is not JSON", "dropped"),
    ]
    assert captions(read(tmp_path, members, caption_field="text")) == {"2": ("x",)}


def test_the_first_caption_member_of_the_list_counts(tmp_path: Path) -> None:
    members = {"1.png": PNG, "1.json": b'{"caption": "from json"}', "1.txt": b"from txt"}
    assert captions(read(tmp_path, members)) == {"1": ("from txt",)}
    assert captions(read(tmp_path, members, caption_members=["json"])) == {"1": ("from json",)}


def test_lines_of_a_text_are_one_caption_or_several(tmp_path: Path) -> None:
    members = {"1.png": PNG, "1.txt": b"one\r\n\ntwo\n"}
    dataset = read(tmp_path, members)
    assert captions(dataset) == {"1": ("one two",)}
    assert told(dataset) == [("0.tar: 1.txt", "lines of a caption are joined to one", "kept")]
    assert captions(read(tmp_path, members, several_lines="split")) == {"1": ("one", "two")}


def test_what_is_no_sample_is_told(tmp_path: Path) -> None:
    members = {
        "README": b"x",
        "1.png": PNG,
        "1.jpg": PNG,
        "1.txt": b"one",
        "2.png": PNG,
        "3.txt": b"no picture",
        "4.png": PNG,
        "4.txt": b"\xff\xfe\xfd",
        "5.png": PNG,
        "5.txt": b"x" * (MOST_CAPTION_BYTES + 1),
        "._1.png": b"macOS",
        "__note.txt": b"x",
    }
    dataset = read(tmp_path, members)
    assert captions(dataset) == {"1": ("one",)}
    assert told(dataset) == [
        ("0.tar: 1.jpg", "sample has another picture", "dropped"),
        ("0.tar: 2", "image without captions", "dropped"),
        ("0.tar: 3", "no picture in the sample", "missing"),
        ("0.tar: 4.txt", "caption is not utf-8", "dropped"),
        ("0.tar: 4", "image without captions", "dropped"),
        ("0.tar: 5.txt", f"caption member is larger than {MOST_CAPTION_BYTES} bytes", "dropped"),
        ("0.tar: 5", "image without captions", "dropped"),
        ("0.tar: README", "member belongs to no sample", "dropped"),
    ]


def test_a_sample_without_picture_is_an_error_unless_skipped(tmp_path: Path) -> None:
    members = {"1.png": PNG, "1.txt": b"one", "2.txt": b"two"}
    assert captions(read(tmp_path, members)) == {"1": ("one",)}
    options = {"path": tmp_path / "0.tar"}
    with pytest.raises(DataError) as caught:
        read_dataset("webdataset", options)
    assert caught.value.code == "missing_image" and "0.tar:2" in caught.value.detail
    assert read_dataset("webdataset", {**options, "on_missing": "skip"}).report.images["train"] == 1


def test_a_shard_that_is_cut_short_is_told_and_its_whole_samples_are_there(tmp_path: Path) -> None:
    members = {f"{number}.{kind}": PNG if kind == "png" else b"x" for number in range(3) for kind in ("txt", "png")}
    whole = write_tar(tmp_path / "0.tar", members).read_bytes()
    (tmp_path / "0.tar").write_bytes(whole[: 5 * 1024 + 520])
    dataset = build_reader("webdataset", {"path": tmp_path / "0.tar"}).read()
    assert list(captions(dataset)) == ["0", "1"]
    (damage,) = [defect for defect in dataset.report.missing if defect.reason == "shard is damaged"]
    assert "ends within 2.png" in damage.detail
    with pytest.raises(DataError, match="missing_image"):
        read_dataset("webdataset", {"path": tmp_path / "0.tar"})


def test_one_key_in_two_shards_is_two_images(tmp_path: Path) -> None:
    for shard, text in (("0", b"one"), ("1", b"two")):
        write_tar(tmp_path / f"{shard}.tar", {"7.png": PNG, "7.txt": text})
    options = {"path": {"train": "0.tar", "val": ["1.tar"]}, "images_root": tmp_path}
    dataset = read_dataset("webdataset", options)
    assert [example.image_id for held in dataset.splits.values() for example in held] == ["7", "1.tar:7"]
    assert [effect for _, _, effect in told(dataset)] == ["kept"]


def test_one_shard_in_two_splits_stays_in_the_first(tmp_path: Path) -> None:
    write_tar(tmp_path / "0.tar", {"7.png": PNG, "7.txt": b"one"})
    options = {"path": {"train": "0.tar", "test": ["*.tar"]}, "images_root": tmp_path}
    dataset = read_dataset("webdataset", options)
    assert dataset.report.images == {"train": 1, "val": 0, "test": 0}
    assert dataset.report.dropped_by_reason == {"image is already in split 'train'": 1}


def test_names_that_are_no_utf8_or_leave_the_folder_are_mere_labels(tmp_path: Path) -> None:
    members = {"../../up/1.png": PNG, "../../up/1.txt": b"one", "b\udcff.png": PNG, "b\udcff.txt": b"two"}
    dataset = read(tmp_path, members)
    assert captions(dataset) == {"../../up/1": ("one",), "b\\xff": ("two",)}
    assert all(example.load() for example in dataset.split("train"))
    assert [path.name for path in tmp_path.rglob("*")] == ["0.tar"]


def test_a_damaged_picture_in_a_tar_is_named(tmp_path: Path) -> None:
    jpeg = encoded(Image.effect_noise((64, 64), 60), "JPEG")
    (example,) = read(tmp_path, {"1.jpg": jpeg[:300], "1.txt": b"x"}).split("train")
    with pytest.raises(ImageError, match=r"0\.tar:1\.jpg") as caught:
        example.load()
    assert caught.value.code == "truncated"
