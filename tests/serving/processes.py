"""What the processes of the running application hold: memory, file descriptors, threads."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import psutil
from scipy import stats

APPLICATION = ("Ingress", "Captioner", "Scorer", "Monitor", "Ledger")
"""The replicas."""

RAYS = ("ServeController", "raylet", "gcs_server")


@dataclass(frozen=True)
class Held:
    """Of one process at one moment."""

    memory_mib: float
    """Unique set size: what would be free if it ended."""
    descriptors: int
    threads: int


def processes(names: Sequence[str] = APPLICATION) -> dict[str, psutil.Process]:
    """The living processes of the application that this process started, by name."""
    return {name: process for name, process in _started() if name in names}


def replicas(name: str) -> dict[int, psutil.Process]:
    """All of one name, by process id."""
    return {process.pid: process for found, process in _started() if found == name}


def _started() -> Iterator[tuple[str, psutil.Process]]:
    for process in psutil.Process().children(recursive=True):
        try:
            words = process.cmdline()
            dead = process.status() == psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        title = words[0] if words else ""
        name = title.removeprefix("ray::").rpartition("/")[2]
        if name.startswith("ServeReplica:"):
            name = name.rpartition(":")[2].partition(".")[0]
        if not dead:
            yield name.partition(".")[0], process


def held(found: Mapping[str, psutil.Process]) -> dict[str, Held]:
    """What each holds now."""
    return {
        name: Held(process.memory_full_info().uss / 2**20, process.num_fds(), process.num_threads())
        for name, process in found.items()
    }


def growth(values: Sequence[float]) -> float:
    """By what share of where it began the line through the last three quarters of the values rises: the median of
    the slopes of all pairs, which outliers do not move."""
    rest = list(values[len(values) // 4 :])
    slope, level, *_ = stats.theilslopes(rest)
    return float(slope * (len(rest) - 1) / max(level, 1e-9))
