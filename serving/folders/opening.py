"""Pictures opened ahead of the model by worker processes, in order, with a bound on what is held in memory."""

import hashlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import islice

from models.errors import ImageError
from models.images import LoadedImage, load_image, read_bytes, sniff_file
from serving.folders.pictures import Coming, Opened, Picture
from serving.messages import Failure

HELD_PX = 192_000_000
"""Decoded pixels held at a time: those of a batch, and as many that wait for it."""

_UNSEEN_PX = 64_000_000  # what a picture may have, until some were seen
_RECENT = 32


def open_picture(picture: Picture, digest: bool = False, draft_px: int | None = None) -> Opened:
    """The picture, or why it cannot be had; with ``digest`` also the SHA-256 of its bytes. Never raises.

    ``draft_px`` is that of ``load_image``.
    """
    kept = replace(picture, data=None)  # a member's bytes need not travel back
    if picture.error is not None:
        return Opened(kept, picture.error)
    known: bytes | None = None
    try:
        data = _bytes(picture) if picture.data is None else picture.data
        known = hashlib.sha256(data).digest() if digest else None
        return Opened(kept, _load(data, picture, draft_px), known)
    except ImageError as error:
        return Opened(kept, Failure(error.code, error.detail), known)
    except MemoryError:
        return Opened(kept, Failure("too_large", f"{picture.where}: there is no memory to open it"), known)


def _bytes(picture: Picture) -> bytes:
    """The content of a file; of one that need not be a picture no more than it takes to see that it is none."""
    if not picture.named:
        sniff_file(picture.path)
    return read_bytes(picture.path)


def _load(data: bytes, picture: Picture, draft_px: int | None) -> LoadedImage:
    try:
        return load_image(data, draft_px=draft_px)
    except ImageError as error:
        raise ImageError(error.code, f"{picture.where}: {error.detail}") from error


def _should_be_one(picture: Picture) -> bool:
    """Whether it begins like a picture, or must be one."""
    if picture.named or picture.data is not None or picture.error is not None:
        return True
    try:
        sniff_file(picture.path)
    except ImageError:
        return False
    return True


class Opener:
    """Opens pictures in worker processes, or with none in this one. A context: the workers end with it."""

    def __init__(
        self, workers: int, *, ahead: int, digest: bool = False, draft_px: Callable[[], int | None] | None = None
    ) -> None:
        """
        Args:
            ahead: the most pictures that are opened before somebody asks for them.
            draft_px: tells that of ``load_image``. Asked before the first picture is opened, and not where there is
                none: whoever answers may have to load a model for it. None: pictures are opened in full.
        """
        self._workers = workers
        self._ahead = max(ahead, 1)
        self._digest = digest
        self._ask_draft_px = draft_px
        self._draft_px: int | None = None
        self._pool = self._new_pool(workers) if workers else None
        self._single: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Opener":
        return self

    def __exit__(self, *_: object) -> None:
        for pool in (self._pool, self._single):
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)

    def open(self, pictures: Iterable[Coming]) -> Iterator[Opened | None]:
        """Each picture, in order, and each None in its place, which is not waited beyond. A picture whose decoder
        brings its process down fails alone."""
        if self._pool is None:
            for each in pictures:
                yield None if each is None else open_picture(each, *self._how(each))
            return
        if self._ask_draft_px is not None:
            for _ in range(self._workers):
                self._pool.submit(os.getpid)  # so that they start meanwhile
        source = iter(pictures)
        under_way: deque[tuple[Picture, Future[Opened]]] = deque()
        recent: deque[int] = deque(maxlen=_RECENT)
        while True:
            room = self._room(recent) - len(under_way)
            lull = self._take(islice(source, max(room, 0)), under_way)
            if not under_way and not lull:
                return
            for _ in range(len(under_way) if lull else 1):
                picture, future = under_way.popleft()
                opened = self._result(picture, future)
                recent.append(opened.px)
                yield opened
            if lull:
                yield None

    def _take(self, pictures: Iterable[Coming], under_way: deque[tuple[Picture, Future[Opened]]]) -> bool:
        """Begin to open what has come; whether no more comes for now."""
        for picture in pictures:
            if picture is None:
                return True
            under_way.append((picture, self._submit(picture)))
        return False

    def _room(self, recent: Iterable[int]) -> int:
        """How many pictures may be held or under way: few while they are large, or before any was seen."""
        largest = max(recent, default=_UNSEEN_PX)
        return max(1, min(self._ahead, HELD_PX // max(largest, 1)))

    def _how(self, picture: Picture) -> tuple[bool, int | None]:
        """The further arguments of ``open_picture``."""
        if self._ask_draft_px is not None and _should_be_one(picture):
            self._draft_px, self._ask_draft_px = self._ask_draft_px(), None
        return self._digest, self._draft_px

    def _submit(self, picture: Picture) -> Future[Opened]:
        assert self._pool is not None
        how = self._how(picture)
        try:
            return self._pool.submit(open_picture, picture, *how)
        except BrokenProcessPool:
            self._pool = self._new_pool(self._workers)
            return self._pool.submit(open_picture, picture, *how)

    def _result(self, picture: Picture, future: Future[Opened]) -> Opened:
        try:
            return future.result()
        except BrokenProcessPool:
            return self._alone(picture)

    def _alone(self, picture: Picture) -> Opened:
        """One of the pictures that were under way when a process went down: alone in a process, it shows."""
        if self._single is None:
            self._single = self._new_pool(1)
        try:
            return self._single.submit(open_picture, picture, *self._how(picture)).result()
        except BrokenProcessPool:
            self._single = None
            detail = f"{picture.where} brought its decoder down: it is damaged, or needs too much memory"
            return Opened(replace(picture, data=None), Failure("unreadable", detail))

    def _new_pool(self, workers: int) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")  # torch has threads by now, which a fork would not survive
        return ProcessPoolExecutor(workers, context, _become_worker)


def _become_worker() -> None:
    """Leave interrupts to the parent, and the processors to its model; end with it, however it ends."""
    os.nice(19)  # each interruption of one thread of the model is waited for by all of them
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def batches(opened: Iterable[Opened | None], batch_size: int) -> Iterator[list[Opened]]:
    """In order, as many at a time as make ``batch_size`` pictures or fill the memory set aside for them; fewer where a
    None says that no more come for now. Files of a folder that are no pictures come along, as failures."""
    waiting: list[Opened] = []
    pictures = px = 0
    for each in opened:
        if each is not None:
            waiting.append(each)
            pictures, px = pictures + isinstance(each.content, LoadedImage), px + each.px
        full = pictures >= batch_size or px >= HELD_PX or len(waiting) >= 64 * batch_size
        if waiting and (full or each is None):
            yield waiting
            waiting, pictures, px = [], 0, 0
    if waiting:
        yield waiting
