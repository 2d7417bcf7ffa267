"""The shared tokenizer of the bundled models: BERT's uncased word pieces, pruned to those of the training captions."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers import models as tokenizer_models

PAD, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
SPECIAL = (PAD, UNKNOWN, START, END)
"""In the order of their ids, 0 to 3."""

_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_LONGEST_WORD = 40


def build_tokenizer(texts: Iterable[str], vocabulary: Path, *, min_count: int, always: Iterable[str] = ()) -> Tokenizer:
    """A lower-casing WordPiece tokenizer with the pieces of ``vocabulary`` that occur ``min_count`` times in ``texts``.

    Letters and digits are kept besides, so that any Latin word can be written. Punctuation other than apostrophe and
    hyphen is dropped, as caption metrics drop it.

    Args:
        vocabulary: BERT's ``vocab.txt``, one piece a line.
        always: texts whose pieces are kept whatever their count, such as the scorer's prefix.
    """
    pieces = vocabulary.read_text(encoding="utf-8").splitlines()
    full = _word_piece({piece: number for number, piece in enumerate(pieces)})
    counts = Counter(piece for encoding in full.encode_batch(list(texts)) for piece in encoding.tokens)
    kept = {piece for piece, count in counts.items() if count >= min_count}
    kept |= {piece for text in always for piece in full.encode(text).tokens}
    kept |= {*_CHARACTERS, *(f"##{character}" for character in _CHARACTERS), "'", "-"}
    kept -= set(SPECIAL)
    ordered = [*SPECIAL, *(piece for piece in pieces if piece in kept)]
    tokenizer = _word_piece({piece: number for number, piece in enumerate(ordered)})
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}",
        pair=f"{START} $A {END} $B {END}",
        special_tokens=[(START, SPECIAL.index(START)), (END, SPECIAL.index(END))],
    )
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def _word_piece(vocabulary: dict[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(
        tokenizer_models.WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=_LONGEST_WORD)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.BertNormalizer(lowercase=True), normalizers.Replace(Regex(r"[^\p{L}\p{N}\s'\-]"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return tokenizer
