"""Images that join and leave a session at random, and what each of them gets by itself."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from models.decoding.loop import decode
from models.decoding.session import DecodeSession, step_together
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


def decode_side_by_side(
    rng: random.Random,
    captioner: Captioner,
    memories: Memories,
    strategies: Sequence[Strategy],
    *,
    images: int,
    num_captions: Sequence[int],
) -> list[dict[int, list[Hypothesis]]]:
    """Captions by image (image i has the seed i) of each strategy, whose sessions take their steps together; images
    come into each at random steps where the captioner can merge, all at the start where it cannot."""
    sessions = [DecodeSession(captioner, *case) for case in zip(strategies, num_captions, strict=True)]
    waiting = [rng.sample(range(images), images) for _ in sessions]
    names: list[dict[int, int]] = [{} for _ in sessions]
    found: list[dict[int, list[Hypothesis]]] = [{} for _ in sessions]
    while any(waiting) or any(session.images for session in sessions):
        for place, session in enumerate(sessions):
            while waiting[place] and session.takes_more and (not session.images or rng.random() < 0.3):
                part, waiting[place] = waiting[place][: (count := rng.randint(1, 3))], waiting[place][count:]
                names[place].update(zip(session.add(memories(part), batch=len(part), seeds=part), part, strict=True))
        under_way = [place for place, session in enumerate(sessions) if session.images]
        for place, done in zip(under_way, step_together([sessions[place] for place in under_way]), strict=True):
            found[place].update({names[place][number]: captions for number, captions in done.items()})
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
