"""Decoding of one batch from its first token to its last: a session that nobody joins."""

from collections.abc import Sequence
from typing import Any

from models.decoding.session import DecodeSession
from models.decoding.strategy import Strategy
from models.interfaces import Captioner, Hypothesis


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

    Arguments and errors are those of ``DecodeSession``. An image's captions do not depend on the others in the batch.
    """
    session = DecodeSession(captioner, strategy, num_captions)
    session.add(memory, batch=batch, prompts=prompts, seeds=seeds)
    found: dict[int, list[Hypothesis]] = {}
    while session.images:
        found.update(session.step())
    return [found[image] for image in range(batch)]
