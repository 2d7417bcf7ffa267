"""The metadata.jsonl of an ImageFolder: the training reader takes it, and what else it says stays."""

import json
from pathlib import Path
from typing import Any

import pytest

from models.errors import RequestError
from serving.folders.outputs import Existing
from tests.serving.folders.support import json_rows, listed, row, write_out, write_pictures
from training.data import read_dataset


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_pictures(tmp_path, "a.png", "sub/b.png", "c.png")


def write(folder: Path, *rows: dict[str, Any], **options: Any) -> list[str]:
    found = [each for each in listed(folder, recursive=True) if each.name in {row["file_name"] for row in rows}]
    written = write_out("metadata", folder / "metadata.jsonl", found, rows, **options)
    return [each["file_name"] for each in written]


def test_the_reader_of_data_sets_takes_it(folder: Path) -> None:
    write(folder, row("a.png", "one", "second"), row("sub/b.png", "zwei ü"), row("c.png", error="truncated"))
    assert json_rows(folder / "metadata.jsonl") == [
        {"file_name": "a.png", "text": "one"},
        {"file_name": "sub/b.png", "text": "zwei ü"},
    ]
    dataset = read_dataset("imagefolder", {"path": folder})
    assert {example.image_id: example.captions for example in dataset.splits["train"]} == {
        "a.png": ("one",),
        "sub/b.png": ("zwei ü",),
    }


def test_captions_and_columns_of_others_stay(folder: Path) -> None:
    path = folder / "metadata.jsonl"
    lines = [
        '\ufeff{"file_name": "a.png", "text": "theirs", "score": 1.50, "odd": NaN}',
        "",
        '{"file_name": "sub/b.png", "text": " ", "author": "\\ud83d"}',
        '{"text": ["one", "two"], "file_name": "c.png"}',
        '{"file_name": "gone.png", "text": "of a picture that is not here"}',
    ]
    path.write_bytes("\r\n".join(lines).encode())
    rows = [row(name, "new") for name in ("a.png", "sub/b.png", "c.png")]
    assert write(folder, *rows) == ["sub/b.png"]
    there = path.read_text("utf-8").splitlines()
    assert [there[0], *there[2:]] == [lines[0].removeprefix("\ufeff"), *lines[3:]]
    assert json.loads(there[1]) == {"file_name": "sub/b.png", "text": "new", "author": "\ud83d"}
    assert write(folder, *rows) == []
    assert write(folder, *rows, existing=Existing.OVERWRITE) == ["a.png", "c.png", "sub/b.png"]
    assert {line["text"] for line in json_rows(path)} == {"new", "of a picture that is not here"}
    assert json_rows(path)[0]["score"] == 1.5


def test_a_killed_run_goes_on(folder: Path) -> None:
    write(folder, row("a.png", "one"), killed=True)
    assert not (folder / "metadata.jsonl").exists()
    assert write(folder, row("a.png", "never used"), row("c.png", "two"), go_on=True) == ["c.png"]
    assert [line["text"] for line in json_rows(folder / "metadata.jsonl")] == ["one", "two"]
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("content", [b"not json\n", b'{"image": "a.png"}\n', b"[]\n", b'{"file_name": "\xff"}\n'])
def test_a_file_of_something_else_is_refused_and_untouched(folder: Path, content: bytes) -> None:
    path = folder / "metadata.jsonl"
    path.write_bytes(b'{"file_name": "x.png"}\n' + content)
    with pytest.raises(RequestError, match="line 2 of .* is no JSON object with a file_name: repair or move the file"):
        write(folder, row("a.png", "one"))
    assert path.read_bytes().endswith(content)


def test_names_that_are_no_unicode(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path, b"no \xff.png")
    [picture] = listed(folder)
    assert write(folder, row(picture.name, "one")) == [picture.name]
    assert json_rows(folder / "metadata.jsonl") == [{"file_name": "no \\xff.png", "text": "one"}]
    assert write(folder, row(picture.name, "one")) == []
