"""The page in a real browser: over made-up answers for what it does with them, over the real server once."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.serving.chromium import browser, complaints, emulate, hosts_asked
from tests.serving.conftest import free_port
from tests.serving.page_server import CAPTIONS, Canned, served
from tests.serving.support import png
from tests.support import needs_chromium

pytestmark = pytest.mark.chromium

CONTROLS = "button, select, input, summary, a[href], [role=tab], [role=tabpanel], [tabindex='0']"


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


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    needs_chromium.check()
    with browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
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


def test_the_strip_tells_rates_and_quantiles(page: Page) -> None:
    page.until(lambda: "captions/s" in page.text("#health"))
    told = page.text("#health")
    for part in ("50 ms", "3 of 256", "0.78", "has fallen"):
        assert part in told


def test_quantiles_are_those_of_prometheus(page: Page) -> None:
    text = 'a_bucket{le="1"} 2\na_bucket{le="2"} 6\na_bucket{le="+Inf"} 8\nb{x="q\\"\\n"} 4'
    found = page.driver.execute_async_script(
        """const [text, done] = arguments;
        import('/page/prometheus.js').then(({ parse, quantile, buckets, increase }) => {
          const all = parse(text), found = buckets(null, all, 'a', {});
          done([quantile(found, .5), quantile(found, .1), quantile(found, 1), quantile([], .5), all[3].labels.x,
                increase(parse('b 7'), parse('b 9'), 'b'), increase(parse('b 7'), parse('b 2'), 'b')]);
        });""",
        text,
    )
    assert found == [1.5, 0.4, 2, None, 'q"\n', 2, 2]


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


def test_a_file_that_is_too_large_is_not_sent(page: Page, answers: Canned, tmp_path: Path) -> None:
    large = tmp_path / "large.jpg"
    with large.open("wb") as file:
        file.truncate((20 << 20) + 1)
    page.choose(large)
    page.until(lambda: "too large" in page.text("#caption-trouble"))
    assert answers.of("/v1/captions") == []


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


def test_a_picture_that_only_the_server_can_read(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "scan.tiff"
    path.write_bytes(b"II*\0 no browser shows this")
    page.choose(path)
    page.until(lambda: "Your browser cannot show" in page.text("#caption-well"))
    page.until(lambda: page.text("#caption"))


def test_drops_and_pastes_are_taken(page: Page, answers: Canned) -> None:
    throw = """const data = new DataTransfer();
    data.items.add(new File([arguments[1]], 'thrown.png', { type: 'image/png' }));
    const options = { bubbles: true, cancelable: true, dataTransfer: data, clipboardData: data };
    const event = arguments[0] === 'paste' ? new ClipboardEvent('paste', options) : new DragEvent('drop', options);
    document.body.dispatchEvent(event);"""
    page.click("#tab-experiments")
    page.script(throw, "drop", "abc")
    page.until(lambda: page.text("#caption") == CAPTIONS[1])  # and the tab with the caption has come to the front
    page.script(throw, "paste", "abcdef")
    page.until(lambda: [asked["bytes"] for asked in answers.of("/v1/captions")] == [3, 6])


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
