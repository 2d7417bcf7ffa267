import pytest

from models.families.compact.text import join_words


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ("a man in a t - shirt", "a man in a t-shirt"),
        ("a man ' s red hat", "a man's red hat"),
        ("they don ' t mind , i ' ll go", "they don't mind , i'll go"),
        ("a three - year - old ' s toy", "a three-year-old's toy"),
        ("the dogs ' toys", "the dogs ' toys"),
        ("a cat ' sits", "a cat ' sits"),
        ("- a  dog -", "- a dog -"),
        ("", ""),
    ],
)
def test_hyphens_and_apostrophes_join_their_words(pieces: str, text: str) -> None:
    assert join_words(pieces) == text
