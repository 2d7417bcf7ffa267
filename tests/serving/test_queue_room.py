"""Who may wait: shares by hand, and what holds whatever is taken and given back."""

import random

import pytest

from serving.queue_room import QueueRoom


def test_one_lane_may_fill_the_queue() -> None:
    room = QueueRoom(8, ["a"], largest_request=8)
    assert (room.share, room.left("a")) == (0, 8)
    room.take("a", 5)
    assert (room.held, room.left("a")) == (5, 3)


def test_a_flood_leaves_the_share_of_the_others() -> None:
    room = QueueRoom(96, ["a", "b"], largest_request=32)
    assert room.share == 24
    room.take("a", room.left("a"))
    assert (room.held_by("a"), room.left("a"), room.left("b")) == (72, 0, 24)
    room.give_back("a", 10)
    assert (room.left("a"), room.left("b")) == (10, 34)


@pytest.mark.parametrize(("most", "lanes", "largest", "share"), [(4, 2, 4, 0), (40, 3, 32, 4), (256, 8, 32, 16)])
def test_the_largest_request_fits_beside_the_shares(most: int, lanes: int, largest: int, share: int) -> None:
    room = QueueRoom(most, map(str, range(lanes)), largest)
    assert room.share == share
    for lane in map(str, range(1, lanes)):
        room.take(lane, share)
    assert room.left("0") >= largest


def test_shares_and_bound_hold_always() -> None:
    rng = random.Random(0)
    room = QueueRoom(64, "abc", largest_request=16)
    for _ in range(2000):
        lane, images = rng.choice("abc"), rng.randint(1, 16)
        if rng.random() < 0.4:
            room.give_back(lane, min(images, room.held_by(lane)))
        elif images <= room.left(lane):
            room.take(lane, images)
        assert room.held <= 64
        assert all(room.left(name) >= room.share - room.held_by(name) for name in "abc")
        assert all(room.left(name) >= 0 for name in "abc")


def test_shares_follow_the_lanes() -> None:
    room = QueueRoom(96, ["a"], largest_request=32)
    room.take("a", 90)
    room.add("b")
    assert (room.share, room.left("a"), room.left("b")) == (24, 0, 6)  # what is held stays
    room.give_back("a", 90)
    assert (room.left("a"), room.left("b")) == (72, 72)
    room.drop("b")
    assert (room.share, room.left("a")) == (0, 96)
