"""Rows of opened pictures: one fails alone, equal bytes are captioned once, options do what they do over HTTP."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL.Image import Image

from models.catalog import FAKE_CARD
from models.decoding import parse_decode
from models.errors import RequestError
from models.families.fake import FakeCaptioner
from models.pipeline import CaptionPipeline, PipelineResult, load_pipeline
from serving.args import AppArgs
from serving.folders.captioning import CaptionRows, HowToWrite, OncePerContent, Place
from serving.folders.job import FolderJob
from serving.folders.opening import open_picture
from serving.folders.pictures import Opened, Picture
from serving.local_models import Wish
from serving.model_pool import load_models
from tests.models.mixing.tiny_dial import write_dial
from tests.serving.folders.support import listed, write_pictures
from tests.serving.support import b64, local_models, png
from tests.tiny_scorer import write_tiny_scorer

GREEDY = parse_decode({"name": "greedy"})


class Breaks(CaptionPipeline):
    """The fake captioner, which raises where it sees a picture of one size."""

    def __init__(self, breaks: Callable[[Image], bool], error: Exception) -> None:
        super().__init__(FakeCaptioner(), model_id="fake", card=FAKE_CARD)
        self.breaks = breaks
        self.error = error
        self.batches: list[int] = []

    def caption(self, images: Sequence[Image], *arguments: Any, **options: Any) -> PipelineResult:
        self.batches.append(len(images))
        if any(map(self.breaks, images)):
            raise self.error
        return super().caption(images, *arguments, **options)


def opened(folder: Path, **options: Any) -> list[Opened]:
    return [open_picture(picture, **options) for picture in listed(folder)]


def rows_of(pipeline: CaptionPipeline) -> CaptionRows:
    return CaptionRows(Place(pipeline), HowToWrite(GREEDY))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_pictures(tmp_path, "a.png", "c.png")
    (tmp_path / "b.png").write_bytes(png("red", (5, 5)))
    (tmp_path / "d.png").write_bytes(b"<html>")
    return tmp_path


def test_a_picture_on_which_the_model_fails_fails_alone(folder: Path) -> None:
    pipeline = Breaks(lambda image: image.size == (5, 5), RuntimeError("no such kernel"))
    found = rows_of(pipeline)(opened(folder))
    assert [row["file_name"] for row in found] == ["a.png", "b.png", "c.png", "d.png"]
    assert [row["error"] and row["error"]["code"] for row in found] == [None, "internal_error", None, "not_an_image"]
    assert found[1]["error"]["detail"] == "the model failed on this picture: RuntimeError('no such kernel')"
    assert pipeline.batches == [3, 1, 1, 1]
    assert [row["captions"] for row in found[::2]] == [
        row["captions"] for row in rows_of(load_pipeline("fake", scorer=None))(opened(folder))[::2]
    ]


def test_a_model_that_fails_on_every_picture_stops_the_run(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="no such kernel"):
        rows_of(Breaks(lambda image: True, RuntimeError("no such kernel")))(opened(folder))


def test_so_does_one_that_fails_on_one_batch_of_one_after_the_other(folder: Path) -> None:
    found = [each for each in opened(folder) if each.picture.name != "d.png"]
    small = [each for each in found if each.picture.name == "b.png"]
    rows = rows_of(Breaks(lambda image: image.size == (5, 5), RuntimeError("no such kernel")))
    for batch in (15 * [small], [found[:1]], 15 * [small], [opened(folder)[3:]]):
        assert [len(rows(each)) for each in batch] == [1] * len(batch)
    with pytest.raises(RuntimeError, match="no such kernel"):
        rows(small)


def test_an_option_that_the_model_refuses_stops_the_run_at_once(folder: Path) -> None:
    pipeline = Breaks(lambda image: True, RequestError("unsupported_option", "not this one"))
    with pytest.raises(RequestError):
        rows_of(pipeline)(opened(folder))
    assert pipeline.batches == [3]


def test_nothing_but_failures_needs_no_model(folder: Path) -> None:
    pipeline = Breaks(lambda image: True, RuntimeError())
    [row] = rows_of(pipeline)(opened(folder)[3:])
    assert row["error"]["code"] == "not_an_image" and row["model"] == "fake"


def test_pictures_of_the_same_bytes_are_captioned_once(folder: Path) -> None:
    for name in ("b2.png", "e.png"):
        (folder / name).write_bytes((folder / "b.png").read_bytes())
    (folder / "d2.png").write_bytes(b"<html>")
    pipeline = Breaks(lambda image: False, RuntimeError())
    rows = OncePerContent(rows_of(pipeline))
    found = opened(folder, digest=True)
    first, second = rows(found[:5]), rows(found[5:])
    assert pipeline.batches == [3, 0]  # a, b and c; e is known by then
    by_name = {row["file_name"]: row for row in first + second}
    assert list(by_name) == ["a.png", "b.png", "b2.png", "c.png", "d.png", "d2.png", "e.png"]
    captions = {name: row["captions"] for name, row in by_name.items()}
    assert captions["b.png"] == captions["b2.png"] == captions["e.png"] != captions["a.png"]
    details = [by_name[name]["error"]["detail"] for name in ("d.png", "d2.png")]
    assert "'d.png'" in details[0].replace(str(folder) + "/", "") and "d2.png" in details[1]  # each names itself


def test_a_note_on_the_picture_is_in_its_row(case_images: Path) -> None:
    path = next(path for path in sorted(case_images.iterdir()) if "anim" in path.name and path.suffix == ".gif")
    [row] = rows_of(load_pipeline("fake", scorer=None))([open_picture(Picture(path.name, str(path)))])
    assert any("frame" in note for note in row["notes"])


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dial(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def tiny_scorer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"local-dir:{write_tiny_scorer(tmp_path_factory.mktemp('scorer') / 'tiny')}"


OPTIONS: list[dict[str, Any]] = [
    {"num_captions": 2, "rerank": True},
    {"min_clip_score": 2.4},
    {"descriptiveness": 0.5},
    {"mix": {"smile": 0.5}, "num_captions": 3},
    {"decode": {"name": "sample", "options": {"seed": 7, "temperature": 0.7}}},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_rows_are_results_of_the_server_for_the_same_options(
    tmp_path: Path, models_dir: Path, tiny_scorer: str, options: dict[str, Any]
) -> None:
    folder = write_pictures(tmp_path, "a.png", "b.png", "c.png")
    decode = options.get("decode", {"name": "beam", "options": {"beams": 4, "max_tokens": 8}})
    wish = Wish("dial", options.get("descriptiveness", 1.0 if "mix" not in options else None), options.get("mix"))
    asked = {"score": True} | {
        key: options[key] for key in ("num_captions", "rerank", "min_clip_score") if key in options
    }
    job = FolderJob(wish, decode, scorer=tiny_scorer, models_dir=models_dir, device="cpu", **asked)
    job.check()
    rows = job.load()(opened(folder))
    request = {
        "images": [{"base64": b64(path.read_bytes())} for path in sorted(folder.iterdir())],
        "decode": decode,
        **asked,
        **({"mix": wish.mix} if wish.mix else {"descriptiveness": wish.descriptiveness}),
    }
    expected = asyncio.run(over_http(request, models_dir, tiny_scorer))
    assert [row.pop("model") for row in rows] == ["dial"] * 3
    for row, result in zip(rows, expected, strict=True):
        del row["file_name"], result["index"]
        for found, wanted in zip(row["captions"], result["captions"], strict=True):
            assert found.pop("clip_score") == pytest.approx(wanted.pop("clip_score"), abs=1e-5)
            assert found.pop("logprob") == pytest.approx(wanted.pop("logprob"), abs=1e-4)
        assert row == result
    assert {row["fallback"] for row in rows} == {"min_clip_score" in options}


def test_rows_of_arms_are_those_of_the_server(tmp_path: Path, models_dir: Path, tiny_scorer: str) -> None:
    folder = write_pictures(tmp_path, "a.png", "b.png")
    (folder / "c.png").write_bytes(b"<html>")
    arms = (("short", Wish("dial", 0.0)), ("long", Wish("dial", 1.0)))
    job = FolderJob(Wish("dial"), arms=arms, scorer=tiny_scorer, models_dir=models_dir, device="cpu")
    job.check()
    rows = job.load()(opened(folder))
    assert rows[2]["error"]["code"] == "not_an_image"
    request = {
        "images": [{"base64": b64(path.read_bytes())} for path in sorted(folder.iterdir())],
        "arms": [{"label": label, "model": "dial", "descriptiveness": wish.descriptiveness} for label, wish in arms],
    }
    answer = asyncio.run(answer_to("/v1/compare", request, models_dir, tiny_scorer))
    for number, arm in enumerate(answer["arms"]):
        for row, result in zip(rows, arm["results"], strict=True):
            found = row["arms"][number]
            assert (found["label"], found["model"]) == (arm["label"], "dial")
            assert [each["text"] for each in found["captions"]] == [each["text"] for each in result["captions"]]
            assert [each["clip_score"] for each in found["captions"]] == pytest.approx(
                [each["clip_score"] for each in result["captions"]], abs=1e-5
            )


async def over_http(request: dict[str, Any], models_dir: Path, scorer: str) -> list[dict[str, Any]]:
    rerank = {"rerank": "clip_score"} if request.pop("rerank", False) else {}
    request["decode"] = {**request["decode"], **rerank}
    results: list[dict[str, Any]] = (await answer_to("/v1/captions", request, models_dir, scorer))["results"]
    return results


async def answer_to(route: str, request: dict[str, Any], models_dir: Path, scorer: str) -> dict[str, Any]:
    args = AppArgs(models=("dial",), models_dir=models_dir, scorer=scorer, device="cpu")
    async with local_models(load_models(args), args) as (client, _):
        answer = await client.post(route, json=request)
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content
