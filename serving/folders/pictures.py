"""A picture that is to be captioned, as the command line finds it, and what it is called in the output."""

import os
from dataclasses import dataclass

from models.images import LoadedImage
from serving.messages import Failure

SUFFIXES = frozenset(".jpg .jpeg .jfif .png .gif .webp .avif .heic .heif .bmp .tif .tiff .ppm .pgm .pbm .pnm".split())
"""Of files that must be pictures, lower case; others of a folder are left out if they are none."""

ARCHIVES = (".tar", ".tar.gz", ".tgz")
"""How files are called whose members may be pictures; those that lie in a folder are not looked into."""

NOT_PICTURES = frozenset({"empty", "not_an_image", "unsupported_format"})
"""Codes with which a file that is not named like a picture turns out to be none."""


@dataclass(frozen=True)
class Picture:
    """A file, or a member of an archive. Names that are not UTF-8 are kept as Python keeps them, with surrogates."""

    name: str
    """What its row is called: relative to the folder, archive or list it comes from, or the path itself."""
    path: str
    """Where it is read; of a member, where the archive is."""
    named: bool = True
    """Whether it must be a picture: given by itself, or named like one. Other files of a folder are skipped if not."""
    in_archive: bool = False
    data: bytes | None = None
    """The content of a member, until it is opened."""
    error: Failure | None = None
    """Why it cannot be read, where its source knows already."""

    @property
    def where(self) -> str:
        """What messages call it, quoted; of a member the archive as well."""
        return f"{self.name!r} in {self.path!r}" if self.in_archive else repr(self.path)


Coming = Picture | None
"""What a source gives: a picture, or None while there is none yet and somebody may still name one. What came before a
None is not kept waiting for what comes after it."""


@dataclass(frozen=True)
class Opened:
    """A picture that was opened, or why there is none."""

    picture: Picture
    content: LoadedImage | Failure
    digest: bytes | None = None
    """SHA-256 of its bytes, where duplicates are looked for."""

    @property
    def px(self) -> int:
        """Decoded pixels that it holds."""
        return self.content.image.width * self.content.image.height if isinstance(self.content, LoadedImage) else 0

    @property
    def is_no_picture(self) -> bool:
        """Whether it is a file of a folder that only turned out to be no picture, which is no failure."""
        return not self.picture.named and isinstance(self.content, Failure) and self.content.code in NOT_PICTURES


def is_archive(path: str) -> bool:
    """Whether it is a file that is named like a tar."""
    return path.lower().endswith(ARCHIVES) and os.path.isfile(path)


def kind_of_other(picture: Picture) -> str:
    """What to count a file of a folder as that turned out to be no picture."""
    return "archive" if picture.name.lower().endswith(ARCHIVES) else "not a picture"


def named_like_a_picture(name: str) -> bool:
    """Whether the suffix is that of a picture, in whatever case."""
    return os.path.splitext(name)[1].lower() in SUFFIXES
