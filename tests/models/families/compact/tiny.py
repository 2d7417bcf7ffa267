"""A compact captioner with a decoder of a few kilobytes; the vision tower is the real one, on small pictures."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import nn

from models.families.compact import CompactCaptioner
from models.families.compact.config import CompactConfig

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = "a the dog man in red shirt t s run ##ning ##s sits on grass ' - child plays".split()
IMAGE_PX = 64


def tiny_tokenizer() -> Tokenizer:
    """Lower-cased word pieces, as in the bundled tokenizer."""
    vocab = {word: i for i, word in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def tiny_config(**changes: object) -> CompactConfig:
    sizes = {"width": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 2, "feed_forward": 32, "max_positions": 16}
    facts = {"image_size_px": IMAGE_PX, "vocab_size": len(SPECIAL) + len(WORDS)}
    return CompactConfig.model_validate(sizes | facts | changes)


def tiny_captioner(seed: int = 0, **changes: object) -> CompactCaptioner:
    """In eval mode; position and word vectors are scaled up so that captions vary and pictures matter."""
    torch.manual_seed(seed)
    captioner = CompactCaptioner(tiny_config(**changes), tiny_tokenizer())
    with torch.no_grad():
        for parameter in (
            captioner.model.cell_embedding,
            captioner.model.position_embedding,
            captioner.model.null_memory,
        ):
            parameter.normal_()
        for layer in captioner.model.decoder:
            for linear in (module for module in layer.modules() if isinstance(module, nn.Linear)):
                linear.weight.mul_(3)
    return captioner.eval()


def save_compact(folder: Path) -> Path:
    """The folder, now with a tiny compact checkpoint."""
    tiny_captioner().save(folder)
    return folder
