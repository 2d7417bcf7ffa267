"""What goes wrong is told kindly."""

import re
from pathlib import Path

import pytest

from tests.serving.page.canned import CAPTIONS, Canned
from tests.serving.page.visitor import Page

pytestmark = pytest.mark.chromium


@pytest.mark.parametrize(
    ("code", "happened", "todo", "again"),
    [
        ("queue_full", "The server is busy.", "Try again in 1 second.", True),
        ("unsupported_format", "This kind of picture cannot be read here.", "Save it as JPEG", False),
        ("hash_mismatch", "That did not work.", "Try again", True),
    ],
)
def test_a_refusal_is_told_kindly(
    page: Page, answers: Canned, picture: Path, code: str, happened: str, todo: str, again: bool
) -> None:
    answers.troubles.append(("/v1/captions", code))
    page.choose(picture)
    page.until(lambda: page.text("#caption-trouble"))
    told = page.text("#caption-trouble")
    assert happened in told and todo in told
    assert not re.search(r"[{}_]|raw", told)
    assert page.find("#caption-trouble").get_attribute("role") == "alert"
    if again:
        page.click("#caption-trouble button")
        page.until(lambda: page.text("#caption"))
        assert page.text("#caption-trouble") == ""
    else:
        assert page.all("#caption-trouble button") == []


def test_a_server_that_is_gone_is_told_kindly(page: Page, picture: Path) -> None:
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    try:
        page.choose(picture)
        page.until(lambda: "The server does not answer." in page.text("#caption-trouble"))
    finally:
        page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline | {"offline": False})
    page.click("#caption-trouble button")
    page.until(lambda: page.text("#caption") == CAPTIONS[1])
