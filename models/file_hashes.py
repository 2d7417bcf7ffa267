"""The files of a checkpoint folder are what its card says. Loads no torch."""

import hashlib
from pathlib import Path

from models.card import CARD_FILE, ArithmeticCard, Card, FilePart
from models.errors import CheckpointError


def sha256_of(path: Path) -> str:
    """The hex sha256 of a file.

    Raises:
        CheckpointError: ``missing_file``.
    """
    if path.exists() and not path.is_file():  # a pipe would be waited for, a device read for ever
        raise CheckpointError("missing_file", f"{path} cannot be read: it is no file")
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError("missing_file", f"{path} cannot be read: {error.strerror}") from error


def verify(path: Path, expected: str) -> None:
    """Refuse a file whose content is not what the card says.

    Raises:
        CheckpointError: ``missing_file`` or ``hash_mismatch``, with both hashes.
    """
    found = sha256_of(path)
    if found != expected:
        raise CheckpointError(
            "hash_mismatch",
            f"{path} is damaged or was changed: its sha256 is {found[:16]}…, the card says {expected[:16]}…; "
            "restore the file or write the checkpoint again",
        )


def verify_files(folder: Path, card: Card) -> None:
    """Check every file that the card lists. Raises as ``verify`` and ``file_inside`` do, and ``unsafe_file`` for a
    folder with pipes or devices in it, which whoever reads the folder would wait for."""
    for path in folder.iterdir():
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise CheckpointError("unsafe_file", f"{path} is neither a file nor a folder")
    for name, expected in card.files.items():
        verify(file_inside(folder, name), expected)
    for part in () if isinstance(card, ArithmeticCard) else card.parts.values():
        if isinstance(part, FilePart):
            verify(file_inside(folder, part.file), part.sha256)


def file_inside(folder: Path, name: str) -> Path:
    """The path of a card's file, which must lie in the folder itself.

    Raises:
        CheckpointError: ``bad_card`` for a name with a directory in it.
    """
    if Path(name).name != name or name in ("", "..") or "\0" in name:
        raise CheckpointError("bad_card", f"{folder / CARD_FILE} names a file outside its folder: {name!r}")
    return folder / name
