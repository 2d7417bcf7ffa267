"""A picture, its dial and its caption; votes in an experiment."""

from pathlib import Path

import pytest
from selenium.webdriver.support.ui import Select

from tests.serving.page.canned import CAPTIONS, Canned
from tests.serving.page.visitor import Page

pytestmark = pytest.mark.chromium


def test_a_picture_is_captioned_and_the_dial_changes_the_caption(page: Page, answers: Canned, picture: Path) -> None:
    assert "Choose a picture" in page.text("#caption-start")
    page.choose(picture)
    page.until(lambda: page.text("#caption") == CAPTIONS[1])
    assert "sunset.png" in page.text("#caption-well figcaption")
    assert answers.of("/v1/captions")[0]["bytes"] == len(picture.read_bytes())  # as it is
    page.turn(20)
    assert page.find("#dial").get_attribute("aria-valuetext") == "1.00, about 14 words"
    page.until(lambda: page.text("#caption") == CAPTIONS[4])
    assert [asked["descriptiveness"] for asked in answers.of("/v1/captions")] == [0.35, 1.0]
    facts = page.text("#facts")
    assert "0.78" in facts and "19" in facts and "91 ms" in facts
    assert "old" in [word.text for word in page.all("#caption .fresh")]


def test_moving_back_is_instant_and_a_hurried_dial_asks_once(page: Page, answers: Canned, picture: Path) -> None:
    page.choose(picture)
    page.until(lambda: page.text("#caption"))
    for step in range(8, 21):
        page.turn(step)
    page.until(lambda: page.text("#caption") == CAPTIONS[4])
    asked = len(answers.of("/v1/captions"))
    assert asked < 13
    page.turn(7)
    page.until(lambda: page.text("#caption") == CAPTIONS[1])
    assert len(answers.of("/v1/captions")) == asked


def test_an_answer_that_comes_too_late_is_dropped(page: Page, answers: Canned, picture: Path) -> None:
    answers.held = 1.0
    page.choose(picture)
    page.until(lambda: page.text("#caption") == CAPTIONS[1])
    page.turn(20)
    page.until(lambda: answers.of("/v1/captions")[-1]["descriptiveness"] == 1.0)
    page.until(lambda: page.find("#caption-output").get_attribute("aria-busy") == "true")
    page.turn(0)
    page.until(lambda: page.text("#caption") == CAPTIONS[0])
    answers.gate.set()
    page.turn(1)
    page.until(lambda: answers.of("/v1/captions")[-1]["descriptiveness"] == 0.05)
    page.until(lambda: page.find("#caption-output").get_attribute("aria-busy") == "false")
    assert page.text("#caption") == CAPTIONS[0]


def test_a_model_without_a_spectrum_has_no_dial(page: Page, answers: Canned, picture: Path) -> None:
    Select(page.find("#model")).select_by_value("concise")
    assert not page.find("#dial").is_enabled()
    assert "no dial" in page.text("#caption-dial")
    page.choose(picture)
    page.until(lambda: page.text("#caption"))
    assert answers.of("/v1/captions") == [{"model": "concise", "num_captions": 1, "bytes": len(picture.read_bytes())}]


def test_more_captions_and_the_best_of_them(page: Page, answers: Canned, picture: Path) -> None:
    page.choose(picture)
    page.click("summary")
    Select(page.find("#num-captions")).select_by_value("3")
    page.click("#rerank")
    page.until(lambda: len(page.all("#alternatives-list li")) == 2 and len(answers.of("/v1/captions")) > 1)
    page.until(lambda: answers.of("/v1/captions")[-1].get("decode") == {"rerank": "clip_score"})
    assert answers.of("/v1/captions")[-1]["num_captions"] == 3


def test_the_caption_can_be_copied(page: Page, picture: Path) -> None:
    page.choose(picture)
    page.until(lambda: page.text("#caption"))
    page.click("#copy")
    page.until(lambda: page.text("#copy-said") == "Copied.")


def test_a_vote_in_an_experiment_is_sent(page: Page, answers: Canned, picture: Path) -> None:
    page.choose(picture)
    page.click("summary")
    Select(page.find("#experiment")).select_by_value("autumn")
    page.until(lambda: page.all("#caption-vote button"))
    asked = answers.of("/v1/captions")[-1]
    assert asked["experiment"] == "autumn" and len(asked["unit"]) == 24
    assert not {"model", "descriptiveness", "decode"} & set(asked)  # the experiment decides
    page.click("#caption-vote [data-vote='1']")
    page.until(lambda: "Counted in the experiment autumn" in page.text("#caption-vote-said"))
    number = len(answers.of("/v1/captions"))
    wanted = {"request_id": f"request-{number}", "index": 0, "arm": "long", "value": 1}
    assert answers.of("/v1/experiments/autumn/votes") == [wanted]
    unit = asked["unit"]
    page.open()
    page.choose(picture)
    page.click("summary")
    Select(page.find("#experiment")).select_by_value("autumn")
    page.until(lambda: "unit" in answers.of("/v1/captions")[-1])
    assert answers.of("/v1/captions")[-1]["unit"] == unit  # the same browser is the same unit
