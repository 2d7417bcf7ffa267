"""Scores after the options that every strategy shares: pure functions on (R, V) scores and (R, L) ids.

``history`` is prompt + caption so far, left-padded with the id V. The start token is not part of it: it is no text, and
in checkpoints that start and end with the same token a penalty on it would forbid to end. In all else these equal the
logits processors of ``transformers`` 5.24, where it has them.
"""

import torch
from torch import Tensor

from models.decoding.options import SharedOptions


def needs_history(options: SharedOptions) -> bool:
    """Whether ``process`` looks at the history at all."""
    return options.repetition_penalty != 1.0 or options.no_repeat_ngram > 0 or options.no_stutter > 0


def process(scores: Tensor, history: Tensor, generated: Tensor | int, end_id: int, options: SharedOptions) -> Tensor:
    """Scores (R, V) that respect ``options``, where the last ``generated`` tokens, (R,) or of all rows, of ``history``
    (R, L) are the caption's. The scores themselves are returned where nothing changes."""
    given = scores
    if options.repetition_penalty != 1.0:
        given = scores = penalise_repetition(scores, history, options.repetition_penalty)
    if options.no_repeat_ngram:
        scores = forbid_ngrams(scores, history, options.no_repeat_ngram)
    if options.no_stutter:
        scores = forbid_stutter(scores, history, options.no_stutter)
    if options.min_tokens:
        early = torch.as_tensor(generated, device=scores.device) < options.min_tokens
        if bool(early.any()):
            scores = scores.clone()
            scores[:, end_id] = scores[:, end_id].masked_fill(early, -torch.inf)
    return scores if scores is given else _end_dead_ends(scores, end_id)


def penalise_repetition(scores: Tensor, history: Tensor, penalty: float) -> Tensor:
    """Scores (R, V) with those of tokens in ``history`` (R, L) divided by ``penalty``, multiplied where negative."""
    penalised = torch.where(scores < 0, scores * penalty, scores / penalty)
    return torch.where(_mark(scores, history), penalised, scores)


def forbid_ngrams(scores: Tensor, history: Tensor, size: int) -> Tensor:
    """Scores (R, V) with -inf for each token that would complete an n-gram that ``history`` (R, L) already has."""
    length, vocab = history.shape[1], scores.shape[1]
    if length < size:
        return scores
    suffix = history[:, length + 1 - size :]  # (R, size-1)
    windows = history.unfold(1, size, 1)  # (R, L-size+1, size)
    last = windows[..., -1]
    seen = (windows[..., :-1] == suffix.unsqueeze(1)).all(dim=-1) & (last < vocab)
    rows, places = seen.nonzero(as_tuple=True)
    if not len(rows):  # as at most steps, which then need no copy of the scores
        return scores
    scores = scores.clone()
    scores[rows, last[rows, places]] = -torch.inf
    return scores


def forbid_stutter(scores: Tensor, history: Tensor, longest: int) -> Tensor:
    """Scores (R, V) with -inf for each token that would end a run of up to ``longest`` tokens that the same run
    precedes in ``history`` (R, L). ``transformers`` has no such processor."""
    length, vocab = history.shape[1], scores.shape[1]
    banned = scores.new_zeros(0, dtype=torch.long), scores.new_zeros(0, dtype=torch.long)
    for size in range(1, min(longest, (length + 1) // 2) + 1):
        first = history[:, length + 1 - 2 * size : length + 1 - size]  # (R, size)
        second = history[:, length + 1 - size :]  # (R, size-1), and the token to come
        repeats = (first[:, :-1] == second).all(dim=1) & (first[:, -1] < vocab)
        rows = repeats.nonzero().squeeze(1)
        banned = torch.cat((banned[0], rows)), torch.cat((banned[1], first[rows, -1]))
    if not len(banned[0]):
        return scores
    scores = scores.clone()
    scores[banned] = -torch.inf
    return scores


def _end_dead_ends(scores: Tensor, end_id: int) -> Tensor:
    """Scores (R, V) where a row with no token left may end after all."""
    dead = scores.amax(dim=1) == -torch.inf
    if not bool(dead.any()):
        return scores
    column = torch.arange(scores.shape[1], device=scores.device) == end_id
    return scores.masked_fill(dead.unsqueeze(1) & column, 0.0)


def _mark(scores: Tensor, ids: Tensor) -> Tensor:
    """Mask (R, V) of the tokens in ``ids`` (R, L); the id V marks nothing."""
    rows, vocab = scores.shape
    mask = torch.zeros(rows, vocab + 1, dtype=torch.bool, device=scores.device)
    return mask.scatter_(1, ids, True)[:, :vocab]
