"""Whose turn it is, with times given by hand."""

import random
from collections import Counter
from dataclasses import dataclass

from serving.fair_queue import FairQueue


@dataclass(eq=False, frozen=True)
class Item:
    lane: str
    key: str = "k"
    number: int = 0


def all_of(alike: list[Item]) -> list[Item]:
    return alike


def one(alike: list[Item]) -> list[Item]:
    return alike[:1]


def turns(queue: FairQueue[Item], count: int, cost_s: dict[str, float]) -> str:
    """The lanes of the next turns of one item each."""
    order = ""
    for _ in range(count):
        [item] = queue.take(one)
        queue.charge(item.lane, cost_s[item.lane])
        order += item.lane
    return order


def filled(lanes: str, each: int) -> FairQueue[Item]:
    queue: FairQueue[Item] = FairQueue(lanes)
    for lane in lanes:
        for _ in range(each):
            queue.add(Item(lane))
    return queue


def test_lanes_alternate_when_they_cost_the_same() -> None:
    assert turns(filled("abc", 3), 9, dict.fromkeys("abc", 1.0)) == "abcabcabc"


def test_they_alternate_even_where_passes_cost_nothing_measurable() -> None:
    assert turns(filled("ab", 3), 6, dict.fromkeys("ab", 0.0)) == "ababab"


def test_time_is_shared_not_turns() -> None:
    order = turns(filled("ab", 100), 100, {"a": 0.1, "b": 0.4})
    assert Counter(order) == {"a": 80, "b": 20}


def test_a_rare_item_is_next_however_long_the_flood() -> None:
    queue = FairQueue[Item]("ab")
    for _ in range(50):
        queue.add(Item("a"))
    for _ in range(10):  # the pass of a is under way when b comes
        [flood] = queue.take(one)
        queue.add(Item("b"))
        queue.charge("a", 2.0)
        [rare] = queue.take(one)
        queue.charge("b", 0.1)
        assert (flood.lane, rare.lane) == ("a", "b")


def test_an_idle_lane_saves_nothing_up() -> None:
    queue = FairQueue[Item]("ab")
    for _ in range(1000):
        queue.add(Item("a"))
    assert turns(queue, 500, {"a": 1.0}) == "a" * 500
    for _ in range(10):
        queue.add(Item("b"))
    assert turns(queue, 6, {"a": 1.0, "b": 1.0}) == "bababa"  # and not ten times b


def test_what_a_lane_used_before_all_was_quiet_is_forgotten() -> None:
    queue = FairQueue[Item]("ab")
    queue.add(Item("a"))
    assert turns(queue, 1, {"a": 100.0}) == "a"
    for _ in range(3):
        queue.add(Item("b"))
        queue.add(Item("a"))
    assert turns(queue, 6, {"a": 1.0, "b": 1.0}) == "bababa"


def test_a_turn_takes_the_oldest_and_its_like_and_leaves_the_others_in_order() -> None:
    queue = FairQueue[Item]("ab")
    for number in range(6):
        queue.add(Item("a", "xy"[number % 2], number))
    queue.add(Item("b", "x", 9))
    assert [item.number for item in queue.take(lambda alike: alike[:2])] == [0, 2]
    queue.charge("a", 1.0)
    assert [item.number for item in queue.take(all_of)] == [9]
    queue.charge("b", 1.0)
    assert [[item.number for item in queue.take(all_of)] for _ in range(2)] == [[1, 3, 5], [4]]
    assert not len(queue)


def test_items_leave_from_anywhere() -> None:
    queue = FairQueue[Item]("a")
    items = [Item("a", number=number) for number in range(3)]
    for item in items:
        queue.add(item)
    assert queue.remove(items[1]) and not queue.remove(items[1])
    assert queue.clear() == [items[0], items[2]]
    assert len(queue) == 0


def test_no_lane_waits_for_more_than_its_fair_part() -> None:
    """Whatever comes and costs, busy lanes never differ by more than one pass of each."""
    rng = random.Random(0)
    for _ in range(50):
        queue = filled("abc", 400)
        used = Counter[str]()
        longest = 0.0
        for _ in range(300):
            [item] = queue.take(one)
            cost = rng.choice((0.01, 0.1, 1.0))
            longest = max(longest, cost)
            queue.charge(item.lane, cost)
            used[item.lane] += cost  # type: ignore[assignment]
            assert max(used[lane] for lane in "abc") - min(used[lane] for lane in "abc") <= longest + 1e-9


def test_a_lane_that_comes_later_is_owed_nothing() -> None:
    queue = filled("ab", 6)
    turns(queue, 6, dict.fromkeys("ab", 1.0))
    queue.add_lane("c")
    for _ in range(3):
        queue.add(Item("c"))
    assert sorted(turns(queue, 3, dict.fromkeys("abc", 1.0))) == ["a", "b", "c"]
    queue.clear()
    queue.drop_lane("c")
    queue.add(Item("a"))
    assert turns(queue, 1, {"a": 1.0}) == "a"
