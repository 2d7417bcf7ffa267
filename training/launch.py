"""Training on several processes or machines: Ray Train around the runs of recipes."""

import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from models.errors import DataError, LimnerError
from training.captioner_task import CaptionerTask
from training.dependencies import require
from training.logs import log_to_stderr
from training.recipe import build_task
from training.workers import number

Run = tuple[Mapping[str, Any], Path]
"""A recipe and the folder of its run."""


def launch(runs: Sequence[Run], *, workers: int, gpus: bool = False, address: str | None = None) -> Path:
    """Train one recipe after the other on so many workers, and return the last one's checkpoint folder.

    Every worker takes ``images_per_step`` pictures of each step: two of them do what one does with the doubled number,
    which is what the finished checkpoint's recipe says. The folder of the run, the data and this package must be at the
    same place on every machine.

    Args:
        gpus: one for each worker.
        address: of a Ray cluster, or ``auto``; None: on this machine alone.

    Raises:
        DataError: ``bad_recipe``, its task cannot be shared.
        MissingDependencyError: Ray Train is absent.
        LimnerError: what the run itself raises.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when Ray starts: it does not phone home
    shared = [(shared_recipe(recipe, workers), out) for recipe, out in runs]
    train, torch_trainer = require("ray.train", "train"), require("ray.train.torch", "train")
    last = runs[-1][1]
    records = last.absolute() / ".ray"  # Ray insists on a place that all machines see; the run needs nothing of it
    with _ray(address, workers):
        trainer = torch_trainer.TorchTrainer(
            _work,
            train_loop_config={"runs": shared, "folder": os.getcwd()},
            scaling_config=train.ScalingConfig(num_workers=workers, use_gpu=gpus),
            run_config=train.RunConfig(
                storage_path=str(records), logging_config=train.LoggingConfig(log_level="WARNING")
            ),
        )
        try:
            trainer.fit()
        except train.TrainingFailedError as error:
            raise _cause(error) from error
        finally:
            shutil.rmtree(records, ignore_errors=True)
    return last / str(shared[-1][0]["id"])


def shared_recipe(recipe: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """The recipe with the pictures per step of all workers together.

    Raises:
        DataError: ``bad_recipe``, its task cannot be shared.
    """
    task = build_task(recipe)
    if not isinstance(task, CaptionerTask):
        raise DataError("bad_recipe", f"task {recipe['task']!r} trains in one process: leave out --workers")
    together = task.config.train.images_per_step * workers
    return {**recipe, "train": {**recipe["train"], "images_per_step": together}}


def _work(settings: dict[str, Any]) -> None:
    """What every worker does."""
    log_to_stderr()
    if number():
        logging.getLogger("training").setLevel(logging.WARNING)  # they would say what the first one says
    os.chdir(settings["folder"])  # paths of a recipe are relative to where the command was given
    for recipe, out in settings["runs"]:
        build_task(recipe).run(out)


def _cause(error: Exception) -> Exception:
    """What a worker raised on purpose, if any did; what Ray says of it otherwise."""
    failures: Mapping[int, Any] = getattr(error, "worker_failures", {})
    return next((cause for cause in failures.values() if isinstance(cause, LimnerError)), error)


@contextmanager
def _ray(address: str | None, workers: int) -> Iterator[None]:
    """Inside the ``with`` block there is Ray: the cluster at the address, or one of this machine's own."""
    ray = require("ray", "train")
    if address is None:
        # With Ray's dashboard: Ray Train asks it every second whether all is well, and complains where it is absent.
        ray.init(address="local", num_cpus=workers, logging_level=logging.WARNING)
    else:
        ray.init(address=address, logging_level=logging.WARNING)
    try:
        yield
    finally:
        ray.shutdown()
