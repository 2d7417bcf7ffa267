"""The report of a comparison on picture files, as Markdown and as one HTML page that needs no other file."""

from __future__ import annotations

import base64
import io
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

from jinja2 import Environment, PackageLoader, StrictUndefined
from PIL.Image import Image, Resampling

from models.decoding.strategy import Strategy
from serving.compare_files import ComparedPicture
from serving.comparison import ALPHA, ArmSummary, Comparison, PairSummary
from serving.folders.pictures import Picture
from serving.local_models import Choice
from serving.output import escaped

_THUMBNAIL_PX = 320
_JPEG_QUALITY = 80
_MARKED = re.compile(r"([\\`*_{}\[\]()<>|#&~!$])")
_AXIS_PX = 200


@dataclass
class Report:
    """Grows picture by picture; the first ``most_shown`` are shown with their captions, all of them are counted."""

    arms: Sequence[tuple[str, Choice]]
    """By label."""
    scorer: str
    most_shown: int = 100
    comparison: Comparison = field(init=False)
    failures: list[Mapping[str, str]] = field(default_factory=list)
    shown: list[Mapping[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.comparison = Comparison(len(self.arms))

    def add(self, picture: ComparedPicture) -> None:
        """One picture, whether it could be read or not."""
        self.comparison.add(picture.results)
        errors = [result.error for result in picture.results if result.error is not None]
        if errors:
            name = shown_name(picture.file.name)
            self.failures.append({"name": name, "code": errors[0].code, "detail": errors[0].detail})
        elif len(self.shown) < self.most_shown:
            assert picture.image is not None
            self.shown.append(_shown(picture, picture.image, [label for label, _ in self.arms]))

    def markdown(self, folder: Path | None = None) -> str:
        """The report with links from ``folder`` to the pictures; None leaves the pictures out."""
        return self._render("compare.md", folder)

    def write(self, folder: Path) -> None:
        """Write ``report.md`` and ``report.html``, each whole or not at all."""
        _replace(folder / "report.md", self.markdown(folder))
        _replace(folder / "report.html", self._render("compare.html", folder))

    def _render(self, template: str, folder: Path | None) -> str:
        environment = Environment(
            loader=PackageLoader("serving"),
            autoescape=template.endswith(".html"),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        environment.filters |= {"cell": _cell, "link": lambda file: _link(file, folder)}
        text = environment.get_template(template).render(self._context(with_pictures=folder is not None))
        return text.encode("utf-8", "backslashreplace").decode("utf-8")  # arguments may hold any bytes too

    def _context(self, *, with_pictures: bool) -> dict[str, Any]:
        labels = [label for label, _ in self.arms]
        pairs = self.comparison.pairs()
        reach = max((abs(end) for pair in pairs for end in pair.interval or (0.0,)), default=0.0) or 1.0
        return {
            "labels": labels,
            "pictures": self.comparison.pictures,
            "needed": self.comparison.needed,
            "scorer": self.scorer,
            "alpha": f"{ALPHA:.0%}",
            "arms": [
                _arm_row(label, choice, summary)
                for (label, choice), summary in zip(self.arms, self.comparison.arms(), strict=True)
            ],
            "pairs": [_pair_row(labels, pair, reach) for pair in pairs],
            "axis_px": _AXIS_PX,
            "failures": self.failures,
            "shown": self.shown if with_pictures else [],
            "with_pictures": with_pictures,
            "not_shown": self.comparison.pictures - len(self.shown),
        }


def shown_name(name: str) -> str:
    """A file name as text that can be written: control characters and bytes that are no UTF-8 are escaped."""
    return os.fsencode(escaped(name)).decode("utf-8", "backslashreplace")


def _arm_row(label: str, choice: Choice, summary: ArmSummary) -> dict[str, str]:
    point = choice.point
    mix = ", ".join(f"{name}={value:g}" for name, value in point.coefficients or ())
    return {
        "label": label,
        "model": choice.entry.id,
        "descriptiveness": "" if point.descriptiveness is None else f"{point.descriptiveness:g}",
        "mix": mix,
        "decoding": _decoding(choice.strategy),
        "clip_score": f"{summary.clip_score:.3f}",
        "interval": _interval(summary.interval),
        "words": f"{summary.words:.1f}",
        "distinct_words": f"{summary.distinct_words}",
        "repetition": f"{summary.repetition:.1%}",
        "cut": f"{summary.cut:.1%}",
    }


def _decoding(strategy: Strategy) -> str:
    """The strategy and what differs from its defaults."""
    options = [f"{name}={value}" for name, value in strategy.options.model_dump(exclude_defaults=True).items()]
    guidance = [] if strategy.guidance == 1 else [f"guidance={strategy.guidance:g}"]
    return " ".join([strategy.name, *options, *guidance])


def _pair_row(labels: Sequence[str], pair: PairSummary, reach: float) -> dict[str, Any]:
    verdict = {"a better": f"{labels[pair.a]} better", "b better": f"{labels[pair.b]} better"}
    return {
        "a": labels[pair.a],
        "b": labels[pair.b],
        "difference": f"{pair.difference + 0.0:+.3f}",
        "interval": _interval(pair.interval, "+"),
        "p": "< 0.001" if pair.p < 0.001 else f"{pair.p:.3f}",
        "a_higher": pair.a_higher,
        "b_higher": pair.b_higher,
        "equal": pair.equal,
        "decided": pair.verdict != "undecided",
        "verdict": verdict.get(pair.verdict, "undecided"),
        "places": [_place(value, reach) for value in (pair.difference, *(pair.interval or ()))],
    }


def _shown(picture: ComparedPicture, image: Image, labels: Sequence[str]) -> dict[str, Any]:
    captions = [result.captions[0] for result in picture.results]
    best = max(caption.clip_score or 0.0 for caption in captions)
    differ = any(caption.clip_score != best for caption in captions)
    return {
        "name": shown_name(picture.file.name),
        "file": picture.file,
        "thumbnail": base64.b64encode(_thumbnail(image)).decode("ascii"),
        "captions": [
            {
                "label": label,
                "text": caption.text,
                "clip_score": f"{caption.clip_score:.3f}",
                "best": differ and caption.clip_score == best,
            }
            for label, caption in zip(labels, captions, strict=True)
        ],
    }


def _thumbnail(image: Image) -> bytes:
    """A small JPEG of an RGB picture."""
    small = image.copy()
    small.thumbnail((_THUMBNAIL_PX, _THUMBNAIL_PX), Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=_JPEG_QUALITY, optimize=True)
    return buffer.getvalue()


def _interval(interval: tuple[float, float] | None, sign: str = "") -> str:
    return "" if interval is None else f"[{interval[0]:{sign}.3f}, {interval[1]:{sign}.3f}]"


def _place(value: float, reach: float) -> float:
    """Where a difference lies on an axis that has 0 in its middle, px."""
    return round(_AXIS_PX / 2 * (1 + 0.96 * value / reach), 1)


def _cell(text: str) -> str:
    """Text that Markdown shows as it is, also within a table."""
    return " ".join(_MARKED.sub(r"\\\1", escaped(text)).split())


def _link(file: Picture, folder: Path | None) -> str:
    """The address of a file as seen from ``folder``; any bytes may stand in it."""
    return quote_from_bytes(os.fsencode(os.path.relpath(file.path, folder)))


def _replace(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{os.getpid()}.limner-unfinished")
    try:
        unfinished.write_text(text, encoding="utf-8", newline="\n")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
