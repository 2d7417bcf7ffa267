"""What the families made of torch modules share."""

import re
from typing import Any, ClassVar

import torch
from torch import nn

from models.errors import RequestError


class TorchCaptioner(nn.Module):
    """A ``models.interfaces.Captioner`` with parameters; subclasses set the attributes and give the methods."""

    family: ClassVar[str]
    capabilities: frozenset[str] = frozenset()
    vocab_size: int
    start_id: int
    end_id: int
    max_positions: int

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

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
