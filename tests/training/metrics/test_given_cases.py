"""Every given metric case that concerns these metrics, with values worked out by hand."""

import json
import math
from typing import Any

import pytest

from models.errors import DataError
from tests.support import CASES, needs_java
from tests.training.metrics.helpers import paired
from training.metrics import build_metrics
from training.metrics.measure import measure, pair
from training.metrics.tokenizer import JavaPtbTokenizer, PythonPtbTokenizer

GIVEN = {case["name"]: case for case in json.loads((CASES / "metrics.json").read_text(encoding="utf-8"))["cases"]}
NAMES = [
    "bleu",
    "cider",
    "length",
    "lexical_diversity",
    "vocabulary",
    "distinct",
    "repetition",
    "rouge_l",
    "content_words",
]

# Worked out by hand: name -> the numbers that the case decides.
EXPECTED: dict[str, dict[str, float]] = {
    "single_image": {"bleu1": 1.0, "bleu4": 1.0, "cider": 0.0, "mean_words": 6.0, "rouge_l": 1.0, "content_words": 3.0},
    "identical_disjoint_pair": {"bleu1": 1.0, "bleu4": 1.0, "cider": 10.0, "distinct_captions": 1.0},
    # Image 1 scores 0, image 2 scores 10; BLEU's precision is 1 with the penalty of 4 words for 6.
    "empty_candidate": {
        "cider": 5.0,
        "bleu1": math.exp(-0.5),
        "mean_words": 2.0,
        "rouge_l": 0.5,
        "content_matches": 1.0,
    },
    # Image 2 fits in uni- and bigrams only: 5; BLEU's penalty is that of 2 words for 4.
    "punctuation_only": {"cider": 2.5, "bleu1": math.exp(-1.0), "mean_words": 1.0, "rouge_l": 0.5},
    "all_empty": {"cider": 0.0, "bleu1": 0.0, "bleu4": 0.0, "mean_words": 0.0, "vocabulary": 0.0, "repetition": 0.0},
    "one_word": {"bleu1": 1.0, "cider": 2.5, "lexical_diversity": 0.002},
    # As if written on one line: orders 1-3 of image 1 fit (7.5), orders 1-2 of the others (5 each).
    "line_breaks": {"bleu1": 1.0, "cider": 17.5 / 3, "mean_words": 7 / 3},
    "form_feed_reference": {"bleu1": 0.0, "cider": 0.0, "mean_words": 1.0, "rouge_l": 0.0, "content_precision": 0.0},
    "unicode": {"bleu1": 1.0, "cider": 5.0, "rouge_l": 1.0, "content_precision": 1.0},
}


def compute_all(case: dict[str, Any]) -> dict[str, float]:
    inputs = paired(case["res"], case["gts"])
    return {measurement.name: measurement.value for measurement in measure(build_metrics(NAMES), inputs)}


@pytest.mark.parametrize("name", EXPECTED)
def test_given_case(name: str) -> None:
    values = compute_all(GIVEN[name])
    assert {key: values[key] for key in EXPECTED[name]} == pytest.approx(EXPECTED[name], abs=1e-5)


@needs_java
def test_java_gives_the_same_tokens_for_every_given_case() -> None:
    texts = [text for name in EXPECTED for case in [GIVEN[name]] for text in case["res"].values()]
    texts += [text for name in EXPECTED for references in GIVEN[name]["gts"].values() for text in references]
    assert JavaPtbTokenizer().tokenize(texts) == PythonPtbTokenizer().tokenize(texts)


def test_missing_candidate_is_listed() -> None:
    case = GIVEN["missing_candidate"]
    with pytest.raises(DataError, match="images without a caption: 2; captions without references: none") as caught:
        pair(case["res"].items(), case["gts"])
    assert caught.value.code == "missing_ids"


def test_duplicate_candidate_is_scored_once_and_reported() -> None:
    case = GIVEN["duplicate_candidate"]
    rows = [(str(row["image_id"]), row["caption"]) for row in case["res_list"]]
    pairs = pair(rows, case["gts"])
    assert pairs.captions == {"1": "a cat"}
    assert pairs.duplicates == ("1",)
