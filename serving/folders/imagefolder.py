"""The ``metadata.jsonl`` of an ImageFolder: ``file_name`` and ``text`` of each picture, as data set readers take it."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from models.errors import RequestError
from serving.folders.outputs import Row
from serving.folders.pictures import Picture
from serving.folders.whole_files import WholeFile, name_in_file


class Metadata(WholeFile):
    """Pictures without captions are not in it. What else a line says of a picture stays there."""

    def earlier_names(self) -> Iterator[str]:
        yield from (row["file_name"] for _, row in self._earlier() if _has_text(row))

    def make(self, place: Path, rows: Iterable[Row], pictures: Iterable[Picture]) -> None:
        texts = {name_in_file(row["file_name"]): row["captions"][0]["text"] for row in rows if row["captions"]}
        with place.open("w", encoding="utf-8", newline="\n") as file:
            for line, row in self._earlier() if self.place.path.exists() else ():
                text = texts.pop(row["file_name"], None)
                file.write(line if text is None else _line({**row, "text": text}))
            for name, text in texts.items():
                file.write(_line({"file_name": name, "text": text}))

    def _earlier(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each line of the file that is there, and what it says."""
        with self.place.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip(b" \t\r\n\0\xef\xbb\xbf"):
                    continue
                text = ""
                try:
                    text = line.strip(b"\r\n\0").decode("utf-8-sig")
                    row = json.loads(text)
                except (ValueError, RecursionError):
                    row = None
                if not isinstance(row, dict) or not isinstance(row.get("file_name"), str):
                    detail = f"line {number} of {os.fspath(self.place.path)!r} is no JSON object with a file_name"
                    raise RequestError("invalid_request", f"{detail}: repair or move the file")
                yield text + "\n", row


def _has_text(row: dict[str, Any]) -> bool:
    """Whether there is a caption; readers take a list of them, too."""
    texts = row["text"] if isinstance(row.get("text"), list) else [row.get("text")]
    return any(isinstance(text, str) and text.strip() for text in texts)


def _line(row: dict[str, Any]) -> str:
    line = json.dumps(row, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:  # half a surrogate, which only an escape can hold
        line = json.dumps(row)
    return line + "\n"
