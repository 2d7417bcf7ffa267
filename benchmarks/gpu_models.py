"""Captioners with random weights for ``benchmarks.gpu``: of BLIP-base's size, of the bundled models' size, and small
ones whose captions differ from picture to picture."""

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor, nn
from transformers import BlipConfig, BlipForConditionalGeneration, BlipImageProcessorPil

from benchmarks.blip_base import random_blip
from benchmarks.pictures import random_jpeg
from models.device import pick_dtype
from models.families.base import TorchCaptioner
from models.families.blip import BlipCaptioner
from models.families.compact import CompactCaptioner
from models.families.compact.config import CompactConfig
from models.images import load_image

_SIDE_PX = 48
_STDS = {"patch_embed": 0.05, "position": 1.0, "crossattention": 0.5}
"""Large weights make captions differ between pictures and positions instead of looping."""
_GAIN = 6**0.5
"""From what torch begins with to He's initialisation: without it a picture fades from layer to layer."""


@dataclass(frozen=True)
class Setup:
    """What is measured: where, at which sizes, and the models, made when first asked for."""

    device: torch.device
    tiny: bool
    tokens: int
    turns: int

    @property
    def dtype(self) -> torch.dtype:
        """The default of the device: bf16 on a GPU that has it."""
        return pick_dtype("default", self.device)

    @property
    def batches(self) -> tuple[int, ...]:
        return (1, 2) if self.tiny else (1, 8, 64)

    @cached_property
    def blip(self) -> BlipForConditionalGeneration:
        """Of BLIP-base's size, on the device in its dtype."""
        model = small_blip() if self.tiny else random_blip()
        return model.to(self.device, self.dtype)  # type: ignore[arg-type]

    @cached_property
    def captioner(self) -> BlipCaptioner:
        """With the weights of ``blip``."""
        size = self.blip.config.vision_config.image_size
        processor = BlipImageProcessorPil(size={"height": size, "width": size})
        return BlipCaptioner(copy.deepcopy(self.blip), processor, Words()).eval().requires_grad_(False)

    @cached_property
    def compact(self) -> CompactCaptioner:
        """Of the bundled models' size."""
        sizes = {"image_size_px": 64, "vocab_size": 50} if self.tiny else {"vocab_size": 3565, "encoder_layers": 1}
        return on_device(random_compact(CompactConfig.model_validate(sizes)), self.device, self.dtype)


class Words:
    """A tokenizer for captions that nobody reads."""

    def decode(self, tokens: list[int], **_: Any) -> str:
        """One word a token."""
        return " ".join(f"w{token}" for token in tokens)


def on_device(captioner: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """A copy there, ready to caption."""
    moved = copy.deepcopy(captioner).to(device=device, dtype=dtype).eval().requires_grad_(False)
    if isinstance(moved, CompactCaptioner):
        moved.model.vision.to(memory_format=torch.channels_last)
    return moved


def small_blip() -> BlipForConditionalGeneration:
    """A few layers, 300 words."""
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    ids = {"bos_token_id": 298, "sep_token_id": 3, "pad_token_id": 0, "eos_token_id": 3}
    text = {"vocab_size": 300, "encoder_hidden_size": 64, "max_position_embeddings": 48}
    config = BlipConfig(text_config=shape | ids | text, vision_config=shape | {"image_size": _SIDE_PX})
    torch.manual_seed(0)
    model = BlipForConditionalGeneration(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=next((std for part, std in _STDS.items() if part in name), 0.25))
    return model


def random_compact(config: CompactConfig) -> CompactCaptioner:
    """Weights that let pictures through."""
    torch.manual_seed(0)
    words = {"[UNK]": 1} | {f"w{number}": number for number in range(config.vocab_size) if number != 1}
    captioner = CompactCaptioner(config, Tokenizer(WordLevel(words, unk_token="[UNK]")))
    with torch.no_grad():
        captioner.model.position_embedding.normal_()
        for module in captioner.model.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.weight.mul_(_GAIN)
    return captioner.eval()


def small_pixels(captioner: TorchCaptioner, count: int) -> Tensor:
    """Pixels (B, 3, H, W) of pictures made on the spot."""
    pictures = (load_image(random_jpeg((64, 48), seed)).image for seed in range(count))
    return torch.stack([captioner.preprocess(picture) for picture in pictures])
