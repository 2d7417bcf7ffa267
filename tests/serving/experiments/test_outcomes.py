"""The sender, with a ledger that fails in every way that it can."""

import asyncio
import random
from collections import Counter
from collections.abc import Collection, Sequence

from serving.experiments.outcomes import OutcomeSender
from serving.experiments.records import Outcome
from tests.serving.experiments.support import outcome


class FlakyLedger:
    """Takes a batch, or not, or takes it and does not say so, or says so of a part of it, or hangs."""

    def __init__(self, seed: int | None = None) -> None:
        self.chance = random.Random(seed) if seed is not None else None
        self.kept: set[str] = set()
        self.confirmed: set[str] = set()
        self.batches: list[int] = []
        self.down = False
        self.calls_at_once = 0

    async def record(self, outcomes: Sequence[Outcome]) -> Collection[str]:
        self.calls_at_once += 1
        try:
            assert self.calls_at_once == 1
            self.batches.append(len(outcomes))
            return await self._record([each.id for each in outcomes])
        finally:
            self.calls_at_once -= 1

    async def _record(self, ids: list[str]) -> Collection[str]:
        await asyncio.sleep(0)
        what = self.chance.choice(["fails", "forgets", "partly", "hangs", "works"]) if self.chance else "works"
        if self.down or what == "fails":
            raise ConnectionError
        if what == "partly":
            ids = ids[::2]
        self.kept.update(ids)
        if what == "forgets":
            raise ConnectionError
        if what == "hangs":
            await asyncio.sleep(60)
        self.confirmed.update(ids)
        return ids


def made(count: int) -> list[Outcome]:
    return [outcome(request_id=f"r{number}") for number in range(count)]


def test_nothing_is_lost_however_the_ledger_fails() -> None:
    async def scenario(seed: int) -> None:
        ledger, lost = FlakyLedger(seed), Counter[str]()
        sender = OutcomeSender(
            ledger.record, lambda n: lost.update(n=n), interval_s=0.001, send_timeout_s=0.005, max_batch=7
        )
        running = asyncio.create_task(sender.run())
        outcomes = made(100)
        for start in range(0, 100, 10):
            sender.add(outcomes[start : start + 10])
            await asyncio.sleep(0.001)
        async with asyncio.timeout(30):
            while sender.pending:
                await asyncio.sleep(0.001)
        running.cancel()
        assert ledger.kept == ledger.confirmed == {each.id for each in outcomes}
        assert not lost
        assert max(ledger.batches) == 7

    for seed in range(5):
        asyncio.run(scenario(seed))


def test_outcomes_travel_together_at_most_half_a_second_late() -> None:
    async def scenario() -> None:
        ledger = FlakyLedger()
        sender = OutcomeSender(ledger.record, lambda n: None)
        sender.add(made(20))
        sender.add(made(10))  # the same again
        assert sender._interval_s <= 0.5
        assert await sender.flush()
        assert ledger.batches == [20]
        assert await sender.flush()
        assert ledger.batches == [20]

    asyncio.run(scenario())


def test_it_is_bounded_and_what_has_no_room_is_counted() -> None:
    async def scenario() -> None:
        ledger, lost = FlakyLedger(), Counter[str]()
        ledger.down = True
        sender = OutcomeSender(ledger.record, lambda n: lost.update(n=n), max_pending=8)
        sender.add(made(10))
        assert not await sender.flush()
        sender.add([*made(3), outcome(request_id="one more")])
        assert (sender.pending, lost["n"]) == (8, 3)
        ledger.down = False
        assert await sender.flush()
        assert ledger.confirmed == {each.id for each in made(8)}

    asyncio.run(scenario())


def test_what_comes_while_it_sends_is_sent_next() -> None:
    async def scenario() -> None:
        ledger = FlakyLedger()
        sender = OutcomeSender(ledger.record, lambda n: None)
        sender.add(made(1))
        first = asyncio.create_task(sender.flush())
        await asyncio.sleep(0)
        sender.add([outcome(request_id="late")])
        assert await first
        assert sender.pending == 1
        assert await sender.flush()
        assert ledger.batches == [1, 1]

    asyncio.run(scenario())


def test_a_second_try_takes_the_place_of_the_failure() -> None:
    async def scenario() -> None:
        ledger = FlakyLedger()
        sender = OutcomeSender(ledger.record, lambda n: None)
        failed, served = outcome(error="queue_full"), outcome()
        sender.add([failed])
        sender.add([served])
        sender.add([failed])
        assert list(sender._pending.values()) == [served]
        sending = asyncio.create_task(sender.flush())
        await asyncio.sleep(0)
        assert sender.holds(served.id)
        assert await sending and not sender.holds(served.id)

    asyncio.run(scenario())


def test_the_rest_is_sent_at_the_end() -> None:
    async def scenario(down: bool) -> tuple[int, int]:
        ledger, lost = FlakyLedger(), Counter[str]()
        ledger.down = down
        sender = OutcomeSender(ledger.record, lambda n: lost.update(n=n), interval_s=0.001)
        running = asyncio.create_task(sender.run())
        sender.add(made(30))
        running.cancel()
        await sender.close(timeout_s=0.05 if down else 30)
        return len(ledger.confirmed), lost["n"]

    assert asyncio.run(scenario(down=False)) == (30, 0)
    assert asyncio.run(scenario(down=True)) == (0, 30)


def test_stopping_in_the_middle_of_a_send_forgets_nothing() -> None:
    async def scenario() -> None:
        ledger = FlakyLedger()
        reached = asyncio.Event()

        async def hanging(outcomes: Sequence[Outcome]) -> Collection[str]:
            await ledger.record(outcomes)
            reached.set()
            await asyncio.sleep(60)
            raise AssertionError

        sender = OutcomeSender(hanging, lambda n: None, interval_s=0.001)
        running = asyncio.create_task(sender.run())
        sender.add(made(3))
        await reached.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert sender.pending == 3
        sender._record = ledger.record
        await sender.close()
        assert sender.pending == 0

    asyncio.run(scenario())
