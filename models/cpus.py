"""How many processor cores this process may really use."""

import os
from pathlib import Path


def usable_cores(root: Path = Path("/")) -> int:
    """Physical cores within the process's affinity and control-group quota, at least 1.

    ``os.cpu_count`` counts the whole machine: in a container with a quota of two cores torch would start a thread for
    each of the host's, and they would wait for each other. ``root`` is where ``/proc`` and ``/sys`` are looked for.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = len({_siblings(root, cpu) for cpu in allowed})
    quotas = [quota for quota in (_quota_v2(root), _quota_v1(root)) if quota is not None]
    return max(1, min([cores, *(int(quota) for quota in quotas)]))


def _siblings(root: Path, cpu: int) -> str:
    """A name of the physical core that ``cpu`` is a hardware thread of."""
    return _read(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or str(cpu)


def _quota_v2(root: Path) -> float | None:
    """Cores that the control groups (version 2) around this process leave it: the smallest quota on the way up."""
    group = next((line[3:] for line in _read(root / "proc/self/cgroup").splitlines() if line.startswith("0::")), "/")
    top = root / "sys/fs/cgroup"
    folder = top / group.lstrip("/")
    found = []
    for place in (folder, *folder.parents):
        quota, _, period = _read(place / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit():
            found.append(int(quota) / int(period))
        if place == top:
            break
    return min(found, default=None)


def _quota_v1(root: Path) -> float | None:
    folder = root / "sys/fs/cgroup/cpu"
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None  # a quota of -1 is none


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
