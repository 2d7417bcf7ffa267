"""What the processes of the running application hold: memory, file descriptors, threads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil
from scipy import stats

OURS = ("Ingress", "Captioner", "Scorer", "Monitor", "Ledger")
"""The replicas."""

APPLICATION = (*OURS, "ProxyActor")
"""And Ray's process in front of them, through which every request goes."""

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
    found = {}
    for process in psutil.Process().children(recursive=True):
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        title = words[0] if words else ""
        name = title.removeprefix("ray::").rpartition("/")[2]
        if name.startswith("ServeReplica:"):
            name = name.rpartition(":")[2].partition(".")[0]
        name = name.partition(".")[0]
        if name in names and process.status() != psutil.STATUS_ZOMBIE:
            found[name] = process
    return found


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
