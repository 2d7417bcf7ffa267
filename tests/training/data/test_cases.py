"""Every case of ``tests/cases/data.json`` has the outcome that it asks for."""

import json
from pathlib import Path
from typing import Any

import pytest

from models.errors import DataError, ImageError
from tests.support import CASES
from training.data import Dataset, Example, build_reader, read_dataset

CASE_LIST = json.loads((CASES / "data.json").read_text(encoding="utf-8"))["cases"]


def case_id(case: dict[str, Any]) -> str:
    return str(case["file"]).removeprefix("data/")


def of_kind(*starts: str) -> list[Any]:
    chosen = [case for case in CASE_LIST if case_id(case).startswith(starts)]
    return [pytest.param(case, id=case_id(case)) for case in chosen]


def read(name: str, case: dict[str, Any], **options: Any) -> Dataset:
    root = CASES / case.get("images_root", "data/images")
    return build_reader(name, {"path": CASES / case["file"], "images_root": root, **options}).read()


PICTURES = [
    pytest.param(case, id=case_id(case)) for case in CASE_LIST if Path(case["file"]).suffix in (".jpg", ".jpeg")
]


def test_every_case_is_run_by_a_test_below() -> None:
    run = [*PICTURES, *of_kind("coco_", "karpathy", "blip_", "imagefolder/metadata")]
    assert sorted(parameter.id for parameter in run) == sorted(map(case_id, CASE_LIST))


@pytest.mark.parametrize("case", PICTURES)
def test_pictures(case: dict[str, Any]) -> None:
    example = Example("x", CASES / case["file"], ("a caption",))
    if case["expect"] == "caption":
        assert example.load().image.mode == "RGB"
        return
    with pytest.raises(ImageError) as caught:
        example.load()
    assert case["expect"] == f"error: {caught.value.code}"


@pytest.mark.parametrize("case", of_kind("coco_"))
def test_coco(case: dict[str, Any]) -> None:
    if case["expect"] != "caption":
        with pytest.raises(DataError) as caught:
            read("coco", case)
        assert case["expect"] == f"error: {caught.value.code}"
        return
    dataset = read("coco", case)
    assert (dataset.report.images["train"], dataset.report.pairs["train"]) == tuple(case["want"].values())
    if case["want"]["images"]:
        assert all(example.load().image for example in dataset.split("train"))
    else:
        with pytest.raises(DataError) as caught:
            read_dataset("coco", {"path": CASES / case["file"], "images_root": CASES / case["images_root"]})
        assert caught.value.code == "no_data"


@pytest.mark.parametrize("case", of_kind("karpathy"))
def test_karpathy(case: dict[str, Any]) -> None:
    report, want = read("karpathy", case, on_missing="keep").report, case["want"]
    assert (report.images["train"], report.pairs["train"]) == (want["train_images"], want["train_pairs"])
    assert {split: report.images[split] for split in ("val", "test") if split in want}.items() <= want.items()
    unknown = sum(count for reason, count in report.dropped_by_reason.items() if reason.startswith("unknown split"))
    assert unknown == want.get("unknown_split", 0)


@pytest.mark.parametrize("case", of_kind("blip_"))
def test_flat_list(case: dict[str, Any]) -> None:
    report = read("karpathy", case, flat_split="val").report
    assert (report.images["val"], report.pairs["val"]) == (case["want"]["images"], case["want"]["references"])


@pytest.mark.parametrize("case", of_kind("imagefolder/metadata"))
def test_imagefolder(case: dict[str, Any]) -> None:
    if "also_ok" in case:
        with pytest.raises(DataError, match="it has: image, caption, file_name, prompt") as caught:
            read("imagefolder", case)
        assert caught.value.code == "wrong_schema"
        return
    report, want = read("imagefolder", case).report, case["want"]
    assert report.pairs["train"] == want["pairs"]
    assert len(report.missing) == want.get("missing_files", 0)
    unlisted = report.dropped_by_reason.get("picture without a row", 0)
    assert unlisted == want.get("unlisted_files", unlisted)
