"""Small disks of the tests' own that can be full or fail; they need the right to mount."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_MOUNT_WITHIN_S = 30


@cache
def may_mount() -> bool:
    """Whether this process may mount a disk in memory and one in a file; found out by doing so."""
    with tempfile.TemporaryDirectory() as folder, suppress(OSError, subprocess.SubprocessError):
        with small_disk(Path(folder, "memory")), failing_disk(Path(folder, "file")):
            return True
    return False


class SmallDisk:
    """A disk in memory with room for two megabytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Leave no byte free."""
        with self._filler.open("ab", buffering=0) as filler:
            for block in (1 << 16, 1 << 12, 1):
                with suppress(OSError):
                    while True:
                        filler.write(bytes(block))

    def empty(self) -> None:
        """Give the room back."""
        self._filler.unlink()


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    """Mounted at a new folder while the block runs."""
    folder.mkdir()
    _run("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder))
    try:
        yield SmallDisk(folder)
    finally:
        _run("umount", str(folder))


class FailingDisk:
    """A file system in a file, which the kernel can be told to take for broken."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fail(self) -> None:
        """From now on it is read-only, also for those that have files open: what Linux does when a disk fails."""
        _run("mount", "-o", "remount,abort", str(self.folder))

    def repair(self) -> None:
        """Mount it anew; nobody may have files open."""
        _run("umount", str(self.folder))
        subprocess.run(["e2fsck", "-fy", str(_image_of(self.folder))], capture_output=True, timeout=_MOUNT_WITHIN_S)
        _run("mount", "-o", "loop", str(_image_of(self.folder)), str(self.folder))


@contextmanager
def failing_disk(folder: Path) -> Iterator[FailingDisk]:
    """Mounted at a new folder while the block runs."""
    image = _image_of(folder)
    with image.open("wb") as file:
        file.truncate(16 << 20)
    _run("mkfs.ext4", "-q", str(image))
    folder.mkdir()
    _run("mount", "-o", "loop", str(image), str(folder))
    try:
        yield FailingDisk(folder)
    finally:
        _run("umount", str(folder))
        image.unlink()


def _image_of(folder: Path) -> Path:
    return folder.with_suffix(".img")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_MOUNT_WITHIN_S)
