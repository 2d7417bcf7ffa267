"""One picture and its captions, wherever the picture's bytes lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from models.errors import ImageError
from models.images import DEFAULT_LIMITS, ImageLimits, LoadedImage, load_image, read_image


@dataclass(frozen=True)
class Member:
    """Where a picture lies in an uncompressed tar."""

    name: str
    offset: int
    """Of its first byte from the start of the tar."""
    size: int
    """In bytes."""


@dataclass(frozen=True)
class Example:
    """One picture and its captions."""

    image_id: str
    path: Path
    """The picture's file, or the tar that holds it."""
    captions: tuple[str, ...]
    member: Member | None = None
    """The picture in the tar; None where ``path`` is the picture itself."""

    @property
    def file_name(self) -> str:
        """The picture's own name, without the folders above it."""
        return self.path.name if self.member is None else self.member.name

    @property
    def source(self) -> str:
        """Where the picture lies; two examples with the same source show the same picture."""
        return str(self.path) if self.member is None else f"{self.path}:{self.member.name}"

    def read(self, limits: ImageLimits = DEFAULT_LIMITS) -> bytes:
        """The encoded picture; of one that is larger than the limit only as much as it takes to see that.

        Raises:
            ImageError: ``unreadable``; the message names the picture.
        """
        most = limits.max_bytes + 1
        try:
            if not self.path.is_file():  # the opening of a FIFO would wait for a writer
                raise FileNotFoundError(0, "there is no such regular file")
            with self.path.open("rb") as file:
                if self.member is None:
                    return file.read(most)
                file.seek(self.member.offset)
                return file.read(min(self.member.size, most))
        except OSError as error:
            raise ImageError("unreadable", f"{self.source!r} cannot be read: {error.strerror or error}") from error

    def load(self, limits: ImageLimits = DEFAULT_LIMITS) -> LoadedImage:
        """The picture as the one safe loader gives it; the message of every error names the picture.

        Raises:
            ImageError: any code of ``models.images``.
        """
        if self.member is None:
            return read_image(self.path, limits)
        try:
            return load_image(self.read(limits), limits)
        except ImageError as error:
            named = error.detail if error.code == "unreadable" else f"{self.source!r}: {error.detail}"
            raise ImageError(error.code, named) from error
