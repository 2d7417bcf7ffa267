"""BLEU against values worked out by hand."""

import math
import random

import pytest
from pycocoevalcap.bleu.bleu_scorer import BleuScorer

from tests.training.metrics.helpers import compute, everything, paired
from training.metrics.bleu import Bleu


def bleu(captions: dict[str, str], references: dict[str, list[str]]) -> list[float]:
    return list(compute("bleu", paired(captions, references)).values())


def test_corpus_counts_are_summed_before_dividing() -> None:
    scores = bleu({"1": "a dog runs", "2": "the cat"}, {"1": ["a dog walks"], "2": ["the cat"]})
    # 4 of 5 words and 2 of 3 bigrams fit; the lengths are equal, so there is no brevity penalty.
    assert scores[:2] == pytest.approx([4 / 5, math.sqrt(4 / 5 * 2 / 3)], abs=1e-6)


def test_brevity_penalty() -> None:
    assert bleu({"1": "a cat"}, {"1": ["a cat sat on mats"]})[:2] == pytest.approx([math.exp(1 - 5 / 2)] * 2, abs=1e-6)


def test_the_closest_reference_length_counts_and_the_shorter_one_of_two() -> None:
    # 3 words; references of 4 and 2 are equally close, the shorter is taken: no penalty.
    assert bleu({"1": "the cat sat"}, {"1": ["the cat sat down", "a cat"]})[:3] == pytest.approx([1, 1, 1], abs=1e-6)


def test_words_count_at_most_as_often_as_in_one_reference() -> None:
    assert bleu({"1": "the the the"}, {"1": ["the cat sat", "the dog ran"]})[0] == pytest.approx(1 / 3, abs=1e-6)


def test_an_empty_caption_beside_a_perfect_one() -> None:
    scores = bleu({"1": "", "2": "a dog on grass"}, {"1": ["a cat"], "2": ["a dog on grass"]})
    assert scores == pytest.approx([math.exp(1 - 6 / 4)] * 4, abs=1e-6)


def test_orders_beyond_the_caption_are_defined_and_near_zero() -> None:
    scores = bleu({"1": "cat", "2": "dog"}, {"1": ["cat"], "2": ["dog"]})
    assert scores[0] == pytest.approx(1, abs=1e-6)
    assert scores[1] == pytest.approx(1e-3, rel=1e-2)  # pycocoevalcap's smoothing: sqrt(1 * 1e-15 / 1e-9)


def test_corpus_and_sentence_scores_are_pycocoevalcaps_to_the_last_bit() -> None:
    draw = random.Random(0)
    words = "a dog cat on the grass runs".split()
    captions = {str(index): " ".join(draw.choices(words, k=draw.randint(0, 9))) for index in range(40)}
    references = {key: [" ".join(draw.choices(words, k=draw.randint(1, 9))) for _ in range(3)] for key in captions}
    scorer = BleuScorer(n=4)
    for key, caption in captions.items():
        scorer += (caption, references[key])
    corpus, sentences = scorer.compute_score(option="closest", verbose=0)
    assert bleu(captions, references) == corpus
    assert list(Bleu().caption_scores(paired(captions, references)).values()) == sentences


def test_bleu_has_no_values_per_image() -> None:
    assert Bleu().per_image(everything()) == {}


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    bleu({"1": "a cat"}, {"1": ["a cat"]})
    assert capfd.readouterr() == ("", "")
