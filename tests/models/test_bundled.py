"""The models that come with limner are whole: their files are what their cards say, and they load."""

from pathlib import Path

import pytest

from models.card import WeightsCard
from models.catalog import BUNDLED, DEFAULT_MODEL, DEFAULT_SCORER, find_captioner, find_scorer, list_models
from models.decoding import parse_decode
from models.file_hashes import verify_files
from models.images import read_image
from models.pipeline import CaptionPipeline, load_pipeline


@pytest.fixture(scope="module")
def pipeline() -> CaptionPipeline:
    return load_pipeline(DEFAULT_MODEL, scorer=DEFAULT_SCORER, device="cpu")


def test_the_defaults_are_bundled() -> None:
    assert find_captioner(DEFAULT_MODEL).path == BUNDLED / DEFAULT_MODEL
    assert find_scorer(DEFAULT_SCORER).path == BUNDLED / DEFAULT_SCORER


def test_every_card_is_true_and_complete() -> None:
    for entry in list_models():
        assert entry.path is not None
        verify_files(entry.path, entry.card)
        assert entry.card.id == entry.id
        assert entry.card.data and entry.card.origin and entry.card.seed is not None
        assert any(measurement.split == "test" for measurement in entry.card.measurements)
        listed = {
            *entry.card.files,
            "card.json",
            *(part.file for part in entry.card.parts.values() if hasattr(part, "file")),
        }
        assert {path.name for path in entry.path.iterdir()} == listed


def test_captioner_and_scorer_share_their_word_pieces() -> None:
    first, second = (BUNDLED / name / "tokenizer.json" for name in (DEFAULT_MODEL, DEFAULT_SCORER))
    assert first.read_bytes() == second.read_bytes()


def test_a_picture_gets_a_caption_and_a_score(pipeline: CaptionPipeline) -> None:
    photograph = read_image(Path(__file__).parents[2] / "examples" / "camera.jpg").image
    assert isinstance(pipeline.card, WeightsCard)
    (captions,) = pipeline.caption([photograph], parse_decode(None, pipeline.card.decoding), score=True).captions
    assert "camera" in captions[0].text
    assert captions[0].finish_reason == "stop"
    assert len(captions[0].text.split()) >= 3
    assert captions[0].clip_score is not None and 0 <= captions[0].clip_score <= 2.5
    assert captions[0].scorer == DEFAULT_SCORER
