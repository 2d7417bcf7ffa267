"""Content words by hand."""

import pytest

from tests.training.metrics.helpers import compute, paired
from training.metrics.content_words import content_words, singular
from training.metrics.stop_words import STOP_WORDS


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("dogs", "dog"),
        ("women", "woman"),
        ("people", "person"),
        ("puppies", "puppy"),
        ("cookies", "cooky"),
        ("cookie", "cooky"),
        ("ties", "tie"),
        ("glasses", "glass"),
        ("dishes", "dish"),
        ("beaches", "beach"),
        ("boxes", "box"),
        ("horses", "horse"),
        ("runs", "run"),
        ("grass", "grass"),
        ("cactus", "cactus"),
        ("tennis", "tennis"),
        ("bus", "bus"),
        ("as", "as"),
        ("dog", "dog"),
    ],
)
def test_singular(word: str, expected: str) -> None:
    assert singular(word) == expected


def test_folding_twice_is_folding_once() -> None:
    for word in ("puppies", "cookies", "glasses", "horses", "children", "dogs"):
        assert singular(singular(word)) == singular(word)


def test_content_words_are_different_words_without_stop_words_and_marks() -> None:
    assert content_words("two men and a man 's dog are n't in the red-brick house -lrb- % $") == {
        "two",
        "man",
        "dog",
        "red-brick",
        "house",
    }
    assert content_words("the the a") == frozenset()


def test_the_list_is_lower_case_and_has_no_noun_in_it() -> None:
    assert all(word == word.lower() for word in STOP_WORDS)
    assert not STOP_WORDS & {"dog", "man", "red", "two", "standing", "photo"}


def test_numbers_by_hand() -> None:
    inputs = paired(
        {"1": "Two dogs run, dogs!", "2": "a man with a hat", "3": "it is"},
        {"1": ["A dog runs.", "the grass"], "2": ["men on horses"], "3": ["a cat"]},
    )
    # 1: two, dog, run; matched dog, run. 2: man, hat; matched man. 3: none.
    assert compute("content_words", inputs) == {
        "content_words": pytest.approx(5 / 3),
        "content_matches": pytest.approx(3 / 3),
        "content_precision": pytest.approx(3 / 5),
    }


def test_repeating_a_word_gains_nothing() -> None:
    once = paired({"1": "a dog"}, {"1": ["a dog"]})
    often = paired({"1": "a dog dog dogs dog"}, {"1": ["a dog"]})
    assert compute("content_words", once) == compute("content_words", often)


def test_no_content_word_at_all() -> None:
    assert set(compute("content_words", paired({"1": ""}, {"1": ["a cat"]})).values()) == {0.0}
