"""Which pictures of a data set an evaluation looks at."""

from dataclasses import replace
from pathlib import Path

import pytest

from models.errors import DataError
from tests.training.evaluation.support import TRAINING, write_splits
from training.evaluation.pictures import read_pictures


def test_restval_joins_the_training_captions(tmp_path: Path) -> None:
    pictures = read_pictures(write_splits(tmp_path))
    assert [example.image_id for example in pictures.measured] == ["0", "1", "2", "3"]
    assert [example.image_id for example in pictures.training] == ["10", "11", "12"]
    assert pictures.training[1].captions == ("A white picture.", "it is white")
    assert pictures.distractors == ()
    assert "train: 3 images" in pictures.report


def test_training_pictures_may_be_absent_where_only_their_captions_matter(tmp_path: Path) -> None:
    selection = write_splits(tmp_path)
    for name in TRAINING:
        (tmp_path / "images" / f"{name}.png").unlink()
    assert len(read_pictures(selection).training) == 3
    with pytest.raises(DataError, match="images missing: 3"):
        read_pictures(selection, training_pictures=True)
    with pytest.raises(DataError, match="images missing: 3"):
        read_pictures(selection, distractors="train")


def test_distractors_are_what_is_not_measured(tmp_path: Path) -> None:
    selection = write_splits(tmp_path)
    assert len(read_pictures(selection, distractors="train").distractors) == 3
    rest = read_pictures(replace(selection, limit=1), distractors="test")
    assert [example.image_id for example in rest.distractors] == ["1", "2", "3"]
    with pytest.raises(DataError, match="no distractors"):
        read_pictures(selection, distractors="test")


def test_measured_pictures_are_no_neighbours_of_themselves(tmp_path: Path) -> None:
    selection = replace(write_splits(tmp_path), split="train", limit=1)
    assert len(read_pictures(selection).training) == 3
    pictures = read_pictures(selection, training_pictures=True)
    assert [example.image_id for example in pictures.training] == ["11", "12"]
