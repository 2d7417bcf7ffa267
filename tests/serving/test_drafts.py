"""Large JPEGs decoded smaller, alike by the server, the folder captioner and the scorer of the sample."""

import asyncio
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from models.cli import run as run_command
from models.clip_scorer import load_scorer
from models.decoding import parse_decode
from models.images import ImageLimits, load_image
from models.pipeline import CaptionPipeline, load_pipeline
from serving import engine, metrics, sample_scorer
from serving.args import AppArgs
from serving.engine import Engine
from serving.folders import opening
from serving.folders.captioning import OncePerContent
from serving.folders.job import FolderJob
from serving.folders.run import LocalStage
from serving.folders.sources import Sources
from serving.local_models import Wish
from serving.messages import CaptionJob, SampledImage, ScoreJob
from serving.model_pool import LoadedModel
from serving.quality import QualitySample
from serving.reports import Reporter
from serving.sample_scorer import SampleScorer
from tests.models.families.compact.tiny import save_compact
from tests.support import encoded
from tests.tiny_scorer import write_tiny_scorer

GREEDY = parse_decode({"name": "greedy"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_compact(tmp_path_factory.mktemp("models") / "compact")


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"local-dir:{write_tiny_scorer(tmp_path_factory.mktemp('scorers') / 'tiny')}"


@pytest.fixture(scope="module")
def pipeline(folder: Path, scorer: str) -> CaptionPipeline:
    return load_pipeline(str(folder), scorer=scorer, device="cpu")


@pytest.fixture(scope="module")
def jpeg() -> bytes:
    noise = np.random.default_rng(0).integers(0, 256, (600, 800, 3), dtype=np.uint8)
    return encoded(Image.fromarray(noise), "JPEG")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """Sizes at which pictures were opened in this process."""
    sizes: list[tuple[int, int]] = []

    def watched(*arguments: Any, **options: Any) -> Any:
        loaded = load_image(*arguments, **options)
        sizes.append(loaded.image.size)
        return loaded

    for module in (engine, opening, sample_scorer):
        monkeypatch.setattr(module, "load_image", watched)
    yield sizes


def run(pipeline: CaptionPipeline, *jobs: CaptionJob | ScoreJob, **args: Any) -> list[Any]:
    async def whole() -> list[Any]:
        options = AppArgs(models=(pipeline.model_id,), **args)
        at_work = Engine({pipeline.model_id: LoadedModel(pipeline)}, options, Reporter("test", metrics.REPORTS_LOST))
        try:
            return [await (at_work.caption(job) if isinstance(job, CaptionJob) else at_work.score(job)) for job in jobs]
        finally:
            at_work.close()

    return asyncio.run(whole())


def test_models_and_scorer_say_together_how_small(pipeline: CaptionPipeline, folder: Path) -> None:
    assert pipeline.draft_px == 128  # the captioner sees 64 px, the scorer 32
    assert load_pipeline(str(folder), scorer=None, device="cpu").draft_px == 128
    assert load_pipeline("fake", scorer=None, device="cpu").draft_px is None


def test_the_server_drafts_for_captions_and_scores_alike(
    pipeline: CaptionPipeline, jpeg: bytes, opened: list[tuple[int, int]]
) -> None:
    captions = CaptionJob("r", pipeline.model_id, (jpeg,), GREEDY)
    unscored_job = CaptionJob("r", pipeline.model_id, (jpeg,), GREEDY, score=False)
    reply, unscored = run(pipeline, captions, unscored_job, draft=True)
    [found] = reply.results[0].captions
    assert unscored.results[0].captions[0].text == found.text
    [scores] = run(pipeline, ScoreJob("r", pipeline.model_id, (jpeg,), ((found.text,),)), draft=True)
    assert scores.results[0].clip_scores == pytest.approx((found.clip_score,), abs=1e-5)
    assert opened == [(200, 150)] * 2  # the second caption is of features that are known
    draft = load_image(jpeg, draft_px=128).image
    [[expected]] = pipeline.caption([draft], GREEDY, score=True).captions
    assert (found.text, found.clip_score) == (expected.text, pytest.approx(expected.clip_score, abs=1e-5))


def test_the_server_opens_pictures_in_full_unless_it_is_told_otherwise(
    pipeline: CaptionPipeline, jpeg: bytes, opened: list[tuple[int, int]]
) -> None:
    job = CaptionJob("r", pipeline.model_id, (jpeg,), GREEDY, score=False)
    [reply] = run(pipeline, job)
    assert opened == [(800, 600)]
    [[expected]] = pipeline.caption([load_image(jpeg).image], GREEDY).captions
    assert reply.results[0].captions[0].text == expected.text


def test_the_scorer_of_the_sample_drafts_for_itself(scorer: str, jpeg: bytes, opened: list[tuple[int, int]]) -> None:
    for draft in (False, True):
        reporter = Reporter("test", metrics.REPORTS_LOST)
        sample = SampleScorer(lambda: load_scorer(scorer, device="cpu"), ImageLimits(), reporter, draft=draft)
        asyncio.run(sample.score([SampledImage(jpeg, QualitySample("m", "a dog", None, 1.25, False))]))
        sample.close()
    assert opened == [(800, 600), (100, 75)]  # it sees 32 px


@pytest.mark.parametrize("draft", [False, True])
@pytest.mark.parametrize("arms", [False, True])
def test_folders_are_captioned_as_the_server_does(
    pipeline: CaptionPipeline,
    folder: Path,
    scorer: str,
    jpeg: bytes,
    tmp_path: Path,
    opened: list[tuple[int, int]],
    draft: bool,
    arms: bool,
) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg)
    wish = Wish(str(folder))
    decode = {"name": "greedy"}
    both = (("one", wish), ("two", wish)) if arms else ()
    job = FolderJob(wish, decode, score=True, arms=both, scorer=scorer, device="cpu", draft=draft)
    assert job.options().get("draft", False) is draft
    stage = LocalStage(lambda: OncePerContent(job.load()), batch_size=2, workers=0, draft=job.draft)
    [[(_, row)]] = stage(iter(Sources([str(tmp_path)])), Counter())
    assert opened == [(200, 150) if draft else (800, 600)]
    [reply] = run(pipeline, CaptionJob("r", pipeline.model_id, (jpeg,), GREEDY), draft=draft)
    [expected] = reply.results[0].captions
    for found in row["arms"] if arms else [row]:
        assert found["captions"][0]["text"] == expected.text
        assert found["captions"][0]["clip_score"] == pytest.approx(expected.clip_score, abs=1e-5)


def test_orientation_and_size_do_not_depend_on_drafts(jpeg: bytes) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = encoded(Image.open(io.BytesIO(jpeg)), "JPEG", exif=exif)
    full, draft = load_image(turned), load_image(turned, draft_px=128)
    assert (full.size, draft.size, draft.image.size) == ((600, 800), (600, 800), (150, 200))


@pytest.mark.parametrize(
    ("words", "size"), [((), (800, 600)), (("--draft",), (200, 150)), (("--no-draft",), (800, 600))]
)
def test_the_command_line_turns_drafts_on(
    folder: Path,
    jpeg: bytes,
    tmp_path: Path,
    opened: list[tuple[int, int]],
    words: tuple[str, ...],
    size: tuple[int, int],
) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg)
    assert run_command(["caption", str(tmp_path / "a.jpg"), "--model", str(folder), "--device", "cpu", *words]) == 0
    assert opened == [size]
