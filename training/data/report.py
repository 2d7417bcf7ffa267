"""What reading a data set brought to light, so that nothing vanishes silently."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

Effect = Literal["dropped", "missing", "unreadable", "kept"]
"""``dropped``: left out. ``missing``: the picture is not there, which ``on_missing`` decides about. ``unreadable``: the
picture is there and cannot be decoded, which stops a run. ``kept``: used all the same."""


@dataclass(frozen=True)
class Defect:
    """One thing that is wrong with a data set."""

    position: str
    """Where it stands, such as ``images[3].sentences[0]``, ``line 7`` or ``00000.tar: 0007.txt``."""
    image_id: str
    reason: str
    """The kind of defect, by which defects are counted."""
    detail: str = ""
    """What only this one has, such as the path that is not there."""
    effect: Effect = "dropped"

    def __str__(self) -> str:
        """One line that any terminal can print."""
        text = f"{self.effect}: {self.position} (image {self.image_id}): {self.reason}"
        text += f": {self.detail}" if self.detail else ""
        return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


@dataclass(frozen=True)
class DataReport:
    """How much a reader kept, and everything that it stumbled over."""

    images: dict[str, int]
    """Images per split."""
    pairs: dict[str, int]
    """Image-caption pairs per split."""
    defects: tuple[Defect, ...] = ()
    """In the order in which the reader came upon them, missing pictures last."""

    def of(self, effect: Effect) -> tuple[Defect, ...]:
        """The defects with one effect."""
        return tuple(defect for defect in self.defects if defect.effect == effect)

    @property
    def dropped(self) -> tuple[Defect, ...]:
        return self.of("dropped")

    @property
    def missing(self) -> tuple[Defect, ...]:
        return self.of("missing")

    @property
    def dropped_by_reason(self) -> dict[str, int]:
        return dict(Counter(defect.reason for defect in self.dropped))

    def summary(self) -> str:
        """One line for people: split sizes, then the number of defects of each kind."""
        sizes = [f"{split}: {count} images, {self.pairs[split]} captions" for split, count in self.images.items()]
        return "; ".join(sizes + count_defects(self.defects))


def count_defects(defects: tuple[Defect, ...]) -> list[str]:
    """One phrase for each kind of defect, such as ``2 dropped (empty caption)``."""
    kinds = Counter((defect.effect, defect.reason) for defect in defects)
    return [f"{count} {effect} ({reason})" for (effect, reason), count in sorted(kinds.items())]
