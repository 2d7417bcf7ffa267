from dataclasses import dataclass
from pathlib import Path

import pytest

from models.card import CaptionerCard, SpectrumCard
from models.catalog import FAKE_CARD, find_captioner
from models.errors import LimnerError
from serving.points import Point, calibrated_words, concise_end, point_of
from tests.models.mixing.tiny_space import write_space, write_tiny_spectrum

WORDS = [8 + number / 4 for number in range(21)]  # 8 to 13


@dataclass(frozen=True)
class Knobs:
    descriptiveness: float | None = None
    mix: dict[str, float] | None = None
    target_words: int | None = None


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> SpectrumCard:
    return write_tiny_spectrum(write_space(tmp_path_factory.mktemp("space")), words=WORDS)


def test_a_number_is_rounded_to_the_grid(card: SpectrumCard) -> None:
    point = point_of("dial", card, Knobs(descriptiveness=0.36))
    assert point == Point((("smile", 0.7),), 0.35, WORDS[7], 1.07)
    assert point_of("dial", card, Knobs(descriptiveness=0.76)) == point_of("dial", card, Knobs(descriptiveness=0.75))


def test_what_can_be_asked_for_in_words(card: SpectrumCard) -> None:
    assert calibrated_words(card) == (8, 13)
    assert calibrated_words(FAKE_CARD) == (0, float("inf"))


def test_the_ends_are_the_anchors(card: SpectrumCard) -> None:
    assert point_of("dial", card, Knobs(descriptiveness=0.0)).coefficients == ()
    assert point_of("dial", card, Knobs(descriptiveness=1.0)).coefficients == (("contrastive", 2.0), ("smile", 0.5))


def test_who_asks_for_nothing_gets_the_default(card: SpectrumCard) -> None:
    assert point_of("dial", card, Knobs()).descriptiveness == card.default == 0.5
    assert point_of("fake", FAKE_CARD, Knobs()) == Point()


@pytest.mark.parametrize(("words", "at"), [(1, 0.0), (8, 0.0), (9, 0.2), (11, 0.6), (13, 1.0), (99, 1.0)])
def test_words_choose_the_point_with_that_mean(card: SpectrumCard, words: int, at: float) -> None:
    assert point_of("dial", card, Knobs(target_words=words)).descriptiveness == at


def test_a_mix_is_taken_as_it_is(card: SpectrumCard) -> None:
    point = point_of("dial", card, Knobs(mix={"smile": 0.37, "contrastive": 0.0}))
    assert point == Point((("smile", 0.37),))
    assert point_of("dial", card, Knobs(mix={})) == Point(())


@pytest.mark.parametrize(
    ("knobs", "code", "words"),
    [
        (Knobs(descriptiveness=0.5, target_words=9), "invalid_request", "descriptiveness and target_words"),
        (Knobs(mix={"smile": 4.5}), "invalid_request", "coefficient 4.5 of direction 'smile'"),
        (Knobs(mix={"smile": float("nan")}), "invalid_request", "coefficient nan"),
        (Knobs(mix={"glow": 1.0}), "unknown_name", "there are: contrastive, smile"),
    ],
)
def test_what_cannot_be_had(card: SpectrumCard, knobs: Knobs, code: str, words: str) -> None:
    with pytest.raises(LimnerError, match=words) as caught:
        point_of("dial", card, knobs)
    assert caught.value.code == code


@pytest.mark.parametrize("knobs", [Knobs(descriptiveness=0.5), Knobs(mix={"smile": 1.0}), Knobs(target_words=9)])
def test_a_plain_model_has_neither_spectrum_nor_directions(knobs: Knobs) -> None:
    with pytest.raises(LimnerError, match="model 'fake' has no") as caught:
        point_of("fake", FAKE_CARD, knobs)
    assert caught.value.code == "unsupported_option"
    assert concise_end(FAKE_CARD) is None


def test_a_dial_that_was_never_calibrated_knows_no_words(tmp_path: Path) -> None:
    root = write_space(tmp_path)
    write_tiny_spectrum(root)
    card: CaptionerCard = find_captioner("tiny-dial", root).card
    with pytest.raises(LimnerError, match="was never calibrated"):
        point_of("tiny-dial", card, Knobs(target_words=9))
    assert concise_end(card) == Point((), 0.0)
