"""Pairing, needs, and what a measurement says about itself."""

import socket
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from models.errors import DataError, RequestError, UnknownNameError
from tests.training.metrics.helpers import everything, paired, scored, texts
from training.metrics import METRICS, available_metrics, build_metrics
from training.metrics.interface import Definition, Metric, MetricInputs
from training.metrics.measure import measure, pair, tokenize_pairs
from training.metrics.tokenizer import PythonPtbTokenizer


def test_captions_follow_the_order_of_the_references() -> None:
    pairs = pair([("2", "b"), ("1", "a")], {"1": ["x"], "2": ["y", "z"]})
    assert pairs.captions == {"1": "a", "2": "b"}
    assert list(pairs.captions) == ["1", "2"]
    assert pairs.references == {"1": ("x",), "2": ("y", "z")}


def test_missing_and_extra_ids_are_listed_up_to_ten() -> None:
    with pytest.raises(DataError) as caught:
        pair([("extra", "a")], {str(index): ["x"] for index in range(12)})
    assert caught.value.code == "missing_ids"
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more; captions without references: extra" in caught.value.detail


@pytest.mark.parametrize("references", [{}, {"1": []}])
def test_no_references_is_no_data(references: dict[str, list[str]]) -> None:
    with pytest.raises(DataError) as caught:
        pair([(image_id, "a") for image_id in references], references)
    assert caught.value.code == "no_data"


def test_sets_and_training_captions_are_tokenised_with_the_rest() -> None:
    pairs = pair([("1", "A cat."), ("2", "A dog.")], {"1": ["Cats!"], "2": ["Dogs!", "A dog"]})
    training = [["One."], [], ["Two.", "Three."]]
    tokenized = tokenize_pairs(
        pairs, PythonPtbTokenizer(), candidates=[["A bird.", "Birds."], ["Cars."]], training=training
    )
    assert tokenized.captions == ("a cat", "a dog")
    assert tokenized.references == (("cats",), ("dogs", "a dog"))
    assert tokenized.candidates == (("a bird", "birds"), ("cars",))
    assert tokenized.training == (("one",), (), ("two", "three"))
    bare = tokenize_pairs(pairs, PythonPtbTokenizer())
    assert (bare.candidates, bare.training) == (None, None)


def test_all_metrics_are_those_whose_needs_are_met() -> None:
    available, left_out = available_metrics({"references", "finish_reasons"}, java=False)
    assert available.keys() | left_out.keys() == METRICS.keys()
    assert {"bleu", "cider", "rouge_l", "content_words", "cut", "length"} <= available.keys()
    assert left_out["clip_score"] == "it needs scorer: a scorer (--scorer)"
    assert left_out["ref_clip_score"] == (
        "it needs reference_features: human captions as a scorer reads them; scorer: a scorer (--scorer)"
    )
    assert left_out["novelty"] == "it needs training_captions: a data set with captions of a split train"
    assert (
        left_out["spice"]
        == left_out["meteor"]
        == "it starts a Java program of its own, and is computed where it is named"
    )
    assert "no default for model" in left_out["perplexity"]


def test_metrics_with_an_absent_program_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    available, left_out = available_metrics({"references"})
    assert "meteor" not in available
    assert "needs Java" in left_out["meteor"]


def test_features_must_meet_the_needs_too() -> None:
    unit = torch.eye(2)
    bare, full = scored(unit, unit).features, everything().features
    assert bare is not None and full is not None
    with pytest.raises(RequestError, match="'ref_clip_score' needs reference_features"):
        measure(build_metrics(["ref_clip_score"]), everything(), [full, bare])
    assert len(measure(build_metrics(["ref_clip_score"]), everything(), [full])) == 1


def test_scorer_metrics_are_given_under_each_scorer_and_others_once() -> None:
    unit = torch.eye(2)
    first = scored(unit, unit).features
    second = scored(unit, unit.flip(0)).features
    assert first is not None and second is not None
    metrics = build_metrics(["clip_score", "length"])
    measured = measure(metrics, texts("a", "b"), [first, second])
    assert [(m.name, m.value, m.scorer) for m in measured] == [
        ("clip_score", 2.5, "toy"),
        ("clip_score", 0.0, "toy"),
        ("mean_words", 1.0, None),
    ]
    assert measured[0].notes == ("weight 2.5, prefix 'A photo depicts '",)


def test_the_tokenizer_is_named_where_it_matters() -> None:
    inputs = paired({"1": "a", "2": "b"}, {"1": ["a"], "2": ["b"]})
    measured = measure(build_metrics(["cider", "length"]), inputs)
    assert [m.tokenizer for m in measured] == ["ptb-python", None]
    assert {m.tokenizer for m in measure(build_metrics(["div"]), everything())} == {"ptb-python"}


def test_unmet_needs_are_refused() -> None:
    with pytest.raises(RequestError, match="metric 'clip_score' needs scorer") as caught:
        measure(build_metrics(["clip_score"]), texts("a"))
    assert caught.value.code == "unsupported_option"


def test_no_captions_is_no_data() -> None:
    with pytest.raises(DataError, match="no captions"):
        measure(build_metrics(["length"]), texts())


class Broken(Metric):
    def definitions(self) -> dict[str, Definition]:
        return {"broken": Definition("")}

    def compute(self, inputs: MetricInputs) -> dict[str, float]:
        return {"broken": float("nan")}


def test_a_value_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(DataError) as caught:
        measure({"broken": Broken()}, texts("a"))
    assert caught.value.code == "not_finite"


@pytest.mark.parametrize(
    ("specs", "says"),
    [
        (["length", "length"], "named twice"),
        ([{"name": "length", "options": {"n": 1}}], "n: Extra inputs are not permitted"),
        ([{"name": "repetition", "options": {"n": 0}}], "greater than or equal to 1"),
        ([{"options": {}}], "name: is required"),
    ],
)
def test_bad_specs_are_refused(specs: list[Any], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        build_metrics(specs)


def test_an_unknown_metric_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="bleu, cider"):
        build_metrics(["blue"])


def test_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> NoReturn:
        raise AssertionError("a metric opened a network connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    measure(build_metrics(["bleu", "cider"]), paired({"1": "a", "2": "b"}, {"1": ["a"], "2": ["b"]}))
