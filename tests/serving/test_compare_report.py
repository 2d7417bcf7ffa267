"""Reports: nothing that a file, a model or a label is called gets out of its place."""

import base64
import io
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest
from PIL import Image

from models.interfaces import Caption
from serving.compare_files import ComparedPicture
from serving.compare_report import Report, shown_name
from serving.folders.pictures import Picture
from serving.local_models import Wish, choose
from serving.messages import CaptionedImage, Failure

EVIL = "<script>alert('&')</script> | `x` **b** \udcff\x1b"


class Page(HTMLParser):
    """Tags and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.images: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.images += [value or "" for name, value in attrs if tag == "img" and name == "src"]

    def handle_data(self, data: str) -> None:
        self.text += data


def picture(name: str, *captions: tuple[str, float], path: str | None = None) -> ComparedPicture:
    results = tuple(CaptionedImage((Caption(text, -1.0, 5, "stop", score, "s"),)) for text, score in captions)
    return ComparedPicture(Picture(name, path or name), results, Image.new("RGB", (800, 400), "red"))


@pytest.fixture
def report() -> Report:
    choice = choose(Wish("fake"), {"name": "beam", "options": {"beams": 2}})
    return Report([(EVIL, choice), ("plain", choice)], EVIL, most_shown=2)


def test_everything_is_escaped(report: Report, tmp_path: Path) -> None:
    report.add(picture(EVIL, (EVIL, 0.5), ("a dog", 0.75), path=f"/pictures/{EVIL}"))
    failure = CaptionedImage(error=Failure("empty", EVIL))
    report.add(ComparedPicture(Picture(f"bad {EVIL}", "p"), (failure, failure), None))
    report.write(tmp_path)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "script" not in page.tags
    assert page.text.count("<script>alert('&')</script>") >= 6
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert re.search(r"(?<!\\)<(?!img src=)", markdown) is None
    assert "\x1b" not in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert widths == {12, 7, 4}  # the bars of EVIL open no further cell
    (link,) = re.findall(r'<img src="([^"]+)"', markdown)
    target = os.path.normpath(os.path.join(os.fsencode(tmp_path), unquote_to_bytes(link)))
    assert target == os.path.normpath(os.fsencode(f"/pictures/{EVIL}"))


def test_the_page_needs_no_other_file(report: Report, tmp_path: Path) -> None:
    for number in range(3):
        report.add(picture(f"{number}.png", ("a cat", 0.5), ("a dog", 0.75)))
    report.write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "report.md"}
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.images) == 2 and "1 more are in results.jsonl" in page.text
    for source in page.images:
        head, _, data = source.partition(",")
        assert head == "data:image/jpeg;base64"
        small = Image.open(io.BytesIO(base64.b64decode(data)))
        assert (small.format, small.size) == ("JPEG", (320, 160))
    assert not re.search(r"https?://|<link|src=\"(?!data:)", text)


def test_figures_and_verdict(report: Report) -> None:
    for number in range(8):
        report.add(picture(f"{number}.png", ("a cat", 0.5), ("a big dog", 0.625)))
    text = report.markdown()
    (arm,) = [line for line in text.splitlines() if line.startswith("| plain | fake")]
    assert arm == "| plain | fake |  |  | 0.625 | [0.625, 0.625] | 3.0 | 3 | 0.0% | 0.0% | beam beams=2 |"
    (pair,) = [line for line in text.splitlines() if ", plain |" in line]
    head, _, tail = pair.partition("| 0, 0, 8 | ")
    assert head.endswith("| +0.125 | [+0.125, +0.125] ") and tail.endswith(" | plain better |")
    assert float(tail.split()[0]) == pytest.approx(2 / 2**8, abs=0.003)
    assert "8 pictures, each captioned by every arm." in text and "needs at least" not in text
    assert "# Pictures" not in text and "<img" not in text  # the terminal shows none


def test_one_picture_has_no_interval(report: Report, tmp_path: Path) -> None:
    report.add(picture("a.png", ("a cat", 0.5), ("a dog", 0.25)))
    report.write(tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| -0.250 |  | 1, 0, 0 | 1.000 | undecided |" in text
    why = "1 picture cannot decide this pair, whatever the scores: the test needs at least 6."
    assert f"\n\n{why}\n\n" in text
    assert why in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_names_are_shown_as_they_can_be() -> None:
    assert shown_name(os.fsdecode(b"a\xff\n\x1b \xe2\x82\xac.png")) == "a\\xff\\n\\x1b \u20ac.png"
