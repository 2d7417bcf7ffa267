"""Bytes and pixels of an example, and what is said where there are none."""

import os
from pathlib import Path

import pytest

from models.errors import ImageError
from models.images import ImageLimits
from tests.training.data.tiny import picture, write_tar
from training.data import Example, Member


def in_tar(folder: Path, content: bytes) -> Example:
    path = write_tar(folder / "0.tar", {"1.png": content})
    return Example("1", path, ("a cat",), Member("1.png", 512, len(content)))


def test_a_file_and_a_member_give_the_same(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(picture())
    file, member = Example("1", tmp_path / "1.png", ("a cat",)), in_tar(tmp_path, picture())
    assert file.read() == member.read() == picture()
    assert file.load().image.tobytes() == member.load().image.tobytes()
    assert (file.file_name, member.file_name) == ("1.png", "1.png")
    assert (file.source, member.source) == (str(tmp_path / "1.png"), f"{tmp_path / '0.tar'}:1.png")


def test_no_more_is_read_than_shows_that_it_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(bytes(5000))
    limits = ImageLimits(max_bytes=1000)
    for example in (Example("1", tmp_path / "1.png", ("a cat",)), in_tar(tmp_path, bytes(5000))):
        assert len(example.read(limits)) == 1001
        with pytest.raises(ImageError, match=r"1\.png") as caught:
            example.load(limits)
        assert caught.value.code == "too_large"


def test_what_is_no_file_is_unreadable(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("gone", "pipe", "."):
        for member in (None, Member("1.png", 0, 10)):
            example = Example("1", tmp_path / name, ("a cat",), member)
            for read in (example.read, example.load):
                with pytest.raises(ImageError, match=str(tmp_path)) as caught:
                    read()
                assert caught.value.code == "unreadable"
