"""Which examples and pictures an evaluation sees."""

from pathlib import Path

import pytest

from models.errors import DataError, ImageError, RequestError
from tests.training.data.tiny import WRITERS
from tests.training.support import COLOURS, write_dataset
from training.data.selection import Selection, image_batches


def test_the_first_examples_of_the_split(tmp_path: Path) -> None:
    selection = Selection(write_dataset(tmp_path), limit=2)
    examples, report = selection.read()
    assert [example.image_id for example in examples] == ["0", "1"]
    assert report.images["test"] == 4


def test_batches_are_pictures_in_order_and_progress_is_told(tmp_path: Path) -> None:
    examples, _ = Selection(write_dataset(tmp_path)).read()
    told: list[tuple[int, int]] = []
    batches = list(image_batches(examples, 3, lambda done, total: told.append((done, total))))
    assert [len(part) for part, _ in batches] == [3, 1]
    assert [image.getpixel((0, 0)) for _, images in batches for image in images] == list(COLOURS.values())
    assert told == [(3, 4), (4, 4)]


def test_pictures_may_lie_in_tars(tmp_path: Path) -> None:
    examples, _ = Selection(WRITERS["webdataset"](tmp_path), format="webdataset", split="train").read()
    ((part, images),) = image_batches(examples, 4)
    assert [example.image_id for example in part] == ["red", "blue"]
    assert [image.getpixel((0, 0)) for image in images] == [(220, 30, 30), (30, 60, 220)]


def test_a_damaged_picture_is_named(tmp_path: Path) -> None:
    options = write_dataset(tmp_path)
    (options["images_root"] / "blue.png").write_bytes(b"no picture")
    examples, _ = Selection(options).read()
    with pytest.raises(ImageError, match=r"blue\.png"):
        list(image_batches(examples, 2))


@pytest.mark.parametrize("limit", [0, -1])
def test_limits_below_one_are_refused(tmp_path: Path, limit: int) -> None:
    with pytest.raises(RequestError, match="limit"):
        Selection(write_dataset(tmp_path), limit=limit).read()


def test_batch_sizes_below_one_are_refused(tmp_path: Path) -> None:
    examples, _ = Selection(write_dataset(tmp_path)).read()
    with pytest.raises(RequestError, match="batch_size"):
        list(image_batches(examples, 0))


def test_an_empty_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="split 'val'"):
        Selection(write_dataset(tmp_path), split="val").read()
