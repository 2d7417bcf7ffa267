"""The workers that share a run, one process each: which one this is, and how they agree.

All of it holds for a run in one process too, which is the first of one. Errors of one worker are not told to the others
here: whoever started them ends them all (``training.launch``).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import distributed

T = TypeVar("T")


def number() -> int:
    """Which worker this process is, counted from 0."""
    return distributed.get_rank() if _shared() else 0


def count() -> int:
    """How many workers share the run."""
    return distributed.get_world_size() if _shared() else 1


@contextmanager
def first_alone() -> Iterator[None]:
    """The first worker goes through the ``with`` block before the others do, which find what it wrote."""
    if number():
        _wait()
    yield
    if not number():
        _wait()


def from_first(make: Callable[[], T]) -> T:
    """What ``make`` gives on the first worker, where alone it is called; all others wait for it."""
    if not _shared():
        return make()
    box = [None if number() else make()]
    distributed.broadcast_object_list(box, src=0)
    return box[0]  # type: ignore[return-value]


def totals(values: Sequence[float]) -> list[float]:
    """The sum of each of the values over all workers."""
    if not _shared():
        return list(values)
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    sums = torch.tensor(values, dtype=torch.float64, device=device)
    distributed.all_reduce(sums)
    return list(sums.tolist())


def _shared() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def _wait() -> None:
    if _shared():
        distributed.barrier()
