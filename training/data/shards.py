"""Tar files of samples in WebDataset's layout: which there are, and what each holds."""

from __future__ import annotations

import glob
import os
import re
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from models.errors import DataError

MOST_SHARDS = 100_000
_BRACES = re.compile(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}")
_WILDCARDS = re.compile(r"[*?\[]")
_REMOTE = re.compile(r"(pipe:|[a-z0-9]+://)")
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstd"}
_BLOCK = 512
_ODD_HEADERS = (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError)
"""What tarfile raises on headers that mean harm."""


@dataclass
class Shard:
    """The samples of one tar, and what is wrong with it as a whole."""

    samples: dict[str, dict[str, tarfile.TarInfo]] = field(default_factory=dict)
    """Key -> extension, lower case, -> member."""
    odd: list[tuple[str, str]] = field(default_factory=list)
    """Name and reason of members that belong to no sample."""
    damage: str = ""
    """Why not all of the tar could be read."""


def find_shards(patterns: Iterable[str], root: Path | None) -> list[Path]:
    """The tar files that patterns name, each once: ``shard-{000..012}.tar``, ``{a,b}.tar``, ``*.tar``.

    Raises:
        DataError: ``no_data`` for a file that is not there, a wildcard that fits none, or an address.
    """
    folder, found = root or Path(), dict[Path, None]()
    for pattern in patterns:
        if _REMOTE.match(pattern):
            raise DataError("no_data", f"{pattern!r} is no file; only local shards are read, and no command is run")
        for name in _expand(pattern):
            matches = sorted(glob.glob(name, root_dir=folder)) if _WILDCARDS.search(name) else [name]
            paths = [folder / match for match in matches if os.path.isfile(folder / match)]
            if not paths:
                of = f" (of {pattern})" if name != pattern else ""
                raise DataError("no_data", f"there is no file {folder / name}{of}")
            found.update(dict.fromkeys(paths))
    return list(found)


def read_shard(tar: tarfile.TarFile, size: int) -> Shard:
    """The members of an open tar of ``size`` bytes, by sample; those before the damage where it is cut short."""
    shard = Shard()
    try:
        for member in tar:
            if member.size < 0:  # tarfile would go back by so much, for ever
                shard.damage = f"the header of {member.name} has a size below 0"
                return shard
            if member.isreg() and member.offset_data + member.size > size:
                shard.damage = f"it ends within {member.name}"
                return shard
            _place(shard, member)
    except _ODD_HEADERS as error:
        shard.damage = str(error)
        return shard
    if not _ends_well(tar):
        shard.damage = f"it has no end mark at byte {tar.offset}: what should follow is lost"
    return shard


def open_tar(path: Path) -> tarfile.TarFile:
    """The tar, open for reading.

    Raises:
        DataError: ``no_data`` when it cannot be opened, ``wrong_schema`` when it is no uncompressed tar.
    """
    try:
        return tarfile.open(path, "r:", errors="backslashreplace")  # member names are labels here, never paths
    except OSError as error:
        raise DataError("no_data", f"cannot read {path}: {error.strerror or error}") from error
    except _ODD_HEADERS as error:
        with path.open("rb") as file:
            start = file.read(8)
        packed = next((name for mark, name in _COMPRESSED.items() if start.startswith(mark)), None)
        hint = f" but compressed by {packed}; pictures are read by their place in the tar: unpack it" if packed else ""
        raise DataError("wrong_schema", f"{path} is no plain tar{hint or f' ({error})'}") from error


def _place(shard: Shard, member: tarfile.TarInfo) -> None:
    folder, _, name = member.name.rpartition("/")
    if member.isdir() or name.startswith((".", "__")):  # folders, macOS's "._" doubles, WebDataset's own notes
        return
    stem, dot, extension = name.partition(".")
    key = f"{folder}/{stem}" if folder else stem
    if not dot:
        shard.odd.append((member.name, "member belongs to no sample"))
    elif not member.isreg() or member.issparse():
        shard.odd.append((member.name, "member is not a regular file"))
    elif extension.lower() in shard.samples.setdefault(key, {}):
        shard.odd.append((member.name, "member is there twice"))
    else:
        shard.samples[key][extension.lower()] = member


def _ends_well(tar: tarfile.TarFile) -> bool:
    """Whether a block of zeros ended the reading. tarfile takes any block that is no header for the end."""
    assert tar.fileobj is not None
    tar.fileobj.seek(tar.offset)
    return tar.fileobj.read(_BLOCK) == bytes(_BLOCK)


def _expand(pattern: str) -> list[str]:
    """The names that braces stand for."""
    braces = _BRACES.search(pattern)
    if braces is None:
        return [pattern]
    first, last, listed = braces.groups()
    if listed is not None:
        choices: Iterable[str] = listed.split(",")
    elif abs(int(last) - int(first)) >= MOST_SHARDS:
        raise DataError("no_data", f"{pattern!r} names more than {MOST_SHARDS} shards")
    else:
        step = 1 if int(first) <= int(last) else -1
        width = len(first) if first.startswith("0") or last.startswith("0") else 0
        choices = (str(number).zfill(width) for number in range(int(first), int(last) + step, step))
    before, after = pattern[: braces.start()], pattern[braces.end() :]
    tails = _expand(after)
    return [before + choice + tail for choice in choices for tail in tails]
