"""What holds for every data format of the table."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from models.errors import DataError, RequestError, UnknownNameError
from models.lookup import resolve
from tests.training.data.tiny import PICTURES, WRITERS, of_split
from training.data import FORMATS, build_reader, read_dataset
from training.data.options import ReaderOptions
from training.options import parse_options

pytestmark = pytest.mark.parametrize("name", sorted(FORMATS))


def test_it_reads_pictures_and_captions_of_every_split(name: str, tmp_path: Path) -> None:
    dataset = read_dataset(name, WRITERS[name](tmp_path))
    assert dataset.report.images == {"train": 2, "val": 1, "test": 0}
    assert dataset.report.pairs == {"train": 3, "val": 2, "test": 0}
    assert dataset.report.defects == ()
    for split in ("train", "val"):
        examples = dataset.split(split)
        assert [example.captions for example in examples] == list(of_split(split).values())
        for example in examples:
            picture = PICTURES[Path(example.file_name).stem]
            assert example.captions == picture[1]
            assert example.load().image.getpixel((3, 3)) == picture[2]
            assert example.read().startswith(b"\x89PNG")
    ids = [example.image_id for held in dataset.splits.values() for example in held]
    assert len(set(ids)) == 3


def test_its_options_are_its_own_and_survive_json(name: str, tmp_path: Path) -> None:
    options = WRITERS[name](tmp_path)
    kind = resolve("data format", FORMATS, name)
    assert issubclass(kind.Options, ReaderOptions)
    parsed: BaseModel = parse_options(name, kind.Options, options)
    again = parse_options(name, kind.Options, parsed.model_dump(mode="json"))
    assert again == parsed
    with pytest.raises(RequestError, match="bogus"):
        build_reader(name, {**options, "bogus": 1})
    with pytest.raises(RequestError, match="path: is required"):
        build_reader(name, {})


def test_a_file_that_is_not_there_is_no_data(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_dataset(name, {"path": tmp_path / "absent", "images_root": tmp_path})
    assert caught.value.code == "no_data"
    assert "absent" in caught.value.detail


def test_reading_twice_gives_the_same(name: str, tmp_path: Path) -> None:
    options = WRITERS[name](tmp_path)
    assert read_dataset(name, options) == read_dataset(name, options)


def test_the_error_of_an_unknown_format_lists_it(name: str) -> None:
    with pytest.raises(UnknownNameError, match=name):
        read_dataset("no such format", {})
