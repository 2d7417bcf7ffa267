"""What a run would use of a data set, and everything that is wrong with it: the body of ``limner data check``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from models.errors import DataError, ImageError
from models.text_stats import word_count
from training.data import Dataset, Defect, Example, build_reader, check_usable
from training.data.report import count_defects

Progress = Callable[[int, int], None]
"""Called with pictures done and pictures in all."""


@dataclass(frozen=True)
class SplitFacts:
    """The size of one split."""

    images: int
    captions: int
    fewest_captions: int
    """Of one image."""
    most_captions: int
    mean_words: float
    """Of a caption, as ``models.text_stats`` counts them."""
    most_words: int
    repeated_captions: int
    """Captions with the text of an earlier one in the split, of whichever image."""


@dataclass(frozen=True)
class DataCheck:
    """What was found."""

    format: str
    splits: dict[str, SplitFacts]
    """Of the splits that hold images."""
    defects: tuple[Defect, ...]
    refusal: str | None
    """Why a run would stop at once; None where it would not."""
    decoded: int | None
    """Pictures that were decoded; None where that was not asked for."""

    @property
    def clean(self) -> bool:
        """Whether all that the data set holds is used."""
        return self.refusal is None and all(defect.effect == "kept" for defect in self.defects)

    def to_json(self) -> dict[str, Any]:
        return {"clean": self.clean, **asdict(self)}

    def to_lines(self) -> Iterator[str]:
        """A table of the splits, a line for each defect, and their numbers."""
        header = ("split", "images", "captions", "per image", "mean words", "most words", "repeated")
        rows = [header, *((name, *_cells(facts)) for name, facts in self.splits.items())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        yield from map(str, self.defects)
        if self.decoded is not None:
            yield f"pictures decoded: {self.decoded}"
        yield f"defects: {'; '.join(count_defects(self.defects)) or 'none'}"
        if self.refusal is not None:
            yield f"a run would refuse this: {self.refusal}"


def check_data(
    name: str, options: Mapping[str, Any], *, images: bool = False, progress: Progress | None = None
) -> DataCheck:
    """The findings on a data set; with ``images`` every picture is decoded, too.

    Raises:
        UnknownNameError: no such format.
        RequestError: ``invalid_request``, the options do not fit the format.
        DataError: a file cannot be read at all.
    """
    reader = build_reader(name, options)
    dataset = reader.read()
    refusal = None
    try:
        check_usable(dataset, reader.options)
    except DataError as error:
        refusal = str(error)
    defects, decoded = list(dataset.report.defects), None
    if images:
        found = list(_picture_defects(dataset, progress))
        defects += found
        decoded = sum(dataset.report.images.values()) - sum(one.effect == "unreadable" for one in found)
    splits = {split: _facts(examples) for split, examples in dataset.splits.items() if examples}
    return DataCheck(name, splits, tuple(defects), refusal, decoded)


def _picture_defects(dataset: Dataset, progress: Progress | None) -> Iterator[Defect]:
    """Pictures that cannot be decoded, and pictures with the very bytes of an earlier one."""
    examples = [(split, example) for split, held in dataset.splits.items() for example in held]
    first: dict[bytes, tuple[str, Example]] = {}
    for done, (split, example) in enumerate(examples, start=1):
        try:
            example.load()
        except ImageError as error:
            yield Defect(example.source, example.image_id, f"picture is {error.code}", error.detail, "unreadable")
        else:
            earlier_split, earlier = first.setdefault(hashlib.sha256(example.read()).digest(), (split, example))
            if earlier.source != example.source:
                place = "the same split" if earlier_split == split else f"split {earlier_split!r}"
                reason = f"picture has the content of another in {place}"
                yield Defect(example.source, example.image_id, reason, earlier.source, "kept")
        if progress is not None:
            progress(done, len(examples))


def _facts(examples: Sequence[Example]) -> SplitFacts:
    captions = [caption for example in examples for caption in example.captions]
    counts, lengths = [len(example.captions) for example in examples], [word_count(caption) for caption in captions]
    return SplitFacts(
        images=len(examples),
        captions=len(captions),
        fewest_captions=min(counts),
        most_captions=max(counts),
        mean_words=sum(lengths) / len(lengths),
        most_words=max(lengths),
        repeated_captions=len(captions) - len(set(captions)),
    )


def _cells(facts: SplitFacts) -> tuple[str, ...]:
    few, most = facts.fewest_captions, facts.most_captions
    per_image = str(few) if few == most else f"{few}-{most}"
    sizes = (str(facts.images), str(facts.captions), per_image)
    return (*sizes, f"{facts.mean_words:.1f}", str(facts.most_words), str(facts.repeated_captions))
