from pathlib import Path

import pytest

from models.card import DataSource, Decoding, FilePart, Named, WeightsCard
from models.catalog import FAKE_CARD, CaptionerEntry
from models.errors import CheckpointError, RequestError, UnknownNameError
from models.mixing.mix import Mix


def _entry(name: str, **changes: object) -> CaptionerEntry:
    card = WeightsCard(
        id=name,
        family="compact",
        description=name,
        licence="research",
        objective=Named(name=name),
        data=[DataSource(name="Flickr8k", split="train", images=1, captions=5, terms="research")],
        origin=["ImageNet weights"],
        seed=3,
        parts={"decoder": FilePart(file="d", sha256="0")},
    )
    return CaptionerEntry(name, Path(name), card.model_copy(update=changes))


BASE = _entry("concise", decoding=Decoding(name="greedy"))
COCO = DataSource(name="COCO", split="train", images=1, captions=5, terms="CC BY")
SMILE = _entry("smile", data=[COCO], licence="CC BY", origin=["BLIP", "ImageNet weights"])
UNUSED = _entry("unused", licence="secret")


def _mix(**coefficients: float) -> Mix:
    directions = {"smile": SMILE, "unused": UNUSED, "plain": _entry("plain")}
    return Mix("m", BASE, {name: directions[name] for name in coefficients}, coefficients)


def test_the_card_tells_of_every_model_that_is_in_it() -> None:
    told = _mix(smile=-0.25, unused=0, plain=2).provenance()
    assert told["description"] == "concise + 2 plain - 0.25 smile"
    assert told["licence"] == "research; CC BY"
    assert [source.name for source in told["data"]] == ["Flickr8k", "COCO"]
    assert told["origin"] == ["ImageNet weights", "BLIP"]
    assert told["decoding"] == Decoding(name="greedy")
    assert (told["id"], told["family"]) == ("m", "compact")


def test_a_true_mix_has_its_coefficients_as_history() -> None:
    assert _mix(smile=0.5, unused=0).history() == {"objective": Named(name="mix", options={"smile": 0.5})}


def test_one_model_alone_keeps_its_history_and_decoding() -> None:
    smile = _mix(smile=1, unused=0)
    assert (smile.history()["objective"], smile.history()["seed"]) == (Named(name="smile"), 3)
    assert smile.provenance()["decoding"] is None
    assert _mix(smile=0).history()["objective"] == Named(name="concise")
    assert _mix(smile=1, plain=1).history()["objective"].name == "mix"


def test_every_direction_needs_its_coefficient_and_the_reverse() -> None:
    with pytest.raises(RequestError, match="direction 'smile' has no coefficient"):
        Mix("m", BASE, {"smile": SMILE}, {})
    with pytest.raises(UnknownNameError, match="no direction 'smile'; there are: none"):
        Mix("m", BASE, {}, {"smile": 1})
    with pytest.raises(RequestError, match="coefficient 9 of direction 'smile' is not from -4 to 4"):
        _mix(smile=9)


def test_what_cannot_be_mixed_is_refused_at_once() -> None:
    with pytest.raises(CheckpointError, match="'fake' is no checkpoint folder"):
        Mix("m", BASE, {"fake": CaptionerEntry("fake", None, FAKE_CARD)}, {"fake": 1})
