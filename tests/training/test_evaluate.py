"""Whole evaluations of the fake captioner on generated pictures, with a tiny random scorer."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from models.card import Decoding
from models.errors import DataError, MissingDependencyError, RequestError, UnknownNameError
from tests.models.families.compact.tiny import save_compact
from tests.tiny_scorer import write_tiny_scorer
from tests.training.evaluation.support import write_splits
from training.data.selection import Selection
from training.evaluate import evaluate, evaluate_each
from training.evaluation.settings import EvaluationSettings, Subject
from training.report import Evaluation

PLAIN = EvaluationSettings(tokenizer="python", device="cpu")
LENGTH = replace(PLAIN, metrics=["length"])
GREEDY = {"name": "greedy", "options": {"max_tokens": 3}}


@pytest.fixture(scope="module")
def selection(tmp_path_factory: pytest.TempPathFactory) -> Selection:
    return write_splits(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"local-dir:{write_tiny_scorer(tmp_path_factory.mktemp('scorer') / 'tiny')}"


@pytest.fixture(scope="module")
def evaluation(selection: Selection, scorer: str) -> Evaluation:
    return evaluate("fake", selection, replace(PLAIN, decode=GREEDY, scorers=[scorer], batch_size=3))


def test_every_metric_is_measured(evaluation: Evaluation) -> None:
    names = [measurement.name for measurement in evaluation.measurements]
    assert sorted(names) == sorted(
        ["bleu1", "bleu2", "bleu3", "bleu4", "cider", "clip_score", "cut", "distinct_captions", "mean_words"]
        + ["content_words", "content_matches", "content_precision", "rouge_l", "novelty", "ref_clip_score"]
        + ["lexical_diversity", "repetition", "vocabulary", "r_at_1", "r_at_5", "r_at_10", "mean_rank", "median_rank"]
    )
    assert all(measurement.definition for measurement in evaluation.measurements)
    assert {m.scorer for m in evaluation.measurements if m.name in ("clip_score", "r_at_1")} == {"tiny"}
    assert evaluation.value("r_at_5") == 1.0  # of four images
    assert evaluation.context["left_out"]["meteor"]


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
    assert evaluation.label == "fake"
    assert context["decode"]["name"] == "greedy"
    assert context["decode"]["options"]["max_tokens"] == 3
    assert (context["split"], context["images"], context["tokenizer"]) == ("test", 4, "ptb-python")
    assert (context["dtype"], context["device"], context["scorers"]) == ("float32", "cpu", ["tiny"])
    assert context["threads"] >= 1
    assert evaluation.timing["timed_images"] == 1  # the first batch of three warms up
    assert evaluation.timing["seconds_per_image"] > 0


def test_guidance_is_a_condition(selection: Selection, tmp_path: Path) -> None:
    settings = replace(LENGTH, decode={"guidance": 2})
    guided = evaluate(str(save_compact(tmp_path / "tiny")), selection, settings)
    assert guided.context["decode"]["guidance"] == 2.0
    assert '"guidance": 2.0' in guided.to_markdown()
    assert guided.card_measurements()[0].decoding == Decoding(**guided.context["decode"])
    with pytest.raises(RequestError, match="unsupported_option"):
        evaluate("fake", selection, settings)


def test_the_same_run_gives_the_same_json(evaluation: Evaluation, selection: Selection, scorer: str) -> None:
    again = evaluate("fake", selection, replace(PLAIN, decode=GREEDY, scorers=[scorer], batch_size=3))
    assert again.to_json() == evaluation.to_json()
    json.loads(again.to_json())


def test_captions_do_not_depend_on_the_batch(evaluation: Evaluation, selection: Selection) -> None:
    alone = evaluate("fake", selection, replace(LENGTH, decode=GREEDY, batch_size=1))
    assert [row["caption"] for row in alone.captions] == [row["caption"] for row in evaluation.captions]
    assert "tokenizer" not in alone.context


def test_sampling_is_seeded_per_image(selection: Selection) -> None:
    settings = replace(LENGTH, decode={"name": "sample"})
    runs = [evaluate("fake", selection, replace(settings, batch_size=size)) for size in (4, 1)]
    assert runs[0].captions == runs[1].captions


@pytest.mark.parametrize("decode", ["sample", "beam", "diverse_beam"])
def test_several_captions_are_measured_as_sets_and_the_first_as_the_caption(selection: Selection, decode: str) -> None:
    one = evaluate("fake", selection, replace(PLAIN, decode={"name": decode}))
    many = evaluate("fake", selection, replace(PLAIN, decode={"name": decode}, num_captions=3))
    assert all(len(row["candidates"]) == 3 and row["candidates"][0] == row["caption"] for row in many.captions)
    assert many.value("cider") <= many.value("oracle_cider")
    new = {m.metric for m in many.measurements} - {m.metric for m in one.measurements}
    assert new == {"div", "mbleu", "self_cider", "oracle"}


def test_more_captions_than_the_strategy_gives_are_refused(selection: Selection) -> None:
    with pytest.raises(RequestError, match="num_captions 4 is more"):
        evaluate("fake", selection, replace(PLAIN, decode={"name": "beam"}, num_captions=4))


def test_captions_of_a_file_have_the_same_numbers(
    evaluation: Evaluation, selection: Selection, scorer: str, tmp_path: Path
) -> None:
    evaluation.write(tmp_path)
    subject = Subject(str(tmp_path / "captions.jsonl"), is_file=True, label="mine")
    again = evaluate(subject, selection, replace(PLAIN, scorers=[scorer]))
    assert again.label == "mine"
    assert again.context["captions"] == str(tmp_path / "captions.jsonl")
    assert [(m.name, m.value) for m in again.measurements] == [
        (m.name, pytest.approx(m.value)) for m in evaluation.measurements
    ]
    with pytest.raises(RequestError, match="needs logprobs"):
        evaluate(subject, selection, replace(PLAIN, metrics=["own_retrieval"]))


def test_distractors_join_the_pool(selection: Selection, scorer: str) -> None:
    settings = replace(PLAIN, scorers=[scorer], metrics=["self_retrieval", "own_retrieval"], distractors="train")
    told: list[str] = []
    found = evaluate("fake", selection, settings, notify=told.append)
    notes = {m.metric: m.notes for m in found.measurements}
    assert notes == {
        "self_retrieval": ("pool of 4 images and 3 distractors",),
        "own_retrieval": ("pool of 7 images",),
    }
    assert found.context["distractors"] == {"train": 3}
    assert told == ["fake scores 4 captions on 7 pictures: 28 scorings", "features of 3 distractors under tiny"]


def test_consensus_looks_at_training_pictures(selection: Selection, scorer: str) -> None:
    settings = replace(PLAIN, scorers=[scorer], num_captions=3, decode={"name": "sample"}, metrics=["consensus"])
    told: list[str] = []
    found = evaluate("fake", selection, settings, notify=told.append)
    assert {m.notes for m in found.measurements} == {("3 training images, idf from their captions",)}
    assert told == ["features of 3 training pictures under tiny"]


def test_limit_takes_the_first_images(selection: Selection) -> None:
    limited = evaluate("fake", replace(selection, limit=2), replace(PLAIN, metrics=["cider"]))
    assert [row["image_id"] for row in limited.captions] == ["0", "1"]


def test_subjects_are_measured_by_what_all_of_them_allow(selection: Selection, tmp_path: Path) -> None:
    path = tmp_path / "human.json"
    path.write_text(json.dumps([{"image_id": n, "caption": "a picture"} for n in range(4)]), encoding="utf-8")
    subjects = [Subject("fake"), Subject(str(path), is_file=True)]
    names = [
        [m.name for m in measured.evaluation.measurements] for measured in evaluate_each(subjects, selection, PLAIN)
    ]
    assert names[0] == names[1]
    assert "cut" not in names[0]
    with pytest.raises(RequestError, match="two of the models are called 'fake'"):
        evaluate_each([Subject("fake"), Subject("fake")], selection, PLAIN)


def test_without_a_scorer_its_metrics_are_left_out_or_refused(selection: Selection) -> None:
    found = evaluate("fake", selection, PLAIN)
    assert not {m.name for m in found.measurements} & {"clip_score", "r_at_1"}
    with pytest.raises(RequestError, match="clip_score"):
        evaluate("fake", selection, replace(PLAIN, metrics=["clip_score"]))


def test_java_is_looked_for_before_anything_is_loaded(
    selection: Selection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = EvaluationSettings(metrics=["bleu"], tokenizer="java", scorers=["no-such-scorer"])
    with pytest.raises(MissingDependencyError, match="Java"):
        evaluate("fake", selection, settings)


def test_user_errors_keep_their_codes(selection: Selection) -> None:
    with pytest.raises(UnknownNameError, match="no-such-model"):
        evaluate("no-such-model", selection, LENGTH)
    with pytest.raises(RequestError):
        evaluate("fake", selection, EvaluationSettings(decode={"name": "no-such-strategy"}))
    with pytest.raises(RequestError, match="num_captions"):
        EvaluationSettings(num_captions=0)
    with pytest.raises(DataError):
        evaluate("fake", replace(selection, split="val"), LENGTH)


def test_nothing_is_printed(selection: Selection, capfd: pytest.CaptureFixture[str]) -> None:
    settings = EvaluationSettings(metrics=["bleu", "cider", "rouge_l", "length"], device="cpu")
    evaluate("fake", selection, settings)
    assert capfd.readouterr() == ("", "")


def test_a_subject_may_have_a_decoding_of_its_own(selection: Selection) -> None:
    subjects = [Subject("fake", label="own", decode={"name": "greedy"}), Subject("fake", label="shared")]
    own, shared = evaluate_each(subjects, selection, replace(LENGTH, decode={"name": "beam"}))
    assert own.evaluation.context["decode"]["name"] == "greedy"
    assert shared.evaluation.context["decode"]["name"] == "beam"
    assert own.evaluation.captions != shared.evaluation.captions
