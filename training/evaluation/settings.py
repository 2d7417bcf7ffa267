"""What an evaluation measures, and under which conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.catalog import find_captioner
from models.errors import RequestError

DEFAULT_METRICS = "default"
"""Stands, among names of metrics, for all that can be had without asking for them."""


@dataclass(frozen=True)
class Subject:
    """Whose captions are measured: a captioner's, or those in a file."""

    source: str
    """A captioner as ``models.catalog.find_captioner`` takes it, or the path of the file."""
    is_file: bool = False
    label: str | None = None
    decode: Mapping[str, Any] | None = None
    """Its own decoding, in place of the one that the settings give for all."""
    descriptiveness: float | None = None
    """Where on its spectrum, 0 to 1; None: the spectrum's default, and what else is no spectrum takes."""

    def name(self, models_dir: Path | None = None) -> str:
        """What tables call it: its label, else the id of the captioner or the name of the file.

        Raises:
            UnknownNameError: there is no such captioner.
        """
        if self.label is not None:
            return self.label
        return Path(self.source).stem if self.is_file else find_captioner(self.source, models_dir).id


@dataclass(frozen=True)
class EvaluationSettings:
    """The same for all captioners that are compared."""

    decode: Mapping[str, Any] | None = None
    """``{"name", "options", "guidance"}`` as in a request; None is each model's own default."""
    num_captions: int = 1
    """Captions of each image; the first, which the strategy ranks highest, is what metrics of single captions see."""
    scorers: Sequence[str] = ()
    """References as ``models.clip_scorer.load_scorer`` takes them; metrics that need one are given under each."""
    metrics: Sequence[str | Mapping[str, Any]] | None = None
    """Names or ``{"name", "options"}``; ``default``, like None, is every metric whose needs are met at little cost."""
    distractors: str | None = None
    """A split whose images join the pool of retrieval, as far as they are not measured themselves."""
    tokenizer: str = "auto"
    """``auto``, ``java`` or ``python``, for metrics of tokens."""
    batch_size: int = 32
    models_dir: Path | None = None
    device: str = "auto"
    dtype: str = "fp32"

    def __post_init__(self) -> None:
        if self.num_captions < 1:
            raise RequestError("invalid_request", f"num_captions must be at least 1, not {self.num_captions}")
