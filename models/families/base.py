"""What the families made of torch modules share."""

import copy
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from models.card import FilePart, WeightsCard
from models.errors import RequestError
from models.interfaces import Captioner

CardMaker = Callable[[dict[str, FilePart], dict[str, str]], WeightsCard]
"""From the written parts and the sha256 of every further file to the card."""


class TorchCaptioner(nn.Module, Captioner):
    """A captioner with parameters; subclasses set the attributes and give the methods."""

    capabilities: frozenset[str] = frozenset()
    model: Any
    """The module whose state dict a checkpoint's tensors are."""
    takes_int8 = False
    """Whether ``load`` takes ``torch.int8``."""

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def upload(self, pixels: Tensor) -> Tensor:
        """``pixels`` on this device and in this dtype; a GPU copies them from pinned memory while the host goes on."""
        return pixels.to(self.device, non_blocking=True).to(self.dtype)

    @property
    def input_side_px(self) -> int | None:
        return None

    def with_weights(self, changed: Mapping[str, Tensor]) -> Self:
        """A captioner that shares every tensor with this one but those in ``changed``, named as in the model's state
        dict; they are converted to the dtype and device here. Parts of the model without a changed tensor are one
        object in both."""
        memo: dict[int, Any] = {id(tensor): tensor for tensor in (*self.model.parameters(), *self.model.buffers())}
        for name, part in self.model.named_children():
            if not any(key.startswith(f"{name}.") for key in changed):
                memo[id(part)] = part
        twin = copy.copy(self)
        twin._modules = dict(self._modules)
        twin.model = copy.deepcopy(self.model, memo)
        converted = {key: tensor.to(self.device, self.dtype, copy=True) for key, tensor in changed.items()}
        twin.model.load_state_dict(converted, strict=False, assign=True)
        return twin.requires_grad_(False)

    # --- what training needs beyond decoding --------------------------------------------------------------------

    encoder_is_trained = False

    def train_encoder(self, trained: bool) -> list[nn.Parameter]:
        """Let training change the encoder, or freeze it; returns the parameters of it that will change."""
        raise NotImplementedError

    def encode_stem(self, pixels: Tensor) -> Tensor:
        """Features (B, ...) from the half of the encoder that training keeps frozen, which are worth caching.

        By default all of a frozen encoder, and nothing of one that is trained.
        """
        return pixels if self.encoder_is_trained else self.encode(pixels)

    def encode_from_stem(self, features: Tensor) -> Any:
        """The image memory from what ``encode_stem`` gave."""
        return self.encode(features) if self.encoder_is_trained else features.to(self.device, self.dtype)

    def save(
        self, folder: str | Path, make_card: CardMaker | None = None, extra_files: Mapping[str, str] | None = None
    ) -> None:
        """Write a checkpoint folder.

        Args:
            make_card: as in ``models.checkpoints.write_checkpoint``.
            extra_files: text files by name to keep beside the weights, such as the recipe.
        """
        raise NotImplementedError

    def frozen_encoder(self) -> list[Tensor]:
        """The tensors that ``encode_stem`` computes with."""
        raise NotImplementedError

    def preprocessing(self) -> dict[str, Any]:
        """What ``preprocess`` depends on, as plain data."""
        raise NotImplementedError

    def output_layer(self) -> tuple[Tensor, Tensor | None]:
        """Weight (V, D) and bias (V,) that turn the states of ``forward_teacher`` into logits."""
        raise NotImplementedError

    def project(self, states: Tensor, words: Tensor | None = None) -> Tensor:
        """Logits of states (N, D): (N, V), or (N, M) of the token ids ``words`` (N, M) alone."""
        weight, bias = self.output_layer()
        if words is None:
            return nn.functional.linear(states, weight, bias)
        # Captions share most of their words: a product with each word once, not with a vector for each of the N x M.
        distinct, places = torch.unique(words, return_inverse=True)
        logits = nn.functional.linear(states, weight[distinct], None if bias is None else bias[distinct])
        return logits.gather(1, places)

    def vocabulary(self) -> dict[str, int]:
        """Token ids by piece."""
        raise NotImplementedError

    def continuation(self, token: int) -> int:
        """The piece that continues a word with the letters of ``token``; ``token`` itself where none does."""
        return token

    def null_memory(self, batch: int) -> Any:
        """No memory: this family never saw captions without their picture.

        Raises:
            RequestError: ``unsupported_option``.
        """
        raise RequestError(
            "unsupported_option", f"models of the family {self.family!r} cannot caption without a picture"
        )


def tidy(text: str) -> str:
    """The text on one line, with single spaces and none at the ends."""
    return re.sub(r"\s+", " ", text).strip()
