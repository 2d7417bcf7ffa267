"""What ``check_data`` finds."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.training.data.tiny import WRITERS, picture, write_tar
from training.data_check import check_data


def tsv(folder: Path, *rows: str, **options: Any) -> dict[str, Any]:
    (folder / "captions.tsv").write_text("\n".join(["image\tcaption", *rows]), encoding="utf-8")
    return {"path": folder / "captions.tsv", "images_root": folder, **options}


def test_sizes_of_what_a_run_would_use(tmp_path: Path) -> None:
    found = check_data("coco", WRITERS["coco"](tmp_path))
    assert asdict(found.splits["train"]) == {
        "images": 2,
        "captions": 3,
        "fewest_captions": 1,
        "most_captions": 2,
        "mean_words": 11 / 3,  # a red picture; all of it is red; a blue picture
        "most_words": 5,
        "repeated_captions": 0,
    }
    assert list(found.splits) == ["train", "val"]
    assert found.clean and found.refusal is None and found.decoded is None


def test_every_missing_picture_is_told_though_a_run_would_refuse_them(tmp_path: Path) -> None:
    rows = [f"{number}.png\ta cat" for number in range(9)]
    found = check_data("tsv", tsv(tmp_path, *rows))
    assert [defect.position for defect in found.defects] == [f"line {number}" for number in range(2, 11)]
    assert found.refusal is not None and found.refusal.startswith("missing_image: images missing: 9 (")
    assert not found.clean
    (tmp_path / "3.png").write_bytes(picture())
    skipped = check_data("tsv", tsv(tmp_path, *rows, on_missing="skip"))
    assert skipped.refusal is None and not skipped.clean and skipped.splits["train"].images == 1


def test_data_of_which_nothing_is_left_are_told_row_by_row(tmp_path: Path) -> None:
    found = check_data("tsv", tsv(tmp_path, "../a.png\tx", "b.png\t"))
    assert [defect.position for defect in found.defects] == ["line 2", "line 3", "line 3"]
    assert found.refusal is not None and found.refusal.startswith("no_data")
    assert found.splits == {}


def test_pictures_are_decoded_and_compared_on_request(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture())
    (tmp_path / "b.png").write_bytes(b"<html>")
    (tmp_path / "c.png").write_bytes(picture())
    (tmp_path / "d.png").write_bytes(picture((1, 2, 3)))
    options = tsv(tmp_path, *(f"{name}.png\ta cat" for name in "abcd"))
    assert check_data("tsv", options).clean
    told: list[tuple[int, int]] = []
    found = check_data("tsv", options, images=True, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert found.decoded == 3 and not found.clean
    assert [(Path(one.position).name, one.reason, one.effect) for one in found.defects] == [
        ("b.png", "picture is not_an_image", "unreadable"),
        ("c.png", "picture has the content of another in the same split", "kept"),
    ]
    assert found.splits["train"].repeated_captions == 3


def test_a_picture_that_two_splits_share_by_content_is_told(tmp_path: Path) -> None:
    for split in ("train", "val"):
        write_tar(tmp_path / f"{split}.tar", {f"{split}.png": picture(), f"{split}.txt": b"a cat"})
    options = {"path": {"train": "train.tar", "val": "val.tar"}, "images_root": tmp_path}
    (defect,) = check_data("webdataset", options, images=True).defects
    assert defect.reason == "picture has the content of another in split 'train'"
    assert defect.detail == f"{tmp_path / 'train.tar'}:train.png"


def test_both_forms_hold_everything(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture())
    found = check_data(
        "tsv", tsv(tmp_path, "a.png\ta cat sits", "a.png\t", "b.png\ta dog", on_missing="skip"), images=True
    )
    assert list(found.to_lines()) == [
        "split  images  captions  per image  mean words  most words  repeated",
        "train       1         1          1         3.0           3         0",
        "dropped: line 3 (image a.png): empty caption",
        f"missing: line 4 (image b.png): no such image file: {tmp_path / 'b.png'}",
        "pictures decoded: 1",
        "defects: 1 dropped (empty caption); 1 missing (no such image file)",
    ]
    body = json.loads(json.dumps(found.to_json()))
    assert body["clean"] is False and body["decoded"] == 1 and body["refusal"] is None
    assert body["splits"]["train"]["mean_words"] == 3.0
    assert body["defects"][0] == {
        "position": "line 3",
        "image_id": "a.png",
        "reason": "empty caption",
        "detail": "",
        "effect": "dropped",
    }
