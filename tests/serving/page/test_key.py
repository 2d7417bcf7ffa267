"""A server that asks for a key."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from tests.serving.page.canned import Canned
from tests.serving.page.visitor import Page

pytestmark = pytest.mark.chromium

READY = "return document.documentElement.dataset.ready === 'true'"


@pytest.fixture
def asked(page: Page, answers: Canned) -> Iterator[Page]:
    """The page as it is before a key is entered."""
    answers.key = "the-key-of-alice-1"
    page.script("sessionStorage.clear()")
    page.driver.get("about:blank")
    page.driver.get(page.url)
    page.until(lambda: page.find("#key-form").is_displayed())
    yield page
    page.script("sessionStorage.clear()")


def enter(page: Page, key: str) -> None:
    page.find("#key").send_keys(key, Keys.ENTER)


def test_the_key_is_asked_for_and_kept_in_this_tab(asked: Page, answers: Canned, picture: Path) -> None:
    assert "This server asks for a key." in asked.text("#page-trouble")
    assert not asked.script(READY)
    asked.until(lambda: "once it knows your key" in asked.text("#health"))
    assert "down" not in (asked.find("#health").get_attribute("class") or "").split()
    assert asked.find("#key").accessible_name == "API key"
    enter(asked, answers.key or "")
    asked.until(lambda: asked.script(READY))
    assert not asked.find("#key-form").is_displayed() and asked.text("#page-trouble") == ""
    asked.choose(picture)
    asked.until(lambda: asked.text("#caption"))
    asked.until(lambda: "captions" in asked.text("#health"))
    asked.open()  # a reload does not ask again
    assert not asked.find("#key-form").is_displayed()
    assert asked.script("return localStorage.getItem('limner-key') === null && !document.cookie")
    assert answers.key not in asked.script("return location.href + document.documentElement.outerHTML")


def test_a_wrong_key_is_asked_for_again(asked: Page, answers: Canned) -> None:
    enter(asked, "wr\u00f6ng key")
    asked.until(lambda: "It does not know the one that was entered." in asked.text("#page-trouble"))
    assert asked.find("#key-form").is_displayed()
    assert asked.find("#key").get_attribute("value") == ""
    enter(asked, answers.key or "")
    asked.until(lambda: asked.script(READY))


def test_a_key_that_ends_while_the_page_is_open(asked: Page, answers: Canned, picture: Path) -> None:
    enter(asked, answers.key or "")
    asked.until(lambda: asked.script(READY))
    answers.key = "the-key-of-alice-2"
    asked.choose(picture)
    asked.until(lambda: "This server asks for a key." in asked.text("#caption-trouble"))
    enter(asked, answers.key)  # what waited for it is asked again
    asked.until(lambda: asked.text("#caption"))
