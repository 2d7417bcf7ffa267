"""What arms are called, and how many there may be."""

import pytest

from models.errors import RequestError
from serving.arms import check_arm_count, describe, label_arms
from serving.local_models import Wish


def test_a_description_says_all_that_is_asked() -> None:
    assert describe("concise", Wish("concise")) == "concise"
    assert describe("dial", Wish("dial", descriptiveness=0.250)) == "dial@0.25"
    assert describe("dial", Wish("dial", mix={"smile": 0.5, "scst": -2.0})) == "dial + 0.5 smile - 2 scst"
    assert describe("dial", Wish("dial", target_words=14)) == "dial 14 words"
    decode = {"name": "beam", "options": {"beams": 2}, "guidance": 1.5, "rerank": "clip_score"}
    assert describe("dial", Wish("dial", 1.0), decode) == "dial@1 beam beams=2 guidance 1.5 by clip_score"


def test_labels_differ() -> None:
    assert label_arms([None, None, "x"], ["a", "b", "c"]) == ["a", "b", "x"]
    assert label_arms([None, None, "a (2)", "a"], ["a", "a", "c", "c"]) == ["a (3)", "a (4)", "a (2)", "a"]
    with pytest.raises(RequestError, match="'x' is given twice"):
        label_arms(["x", None, "x"], ["a", "b", "c"])


@pytest.mark.parametrize("arms", [0, 1, 7])
def test_a_comparison_takes_two_to_six(arms: int) -> None:
    with pytest.raises(RequestError, match=f"{arms} given; 2 to 6"):
        check_arm_count(arms)
    check_arm_count(2)
    check_arm_count(6)
