"""What workers agree on, in two processes; and that a run in one process needs no agreement."""

import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from training import workers

COUNT = 2


def _work(number: int, folder: Path, results: Any) -> None:
    store = distributed.FileStore(str(folder / "store"), COUNT)
    distributed.init_process_group("gloo", store=store, rank=number, world_size=COUNT)
    with workers.first_alone():
        mark = folder / "written"
        if number == 0:
            time.sleep(0.2)
            assert not mark.exists()
            mark.touch()
        found = mark.exists()
    made = workers.from_first(lambda: f"by {number}")
    results.put((workers.number(), workers.count(), found, made, workers.totals([1.0 + number, 0.5])))
    distributed.destroy_process_group()


def test_two_workers_agree(tmp_path: Path) -> None:
    context = get_context("forkserver")
    results = context.SimpleQueue()
    processes = [context.Process(target=_work, args=(number, tmp_path, results)) for number in range(COUNT)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert sorted(results.get() for _ in processes) == [
        (number, COUNT, True, "by 0", [3.0, 1.0]) for number in range(COUNT)
    ]


def test_one_process_is_the_first_of_one() -> None:
    assert (workers.number(), workers.count()) == (0, 1)
    with workers.first_alone():
        assert workers.from_first(lambda: 7) == 7
    assert workers.totals([0.1, 2]) == [0.1, 2]


@pytest.mark.parametrize("value", [None, torch.tensor(1.0)])
def test_what_the_first_gives_may_be_anything(value: Any) -> None:
    assert workers.from_first(lambda: value) is value
