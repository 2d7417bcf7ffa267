"""Arms side by side, and votes on them."""

from pathlib import Path

import pytest
from selenium.webdriver.support.ui import Select

from tests.serving.page.canned import CAPTIONS, Canned
from tests.serving.page.visitor import Page

pytestmark = pytest.mark.chromium


def test_arms_are_compared_side_by_side_and_voted_on(page: Page, answers: Canned, picture: Path) -> None:
    page.click("#tab-compare")
    assert not page.find("#compare-run").is_enabled()
    page.choose(picture, "compare")
    page.click("#arm-add")
    page.click("#arm-add")
    assert not page.find("#arm-add").is_displayed()
    page.turn(10, "arm-D-dial")
    page.click("#compare-run")
    page.until(lambda: len(page.all(".arm-caption")) == 4)
    (asked,) = answers.of("/v1/compare")
    assert asked["arms"] == [
        {"label": "A", "model": "dial", "descriptiveness": 0},
        {"label": "B", "model": "dial", "descriptiveness": 1},
        {"label": "C", "model": "concise"},
        {"label": "D", "model": "dial", "descriptiveness": 0.5},
    ]
    assert len(asked["images"]) == 1 and set(asked["images"][0]) == {"base64"}
    assert [arm.text for arm in page.all(".arm-caption")] == [CAPTIONS[place] for place in (0, 4, 0, 2)]
    assert "highest CLIPScore" in page.all(".arm")[1].text
    page.click(".arm:nth-child(2) [data-vote='1']")
    page.until(lambda: "1 good, 0 poor" in page.all(".arm")[1].text)
    page.click(".arm:nth-child(2) [data-vote='-1']")
    page.until(lambda: "0 good, 1 poor" in page.all(".arm")[1].text)  # a vote is changed, not added
    assert "on this page only" in page.text("#vote-note")
    page.turn(3, "arm-B-dial")
    assert page.all(".arm .stale")  # the caption is of the dial's earlier place
    page.click(".arm [data-part=remove]")
    assert [title.text for title in page.all(".arm h3")] == ["A", "B", "C"]


def test_the_arms_of_an_experiment_can_be_compared(page: Page, answers: Canned, picture: Path) -> None:
    page.click("#tab-compare")
    Select(page.find("#compare-experiment")).select_by_value("autumn")
    page.choose(picture, "compare")
    page.click("#compare-run")
    page.until(lambda: len(page.all(".arm-caption")) == 2)
    assert [(arm["label"], arm["descriptiveness"]) for arm in answers.of("/v1/compare")[0]["arms"]] == [
        ("short", 0),
        ("long", 1),
    ]
