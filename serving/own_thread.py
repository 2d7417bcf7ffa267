"""Heavy work of a moment beside the event loop."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_own_thread(work: Callable[[], T]) -> T:
    """The result of ``work`` on a thread that ends with it.

    Those of ``asyncio.to_thread`` stay, and with each that ever computed with torch stay the OpenMP threads that helped
    it. Where a process has more of them than cores, libgomp lets all of them sleep between two parallel regions instead
    of waiting for the next one: the model then takes twice as long for a caption.
    """
    future: Future[T] = Future()

    def run() -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except BaseException as error:  # for the one who waits
                future.set_exception(error)

    threading.Thread(target=run, name="limner-own-thread", daemon=True).start()
    return await asyncio.wrap_future(future)
