"""From captions as token ids to the rows of a batch."""

import math
from collections.abc import Sequence

import torch

from models.families.base import TorchCaptioner
from training.objectives.interface import IGNORE, Rows

Ids = Sequence[int]
"""One caption, start and end token included."""

_CAPTIONS_PER_ROW = 5
_NO_CAPTION: Ids = (0, IGNORE)


def caption_ids(captioner: TorchCaptioner, captions: Sequence[str], max_tokens: int) -> list[list[int]]:
    """Ids of each caption between start and end token.

    A caption that is cut keeps its end token: a model that never sees one in long captions does not learn to stop.
    """
    tokens = captioner.tokenize(list(captions), max_tokens)
    return [[captioner.start_id, *ids, captioner.end_id] for ids in tokens]


def make_rows(captions: Sequence[Sequence[Ids]], *, packed: bool) -> Rows:
    """The captions of B pictures as rows: as many for each picture, its own adjacent, in order.

    A row holds one caption, or, packed, up to five: the cost of attention grows with the square of a row's length. Rows
    that a picture lacks, having fewer captions than another, have no target. They are one token long all the same:
    attention over nothing may be NaN.
    """
    per_row = _CAPTIONS_PER_ROW if packed else 1
    count = max(1, math.ceil(max(map(len, captions)) / per_row))
    starts = range(0, count * per_row, per_row)
    return _rows([picture[at : at + per_row] or [_NO_CAPTION] for picture in captions for at in starts])


def _rows(rows: Sequence[Sequence[Ids]]) -> Rows:
    length = max(sum(len(ids) - 1 for ids in row) for row in rows)
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
