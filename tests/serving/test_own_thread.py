"""Work on a thread that ends with it."""

import asyncio
import threading

import pytest

from serving.own_thread import in_own_thread


def test_the_thread_ends_with_its_work() -> None:
    async def scenario() -> None:
        before = set(threading.enumerate())
        names = [await in_own_thread(lambda: threading.current_thread()) for _ in range(3)]
        assert len({id(thread) for thread in names}) == 3 and threading.current_thread() not in names
        for thread in names:
            thread.join(5)
        assert set(threading.enumerate()) == before

    asyncio.run(scenario())


def test_errors_reach_the_one_who_waits() -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        asyncio.run(in_own_thread(fail))


def test_who_leaves_does_not_break_the_thread() -> None:
    async def scenario() -> None:
        gate, done = threading.Event(), threading.Event()

        def work() -> None:
            gate.wait(5)
            done.set()

        task = asyncio.create_task(in_own_thread(work))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()
        assert await asyncio.to_thread(done.wait, 5)

    asyncio.run(scenario())
