"""Experiments in numbers and drawn."""

import pytest

from tests.serving.page.canned import Canned
from tests.serving.page.visitor import Page

pytestmark = pytest.mark.chromium


def test_experiments_are_told_in_numbers_and_drawn(page: Page) -> None:
    page.click("#tab-experiments")
    page.until(lambda: len(page.all(".experiment")) == 2)
    told = page.text("[data-experiment=autumn]")
    for part in ("0.741", "0.783", "1,610", "13.4", "232 ms", "↑ 198", "−0.042", "−0.062 to −0.022", "long is better"):
        assert part in told
    assert "undecided" in page.text("[data-experiment=young]")
    thick, thin = (page.find(f"[data-experiment=autumn] .pair line.{kind}").rect for kind in ("narrow", "wide"))
    zero = page.find("[data-experiment=autumn] .pair line.zero").rect["x"]
    assert thin["x"] < thick["x"] and thin["x"] + thin["width"] > thick["x"] + thick["width"]
    assert thin["x"] + thin["width"] < zero
    assert "−0.042" in (page.find("[data-experiment=autumn] .pair svg").get_attribute("aria-label") or "")


def test_a_server_without_experiments_says_so(page: Page, answers: Canned) -> None:
    answers.experiments = False
    page.open("#experiments")
    page.until(lambda: "No experiments on this server" in page.text("#experiments-list"))
    page.click("#tab-caption")
    assert not page.find("#experiment-row").is_displayed()
