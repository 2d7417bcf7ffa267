import os
from pathlib import Path

import pytest

from models.cpus import usable_cores


def _machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


def test_without_any_information_the_affinity_counts(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == 8


def test_hardware_threads_of_one_core_count_once(tmp_path: Path) -> None:
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    assert usable_cores(_machine(tmp_path, {topology.format(cpu): f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)})) == 4


@pytest.mark.parametrize(
    ("quota", "expected"), [("200000 100000", 2), ("150000 100000", 1), ("50000 100000", 1), ("max 100000", 8)]
)
def test_control_group_version_2(tmp_path: Path, quota: str, expected: int) -> None:
    files = {
        "proc/self/cgroup": "0::/pod/box",
        "sys/fs/cgroup/pod/cpu.max": quota,
        "sys/fs/cgroup/pod/box/cpu.max": "max",
    }
    assert usable_cores(_machine(tmp_path, files)) == expected


@pytest.mark.parametrize(("quota", "expected"), [("300000", 3), ("-1", 8)])
def test_control_group_version_1(tmp_path: Path, quota: str, expected: int) -> None:
    folder = "sys/fs/cgroup/cpu"
    files = {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": "100000"}
    assert usable_cores(_machine(tmp_path, files)) == expected


def test_this_machine_has_a_core() -> None:
    assert usable_cores() >= 1
