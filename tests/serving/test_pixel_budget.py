"""Room for decoded pixels."""

import asyncio

from serving.pixel_budget import PixelBudget


def test_holders_wait_for_room_in_order() -> None:
    async def scenario() -> list[str]:
        budget, entered = PixelBudget(100), list[str]()

        async def hold(name: str, px: int) -> None:
            await budget.acquire(px)
            entered.append(name)

        await hold("a", 60)
        waiting = [asyncio.create_task(hold("b", 60)), asyncio.create_task(hold("c", 10))]
        await asyncio.sleep(0.01)
        assert entered == ["a"]  # c would fit, but b came first
        budget.release(60)
        await asyncio.gather(*waiting)
        return entered

    assert asyncio.run(scenario()) == ["a", "b", "c"]


def test_what_is_larger_than_everything_enters_alone() -> None:
    async def scenario() -> None:
        budget = PixelBudget(100)
        await budget.acquire(1000)
        waiting = asyncio.create_task(budget.acquire(1))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        budget.release(1000)
        await waiting

    asyncio.run(scenario())


def test_a_cancelled_waiter_takes_nothing_and_lets_the_next_in() -> None:
    async def scenario() -> None:
        budget = PixelBudget(100)
        await budget.acquire(60)
        large, small = asyncio.create_task(budget.acquire(90)), asyncio.create_task(budget.acquire(40))
        await asyncio.sleep(0.01)
        large.cancel()
        await small
        budget.release(60)
        budget.release(40)
        await asyncio.wait_for(budget.acquire(100), 1)

    asyncio.run(scenario())


def test_a_waiter_cancelled_in_the_moment_of_its_turn_gives_it_back() -> None:
    async def scenario() -> None:
        budget = PixelBudget(100)
        await budget.acquire(100)
        waiting = asyncio.create_task(budget.acquire(100))
        await asyncio.sleep(0.01)
        budget.release(100)  # its turn comes...
        waiting.cancel()  # ...but it never gets to know
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.wait_for(budget.acquire(100), 1)

    asyncio.run(scenario())
