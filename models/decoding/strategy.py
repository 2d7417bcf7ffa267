"""What every decoding strategy is: checked options, the rows it needs, and a search that the loop drives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from models.decoding.options import SharedOptions
from models.errors import RequestError
from models.interfaces import Captioner, Hypothesis

if TYPE_CHECKING:
    import torch


_FEWEST_CANDIDATES = 5


@dataclass(frozen=True)
class Plan:
    """What a search must know about the captioner and its B images before the first step."""

    rows: int
    """K rows of each image."""
    vocab_size: int
    end_id: int
    limits: torch.Tensor
    """(B,) most generated tokens of each image."""
    prompt: torch.Tensor
    """(B, P) prompt ids of each image, without start token, left-padded with ``vocab_size``."""
    seeds: tuple[int, ...]
    """One per image; only sampling looks at them."""


class Search(Protocol):
    """The state of the search over some images. The session alternates ``advance`` and a step of the captioner; images
    may join and leave between steps, each counts its own."""

    def advance(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Next tokens (R,) and the rows (R,) that they continue, None for "each its own", from fp32 logits (R, V)."""

    @property
    def open(self) -> torch.Tensor:
        """(B,) whether the image can still get a better caption. One that cannot must leave before the next step."""

    def hypotheses(self, images: torch.Tensor) -> list[list[Hypothesis]]:
        """All finished captions of each of ``images`` (M,), best first."""

    def join(self, other: Self) -> None:
        """Take in the images of another search of the same strategy, behind the own."""

    def keep(self, images: torch.Tensor) -> None:
        """Drop all images but ``images`` (M,), which are in that order from now on."""


class Strategy(ABC):
    """A decoding strategy with its options and its guidance; equal and hashable by all three."""

    name: ClassVar[str]
    Options: ClassVar[type[SharedOptions]]

    def __init__(self, options: SharedOptions | None = None, guidance: float = 1.0) -> None:
        self.options = self.Options() if options is None else options
        self.guidance = guidance
        """How far the picture pulls the logits away from those without it; 1 is off (``models.decoding.guidance``)."""

    @property
    def seed(self) -> int | None:
        """The seed for images that bring none of their own."""
        return None

    @property
    @abstractmethod
    def most_captions(self) -> int | None:
        """Most captions of one image that this strategy can give; None: any number."""

    def rows(self, num_captions: int) -> int:
        """Decoder rows of each image for ``num_captions`` captions.

        Raises:
            RequestError: ``invalid_request`` for more captions than the strategy can give, with both numbers.
        """
        if num_captions < 1:
            raise RequestError("invalid_request", f"num_captions must be at least 1, not {num_captions}")
        most = self.most_captions
        if most is None:
            return num_captions
        if num_captions > most:
            detail = (
                f"num_captions {num_captions} is more than the {most} that decoding strategy {self.name!r} can give: "
                "ask for fewer, for more beams, or for 'sample'"
            )
            raise RequestError("invalid_request", detail)
        return most

    def candidates(self, num_captions: int) -> int:
        """How many captions to choose the ``num_captions`` best from: all that the rows give; of a strategy that can
        give any number, at least five."""
        most = self.most_captions
        return max(num_captions, _FEWEST_CANDIDATES) if most is None else most

    def check(self, captioner: Captioner) -> None:
        """Raise RequestError, ``unsupported_option``, where ``captioner`` cannot be decoded like this."""
        if self.guidance != 1.0 and "null_memory" not in captioner.capabilities:
            why = f"models of the family {captioner.family!r} cannot caption without a picture"
            raise RequestError("unsupported_option", f"decode.guidance {self.guidance:g}: {why}")

    @abstractmethod
    def begin(self, plan: Plan) -> Search:
        """A fresh search over the images of ``plan``."""

    def group_key(self) -> tuple[str, SharedOptions, float]:
        """Equal for requests that may share a forward pass. Seeds travel per image and are no part of it."""
        return (self.name, self.options, self.guidance)

    def to_plain(self) -> dict[str, Any]:
        """Plain data that ``parse_decode`` makes this strategy from; guidance only where there is some."""
        guidance = {} if self.guidance == 1.0 else {"guidance": self.guidance}
        return {"name": self.name, "options": self.options.model_dump(mode="json"), **guidance}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or not isinstance(other, Strategy):
            return False
        return other.options == self.options and other.guidance == self.guidance

    def __hash__(self) -> int:
        return hash((self.name, self.options, self.guidance))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.options!r}, guidance={self.guidance!r})"
