"""Models that come and go, with replicas that only note what they are told."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from models.errors import CheckpointError, LimnerError, OverloadedError, RequestError, UnknownNameError
from serving import model_changes, model_registry
from serving.model_changes import ModelChanges
from serving.model_registry import ModelRegistry, Seen, Wanted

BROKEN = CheckpointError("hash_mismatch", "weights.safetensors is damaged")


class Shelf:
    """Models by id, each with the number of times that it was loaded from its files."""

    def __init__(self, *models: str) -> None:
        self.models = dict.fromkeys(models, 0)
        self.loads = 0
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def load(self, model: str) -> int:
        self.loads += 1
        number = self.loads
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return number

    def put(self, model: str, loaded: int) -> None:
        self.models[model] = loaded

    async def drop(self, model: str) -> None:
        del self.models[model]


class World:
    """A registry with two captioners and an ingress."""

    def __init__(self) -> None:
        self.registry = ModelRegistry(("a", "b"))
        self.shelves = [Shelf("a", "b") for _ in range(3)]
        self.tasks = [self.start(number, shelf) for number, shelf in enumerate(self.shelves)]

    def start(self, number: int, shelf: Shelf) -> asyncio.Task[None]:
        async def ask(seen: Seen) -> Wanted | None:
            return self.registry.sync(seen)  # whichever is there now

        changes = ModelChanges(f"replica {number}", tuple(shelf.models), shelf, ask, captions=number < 2)
        return asyncio.create_task(changes.run())

    async def all_ask(self) -> None:
        await asyncio.sleep(3 * model_changes.ASK_EVERY_S)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_changes, "ASK_EVERY_S", 0.01)
    monkeypatch.setattr(model_changes, "_AGAIN_AFTER_S", 0.01)
    monkeypatch.setattr(model_registry, "_POLL_S", 0.002)
    monkeypatch.setattr(model_registry, "ALIVE_S", 0.2)


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def whole() -> None:
        world = World()
        await world.all_ask()
        try:
            async with asyncio.timeout(20):
                await scenario(world)
        finally:
            for task in world.tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    asyncio.run(whole())


def test_a_model_is_added_replaced_and_removed_everywhere() -> None:
    async def scenario(world: World) -> None:
        assert await world.registry.put("c") is True
        assert [list(shelf.models) for shelf in world.shelves] == [["a", "b", "c"]] * 3
        assert await world.registry.put("c") is False
        assert [shelf.models["c"] for shelf in world.shelves] == [2, 2, 2]
        await world.registry.remove("b")
        assert [list(shelf.models) for shelf in world.shelves] == [["a", "c"]] * 3

    run(scenario)


def test_nothing_counts_before_the_last_captioner_has_it() -> None:
    async def scenario(world: World) -> None:
        slow = world.shelves[1]
        slow.gate.clear()
        adding = asyncio.create_task(world.registry.put("c"))
        await world.all_ask()
        assert [list(shelf.models) for shelf in world.shelves] == [["a", "b"]] * 3 and world.shelves[0].loads == 1
        slow.gate.set()
        assert await adding is True
        assert [shelf.loads for shelf in world.shelves] == [1, 1, 1]  # what was loaded beside is what is served

    run(scenario)


@pytest.mark.parametrize("failure", [BROKEN, MemoryError("no room")])
def test_what_one_captioner_cannot_load_changes_nothing(failure: Exception) -> None:
    async def scenario(world: World) -> None:
        world.shelves[1].failure = failure
        with pytest.raises(LimnerError) as caught:
            await world.registry.put("b")
        if isinstance(failure, LimnerError):
            assert caught.value is failure
        else:
            assert caught.value.code == "bad_config" and "MemoryError: no room" in caught.value.detail
        await world.all_ask()
        assert [shelf.models for shelf in world.shelves] == [{"a": 0, "b": 0}] * 3
        world.shelves[1].failure = None
        assert await world.registry.put("b") is False  # the failure is forgotten

    run(scenario)


def test_an_ingress_drops_a_model_before_any_captioner_does() -> None:
    async def scenario(world: World) -> None:
        ingress, order = world.shelves[2], []
        for name, shelf in (("captioner", world.shelves[0]), ("captioner", world.shelves[1]), ("ingress", ingress)):

            async def drop(model: str, name: str = name, shelf: Shelf = shelf) -> None:
                order.append(name)
                await Shelf.drop(shelf, model)

            shelf.drop = drop  # type: ignore[method-assign]
        await world.registry.remove("b")
        assert order == ["ingress", "captioner", "captioner"]

    run(scenario)


def test_neither_the_default_nor_an_unknown_model_can_go() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(RequestError, match="'a' is the default model"):
            await world.registry.remove("a")
        with pytest.raises(UnknownNameError, match="no model 'x' is served here; there are: a, b"):
            await world.registry.remove("x")

    run(scenario)


def test_a_captioner_that_dies_is_not_waited_for_and_a_new_one_catches_up() -> None:
    async def scenario(world: World) -> None:
        world.shelves[1].gate.clear()
        adding = asyncio.create_task(world.registry.put("c"))
        await world.all_ask()
        world.tasks[1].cancel()
        assert await adding is True
        world.shelves.append(Shelf("a", "b"))
        world.tasks.append(world.start(0, world.shelves[-1]))  # under the name of another: the last word counts
        await world.all_ask()
        assert list(world.shelves[-1].models) == ["a", "b", "c"]

    run(scenario)


def test_a_model_whose_files_are_gone_holds_up_neither_a_new_replica_nor_the_others() -> None:
    async def scenario(world: World) -> None:
        await world.registry.put("c")
        await world.registry.put("d")
        late = Shelf("a", "b")
        load = late.load

        async def all_but_c(model: str) -> int:
            if model == "c":
                raise BROKEN
            return await load(model)

        late.load = all_but_c  # type: ignore[method-assign]

        async def ask(seen: Seen) -> Wanted | None:
            return world.registry.sync(seen)

        changes = ModelChanges("late", ("a", "b"), late, ask)
        await changes.first()
        assert list(late.models) == ["a", "b", "d"]
        world.tasks.append(asyncio.create_task(changes.run()))
        await world.registry.put("e")
        await world.registry.remove("b")
        assert list(late.models) == ["a", "d", "e"]
        late.load = load  # type: ignore[method-assign]
        await world.all_ask()
        assert set(late.models) == {"a", "c", "d", "e"}

    run(scenario)


def test_a_caller_that_leaves_while_a_model_goes_leaves_it_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        world.tasks[2].cancel()  # an ingress that asks no more is waited for, and meanwhile the caller leaves
        removing = asyncio.create_task(world.registry.remove("b"))
        await asyncio.sleep(0.02)
        removing.cancel()
        with suppress(asyncio.CancelledError):
            await removing
        world.tasks[2] = world.start(2, world.shelves[2])
        await world.all_ask()
        assert [list(shelf.models) for shelf in world.shelves] == [["a", "b"]] * 3

    run(scenario)


def test_a_registry_that_starts_anew_learns_what_was_changed() -> None:
    async def scenario(world: World) -> None:
        await world.registry.put("c")
        await world.registry.remove("b")
        world.registry = ModelRegistry(("a", "b"))
        await world.all_ask()
        assert [list(shelf.models) for shelf in world.shelves] == [["a", "c"]] * 3
        assert world.shelves[0].loads == 1
        await world.registry.put("d")
        assert [list(shelf.models) for shelf in world.shelves] == [["a", "c", "d"]] * 3

    run(scenario)


def test_an_ingress_that_asks_first_is_told_to_go_on() -> None:
    registry = ModelRegistry(("a",))
    assert registry.sync(Seen("ingress", captions=False, revision=3, models=(("a", 0), ("c", 2)))) is None


def test_without_a_captioner_nothing_is_added() -> None:
    with pytest.raises(OverloadedError) as caught:
        asyncio.run(ModelRegistry(("a",)).put("c"))
    assert caught.value.code == "unavailable"


def test_loading_that_takes_too_long_is_given_up() -> None:
    async def scenario(world: World) -> None:
        world.shelves[0].gate.clear()
        with pytest.raises(OverloadedError, match="'c' was not loaded within 0.1 s"):
            await world.registry.put("c", within_s=0.1)
        world.shelves[0].gate.set()
        await world.all_ask()
        assert [list(shelf.models) for shelf in world.shelves] == [["a", "b"]] * 3

    run(scenario)
