"""Captioners that take turns with a baseline on the same pixels."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from benchmarks.report import record
from models.decoding import parse_decode
from models.decoding.loop import decode
from models.families.transformers_captioner import TransformersCaptioner

HEADER = ("what", "against", "ratio", "from", "to", "ms per picture", "baseline ms", "the limit would be")
Captions = list[tuple[int, ...]]
Run = Callable[[], Captions]


@dataclass(frozen=True)
class Group:
    """Contestants that take turns with a baseline on the same pixels."""

    baseline: str
    theirs: Run
    ours: dict[str, Run]
    pictures: int
    limits_s: dict[str, float] = field(default_factory=dict)
    """The least that each of ``ours`` can take on this machine, where that is known."""


def pictures(count: int, size: int) -> Tensor:
    """Pixels (B, 3, H, W) of random colour blotches."""
    blotches = torch.randn(count, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    return interpolate(blotches, size)


def ours(captioner: TransformersCaptioner, pixels: Tensor, tokens: int, raw: dict[str, Any]) -> Callable[[], Captions]:
    """Encoding and decoding of all pictures in one batch."""
    strategy = parse_decode({**raw, "options": raw["options"] | {"min_tokens": tokens, "max_tokens": tokens}})

    def run() -> Captions:
        with torch.inference_mode():
            found = decode(captioner, captioner.encode(pixels), strategy, batch=len(pixels))
        return [image[0].tokens for image in found]

    return run


def theirs(model: Any, pixels: Tensor, tokens: int, beams: int) -> Callable[[], Captions]:
    """The same by ``generate``."""

    def run() -> Captions:
        with torch.inference_mode():
            rows = model.generate(pixel_values=pixels, num_beams=beams, max_new_tokens=tokens, min_new_tokens=tokens)
        return [tuple(row[-tokens:]) for row in rows.tolist()]

    return run


def measure(group: Group, turns: int, file: Path | None) -> list[tuple[object, ...]]:
    """Lines under ``HEADER``, ratios also into ``file``; everyone warms up once, every other turn goes backwards."""
    everyone = {group.baseline: group.theirs, **group.ours}
    times: dict[str, list[float]] = {name: [] for name in everyone}
    for run in everyone.values():
        run()
    for turn in range(turns):
        order = list(everyone) if turn % 2 else list(reversed(everyone))
        for name in order:
            began = time.perf_counter()
            everyone[name]()
            times[name].append(time.perf_counter() - began)
    return [_line(group, name, times[name], times[group.baseline], file) for name in group.ours]


def _line(group: Group, name: str, own: list[float], other: list[float], file: Path | None) -> tuple[object, ...]:
    ratios = [theirs_s / ours_s for ours_s, theirs_s in zip(own, other, strict=True)]
    record(file, name, ratios)
    return (
        name,
        group.baseline,
        *(f"{value:.2f}" for value in (statistics.median(ratios), min(ratios), max(ratios))),
        statistics.median(own) / group.pictures * 1000,
        statistics.median(other) / group.pictures * 1000,
        f"{statistics.median(other) / group.limits_s[name]:.2f}" if name in group.limits_s else "",
    )
