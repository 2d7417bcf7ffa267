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
        page.until(lambda: page.find("#caption-output").get_attribute("aria-busy") == "false" and page.text("#caption"))
    text = tmp_path / "letter.jpg"
    text.write_text("Dear server, I am no picture.", encoding="utf-8")
    page.choose(text)
    page.until(lambda: "This file is not a picture." in page.text("#caption-trouble"))
    page.until(lambda: "captions" in page.text("#health"))
    assert hosts_asked(driver) == {server.removeprefix("http://")}
    assert complaints(driver) == []
