"""CIDEr-D as a reward, beside the reference implementation."""

from pathlib import Path

import pytest
from pycocoevalcap.cider.cider_scorer import CiderScorer

from training.data import Example
from training.objectives.interface import Resources
from training.rewards.cider import CiderReward

REFERENCES = (
    ("A dog runs on the grass.", "a brown dog, running"),
    ("a man sits", "The man in a red shirt sits."),
    ("a child plays", "a child plays with a dog"),
)
RESOURCES = Resources([Example(str(n), Path(str(n)), captions) for n, captions in enumerate(REFERENCES)])


def test_equal_to_pycocoevalcap() -> None:
    """The reference implementation of CIDEr-D, with idf from the same captions."""
    plain = [["a dog runs on the grass", "a brown dog running"], ["a man sits", "the man in a red shirt sits"]]
    plain.append(["a child plays", "a child plays with a dog"])
    captions = ["a dog runs", "a man in a shirt", "a child plays with a dog"]
    scorer = CiderScorer(n=4, sigma=6.0)
    for caption, references in zip(captions, plain, strict=True):
        scorer += (caption, references)
    _, expected = scorer.compute_score()
    found = CiderReward(RESOURCES)([0, 1, 2], [[caption] for caption in captions])
    assert found[:, 0].tolist() == pytest.approx(expected.tolist(), rel=1e-5)


def test_a_caption_like_its_references_is_worth_more() -> None:
    found = CiderReward(RESOURCES)([0, 2], [["A dog runs on grass", "a child plays"], ["a child plays", "zebra"]])
    assert found[0, 0] > 10 * found[0, 1]
    assert found[1, 0] > 1
    assert found[1, 1] == 0


def test_case_and_punctuation_do_not_count() -> None:
    found = CiderReward(RESOURCES)([0], [["a dog runs on the grass", "A dog, runs on the grass."]])
    assert found[0, 0] == found[0, 1]
