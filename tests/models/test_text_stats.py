import pytest

from models.text_stats import distinct_words, repeats_ngram, repetition_ratio, without_repeats, word_count, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A man, riding a horse.", ["A", "man", "riding", "a", "horse"]),
        ("a man - on a bench ...", ["a", "man", "on", "a", "bench"]),
        ("the dog's black-and-white ball", ["the", "dog's", "black-and-white", "ball"]),
        ("\u201cstop\u201d sign \u2014 red", ["stop", "sign", "red"]),  # typographic quotes and dash
        ('a $5 "stop" sign (red)', ["a", "5", "stop", "sign", "red"]),
        (" a\tcat\r\nsits\u2028here ", ["a", "cat", "sits", "here"]),
        ("Ma\u0308dchen", ["M\u00e4dchen"]),
        ("...", []),
        ("", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected
    assert word_count(text) == len(expected)


def test_distinct_words_tells_case_apart_and_ignores_punctuation() -> None:
    # A, dog, on, grass | a, (dog), (on), the, (grass)
    assert distinct_words(["A dog on grass.", "a dog, on the grass"]) == 6
    assert distinct_words([]) == 0


@pytest.mark.parametrize(
    ("text", "n", "expected"),
    [
        ("a man on a bench", 3, False),
        ("a man on a man on", 3, True),
        ("A man on. a MAN on", 3, True),
        ("dai dai dai", 3, False),  # one 3-gram
        ("dai dai dai dai", 3, True),  # twice the same, overlapping
        ("a dog and a cat", 1, True),
        ("a dog and a cat", 2, False),
        ("a", 3, False),
        ("", 3, False),
    ],
)
def test_repeats_ngram(text: str, n: int, expected: bool) -> None:
    assert repeats_ngram(text, n) is expected


def test_repetition_ratio_is_a_share_of_texts() -> None:
    assert repetition_ratio(["no no no no", "a dog", "a cat", "x y z x y z"]) == 0.5
    assert repetition_ratio(text for text in ("a dog",)) == 0.0
    assert repetition_ratio([]) == 0.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a man man in a a a hat", "a man in a hat"),
        ("a dog and a dog", "a dog and a dog"),  # only words next to each other
        (" a  A a ", "a A a"),
        ("", ""),
    ],
)
def test_without_repeats(text: str, expected: str) -> None:
    assert without_repeats(text) == expected


def test_an_ngram_has_at_least_one_word() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        repeats_ngram("a dog", 0)
