"""Which metrics are computed."""

import pytest

from models.errors import RequestError, UnknownNameError
from training.evaluation.metric_choice import MetricChoice
from training.metrics.interface import Need

GIVEN: frozenset[Need] = frozenset({"references", "scorer", "reference_features"})
COSTLY: frozenset[Need] = frozenset({"logprobs"})


def test_by_default_all_that_can_be_had_at_little_cost() -> None:
    chosen, left_out = MetricChoice(None, distractors=False).choose(GIVEN, COSTLY)
    assert {"bleu", "clip_score", "length", "ref_clip_score", "self_retrieval"} <= chosen.keys()
    assert not chosen.keys() & left_out.keys()
    assert left_out["novelty"] == "it needs training_captions: a data set with captions of a split train"
    assert left_out["own_retrieval"] == "it takes long, and is computed where it is named"
    assert {"meteor", "spice", "perplexity"} <= left_out.keys()


def test_named_metrics_alone_in_their_order() -> None:
    chosen, left_out = MetricChoice(["own_retrieval", "length"], distractors=False).choose(GIVEN, COSTLY)
    assert list(chosen) == ["own_retrieval", "length"]
    assert left_out == {}


def test_default_and_more() -> None:
    choice = MetricChoice(["default", "own_retrieval", {"name": "repetition", "options": {"n": 4}}], distractors=False)
    assert choice.needs == {"logprobs"}
    chosen, left_out = choice.choose(GIVEN, COSTLY)
    assert {"bleu", "own_retrieval"} <= chosen.keys()
    assert chosen["repetition"].options.n == 4
    assert "own_retrieval" not in left_out


def test_metrics_that_can_use_distractors_do() -> None:
    given: frozenset[Need] = GIVEN | {"distractors"}
    chosen, _ = MetricChoice(None, distractors=True).choose(given, COSTLY)
    assert chosen["self_retrieval"].options.distractors
    without = {"name": "self_retrieval", "options": {"distractors": False}}
    chosen, _ = MetricChoice([without], distractors=True).choose(given, COSTLY)
    assert not chosen["self_retrieval"].options.distractors


def test_what_cannot_be_is_refused_at_once() -> None:
    with pytest.raises(UnknownNameError, match="no-such"):
        MetricChoice(["no-such"], distractors=True)
    with pytest.raises(RequestError, match="twice"):
        MetricChoice(["length", "length"], distractors=False)
    with pytest.raises(RequestError, match="needs candidates"):
        MetricChoice(["div"], distractors=False).choose(GIVEN, COSTLY)
