"""A captioner of BLIP-base's size with random weights, in the hub's layout: speed does not depend on what it says."""

from pathlib import Path

import torch
from transformers import BertTokenizer, BlipConfig, BlipForConditionalGeneration, BlipImageProcessorPil

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_WORDS = 30_522
"""BERT's; [DEC] and [ENC] follow."""


def save_blip_base(folder: Path) -> Path:
    """The folder, with 224 M weights in fp32 (0.9 GB): equal at every call."""
    folder.mkdir(parents=True)
    words = [*_SPECIAL, *(f"w{number}" for number in range(_WORDS - len(_SPECIAL))), "[DEC]", "[ENC]"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    for part in (random_blip(), BertTokenizer(str(folder / "vocab.txt")), BlipImageProcessorPil()):
        part.save_pretrained(str(folder))
    return folder


def random_blip() -> BlipForConditionalGeneration:
    """The model alone: equal at every call."""
    torch.manual_seed(0)
    return BlipForConditionalGeneration(blip_base_config()).eval()


def blip_base_config() -> BlipConfig:
    """That of the published checkpoints."""
    ids = {"bos_token_id": _WORDS, "sep_token_id": 102, "pad_token_id": 0, "eos_token_id": 2}
    return BlipConfig(
        text_config={"num_attention_heads": 12, **ids}, vision_config={"image_size": 384, "initializer_range": 0.02}
    )
