"""Comparison with ``generate`` of ``transformers``, and a watch on the memory's keys."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from models.decoding import parse_decode
from models.decoding.loop import decode
from models.families.transformers_captioner import TransformersCaptioner
from tests.models.families.tiny_models import images

MAX_TOKENS = 12
OptionSets = list[tuple[dict[str, Any], dict[str, Any]]]
"""Our ``decode`` and what it is called in ``generate``."""
PLAIN: OptionSets = [
    ({"name": "greedy"}, {"num_beams": 1}),
    ({"name": "beam", "options": {"beams": 1}}, {"num_beams": 1}),
    ({"name": "beam", "options": {"beams": 3}}, {"num_beams": 3}),
    ({"name": "beam", "options": {"beams": 5}}, {"num_beams": 5}),
]
WITH_OPTIONS: OptionSets = [
    ({"name": "greedy", "options": {"min_tokens": 4}}, {"num_beams": 1, "min_new_tokens": 4}),
    ({"name": "greedy", "options": {"no_repeat_ngram": 2}}, {"num_beams": 1, "no_repeat_ngram_size": 2}),
    ({"name": "beam", "options": {"length_penalty": 2.0}}, {"num_beams": 3, "length_penalty": 2.0}),
    ({"name": "beam", "options": {"early_stopping": True}}, {"num_beams": 3, "early_stopping": True}),
    (
        {"name": "beam", "options": {"min_tokens": 4, "no_repeat_ngram": 2}},
        {"num_beams": 3, "min_new_tokens": 4, "no_repeat_ngram_size": 2},
    ),
]
COUNTING_THE_START_TOKEN: OptionSets = [
    ({"name": "greedy", "options": {"repetition_penalty": 1.8}}, {"num_beams": 1, "repetition_penalty": 1.8}),
    ({"name": "beam", "options": {"repetition_penalty": 1.5}}, {"num_beams": 3, "repetition_penalty": 1.5}),
    ({"name": "beam", "options": {"no_repeat_ngram": 1}}, {"num_beams": 3, "no_repeat_ngram_size": 1}),
]
"""``generate`` counts the start token as text here, we do not: equal only where a checkpoint never generates it."""


def pixels_of(captioner: TransformersCaptioner, count: int) -> Tensor:
    """Pixels (B, 3, H, W) of random pictures."""
    return torch.stack([captioner.preprocess(image) for image in images(count)])


@torch.no_grad()
def our_tokens(
    captioner: TransformersCaptioner, pixels: Tensor, raw: dict[str, Any], prompts: list[str] | None = None
) -> list[list[int]]:
    """The best caption of each image, with the end token where the caption has one."""
    strategy = parse_decode({"name": raw["name"], "options": {"max_tokens": MAX_TOKENS} | raw.get("options", {})})
    found = decode(captioner, captioner.encode(pixels), strategy, batch=len(pixels), prompts=prompts)
    return [[*best.tokens, *[captioner.end_id] * (best.finish_reason == "stop")] for best, *_ in found]


def cut(captioner: TransformersCaptioner, generated: Tensor, prefix: int) -> list[list[int]]:
    """Rows of ``generate`` without start token and prompt (``prefix`` tokens) and without padding after the end."""
    rows = []
    for row in generated[:, prefix:].tolist():
        stop = row.index(captioner.end_id) + 1 if captioner.end_id in row else MAX_TOKENS
        rows.append(row[:stop])
    return rows


@contextmanager
def count_calls(*modules: nn.Module) -> Iterator[list[int]]:
    """The number of rows of the input of each call of any of ``modules``."""
    seen: list[int] = []
    handles = [m.register_forward_hook(lambda _module, args, _output: seen.append(len(args[0]))) for m in modules]
    yield seen
    for handle in handles:
        handle.remove()
