"""Metrics of several captions per image against golden values, hand-worked ones and slow twins."""

import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
import torch
from pycocoevalcap.bleu.bleu_scorer import BleuScorer

from models.errors import DataError, RequestError
from tests.training.metrics.helpers import compute, everything, sets
from training.metrics.consensus import Consensus, consensus_scores
from training.metrics.interface import ScorerFeatures
from training.metrics.ngram_vectors import Idf, cider_d
from training.metrics.self_cider import self_cider_of


def test_div_by_hand() -> None:
    # a, b of five words; "a b", "b a" of five words too: no bigram goes from one caption into the next.
    assert compute("div", sets(["a b a", "a b"])) == {"div1": 0.4, "div2": 0.4}


def test_div_is_a_mean_over_images() -> None:
    values = compute("div", sets(["a b a", "a b"], ["a b", "c d"], ["", ""]))
    assert values == {"div1": pytest.approx((0.4 + 1 + 0) / 3), "div2": pytest.approx((0.4 + 0.5 + 0) / 3)}


def test_only_the_best_captions_count_where_asked() -> None:
    inputs = sets(["a b a", "a b", "c"], ["a b a", "a b", "c d e"])
    assert compute("div", inputs, best=2) == {"div1": 0.4, "div2": 0.4}


@pytest.mark.parametrize("metric", ["div", "mbleu", "self_cider", "oracle"])
def test_sets_that_cannot_be_compared_are_refused(metric: str) -> None:
    with pytest.raises(DataError, match="image '1' has 1 captions; 2 are needed") as caught:
        compute(metric, sets(["a", "b"], ["a"]))
    assert caught.value.code == "no_data"
    with pytest.raises(DataError, match="image '1' has 3 captions and others 2"):
        compute(metric, sets(["a", "b"], ["a", "b", "c"]))
    with pytest.raises(DataError, match="3 are needed"):
        compute(metric, sets(["a", "b"]), best=3)
    assert compute(metric, sets(["a", "b"], ["a", "b", "c"]), best=2)


def test_mbleu_of_equal_and_of_different_captions() -> None:
    same = ["a dog on the grass"] * 3
    assert compute("mbleu", sets(same, same))["mbleu4"] == pytest.approx(1.0)
    assert compute("mbleu", sets(["a b c d", "e f g h"]))["mbleu4"] == pytest.approx(0.0, abs=1e-3)


def test_mbleu_is_a_corpus_score_per_slot() -> None:
    candidates = [list(of) for of in everything().candidates or ()]
    slots = []
    for slot in range(3):
        scorer = BleuScorer(n=4)
        for captions in candidates:
            scorer += (captions[slot], captions[:slot] + captions[slot + 1 :])
        slots.append(scorer.compute_score(option="closest", verbose=0)[0][3])
    assert compute("mbleu", everything())["mbleu4"] == pytest.approx(statistics.fmean(slots), abs=1e-15)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (np.eye(2), 1.0),
        (np.eye(5), 1.0),
        (np.ones((2, 2)), 0.0),
        (np.ones((10, 10)), 0.0),
        (np.array([[1, 0.5], [0.5, 1]]), 0.657503),
        (7 * np.array([[1, 0.5], [0.5, 1]]), 0.657503),  # the scale cancels
        (np.zeros((3, 3)), 0.0),
    ],
)
def test_self_cider_golden_values(kernel: np.ndarray, expected: float) -> None:
    assert self_cider_of(kernel) == pytest.approx(expected, abs=1e-6)


def test_self_cider_of_captions() -> None:
    references = [["a b c d e f"], ["g h i j k l"]]
    equal = ["a b c d"] * 3
    apart = ["a b c d", "g h i j", "c d e f"]
    # "a b c d" and "c d e f" share two of four words, one of three bigrams and nothing longer.
    k = (2 / 4 + 1 / 3) / 4
    kernel = np.array([[1, 0, k], [0, 1, 0], [k, 0, 1]])
    got = compute("self_cider", sets(equal, apart, references=references))["self_cider"]
    assert got == pytest.approx((0 + self_cider_of(kernel)) / 2)


def test_sets_of_empty_captions_are_zero_everywhere() -> None:
    empty = sets(["", ""], ["...", "!"], references=[["a cat"], ["a dog"]])
    values = {**compute("div", empty), **compute("mbleu", empty), **compute("self_cider", empty)}
    assert values == {"div1": 0.0, "div2": 0.0, "mbleu4": 0.0, "self_cider": 0.0}
    assert set(compute("oracle", empty).values()) == {0.0}


def test_oracle_lets_every_number_choose_its_own_caption() -> None:
    references = [["a b c d"], ["x y"]]
    inputs = sets(["a b c d", "q"], ["q", "x y"], references=references)
    values = compute("oracle", inputs)
    assert values["oracle_rouge_l"] == pytest.approx(1.0)
    # Sentence BLEU: 1 for the first image; BLEU-4 of a perfect caption of two words is smoothed to almost nothing.
    assert values["oracle_bleu1"] == pytest.approx(1.0)
    assert values["oracle_bleu4"] == pytest.approx((1 + (1e-15 / 1e-9) ** (2 / 4)) / 2, rel=1e-3)
    assert values["oracle_cider"] == pytest.approx((10 + 5) / 2)  # two words have no 3- and 4-grams


def test_oracle_is_the_mean_of_the_greatest_values() -> None:
    inputs = everything()
    assert inputs.tokenized is not None and inputs.tokenized.candidates is not None
    greatest = []
    for captions, references in zip(inputs.tokenized.candidates, inputs.tokenized.references, strict=True):
        scores = []
        for caption in captions:
            scorer = BleuScorer(n=4)
            scorer += (caption, list(references))
            scores.append(scorer.compute_score(option="closest", verbose=0)[0][3])
        greatest.append(max(scores))
    assert compute("oracle", inputs)["oracle_bleu4"] == pytest.approx(statistics.fmean(greatest), abs=1e-15)
    chosen = compute("oracle", inputs, metrics=["content_words"])
    assert set(chosen) == {"oracle_content_words", "oracle_content_matches", "oracle_content_precision"}


def test_inner_metrics_that_need_something_else_are_refused() -> None:
    with pytest.raises(RequestError, match="cannot choose captions by 'clip_score'"):
        compute("oracle", everything(), metrics=["clip_score"])
    with pytest.raises(RequestError, match="cannot compute 'cut'"):
        compute("consensus", everything(), metrics=["cut"])


def neighbourly() -> ScorerFeatures:
    """Two images, each at the place of one of four training images and next to another."""
    images = torch.eye(4)[:2]
    training = torch.nn.functional.normalize(torch.eye(4)[[0, 0, 1, 2]] + 0.1 * torch.eye(4)[[0, 1, 0, 0]], dim=1)
    return ScorerFeatures("toy", "", 2.5, images, images, images, training_images=training)


def test_consensus_puts_first_what_similar_training_images_say() -> None:
    training = [["a dog runs"], ["the dog sits"], ["a cat sleeps"], ["two cars"]]
    inputs = sets(["two cars", "a dog runs", "a dog"], ["a dog", "the cat", "a cat sleeps"], training=training)
    with_features = replace(inputs, features=neighbourly())
    metric = {"neighbours": 2, "keep": 2, "metrics": ["length", "rouge_l", "div"]}
    values = compute("consensus", with_features, **metric)
    assert values["consensus_mean_words"] == 3.0  # "a dog runs" and "a cat sleeps" come first
    # Kept are "a dog runs", "a dog" (3 of 5 words) and "a cat sleeps", "the cat" (4 of 5).
    assert values["consensus_div1"] == pytest.approx((3 / 5 + 4 / 5) / 2)


def test_consensus_sums_only_the_greatest_similarities() -> None:
    idf = Idf([["a b"], ["b c"], ["c d e"], ["a d"]])
    candidates = [idf.vector(text) for text in ("a b c", "d e")]
    pooled = [idf.vector(text) for text in ("a b", "b c", "c d e", "a d", "x")]
    slow = [
        math.fsum(sorted((float(cider_d([one], [other])[0, 0]) for other in pooled), reverse=True)[:2])
        for one in candidates
    ]
    assert consensus_scores(candidates, pooled, top=2).tolist() == pytest.approx(slow)


def test_consensus_keeps_equal_candidates_in_order() -> None:
    inputs = sets(["q", "r", "s"], ["q", "r", "s"], training=[["a"], ["b"], ["c"], ["d"]])
    with_features = replace(inputs, features=neighbourly())
    ranked = Consensus(Consensus.Options(keep=2)).rerank(with_features)
    assert ranked.candidates == (("q", "r"), ("q", "r"))
    assert ranked.captions == ("q", "q")
