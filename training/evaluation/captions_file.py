"""Captions from a file instead of a model: reading them, and finding the picture that each is of."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, cast, get_args

from models.errors import DataError
from models.interfaces import FinishReason
from training.data import Example
from training.data.files import as_id, describe_json, load_text, undecoded
from training.data.text import clean_caption

_SHOWN = 10
_FORMS = (
    "captions are a JSON list of {image_id, caption}, or JSON lines with image_id or file_name, and caption or captions"
)


@dataclass(frozen=True)
class CaptionRow:
    """What a file says of one picture."""

    position: str
    image_id: str | None
    file_name: str | None
    texts: tuple[str, ...]
    """Best first; none where the captioner failed on the picture."""
    finish_reason: FinishReason | None = None
    """Of the first."""


@dataclass(frozen=True)
class FoundCaptions:
    """The captions of each picture of a split, in its order."""

    texts: tuple[tuple[str, ...], ...]
    finish_reasons: tuple[FinishReason, ...] | None
    """None where the file does not tell all of them."""
    notes: tuple[str, ...]


def read_captions(path: Path) -> list[CaptionRow]:
    """The rows of a file: COCO's results format ``[{"image_id", "caption"}]``, or JSON lines.

    A line has ``image_id`` or ``file_name`` (``file``), and ``caption`` or ``captions``, as ``limner caption`` and
    ``limner evaluate`` write them; ``candidates`` are several captions of which ``caption`` is the first.

    Raises:
        DataError: ``no_data`` when there is no such file or nothing in it, ``not_json``, ``wrong_schema``.
    """
    text = load_text(path, "utf-8").removeprefix("\ufeff")
    if undecoded(text):
        raise DataError("wrong_schema", f"{path} is no UTF-8 text")
    rows = [_row(path, position, raw) for position, raw in _objects(path, text)]
    if not rows:
        raise DataError("no_data", f"{path} holds no captions")
    return rows


def find_captions(
    rows: Sequence[CaptionRow], examples: Sequence[Example], path: Path, num_captions: int = 1
) -> FoundCaptions:
    """The first ``num_captions`` captions of every picture.

    Raises:
        DataError: ``missing_ids``, a picture has too few captions; ``wrong_schema``, a row's id and file name are those
            of different pictures, or its file name is that of several.
    """
    pictures = _Pictures(examples)
    found: list[list[CaptionRow]] = [[] for _ in examples]
    strangers = 0
    for row in rows:
        if (index := pictures.find(row, path)) is None:
            strangers += 1
        else:
            found[index].append(row)
    texts = [tuple(text for row in of for text in row.texts) for of in found]
    lacking = [example.image_id for example, of in zip(examples, texts, strict=True) if len(of) < num_captions]
    if lacking:
        wanted = "no caption" if num_captions == 1 else f"fewer than {num_captions} captions"
        raise DataError("missing_ids", f"{path} has {wanted} of {len(lacking)} images: {_listed(lacking)}")
    reasons = [next((row.finish_reason for row in of if row.texts), None) for of in found]
    known = tuple(reason for reason in reasons if reason is not None)
    further = [example.image_id for example, of in zip(examples, texts, strict=True) if len(of) > num_captions]
    notes = []
    if further:
        notes.append(f"{len(further)} images have more captions, of which the first count: {_listed(further)}")
    if strangers:
        notes.append(f"{strangers} rows are of images that are not measured")
    taken = tuple(of[:num_captions] for of in texts)
    return FoundCaptions(taken, known if len(known) == len(examples) else None, tuple(notes))


class _Pictures:
    """Pictures by id and by file name."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self._examples = examples
        self._by_id = {example.image_id: index for index, example in enumerate(examples)}
        self._by_name: dict[str, list[int]] = defaultdict(list)
        for index, example in enumerate(examples):
            self._by_name[_last(example.file_name)].append(index)

    def find(self, row: CaptionRow, path: Path) -> int | None:
        """The index of the row's picture; None where it is none of these."""
        by_id = None if row.image_id is None else self._by_id.get(row.image_id)
        by_name = None if row.file_name is None else self._named(row.file_name, f"{path}, {row.position}")
        if by_id is not None and by_name is not None and by_id != by_name:
            other = self._examples[by_name].image_id
            detail = f"{row.file_name!r} is image {other!r}, not {row.image_id!r}"
            raise DataError("wrong_schema", f"{path}, {row.position}: {detail}: leave out one of the two")
        return by_name if by_id is None else by_id

    def _named(self, name: str, where: str) -> int | None:
        """A file name may begin with folders; they matter only where pictures share their last part."""
        same = self._by_name.get(_last(name), [])
        if len(same) < 2:
            return same[0] if same else None
        parts = _parts(name)
        ends = [index for index in same if _parts(self._examples[index].source)[-len(parts) :] == parts]
        if len(ends) != 1:
            raise DataError("wrong_schema", f"{where}: {len(same)} images are called {_last(name)!r}: give image_id")
        return ends[0]


def _objects(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    """Position and content of every row."""
    if text.lstrip().startswith("["):
        for index, raw in enumerate(_parsed(path, "the file", text)):
            yield f"[{index}]", raw
        return
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: captions may hold U+2028
        if line.strip():
            yield f"line {number}", _parsed(path, f"line {number}", line)


def _parsed(path: Path, position: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError("not_json", f"{path}: {position} is not JSON ({error}); {_FORMS}") from error


def _row(path: Path, position: str, raw: Any) -> CaptionRow:
    row = raw if isinstance(raw, Mapping) else {}
    image_id, name = as_id(row.get("image_id")), row.get("file_name", row.get("file"))
    name = name if isinstance(name, str) and name.strip() else None
    texts = _texts(row)
    if texts is None or (image_id is None and name is None):
        raise DataError("wrong_schema", f"{path}: {position} is {describe_json(raw)}; {_FORMS}")
    return CaptionRow(position, image_id, name, tuple(map(clean_caption, texts)), _finish_reason(row))


def _texts(row: Mapping[str, Any]) -> list[str] | None:
    """The captions of a row; None where it has none to speak of."""
    raw = row.get("candidates") or [row["caption"]] if "caption" in row else row.get("captions")
    if not isinstance(raw, list):
        return None
    found = [item.get("text") if isinstance(item, Mapping) else item for item in raw]
    texts = [text for text in found if isinstance(text, str)]
    return texts if len(texts) == len(found) else None


def _finish_reason(row: Mapping[str, Any]) -> FinishReason | None:
    first = row.get("captions")
    holder = first[0] if isinstance(first, list) and first and isinstance(first[0], Mapping) else row
    reason = holder.get("finish_reason")
    return cast(FinishReason, reason) if reason in get_args(FinishReason) else None


def _last(name: str) -> str:
    return _parts(name)[-1]


def _parts(name: str) -> tuple[str, ...]:
    return PurePath(name.replace("\\", "/")).parts or (name,)


def _listed(ids: Iterable[str]) -> str:
    ids = list(ids)
    return ", ".join(ids[:_SHOWN]) + (f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else "")
