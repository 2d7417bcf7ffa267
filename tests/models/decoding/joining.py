"""Images that join and leave a session at random, and what each of them gets by itself."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from models.decoding.loop import decode
from models.decoding.session import DecodeSession
from models.decoding.strategy import Strategy
from models.interfaces import Captioner, Hypothesis

Memories = Callable[[Sequence[int]], Any]
"""The memory of the images with these numbers."""


def decode_at_random(
    rng: random.Random,
    captioner: Captioner,
    memories: Memories,
    strategy: Strategy,
    *,
    images: int,
    prompts: Sequence[str] | None = None,
    num_captions: int = 1,
    drops: float = 0.0,
) -> dict[int, list[Hypothesis]]:
    """Captions by image (image i has the seed i) of a session that images join in random parts at random steps; each
    joins once, and some are dropped."""
    session = DecodeSession(captioner, strategy, num_captions)
    waiting = rng.sample(range(images), images)
    names: dict[int, int] = {}
    found: dict[int, list[Hypothesis]] = {}
    while waiting or session.images:
        while waiting and (not session.images or rng.random() < 0.4):
            part, waiting = waiting[: (count := rng.randint(1, 3))], waiting[count:]
            chosen = None if prompts is None else [prompts[image] for image in part]
            numbers = session.add(memories(part), batch=len(part), prompts=chosen, seeds=part)
            names.update(zip(numbers, part, strict=True))
        if session.images and rng.random() < drops:
            session.drop({rng.choice(session.images)})
        if session.images:
            for number, captions in session.step().items():
                found[names[number]] = captions
    return found


def decode_alone(
    captioner: Captioner,
    memories: Memories,
    strategy: Strategy,
    *,
    images: int,
    prompts: Sequence[str] | None = None,
    num_captions: int = 1,
) -> dict[int, list[Hypothesis]]:
    """The same captions, image by image."""
    return {
        image: decode(
            captioner,
            memories([image]),
            strategy,
            batch=1,
            prompts=None if prompts is None else [prompts[image]],
            num_captions=num_captions,
            seeds=[image],
        )[0]
        for image in range(images)
    }
