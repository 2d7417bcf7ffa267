"""Captions from files: every form, how pictures are found, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from models.errors import DataError
from tests.training.evaluation.support import example
from training.evaluation.captions_file import FoundCaptions, find_captions, read_captions

EXAMPLES = [example("7", "images/a.jpg"), example("x1", "images/b.jpg")]


def write(folder: Path, content: Any, *, lines: bool = False) -> Path:
    path = folder / "captions.json"
    text = "\n".join(map(json.dumps, content)) + "\n\n" if lines else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return path


def found(path: Path, num_captions: int = 1, examples: Any = EXAMPLES) -> FoundCaptions:
    return find_captions(read_captions(path), examples, path, num_captions)


def test_coco_results_are_paired_by_id(tmp_path: Path) -> None:
    rows = [{"image_id": "x1", "caption": "b"}, {"image_id": 7, "caption": " a  dog\u2028barks "}]
    result = found(write(tmp_path, rows))
    assert result.texts == (("a  dog barks",), ("b",))
    assert result.finish_reasons is None
    assert result.notes == ()


def test_json_lines_are_paired_by_file_name(tmp_path: Path) -> None:
    rows = [{"file_name": "deep/b.jpg", "caption": "b"}, {"file": "a.jpg", "caption": "a"}]
    assert found(write(tmp_path, rows, lines=True)).texts == (("a",), ("b",))


def test_rows_of_limner_caption_bring_several_captions_and_why_they_ended(tmp_path: Path) -> None:
    captions = [{"text": "a", "finish_reason": "length"}, {"text": "aa", "finish_reason": "stop"}]
    rows = [
        {"file_name": "a.jpg", "captions": captions, "model": "m", "error": None},
        {"file_name": "b.jpg", "captions": [{"text": "b", "finish_reason": "stop"}]},
    ]
    path = write(tmp_path, rows, lines=True)
    result = found(path)
    assert result.texts == (("a",), ("b",))
    assert result.finish_reasons == ("length", "stop")
    assert result.notes == ("1 images have more captions, of which the first count: 7",)
    with pytest.raises(DataError, match="fewer than 2 captions of 1 images: x1"):
        found(path, 2)


def test_rows_of_an_evaluation_are_read_back(tmp_path: Path) -> None:
    row = {"caption": "a", "candidates": ["a", "aa"], "finish_reason": "stop"}
    rows = [{"image_id": "7", "file": "a.jpg", **row}, {"image_id": "x1", "file": "b.jpg", **row}]
    assert found(write(tmp_path, rows, lines=True), 2).texts == (("a", "aa"), ("a", "aa"))


def test_several_rows_of_a_picture_are_its_candidates(tmp_path: Path) -> None:
    rows = [{"image_id": image_id, "caption": f"{image_id} {n}"} for n in range(3) for image_id in ("7", "x1")]
    assert found(write(tmp_path, rows), 2).texts == (("7 0", "7 1"), ("x1 0", "x1 1"))
    (note,) = found(write(tmp_path, rows)).notes
    assert note == "2 images have more captions, of which the first count: 7, x1"


def test_captions_of_other_pictures_are_noted_and_missing_ones_refused(tmp_path: Path) -> None:
    rows = [{"image_id": n, "caption": "x"} for n in (7, 8, 9)]
    path = write(tmp_path, rows)
    assert found(path, examples=EXAMPLES[:1]).notes == ("2 rows are of images that are not measured",)
    with pytest.raises(DataError, match=r"no caption of 1 images: x1") as caught:
        found(path)
    assert caught.value.code == "missing_ids"


def test_an_empty_caption_is_one(tmp_path: Path) -> None:
    rows = [{"image_id": "7", "caption": ""}, {"image_id": "x1", "caption": "b"}]
    assert found(write(tmp_path, rows)).texts == (("",), ("b",))


def test_equal_names_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    twins = [example("1", "root/x/a.jpg"), example("2", "root/y/a.jpg")]
    rows = [{"file_name": "y/a.jpg", "caption": "y"}, {"file_name": "x/a.jpg", "caption": "x"}]
    assert found(write(tmp_path, rows), examples=twins).texts == (("x",), ("y",))
    with pytest.raises(DataError, match="2 images are called 'a.jpg'"):
        found(write(tmp_path, [{"file_name": "a.jpg", "caption": "?"}]), examples=twins)


def test_an_id_and_a_name_of_different_pictures_are_refused(tmp_path: Path) -> None:
    rows = [{"image_id": "7", "file_name": "b.jpg", "caption": "?"}]
    with pytest.raises(DataError, match="'b.jpg' is image 'x1', not '7'"):
        found(write(tmp_path, rows))


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("", "no_data", "no captions"),
        ("[]", "no_data", "no captions"),
        ("[{]", "not_json", "the file is not JSON"),
        ('{"image_id": 1, "caption": "a"}\nnonsense', "not_json", "line 2 is not JSON"),
        ('{"image_id": 1, "caption": null}', "wrong_schema", "line 1"),
        ('{"caption": "a"}', "wrong_schema", "image_id"),
        ('{"image_id": true, "caption": "a"}', "wrong_schema", "line 1"),
        ('[{"image_id": 1, "caption": "a"}, 3]', "wrong_schema", r"\[1\] is a int"),
        ('{"images": [], "annotations": [{"caption": "a"}]}', "wrong_schema", "a COCO captions file"),
    ],
)
def test_what_is_no_file_of_captions_is_named(tmp_path: Path, text: str, code: str, message: str) -> None:
    path = tmp_path / "captions.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        read_captions(path)
    assert caught.value.code == code


def test_bytes_that_are_no_text_and_absent_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b'{"image_id": 1, "caption": "caf\xe9"}')
    with pytest.raises(DataError, match="UTF-8"):
        read_captions(tmp_path / "x")
    with pytest.raises(DataError, match="cannot read"):
        read_captions(tmp_path / "absent")
