"""What a visitor of the page does and sees."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait


class Page:
    """The page in a browser, as a visitor sees it."""

    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    def open(self, place: str = "") -> None:
        """Load it anew and wait until it knows what is served."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/{place}")
        self.until(lambda: self.script("return document.documentElement.dataset.ready === 'true'"))

    def script(self, text: str, *arguments: Any) -> Any:
        return self.driver.execute_script(text, *arguments)  # type: ignore[no-untyped-call]

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return self.find(selector).text

    def click(self, selector: str) -> None:
        """In the middle of the window, where the strip at its foot covers nothing."""
        element = self.find(selector)
        self.script("arguments[0].scrollIntoView({ block: 'center' })", element)
        element.click()

    def choose(self, path: Path, tab: str = "caption") -> None:
        """A picture by the file dialog."""
        self.find(f"#{tab}-well-input").send_keys(str(path))

    def turn(self, step: int, dial: str = "dial") -> None:
        """The dial, as the mouse would."""
        say = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        self.script(say, self.find(f"#{dial}"), step)

    def until(self, true: Callable[[], Any]) -> None:
        wait = WebDriverWait(
            self.driver, 20, 0.05, ignored_exceptions=(NoSuchElementException, StaleElementReferenceException)
        )
        wait.until(lambda _: true())

    def type(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()
