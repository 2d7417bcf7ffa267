"""From what the images of a job took to the stages of its trace, worked out by hand."""

import pytest

from serving.batches import Pass
from serving.stage_times import ImageTimes, Stage, stages


def laid_out(found: list[Stage]) -> list[tuple[str, float, float, int]]:
    return [(each.name, each.start_s, pytest.approx(each.end_s), each.images) for each in found]


def test_the_stages_of_an_image_follow_each_other() -> None:
    image = ImageTimes(taken_s=10.0, queued_s=11.0, wait_s=2.0, worked=Pass(500, 1000, 250, turn=1))
    assert laid_out(stages([image])) == [
        ("open", 10.0, 11.0, 1),
        ("queue", 11.0, 13.0, 1),
        ("encode", 13.0, 13.5, 1),
        ("decode", 13.5, 14.5, 1),
        ("score", 14.5, 14.75, 1),
    ]


def test_what_images_shared_is_told_once_by_the_one_that_took_longest() -> None:
    quick = ImageTimes(10.0, 11.0, 2.0, Pass(500, 500, 0, turn=1, part=0))
    slow = ImageTimes(10.0, 12.0, 1.0, Pass(500, 1000, 0, turn=1, part=0))
    joined = ImageTimes(10.0, 13.0, 0.5, Pass(250, 250, 0, turn=1, part=1))
    assert laid_out(stages([quick, joined, slow])) == [
        ("open", 10.0, 12.0, 2),
        ("queue", 12.0, 13.0, 2),
        ("encode", 13.0, 13.5, 2),
        ("decode", 13.5, 14.5, 2),
        ("open", 10.0, 13.0, 1),
        ("queue", 13.0, 13.5, 1),
        ("encode", 13.5, 13.75, 1),
        ("decode", 13.75, 14.0, 1),
    ]


def test_an_image_whose_turn_never_came_has_waited() -> None:
    assert laid_out(stages([ImageTimes(10.0, 11.0, 5.0)])) == [("open", 10.0, 11.0, 1), ("queue", 11.0, 16.0, 1)]
    assert stages([]) == []
