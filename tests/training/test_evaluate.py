"""A whole evaluation of the fake captioner on generated pictures, with a tiny random scorer."""

import json
from pathlib import Path

import pytest

from models.errors import DataError, MissingDependencyError, RequestError, UnknownNameError
from tests.tiny_scorer import write_tiny_scorer
from tests.training.support import write_dataset
from training.data.selection import Selection
from training.evaluate import evaluate
from training.report import Evaluation


@pytest.fixture(scope="module")
def selection(tmp_path_factory: pytest.TempPathFactory) -> Selection:
    return Selection(write_dataset(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def evaluation(selection: Selection, tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    scorer = write_tiny_scorer(tmp_path_factory.mktemp("scorer") / "tiny")
    decode = {"name": "greedy", "options": {"max_tokens": 3}}
    return evaluate(
        "fake",
        selection,
        decode=decode,
        scorers=[f"local-dir:{scorer}"],
        tokenizer="python",
        batch_size=3,
        device="cpu",
    )


def test_every_metric_is_measured(evaluation: Evaluation) -> None:
    names = [measurement.name for measurement in evaluation.measurements]
    assert sorted(names) == sorted(
        ["bleu1", "bleu2", "bleu3", "bleu4", "cider", "clip_score", "cut", "distinct_captions", "mean_words"]
        + ["content_words", "content_matches", "content_precision", "rouge_l"]
        + ["lexical_diversity", "repetition", "vocabulary", "r_at_1", "r_at_5", "r_at_10", "mean_rank", "median_rank"]
    )
    assert all(measurement.definition for measurement in evaluation.measurements)
    assert {m.scorer for m in evaluation.measurements if m.name in ("clip_score", "r_at_1")} == {"tiny"}
    assert evaluation.value("r_at_5") == 1.0  # of four images


def test_captions_are_listed_in_the_order_of_the_split(evaluation: Evaluation) -> None:
    assert [(row["image_id"], row["file"]) for row in evaluation.captions] == [
        ("0", "red.png"),
        ("1", "green.png"),
        ("2", "blue.png"),
        ("3", "grey.png"),
    ]
    cut = [row["finish_reason"] == "length" for row in evaluation.captions]
    assert evaluation.value("cut") == sum(cut) / 4
    assert all(row["tokens"] <= 3 for row in evaluation.captions)
    words = [len(row["caption"].split()) for row in evaluation.captions]
    assert evaluation.value("mean_words") == pytest.approx(sum(words) / 4)


def test_conditions_are_recorded(evaluation: Evaluation) -> None:
    context = evaluation.context
    assert context["decode"]["name"] == "greedy"
    assert context["decode"]["options"]["max_tokens"] == 3
    assert (context["split"], context["images"], context["tokenizer"]) == ("test", 4, "ptb-python")
    assert (context["dtype"], context["device"], context["scorers"]) == ("float32", "cpu", ["tiny"])
    assert context["timed_images"] == 1  # the first batch of three warms up
    assert context["seconds_per_image"] > 0
    assert context["threads"] >= 1
    json.loads(evaluation.to_json())


def test_captions_do_not_depend_on_the_batch(evaluation: Evaluation, selection: Selection) -> None:
    decode = evaluation.context["decode"]
    alone = evaluate("fake", selection, decode=decode, metrics=["length"], batch_size=1, device="cpu")
    assert [row["caption"] for row in alone.captions] == [row["caption"] for row in evaluation.captions]
    assert alone.context["tokenizer"] is None


def test_sampling_is_seeded_per_image(selection: Selection) -> None:
    runs = [
        evaluate("fake", selection, decode={"name": "sample"}, metrics=["length"], batch_size=size, device="cpu")
        for size in (4, 1)
    ]
    assert runs[0].captions == runs[1].captions


def test_limit_takes_the_first_images(selection: Selection) -> None:
    limited = Selection(selection.options, limit=2)
    evaluation = evaluate("fake", limited, metrics=["cider"], tokenizer="python", device="cpu")
    assert [row["image_id"] for row in evaluation.captions] == ["0", "1"]


def test_without_a_scorer_its_metrics_are_left_out_or_refused(selection: Selection) -> None:
    evaluation = evaluate("fake", selection, tokenizer="python", device="cpu")
    assert not {m.name for m in evaluation.measurements} & {"clip_score", "r_at_1"}
    with pytest.raises(RequestError, match="clip_score"):
        evaluate("fake", selection, metrics=["clip_score"])


def test_java_is_looked_for_before_anything_is_loaded(
    selection: Selection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependencyError, match="Java"):
        evaluate("no-such-model", selection, metrics=["bleu"], tokenizer="java")


def test_user_errors_keep_their_codes(selection: Selection) -> None:
    with pytest.raises(UnknownNameError, match="no-such-model"):
        evaluate("no-such-model", selection, metrics=["length"])
    with pytest.raises(RequestError):
        evaluate("fake", selection, decode={"name": "no-such-strategy"})
    with pytest.raises(DataError):
        evaluate("fake", Selection(selection.options, split="val"), metrics=["length"])


def test_nothing_is_printed(selection: Selection, capfd: pytest.CaptureFixture[str]) -> None:
    evaluate("fake", selection, metrics=["bleu", "cider", "rouge_l", "length"], tokenizer="auto", device="cpu")
    assert capfd.readouterr() == ("", "")
