"""How far a run is: parts of the loss and tokens per second, and a bar of them where somebody watches."""

import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torch import Tensor
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import TrainerCallback
from transformers.integrations.integration_utils import TensorBoardCallback

from training.dependencies import require
from training.workers import totals


class StepStatistics:
    """Parts of the loss and tokens since the last line of the log."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._steps = self._tokens = 0
        self._began = time.monotonic()

    def add(self, parts: Mapping[str, Tensor], tokens: int, share: float) -> None:
        """Take in a step of this worker, whose parts count for ``share`` in the mean over the workers."""
        for name, part in parts.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(part) * share
        self._steps += 1
        self._tokens += tokens

    def means(self) -> dict[str, float]:
        """Mean parts and tokens per second of this worker."""
        return self._means(list(self._sums.values()), self._tokens)

    def take(self) -> dict[str, float]:
        """Mean parts and tokens per second of all workers, which call this together; counting begins anew."""
        *sums, tokens, workers = totals([*self._sums.values(), self._tokens, 1])
        means = self._means([value / workers for value in sums], tokens)
        self._sums, self._steps, self._tokens, self._began = {}, 0, 0, time.monotonic()
        return means

    def _means(self, sums: list[float], tokens: float) -> dict[str, float]:
        seconds = max(time.monotonic() - self._began, 1e-9)
        means = {name: value / max(self._steps, 1) for name, value in zip(self._sums, sums, strict=True)}
        return means | ({"tokens_per_s": round(tokens / seconds, 1)} if tokens else {})


class ProgressBar(TrainerCallback):
    """A bar on the terminal with what the statistics say and the time left; none where stderr is no terminal.

    Lines of the log go above the bar while there is one.
    """

    def __init__(self, statistics: StepStatistics) -> None:
        self._statistics = statistics
        self._open = ExitStack()
        self._bar: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero and sys.stderr.isatty():
            steps = {"initial": state.global_step, "total": state.max_steps}
            self._bar = self._open.enter_context(tqdm(**steps, unit="step", dynamic_ncols=True, file=sys.stderr))
            self._open.enter_context(logging_redirect_tqdm())

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._bar is not None:
            words = {name: f"{value:.4g}" for name, value in self._statistics.means().items()}
            self._bar.set_postfix(words, refresh=False)
            self._bar.update()

    def close(self) -> None:
        """Take the bar away, also from a run that an error ended."""
        self._open.close()
        self._bar = None


def event_files(folder: Path) -> TrainerCallback:
    """A callback that writes the log into event files of TensorBoard; each start of a run adds one to the folder.

    Raises:
        MissingDependencyError: TensorBoard is absent.
    """
    require("tensorboard", "train")
    untyped: Any = TensorBoardCallback
    callback: TrainerCallback = untyped()
    callback.logging_dir = str(folder)  # type: ignore[attr-defined]
    return callback
