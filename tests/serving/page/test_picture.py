"""Ways to bring a picture."""

from pathlib import Path

import pytest

from tests.serving.page.canned import CAPTIONS, Canned
from tests.serving.page.visitor import Page

pytestmark = pytest.mark.chromium


def test_a_file_that_is_too_large_is_not_sent(page: Page, answers: Canned, tmp_path: Path) -> None:
    large = tmp_path / "large.jpg"
    with large.open("wb") as file:
        file.truncate((20 << 20) + 1)
    page.choose(large)
    page.until(lambda: "too large" in page.text("#caption-trouble"))
    assert answers.of("/v1/captions") == []


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
