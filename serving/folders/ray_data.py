"""The same work on a Ray cluster: Ray Data spreads the pictures over actors that hold the captioner."""

import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import ray
import ray.data
from ray.exceptions import RayError

from models.catalog import BUNDLED, find_by_id
from models.errors import OverloadedError
from serving.folders.job import FolderJob
from serving.folders.opening import Opener, batches
from serving.folders.outputs import Written
from serving.folders.pictures import Coming, Picture, kind_of_other
from serving.local import local_ray
from serving.local_models import Wish

_WINDOW = 50_000  # pictures that the cluster knows of at a time, which bounds the memory of this process,
_WINDOW_BYTES = 128 << 20  # and what members of archives among them may hold: it goes into Ray's object store
_BATCHES_PER_TASK = 4  # within a task pictures are opened ahead of the model
_ROW, _NUMBER, _PICTURE = "row", "number", "picture"


class RayStage:
    """Sends pictures to the cluster of ``RAY_ADDRESS``, or to a Ray of its own on this machine. A context.

    Nodes need limner, its models and the files at the same paths. Rows come back in any order, each once: Ray repeats
    what a node took down with it, and output and journal stay with this process.
    """

    def __init__(self, job: FolderJob, *, batch_size: int, actors: int = 1, gpus: float = 0.0) -> None:
        self._job = _with_places(job)
        self._batch_size = batch_size
        self._actors = actors
        self._gpus = gpus
        self._closing = ExitStack()

    def __enter__(self) -> "RayStage":
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what is an error for users is raised
        if not ray.is_initialized():
            if address := os.environ.get("RAY_ADDRESS"):
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
                self._closing.callback(ray.shutdown)
            else:
                self._closing.enter_context(local_ray())
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def __call__(self, pictures: Iterable[Coming], skipped: Counter[str]) -> Iterator[list[Written]]:
        """Raises OverloadedError ``unavailable`` when the cluster cannot do the work."""
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)  # here, since Ray Data sets it when it is first used
        try:
            for window in _windows(pictures):
                yield from self._caption(window, skipped)
        except RayError as error:
            last = [line for line in str(error).splitlines() if line.strip()][-1]
            raise OverloadedError("unavailable", f"the cluster failed: {last.strip()}") from error

    def _caption(self, window: Sequence[Picture], skipped: Counter[str]) -> Iterator[list[Written]]:
        per_task = _BATCHES_PER_TASK * self._batch_size
        items = [{_NUMBER: number, _PICTURE: _anywhere(picture)} for number, picture in enumerate(window)]
        rows = ray.data.from_items(items, override_num_blocks=-(-len(items) // per_task)).map_batches(
            _Captioner,
            fn_constructor_args=(self._job, self._batch_size),
            batch_size=per_task,
            compute=ray.data.ActorPoolStrategy(size=self._actors),
            num_cpus=self._job.threads or 1,
            num_gpus=self._gpus,
        )
        for batch in rows.iter_batches(batch_size=None, batch_format="numpy"):
            written: list[Written] = []
            for number, row in zip(batch[_NUMBER], batch[_ROW], strict=True):
                if row:
                    written.append((window[number], json.loads(row)))
                else:
                    skipped[kind_of_other(window[number])] += 1
            yield written


def _windows(pictures: Iterable[Coming]) -> Iterator[list[Picture]]:
    """What the cluster is given at a time: ``_WINDOW`` pictures, those of ``_WINDOW_BYTES``, or those that have come
    when no more come for now."""
    waiting: list[Picture] = []
    held = 0
    for picture in pictures:
        if picture is not None:
            waiting.append(picture)
            held += len(picture.data or b"")
        if len(waiting) >= _WINDOW or held >= _WINDOW_BYTES or (waiting and picture is None):
            yield waiting
            waiting, held = [], 0
    if waiting:
        yield waiting


def _with_places(job: FolderJob) -> FolderJob:
    """The job with its folders as actors find them, whose working directory is another."""

    def found(wish: Wish) -> Wish:
        is_folder = find_by_id(wish.model, (job.models_dir, BUNDLED)) is None and os.path.isdir(wish.model)
        return replace(wish, model=os.path.abspath(wish.model)) if is_folder else wish

    scheme, _, folder = job.scorer.rpartition(":")
    return replace(
        job,
        wish=found(job.wish),
        arms=tuple((label, found(wish)) for label, wish in job.arms),
        models_dir=job.models_dir and job.models_dir.absolute(),
        scorer=f"{scheme}:{os.path.abspath(folder)}" if scheme == "local-dir" else job.scorer,
    )


def _anywhere(picture: Picture) -> Picture:
    """As actors know it, whose working directory is another."""
    return picture if picture.in_archive else replace(picture, path=os.path.abspath(picture.path))


class _Captioner:
    """In an actor: holds the captioner, captions the pictures of one task after the other."""

    def __init__(self, job: FolderJob, batch_size: int) -> None:
        self._batch_size = batch_size
        rows = self._rows = job.load()
        self._opener = Opener(1, ahead=2 * batch_size, draft_px=(lambda: rows.draft_px) if job.draft else None)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """A row as JSON for each picture; an empty one for a file that turns out to be none."""
        rows: list[bytes] = []
        for opened in batches(self._opener.open(batch[_PICTURE]), self._batch_size):
            made = iter(self._rows([each for each in opened if not each.is_no_picture]))
            rows += [b"" if each.is_no_picture else json.dumps(next(made)).encode() for each in opened]
        return {_NUMBER: batch[_NUMBER], _ROW: np.array(rows, dtype=object)}
