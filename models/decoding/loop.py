"""The decoding loop: it knows neither families nor strategies, only their contracts."""

import secrets
from collections.abc import Sequence
from typing import Any

import torch

from models.decoding.guidance import GuidedRows
from models.decoding.strategy import Plan, Strategy
from models.errors import RequestError
from models.interfaces import Captioner, Hypothesis


@torch.no_grad()
def decode(
    captioner: Captioner,
    memory: Any,
    strategy: Strategy,
    *,
    batch: int,
    prompts: list[str] | None = None,
    num_captions: int = 1,
    seeds: Sequence[int | None] | None = None,
) -> list[list[Hypothesis]]:
    """The ``num_captions`` best captions of each of the ``batch`` images in ``memory``, best first.

    Fewer only where a tiny vocabulary or the options leave no more different ones. An empty prompt is none. ``seeds``
    are one per image; None stands for the strategy's own seed, and where that is None too, for a fresh one. An image's
    captions do not depend on the others in the batch.

    Raises:
        RequestError: ``invalid_request`` for more captions than the strategy can give or a prompt that leaves no room;
            ``unsupported_option`` for a prompt or a guidance that the captioner cannot take.
    """
    strategy.check(captioner)
    rows = strategy.rows(num_captions)
    prompts = _checked(captioner, prompts)
    limits, prompt = _lengths(captioner, strategy, batch, prompts)
    decoder = GuidedRows(captioner, strategy.guidance, batch)
    logits = decoder.start(memory, prompts)
    given = [strategy.seed] * batch if seeds is None else [strategy.seed if seed is None else seed for seed in seeds]
    plan = Plan(
        batch=batch,
        rows=rows,
        vocab_size=captioner.vocab_size,
        end_id=captioner.end_id,
        limits=limits.to(logits.device),
        prompt=prompt.to(logits.device),
        seeds=tuple(secrets.randbits(63) if seed is None else seed for seed in given),
    )
    if rows > 1:
        widened = torch.arange(batch, device=logits.device).repeat_interleave(rows)
        decoder.reorder(widened)
        logits = logits[widened]
    search = strategy.begin(plan)
    while True:
        tokens, parents = search.advance(logits)
        if search.done:
            return [captions[:num_captions] for captions in search.hypotheses()]
        if parents is not None:
            decoder.reorder(parents)
        logits = decoder.step(tokens)


def _checked(captioner: Captioner, prompts: list[str] | None) -> list[str] | None:
    """The prompts, or None where all are empty."""
    if not prompts or not any(prompts):
        return None
    if "prompt" not in captioner.capabilities:
        raise RequestError("unsupported_option", f"models of the family {captioner.family!r} take no prompt")
    return prompts


def _lengths(
    captioner: Captioner, strategy: Strategy, batch: int, prompts: list[str] | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Most generated tokens (B,) and prompt ids (B, P) of each image, left-padded with V."""
    ids = captioner.tokenize(prompts, captioner.max_positions) if prompts else [[] for _ in range(batch)]
    longest = max(len(prompt) for prompt in ids)
    padded = [[captioner.vocab_size] * (longest - len(prompt)) + prompt for prompt in ids]
    limits = [_limit(captioner, len(prompt), strategy.options.max_tokens) for prompt in ids]
    return torch.tensor(limits), torch.tensor(padded, dtype=torch.long).view(batch, longest)


def _limit(captioner: Captioner, prompt_tokens: int, max_tokens: int) -> int:
    """Most tokens that may be generated after the prompt: ``max_tokens``, or fewer where the positions end."""
    room = captioner.max_positions - 1 - prompt_tokens  # 1: the start token
    if room < 1:
        most = captioner.max_positions - 2
        raise RequestError(
            "invalid_request", f"the prompt has more than the {most} tokens that leave room for a caption"
        )
    return min(max_tokens, room)
