"""The page over the real server."""

import re
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.support.ui import Select

from tests.serving.page.chromium import complaints, emulate, hosts_asked
from tests.serving.page.visitor import Page

pytestmark = pytest.mark.chromium


def test_the_whole_way_to_the_real_server(driver: Chrome, server: str, picture: Path, tmp_path: Path) -> None:
    hosts_asked(driver), complaints(driver)
    emulate(driver, 1280)
    page = Page(driver, server)
    page.open()
    page.choose(picture)
    page.until(lambda: page.text("#caption"))
    assert re.search(r"CLIPScore\s+\d\.\d\d", page.text("#facts"))
    page.click("#caption-well [data-part=example]")
    page.until(lambda: "camera" in page.text("#caption-well figcaption"))
    for model in [option.text for option in Select(page.find("#model")).options]:
        Select(page.find("#model")).select_by_value(model)
        page.until(lambda: caption(page))
        if page.find("#dial").is_enabled():
            short, long = turned(page, 0), turned(page, 20)
            assert len(long.split()) > len(short.split()), (short, long)
    take_part(page)
    compare(page)
    text = tmp_path / "letter.jpg"
    text.write_text("Dear server, I am no picture.", encoding="utf-8")
    page.click("#tab-caption")
    page.choose(text)
    page.until(lambda: "This file is not a picture." in page.text("#caption-trouble"))
    page.until(lambda: "captions" in page.text("#health"))
    assert hosts_asked(driver) == {server.removeprefix("http://")}
    assert complaints(driver) == []


def test_the_document_of_the_interface_is_shown(driver: Chrome, server: str) -> None:
    """Swagger UI lives with the content security policy of its page."""
    hosts_asked(driver), complaints(driver)
    page = Page(driver, server)
    driver.get(f"{server}/docs")
    page.until(lambda: "/v1/captions" in page.text("#swagger-ui"))
    assert hosts_asked(driver) == {server.removeprefix("http://")}
    assert complaints(driver) == []


def caption(page: Page) -> str:
    """The one that belongs to what is chosen now; empty until it is there."""
    return page.text("#caption") if page.find("#caption-output").get_attribute("aria-busy") == "false" else ""


def turned(page: Page, step: int) -> str:
    """The caption at this step of the dial."""
    place = f"{step / 20:.2f}"
    page.turn(step)
    page.until(lambda: page.find("#caption-output").get_attribute("data-place") == place and caption(page))
    return caption(page)


def take_part(page: Page) -> None:
    """A caption of the experiment that runs, and a vote on it that the ledger keeps."""
    page.click("summary")
    Select(page.find("#experiment")).select_by_value("tone")
    page.until(lambda: page.all("#caption-vote button"))
    page.click("#caption-vote [data-vote='1']")
    page.until(lambda: "Counted in the experiment tone" in page.text("#caption-vote-said"))
    page.click("#tab-experiments")
    page.until(lambda: "↑ 1" in page.text("[data-experiment=tone]"))
    page.click("#tab-caption")
    Select(page.find("#experiment")).select_by_value("")


def compare(page: Page) -> None:
    """Two arms of the example."""
    page.click("#tab-compare")
    page.click("#compare-run")
    page.until(lambda: len(page.all(".arm-caption")) == 2 and all(arm.text for arm in page.all(".arm-caption")))
    assert page.text("#compare-trouble") == ""
