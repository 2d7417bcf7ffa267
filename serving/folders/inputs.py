"""What a run reads must not be what it writes."""

import os
from collections.abc import Iterator

from models.errors import RequestError
from serving.folders.outputs import Destination, Output
from serving.folders.pictures import is_archive
from serving.folders.shards import Shards
from serving.folders.sidecars import Sidecars
from serving.folders.sources import STDIN, Sources


def check_inputs(sources: Sources, place: Destination, output: Output) -> None:
    """Refuse a run that would write over a list, archive or picture that was named to it.

    Raises:
        RequestError: ``invalid_request``, before anything is written.
    """
    named = [path for path in sources.paths if path != STDIN and os.path.isfile(path)]
    for path in named:
        if place.path.is_file() and os.path.samefile(path, place.path):
            raise _refuse(path, "is what the captions would be written to")
        if isinstance(output, Shards) and is_archive(path) and _is_in(path, place):
            raise _refuse(path, "lies where the shards would be written")
    if isinstance(output, Sidecars):
        lists = [path for path in named if path.lower().endswith(output.suffix)]
        for path, picture in _would_be_sidecars(lists, sources, output) if lists else ():
            raise _refuse(path, f"would be the sidecar of {picture!r}")


def _is_in(path: str, place: Destination) -> bool:
    return place.path.is_dir() and os.path.samefile(os.path.dirname(path) or ".", place.path)


def _would_be_sidecars(lists: list[str], sources: Sources, output: Sidecars) -> Iterator[tuple[str, str]]:
    """Those of the lists that a picture would have as its sidecar, and its name."""
    real = {os.path.realpath(path): path for path in lists}
    stems = {os.path.splitext(os.path.basename(path))[0].casefold() for path in real}
    files = [path for path in sources.paths if path != STDIN and not is_archive(path)]
    for picture in Sources(files, sources.recursive):
        name = os.path.basename(picture.name).casefold()
        if not {name, os.path.splitext(name)[0]} & stems:  # most of them: no need to look at the disk
            continue
        try:
            place = os.path.realpath(output.place_of(picture))
        except ValueError:
            continue  # it fails in its turn
        if place in real:
            yield real[place], picture.path


def _refuse(path: str, why: str) -> RequestError:
    return RequestError("invalid_request", f"{path!r} {why}: name another --out, or move it")
