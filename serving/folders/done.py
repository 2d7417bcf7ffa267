"""Which pictures a run need not caption, and why."""

from collections.abc import Iterable
from enum import StrEnum


class Done(StrEnum):
    """Why a picture needs no captions any more."""

    BEFORE = "done_before"
    """An earlier run made them."""
    NAMED_AGAIN = "named_again"
    """This run met the picture already: a list may name it twice."""


class Names:
    """Names of pictures: those that were done before the run, and those that it has met."""

    def __init__(self, before: Iterable[str] = ()) -> None:
        self._before = set(before)
        self._met: set[str] = set()

    def meet(self, name: str) -> Done | None:
        """What is known of a picture that the run comes to; None for one that is to be captioned."""
        if name in self._met:
            return Done.NAMED_AGAIN
        self._met.add(name)
        if name not in self._before:
            return None
        self._before.remove(name)
        return Done.BEFORE
