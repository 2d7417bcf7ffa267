"""Files that earlier runs wrote among the pictures: they are none, and nobody wants to be told of them."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from serving.folders.outputs import ADDS_TO_CAPTIONS, OF_MANY_FILES, Destination
from serving.folders.pictures import named_like_a_picture
from serving.folders.whole_files import name_in_file

RECORD = "run.json"
_SHARD = re.compile(r"[0-9]{5,}\.tar")


@dataclass(frozen=True)
class Ours:
    """What to look for. Nothing by default."""

    folder: str | None = None
    """Where the record of the runs is, and the files that it names."""
    outputs: frozenset[str] = frozenset()
    """Names of these files; names of formats that are many files."""
    below: str | None = None
    """Where sidecars lie apart from their pictures."""

    def among(self, folder: str, entries: Sequence[str]) -> set[str]:
        """Those entries of a folder that are of limner."""
        if self.folder is None:
            return set()
        place = os.path.realpath(folder)
        found = self._sidecars(place, entries)
        if place == self.folder:
            found |= {entry for entry in entries if entry == RECORD or name_in_file(entry) in self.outputs}
            if "webdataset" in self.outputs:
                found |= set(filter(_SHARD.fullmatch, entries))
        return found

    def _sidecars(self, place: str, entries: Sequence[str]) -> set[str]:
        suffixes = tuple(f".{kind}" for kind in ADDS_TO_CAPTIONS & self.outputs)
        likely = {entry for entry in entries if entry.endswith(suffixes)} if suffixes else set()
        if not likely or (self.below is not None and Path(place).is_relative_to(self.below)):
            return likely
        stems = {os.path.splitext(entry)[0].casefold() for entry in entries if named_like_a_picture(entry)}
        owners = stems.union(map(str.casefold, entries))
        return {entry for entry in likely if os.path.splitext(entry)[0].casefold() in owners}


NOTHING = Ours()


def ours(kind: str, place: Destination) -> Ours:
    """What a run that writes there finds of earlier ones."""
    folder = place.path if kind in OF_MANY_FILES else place.path.parent
    own = kind if kind in OF_MANY_FILES else name_in_file(place.path.name)
    below = os.path.realpath(place.path) if place.apart and kind in ADDS_TO_CAPTIONS else None
    return Ours(os.path.realpath(folder), frozenset({own, *_recorded(folder / RECORD)}), below)


def _recorded(path: Path) -> list[str]:
    """The outputs that a record tells of."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    if not isinstance(content, dict) or "limner" not in content:
        return []
    others = content.get("others")
    return [str(content.get("output")), *(others if isinstance(others, dict) else ())]
