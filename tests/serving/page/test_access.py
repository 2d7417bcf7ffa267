"""Keyboard, screen reader, narrow screens, contrast."""

from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from tests.serving.page.canned import CAPTIONS, Canned
from tests.serving.page.chromium import emulate
from tests.serving.page.visitor import Page

pytestmark = pytest.mark.chromium


CONTROLS = "button, select, input, summary, a[href], [role=tab], [role=tabpanel], [tabindex='0']"


def test_the_keyboard_is_enough(page: Page, answers: Canned) -> None:
    emulate(page.driver, 1000, 600)

    def focused() -> str:
        return str(page.script("const e = document.activeElement; return e.id || e.dataset.part || e.className"))

    def tab_to(name: str) -> None:
        for _ in range(20):
            if focused() == name:
                assert page.script(
                    "const [it, strip] = [document.activeElement, document.getElementById('health')]"
                    ".map((e) => e.getBoundingClientRect()); return it.bottom <= strip.top"
                ), f"{name} is under the strip"
                return
            page.type(Keys.TAB)
        raise AssertionError(f"the tab key does not reach {name}")

    page.type(Keys.TAB)
    assert focused() == "skip"
    tab_to("tab-caption")
    page.type(Keys.ARROW_RIGHT)
    assert focused() == "tab-compare" and page.find("#panel-compare").is_displayed()
    page.type(Keys.END)
    assert focused() == "tab-experiments"
    page.type(Keys.HOME)
    tab_to("caption-well-input")
    tab_to("example")
    outline = page.script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.type(Keys.ENTER)
    page.until(lambda: page.text("#caption") == CAPTIONS[1])
    tab_to("dial")
    page.type(Keys.END)
    page.until(lambda: page.text("#caption") == CAPTIONS[4])
    page.type(Keys.ARROW_LEFT)
    page.until(lambda: answers.of("/v1/captions")[-1]["descriptiveness"] == 0.95)
    tab_to("copy")
    tab_to("model")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280])
def test_every_tab_fits_and_every_control_has_a_name(
    page: Page, answers: Canned, picture: Path, width: int, dark: bool
) -> None:
    emulate(page.driver, width, dark=dark, reduced=dark)
    page.choose(picture)
    page.until(lambda: page.text("#caption"))
    page.click("summary")
    for tab in ("caption", "compare", "experiments"):
        page.script("document.getElementById(arguments[0]).click()", f"tab-{tab}")
        if tab == "compare":
            page.script("document.getElementById('compare-run').click()")
            page.until(lambda: page.all(".vote"))
        if tab == "experiments":
            page.until(lambda: page.all(".experiment"))
        over = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.script(over) <= 0, tab
        for control in page.all(CONTROLS):
            if control.is_displayed():
                assert control.accessible_name, (tab, control.get_attribute("outerHTML"))
                assert control.rect["height"] >= 24 or control.tag_name in ("input", "a"), control.accessible_name
    assert all(image.get_attribute("alt") is not None for image in page.all("img"))


_CONTRAST = """
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const linear = (v) => (v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
const light = ([r, g, b]) => [r, g, b].map((v) => linear(v / 255))
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
function ground(element) {
  for (let e = element; e; e = e.parentElement) {
    const colour = parse(getComputedStyle(e).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
}
const found = [];
for (const e of document.querySelectorAll('body *')) {
  const own = [...e.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own || !e.checkVisibility() || e.disabled || e.closest('svg, template')) continue;
  const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
  const ratio = (a + .05) / (b + .05);
  if (ratio < 4.5) found.push([e.textContent.slice(0, 40), ratio]);
}
return found;
"""


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_ground(page: Page, answers: Canned, picture: Path, dark: bool) -> None:
    """WCAG 2.2, 1.4.3: at least 4.5 to 1."""
    emulate(page.driver, 1280, dark=dark, reduced=True)
    answers.troubles.append(("/v1/captions", "queue_full"))
    page.choose(picture)
    page.until(lambda: page.text("#caption-trouble"))
    assert page.script(_CONTRAST) == []
    page.click("#tab-compare")
    page.click("#compare-run")
    page.until(lambda: page.all(".vote"))
    page.click(".vote")
    page.script("document.activeElement.blur()")
    assert page.script(_CONTRAST) == []
    page.click("#tab-experiments")
    page.until(lambda: page.all(".experiment"))
    assert page.script(_CONTRAST) == []
    page.script("document.documentElement.style.setProperty('--quiet', '#777')")
    assert page.script(_CONTRAST)  # the check finds what is wrong
