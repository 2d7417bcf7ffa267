"""The run over all pictures: what is not done yet is opened, captioned and written, each while the others go on."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Protocol

from serving.folders.captioning import Rows
from serving.folders.opening import Opener, batches
from serving.folders.outputs import Output, Row, Written
from serving.folders.pictures import Coming, Opened, kind_of_other
from serving.folders.sources import Sources
from serving.folders.summary import Summary


class Stage(Protocol):
    """Turns pictures into rows; files that turn out to be no pictures are counted and left out. After a None it
    does not wait for more pictures before it gives the rows of those it has."""

    def __call__(self, pictures: Iterable[Coming], skipped: Counter[str]) -> Iterator[list[Written]]: ...


class Watcher(Protocol):
    """Is told how far the run is."""

    def found(self, total: int) -> None:
        """So many pictures there are; called once, or never when they cannot be counted."""

    def moved(self, pictures: int) -> None:
        """So many more are done, or were before."""


class LocalStage:
    """Worker processes open pictures ahead of one model in this process."""

    def __init__(
        self,
        load: Callable[[], Rows],
        *,
        batch_size: int,
        workers: int,
        digest: bool = False,
        draft: bool = False,
    ) -> None:
        """
        Args:
            load: makes the captioner, while the workers start; never where nothing is to be done.
            draft: whether large JPEGs may be decoded as small as the captioner allows.
        """
        self._load = cache(load)
        self._batch_size = batch_size
        self._workers = workers
        self._digest = digest
        self._draft_px = (lambda: self._load().draft_px) if draft else None

    def __call__(self, pictures: Iterable[Coming], skipped: Counter[str]) -> Iterator[list[Written]]:
        ahead = 2 * self._batch_size
        with Opener(self._workers, ahead=ahead, digest=self._digest, draft_px=self._draft_px) as opener:
            opened = without_other_files(opener.open(pictures), skipped)
            for batch in batches(opened, self._batch_size):
                yield list(zip((each.picture for each in batch), self._load()(batch), strict=True))


def without_other_files(opened: Iterable[Opened | None], skipped: Counter[str]) -> Iterator[Opened | None]:
    """Those that are pictures, or should be; the others are counted."""
    for each in opened:
        if each is not None and each.is_no_picture:
            skipped[kind_of_other(each.picture)] += 1
        else:
            yield each


def run(
    sources: Sources,
    stage: Stage,
    output: Output,
    summary: Summary,
    *,
    stop: Callable[[], bool] = lambda: False,
    begin: Callable[[], None] = lambda: None,
    watcher: Watcher | None = None,
    failed: Callable[[Row], None] = lambda row: None,
) -> bool:
    """Caption what ``output`` does not hold yet; false when ``stop`` ended it before everything was done.

    What is captioned when ``stop`` turns true is still written. Raises what ``stage`` and ``output`` raise; what was
    written until then is kept. ``begin`` is called before anything is written, and not where nothing is.
    """
    summary.skipped = sources.skipped
    begun = stopped = False

    def wanted() -> Iterator[Coming]:
        nonlocal stopped
        for picture in sources.coming():
            if stop():
                stopped = True
                return
            if picture is None:
                yield None
            elif (done := output.done(picture)) is not None:
                summary.done[done] += 1
                if watcher is not None:
                    watcher.moved(1)
            else:
                yield picture

    def keep(written: Sequence[Written]) -> None:
        nonlocal begun
        if not begun:
            output.begin()
            begin()
            begun = True
        for row in output.write(written):
            summary.add(row)
            if row["error"] is not None:
                failed(row)
        if watcher is not None:
            watcher.moved(len(written))

    with _counting(sources, watcher), ThreadPoolExecutor(1, thread_name_prefix="limner-writer") as writer:
        before: Future[None] | None = None
        for written in stage(wanted(), sources.skipped):
            if before is not None:
                before.result()  # at most one batch waits to be written
            before = writer.submit(keep, written)
            if stop():
                stopped = True
                break
        if before is not None:
            before.result()
    if not stopped and summary.pictures:
        for row in output.finish(sources.counted_apart()):
            summary.take_back(row)
            failed(row)
    return not stopped


class _counting:
    """Counts all pictures in a thread, for whoever watches, while the block runs."""

    def __init__(self, sources: Sources, watcher: Watcher | None) -> None:
        self._sources = sources.counted_apart()
        self._watcher = watcher
        self._ended = threading.Event()

    def __enter__(self) -> None:
        if self._watcher is not None and self._sources.can_be_counted:
            threading.Thread(target=self._count, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _count(self) -> None:
        assert self._watcher is not None
        total = 0
        for _ in self._sources:
            total += 1
            if self._ended.is_set():
                return
        self._watcher.found(total)
