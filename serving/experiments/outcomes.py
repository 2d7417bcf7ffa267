"""Outcomes on their way to the ledger: batched, sent again until confirmed, bounded; requests never wait for it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

from serving.experiments.records import Outcome

logger = logging.getLogger(__name__)

Record = Callable[[Sequence[Outcome]], Awaitable[Collection[str]]]
"""Gives outcomes to the ledger; the ids that it confirmed."""


class OutcomeSender:
    """Holds outcomes until the ledger confirms them; used from one event loop.

    ``run`` sends what there is every ``interval_s``, so with the defaults no more than a second of them is unconfirmed
    while the ledger answers, and dies with a process that is killed. While it does not answer, at most ``max_pending``
    are kept; what cannot be is told to ``on_lost``.
    """

    def __init__(
        self,
        record: Record,
        on_lost: Callable[[int], None],
        *,
        interval_s: float = 0.5,
        send_timeout_s: float = 5.0,
        max_batch: int = 500,
        max_pending: int = 10_000,
    ) -> None:
        self._record = record
        self._on_lost = on_lost
        self._interval_s = interval_s
        self._send_timeout_s = send_timeout_s
        self._max_batch = max_batch
        self._max_pending = max_pending
        self._pending: dict[str, Outcome] = {}
        self._sending = asyncio.Lock()

    @property
    def pending(self) -> int:
        """Outcomes that the ledger has not confirmed."""
        return len(self._pending)

    def holds(self, outcome_id: str) -> bool:
        """Whether the ledger has not confirmed that outcome yet."""
        return outcome_id in self._pending

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Take outcomes over; those beyond the bound are lost, and counted."""
        lost = 0
        for outcome in outcomes:
            known = self._pending.get(outcome.id)
            if known is not None or len(self._pending) < self._max_pending:
                if known is None or (known.error is not None and outcome.error is None):  # tried again, and served
                    self._pending[outcome.id] = outcome
            else:
                lost += 1
        if lost:
            self._on_lost(lost)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.flush()

    async def flush(self) -> bool:
        """Send what is there now; whether the ledger confirmed all of it. Never raises for a ledger that fails."""
        async with self._sending:
            waiting = list(self._pending.values())
            for start in range(0, len(waiting), self._max_batch):
                if not await self._send(waiting[start : start + self._max_batch]):
                    return False
            return True

    async def close(self, timeout_s: float = 2.0) -> None:
        """Try to send what is left, for at most ``timeout_s``; what cannot be is lost, and counted."""
        try:
            async with asyncio.timeout(timeout_s):
                while not await self.flush() or self._pending:
                    await asyncio.sleep(self._interval_s)
        except TimeoutError:
            pass
        if self._pending:
            logger.warning("%d outcomes never reached the ledger", len(self._pending))
            self._on_lost(len(self._pending))
            self._pending.clear()

    async def _send(self, batch: Sequence[Outcome]) -> bool:
        """Whether all of the batch was confirmed; what was not stays pending and is sent again, under the same ids."""
        try:
            async with asyncio.timeout(self._send_timeout_s):
                confirmed = set(await self._record(batch))
        except Exception as error:  # whatever it was: it is sent again
            logger.warning("the ledger did not take %d outcomes: %r", len(batch), error)
            return False
        for outcome in batch:
            if outcome.id in confirmed and self._pending.get(outcome.id) is outcome:  # not one that came meanwhile
                del self._pending[outcome.id]
        return all(outcome.id in confirmed for outcome in batch)
