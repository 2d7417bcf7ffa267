"""The pruned word-piece tokenizer."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from training.tokenizer import SPECIAL, build_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WORDS = "zebra run dog photo depicts ##ning ##bra ze the".split()
TEXTS = ["The dog, the DOG!", "a dog running", "A zebra running (the zebra)."]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small file in the layout of BERT's: special tokens are neither first nor together in it."""
    pieces = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"!'(),-.", *LETTERS]
    pieces += [*WORDS, *(f"##{letter}" for letter in LETTERS)]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(pieces), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tokenizer(vocabulary: Path) -> Tokenizer:
    return build_tokenizer(TEXTS, vocabulary, min_count=2, always=["A photo depicts "])


def pieces_of(tokenizer: Tokenizer, text: str) -> list[str]:
    tokens: list[str] = tokenizer.encode(text, add_special_tokens=False).tokens
    return tokens


def test_special_tokens_have_the_first_ids(tokenizer: Tokenizer) -> None:
    assert [tokenizer.token_to_id(token) for token in SPECIAL] == [0, 1, 2, 3]
    assert tokenizer.token_to_id("[MASK]") is None
    assert tokenizer.encode("dog").tokens == ["[CLS]", "dog", "[SEP]"]


def test_ids_are_consecutive_in_the_order_of_the_vocabulary(tokenizer: Tokenizer, vocabulary: Path) -> None:
    vocab = tokenizer.get_vocab()
    assert sorted(vocab.values()) == list(range(len(vocab)))
    order = vocabulary.read_text(encoding="utf-8").splitlines()
    kept = sorted(set(vocab) - set(SPECIAL), key=vocab.__getitem__)
    assert kept == [piece for piece in order if piece in kept]


def test_frequent_pieces_are_kept_and_rare_ones_split(tokenizer: Tokenizer) -> None:
    assert pieces_of(tokenizer, "the dog runs") == ["the", "dog", "run", "##s"]
    assert pieces_of(tokenizer, "zebra running") == ["zebra", "run", "##ning"]
    assert tokenizer.token_to_id("##bra") is None
    assert pieces_of(tokenizer, "zebra's") == ["zebra", "'", "s"]


def test_pieces_of_the_prefix_are_kept_whatever_their_count(tokenizer: Tokenizer, vocabulary: Path) -> None:
    assert pieces_of(tokenizer, "A photo depicts ") == ["a", "photo", "depicts"]
    bare = build_tokenizer(TEXTS, vocabulary, min_count=2)
    assert bare.token_to_id("photo") is None


def test_latin_text_is_never_unknown(tokenizer: Tokenizer) -> None:
    text = "Xylophone-playing JALAPEÑO café's Zoë 1984 naïve quiz'd über"
    tokens = pieces_of(tokenizer, text)
    assert "[UNK]" not in tokens
    assert "".join(tokens).replace("##", "") == "xylophone-playingjalapenocafe'szoe1984naivequiz'duber"
    assert pieces_of(tokenizer, "犬") == ["[UNK]"]


def test_punctuation_is_dropped_and_case_ignored(tokenizer: Tokenizer) -> None:
    plain = pieces_of(tokenizer, "the dog the dog's")
    assert pieces_of(tokenizer, '  "The dog" (THE, dog\'s)!?;:#&%$…\n') == plain
    assert pieces_of(tokenizer, "?!,.") == []
    assert pieces_of(tokenizer, "") == []


def test_decoding_joins_pieces(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("Zebra running, the dog").ids) == "zebra running the dog"


def test_a_stored_tokenizer_reads_back_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    read = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert read.encode("the zebras, running").ids == tokenizer.encode("the zebras, running").ids
    assert read.to_str() == tokenizer.to_str()
