"""Pairing, needs, and what a measurement says about itself."""

import socket
from typing import Any, NoReturn

import pytest
import torch

from models.errors import DataError, RequestError, UnknownNameError
from tests.training.metrics.helpers import paired, scored, texts
from training.metrics import METRICS, build_metrics
from training.metrics.interface import Definition, Metric, MetricInputs
from training.metrics.measure import measure, pair


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


def test_every_metric_in_the_table_defines_what_it_computes() -> None:
    plain = paired({"1": "a cat", "2": "a dog"}, {"1": ["a cat"], "2": ["a dog"]})
    unit = torch.eye(2)
    inputs = MetricInputs(
        plain.image_ids, plain.captions, plain.tokenized, ("stop", "length"), scored(unit, unit).features
    )
    for name, metric in build_metrics(list(METRICS)).items():
        assert metric.needs <= inputs.gives, name
        assert metric.compute(inputs).keys() == metric.definitions().keys(), name
        assert type(metric).Options.model_config["extra"] == "forbid", name


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
        build_metrics(["spice"])


def test_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> NoReturn:
        raise AssertionError("a metric opened a network connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    measure(build_metrics(["bleu", "cider"]), paired({"1": "a", "2": "b"}, {"1": ["a"], "2": ["b"]}))
