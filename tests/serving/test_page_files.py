"""The table of the page's files is whole, and the files fit together."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from serving.args import Limits
from serving.page_files import CONTENT_TYPES, index_page, page_file

PAGE = Path(str(files("serving"))) / "page"
SCRIPTS = sorted(name for name in CONTENT_TYPES if name.endswith(".js"))
MOST_LINES = 300


def test_every_file_is_in_the_table_and_every_entry_is_a_file() -> None:
    assert {path.name for path in PAGE.iterdir()} - {"index.html"} == set(CONTENT_TYPES)


def test_files_have_tags_of_their_own() -> None:
    tags = {page_file(name).etag for name in CONTENT_TYPES} | {index_page(Limits()).etag}
    assert len(tags) == len(CONTENT_TYPES) + 1


def test_the_page_is_told_how_large_a_picture_may_be() -> None:
    def told(**limits: int) -> int:
        found = re.search(rb'name="max-image-bytes" content="(\d+)"', index_page(Limits(**limits)).content)  # type: ignore[arg-type]
        assert found is not None
        return int(found[1])

    assert told() == 20 << 20
    small = told(max_body_bytes=4 << 20)  # as base64 it must fit into the body too
    assert small < 3 << 20 and (small * 4 + 2) // 3 < 4 << 20
    assert told(max_body_bytes=1) == 0


def test_the_example_is_the_photograph_that_is_credited() -> None:
    assert page_file("example.jpg").content == (PAGE.parents[1] / "examples" / "camera.jpg").read_bytes()


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_script_imports_is_there(name: str) -> None:
    text = (PAGE / name).read_text(encoding="utf-8")
    for wanted, module in re.findall(r'import \{([^}]+)\} from "\./([\w.]+)"', text):
        exported = re.findall(r"export (?:async )?(?:const|function|class) (\w+)", (PAGE / module).read_text("utf-8"))
        assert {item.strip() for item in wanted.split(",")} <= set(exported), (name, module)
        for item in wanted.split(","):
            assert len(re.findall(rf"\b{item.strip()}\b", text)) > 1, f"{name} does not use {item}"


def test_elements_that_scripts_look_for_exist_once() -> None:
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    ids = re.findall(r'\bid="([\w-]+)"', html)
    assert len(ids) == len(set(ids))
    for name in SCRIPTS:
        text = (PAGE / name).read_text(encoding="utf-8")
        assert set(re.findall(r'byId\("([\w-]+)"\)', text)) <= set(ids), name
    for reference in re.findall(r'\b(?:for|aria-controls|aria-labelledby|aria-describedby)="([\w-]+)"', html):
        assert reference in ids


def test_files_are_short_and_name_no_other_host() -> None:
    for path in PAGE.iterdir():
        if path.suffix != ".jpg":
            text = path.read_text(encoding="utf-8")
            assert len(text.splitlines()) <= MOST_LINES, path.name
            assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text), path.name
