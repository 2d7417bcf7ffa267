"""Calibration of a tiny spectrum on tiny pictures."""

from dataclasses import replace
from pathlib import Path

import pytest

from models import cli
from models.card import SpectrumCard, read_card
from models.catalog import find_captioner
from models.errors import RequestError
from tests.models.mixing.tiny_space import DECODING, write_space, write_tiny_spectrum
from tests.tiny_scorer import write_tiny_scorer
from tests.training.evaluation.support import write_splits
from training.calibrate import calibrate
from training.data.selection import Selection
from training.evaluate import evaluate
from training.evaluation.settings import EvaluationSettings, Subject


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Selection:
    return replace(write_splits(tmp_path_factory.mktemp("data")), split="test")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> EvaluationSettings:
    scorer = f"local-dir:{write_tiny_scorer(tmp_path_factory.mktemp('scorer') / 'tiny')}"
    return EvaluationSettings(scorers=[scorer], tokenizer="python", device="cpu")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, data: Selection, settings: EvaluationSettings) -> Path:
    root = write_space(tmp_path_factory.mktemp("space"))
    write_tiny_spectrum(root)
    calibrate(find_captioner("tiny-dial", root), data, replace(settings, models_dir=root))
    return root


def test_every_point_keeps_what_an_evaluation_there_gives(
    root: Path, data: Selection, settings: EvaluationSettings
) -> None:
    card = read_card(root / "tiny-dial")
    assert isinstance(card, SpectrumCard) and card.calibration is not None
    assert (card.calibration.split, card.calibration.images) == ("test", len(data.read()[0]))
    assert card.calibration.decoding.options["beams"] == DECODING.options["beams"]
    assert card.calibration.scorer == "tiny"
    subject = Subject("tiny-dial", descriptiveness=0.7)
    measured = evaluate(subject, data, replace(settings, models_dir=root))
    assert measured.context["descriptiveness"] == 0.7
    values = {number.name: number.value for number in measured.measurements}
    point = card.nearest(0.7)
    assert point.expected_words == pytest.approx(values["mean_words"], abs=1e-3)
    for name in ("clip_score", "r_at_1", "repetition", "content_precision"):
        assert point.measures[name] == pytest.approx(values[name], abs=1e-4)
    assert len({each.measures["clip_score"] for each in card.grid}) > 1


def test_nothing_else_of_the_card_changes(root: Path, tmp_path: Path) -> None:
    other = write_space(tmp_path)
    fresh = write_tiny_spectrum(other)
    card = read_card(root / "tiny-dial")
    assert isinstance(card, SpectrumCard)
    bare = [each.model_copy(update={"expected_words": None, "measures": {}}) for each in card.grid]
    assert card.model_copy(update={"grid": bare, "calibration": None}) == fresh


def test_what_cannot_be_calibrated(root: Path, data: Selection, settings: EvaluationSettings) -> None:
    with pytest.raises(RequestError, match="'base' is no spectrum"):
        calibrate(find_captioner("base", root), data, settings)
    with pytest.raises(RequestError, match="exactly one scorer"):
        calibrate(find_captioner("tiny-dial", root), data, replace(settings, scorers=[]))


def test_a_place_on_what_is_no_spectrum_is_refused(root: Path, data: Selection, settings: EvaluationSettings) -> None:
    with pytest.raises(RequestError, match="model 'base' has no spectrum"):
        evaluate(Subject("base", descriptiveness=0.5), data, replace(settings, models_dir=root))


def test_the_command(
    root: Path, data: Selection, settings: EvaluationSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", data.options["path"], "--images-root", data.options["images_root"], "--split", "test"]
    words += ["--scorer", settings.scorers[0], "--tokenizer", "python", "--device", "cpu", "--models-dir", root]
    assert cli.run(["models", "calibrate", "tiny-dial", *map(str, words), "--threads", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("\t") == ["descriptiveness", "words", "clip_score", "r_at_1"]
    assert [line.split("\t")[0] for line in lines[1:]] == [f"{number / 20:.2f}" for number in range(21)]
