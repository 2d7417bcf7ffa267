"""What prompts and positions leave of a caption's length, checked before anything is decoded."""

import torch

from models.decoding.strategy import Strategy
from models.errors import RequestError
from models.interfaces import Captioner


def check_prompts(captioner: Captioner, prompts: list[str] | None) -> list[str] | None:
    """The prompts, or None where all are empty.

    Raises:
        RequestError: ``unsupported_option`` where the captioner takes none.
    """
    if not prompts or not any(prompts):
        return None
    if "prompt" not in captioner.capabilities:
        raise RequestError("unsupported_option", f"models of the family {captioner.family!r} take no prompt")
    return prompts


def lengths(
    captioner: Captioner, strategy: Strategy, batch: int, prompts: list[str] | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Most generated tokens (B,) and prompt ids (B, P) of each image, left-padded with V.

    Raises:
        RequestError: ``invalid_request`` for a prompt that leaves no room.
    """
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
