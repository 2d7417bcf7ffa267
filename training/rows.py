"""From captions as token ids to the rows of a batch."""

from collections.abc import Sequence

import torch

from models.families.base import TorchCaptioner
from training.objectives.interface import IGNORE, Rows

Ids = Sequence[int]
"""One caption, start and end token included."""


def caption_ids(captioner: TorchCaptioner, captions: Sequence[str], max_tokens: int) -> list[list[int]]:
    """Ids of each caption between start and end token.

    A caption that is cut keeps its end token: a model that never sees one in long captions does not learn to stop.
    """
    tokens = captioner.tokenize(list(captions), max_tokens)
    return [[captioner.start_id, *ids, captioner.end_id] for ids in tokens]


def make_rows(captions: Sequence[Sequence[Ids]], *, packed: bool) -> Rows:
    """The captions of B pictures as rows: one per picture that packs all of them, or one for each caption.

    Rows that a picture lacks, having fewer captions than another, have no target. They are one token long all the same:
    attention over nothing may be NaN.
    """
    if packed:
        return _rows([[*picture] for picture in captions])
    most = max(1, *(len(picture) for picture in captions))
    return _rows([[ids] for picture in captions for ids in [*picture, *[[0, IGNORE]] * (most - len(picture))]])


def _rows(rows: Sequence[Sequence[Ids]]) -> Rows:
    length = max(1, *(sum(len(ids) - 1 for ids in row) for row in rows))
    input_ids = torch.zeros(len(rows), length, dtype=torch.long)
    labels = torch.full((len(rows), length), IGNORE)
    segments = torch.full((len(rows), length), -1)
    for number, row in enumerate(rows):
        at = 0
        for segment, ids in enumerate(row):
            end = at + len(ids) - 1
            input_ids[number, at:end] = torch.tensor(ids[:-1])
            labels[number, at:end] = torch.tensor(ids[1:])
            segments[number, at:end] = segment
            at = end
    return Rows(input_ids, labels, segments)
