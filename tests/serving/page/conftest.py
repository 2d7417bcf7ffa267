"""One browser for all tests of the page, and a server with made-up answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from tests.serving.conftest import free_port
from tests.serving.page.canned import Canned, served
from tests.serving.page.chromium import browser, complaints, emulate, hosts_asked
from tests.serving.page.visitor import Page
from tests.serving.support import png
from tests.support import needs_chromium


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    needs_chromium.check()
    with browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="session")
def answers() -> Iterator[Canned]:
    with served(free_port()) as canned:
        yield canned


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "sunset.png"
    path.write_bytes(png("orange", (64, 48)))
    return path


@pytest.fixture
def page(driver: Chrome, answers: Canned) -> Iterator[Page]:
    """Freshly loaded, over made-up answers; whatever a test does, no other host is asked and no script breaks."""
    answers.forget()
    emulate(driver, 1280)
    hosts_asked(driver), complaints(driver)
    page = Page(driver, answers.url)
    page.open()
    yield page
    answers.gate.set()
    assert hosts_asked(driver) <= {answers.url.removeprefix("http://")}
    assert complaints(driver) == []
