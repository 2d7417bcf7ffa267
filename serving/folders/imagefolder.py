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
        yield from (row["file_name"] for row in self._earlier() if _has_text(row))

    def make(self, unfinished: Path, rows: Iterable[Row], pictures: Iterable[Picture]) -> None:
        texts = {name_in_file(row["file_name"]): row["captions"][0]["text"] for row in rows if row["captions"]}
        with unfinished.open("w", encoding="utf-8", newline="\n") as file:
            for row in self._earlier() if self.place.path.exists() else ():
                text = texts.pop(row["file_name"], None)
                if text is not None:
                    row["text"] = text
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            for name, text in texts.items():
                file.write(json.dumps({"file_name": name, "text": text}, ensure_ascii=False) + "\n")

    def _earlier(self) -> Iterator[dict[str, Any]]:
        with self.place.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip(b" \t\r\n\0\xef\xbb\xbf"):
                    continue
                try:
                    row = json.loads(line.decode("utf-8-sig"))
                except (ValueError, RecursionError):
                    row = None
                if not isinstance(row, dict) or not isinstance(row.get("file_name"), str):
                    detail = f"line {number} of {os.fspath(self.place.path)!r} is no JSON object with a file_name"
                    raise RequestError("invalid_request", f"{detail}: repair or move the file")
                yield row


def _has_text(row: dict[str, Any]) -> bool:
    return isinstance(row.get("text"), str) and bool(row["text"].strip())
