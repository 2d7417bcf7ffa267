"""The models that come with limner are whole: their files are what their cards say, and they load."""

from pathlib import Path

import pytest

from models.card import ArithmeticCard, FilePart, MixCard, SpectrumCard
from models.catalog import (
    BUNDLED,
    DEFAULT_MODEL,
    DEFAULT_SCORER,
    CaptionerEntry,
    find_captioner,
    find_scorer,
    list_models,
)
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
        assert entry.card.data and entry.card.origin and entry.card.licence
        calibrated = isinstance(entry.card, SpectrumCard) and entry.card.calibration
        assert calibrated or any(measurement.split == "test" for measurement in entry.card.measurements)
        listed = {*entry.card.files, "card.json"}
        if not isinstance(entry.card, ArithmeticCard):
            of_one_run = "mean of" not in entry.card.description
            assert entry.card.objective
            reproducible = entry.card.seed is not None and entry.card.git_revision and "recipe.yaml" in entry.card.files
            assert bool(reproducible) is of_one_run
            listed |= {part.file for part in entry.card.parts.values() if isinstance(part, FilePart)}
        assert {path.name for path in entry.path.iterdir()} == listed


def _mean_words(model: str) -> float:
    measured = (each.values for each in find_captioner(model).card.measurements if each.split == "test")
    return next(values["mean_words"] for values in measured if "mean_words" in values)


def test_the_mixes_are_of_the_bundled_directions_and_say_more() -> None:
    for name in ("descriptive", "distinctive"):
        card = find_captioner(name).card
        assert isinstance(card, MixCard)
        assert (card.base.model, set(card.directions)) == ("concise", {"smile", "contrastive", "scst"})
        assert all(direction == named.model for direction, named in card.directions.items())
    assert _mean_words("descriptive") >= 1.3 * _mean_words("concise")
    assert _mean_words("distinctive") <= 1.15 * _mean_words("concise")


def test_the_dial_goes_from_concise_by_way_of_distinctive() -> None:
    card = find_captioner("dial").card
    assert isinstance(card, SpectrumCard) and card.calibration is not None
    assert card.base.model == "concise" and card.default == 0.2
    assert [point.descriptiveness for point in card.grid] == [number / 20 for number in range(21)]
    mix = find_captioner("distinctive").card
    assert isinstance(mix, MixCard)
    assert card.nearest(card.default).coefficients == mix.coefficients
    assert all(card.directions[name].sha256 == each.sha256 for name, each in mix.directions.items())
    assert card.grid[0].coefficients == {}
    words = [point.expected_words for point in card.grid if point.expected_words is not None]
    assert len(words) == 21 and words == sorted(words) and words[-1] >= 1.3 * words[0]
    for point in card.grid:
        assert point.measures["clip_score"] >= card.grid[0].measures["clip_score"]
        assert point.measures["r_at_1"] >= card.grid[0].measures["r_at_1"]
        assert point.measures["repetition"] <= 0.05


@pytest.mark.parametrize("model", [entry.id for entry in list_models() if isinstance(entry, CaptionerEntry)])
def test_every_captioner_captions(model: str) -> None:
    photograph = read_image(Path(__file__).parents[2] / "examples" / "camera.jpg").image
    loaded = load_pipeline(model, scorer=None, device="cpu")
    strategy = parse_decode(None, loaded.card.decoding)
    first, second = (loaded.caption([photograph], strategy).captions for _ in range(2))
    assert first == second and first[0][0].finish_reason == "stop" and "man" in first[0][0].text


def test_captioner_and_scorer_share_their_word_pieces() -> None:
    first, second = (BUNDLED / name / "tokenizer.json" for name in ("concise", DEFAULT_SCORER))
    assert first.read_bytes() == second.read_bytes()


def test_a_picture_gets_a_caption_and_a_score(pipeline: CaptionPipeline) -> None:
    photograph = read_image(Path(__file__).parents[2] / "examples" / "camera.jpg").image
    assert isinstance(pipeline.card, SpectrumCard)
    (captions,) = pipeline.caption([photograph], parse_decode(None, pipeline.card.decoding), score=True).captions
    assert "camera" in captions[0].text
    assert captions[0].finish_reason == "stop"
    assert len(captions[0].text.split()) >= 3
    assert captions[0].clip_score is not None and 0 <= captions[0].clip_score <= 2.5
    assert captions[0].scorer == DEFAULT_SCORER
