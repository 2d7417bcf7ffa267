"""Images that are decoded together for as long as each needs: they join between steps and leave when they are done."""

import secrets
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from models.decoding.guidance import GuidedRows
from models.decoding.limits import check_prompts, lengths
from models.decoding.strategy import Plan, Search, Strategy
from models.interfaces import Captioner, Hypothesis
from models.rows import pack, rows_of


class DecodeSession:
    """The images under way, all decoded by one strategy with equally many rows. It knows neither families nor
    strategies, only their contracts. An image's captions do not depend on who shares its steps, or when.

    Images are told apart by numbers that count from 0 in the order in which they were added. Not for several threads.
    """

    def __init__(self, captioner: Captioner, strategy: Strategy, num_captions: int = 1) -> None:
        """Raises:
        RequestError: ``invalid_request`` for more captions than the strategy can give; ``unsupported_option`` for a
            guidance that the captioner cannot take.
        """
        strategy.check(captioner)
        self._captioner, self._strategy, self._num_captions = captioner, strategy, num_captions
        self._rows = strategy.rows(num_captions)
        self._decoder = GuidedRows(captioner, strategy.guidance)
        self._search: Search | None = None
        self._logits: Tensor | None = None
        """(R, V) of the next tokens, of all rows."""
        self._images: list[int] = []
        self._added = 0

    @property
    def images(self) -> tuple[int, ...]:
        """The images under way."""
        return tuple(self._images)

    @property
    def takes_more(self) -> bool:
        """Whether images may be added now; where the family cannot merge, only while none are under way."""
        return not self._images or "joining" in self._captioner.capabilities

    @torch.no_grad()
    def add(
        self,
        memory: Any,
        *,
        batch: int,
        prompts: list[str] | None = None,
        seeds: Sequence[int | None] | None = None,
    ) -> range:
        """Take in the ``batch`` images of ``memory``; returns their numbers.

        An empty prompt is none. ``seeds`` are one per image; None stands for the strategy's own seed, and where that is
        None too, for a fresh one.

        Raises:
            RequestError: ``invalid_request`` for a prompt that leaves no room; ``unsupported_option`` for a prompt that
                the captioner cannot take.
        """
        assert self.takes_more
        prompts = check_prompts(self._captioner, prompts)
        limits, prompt = lengths(self._captioner, self._strategy, batch, prompts)
        logits = self._decoder.add(memory, prompts, batch=batch, rows=self._rows)
        own = self._strategy.seed
        given = [own] * batch if seeds is None else [own if seed is None else seed for seed in seeds]
        plan = Plan(
            rows=self._rows,
            vocab_size=self._captioner.vocab_size,
            end_id=self._captioner.end_id,
            limits=limits.to(logits.device),
            prompt=prompt.to(logits.device),
            seeds=tuple(secrets.randbits(63) if seed is None else seed for seed in given),
        )
        search = self._strategy.begin(plan)
        if self._search is None or self._logits is None:
            self._search, self._logits = search, logits
        else:
            self._search.join(search)
            self._logits = torch.cat((self._logits, logits))
        numbers = range(self._added, self._added + batch)
        self._images += numbers
        self._added += batch
        return numbers

    def step(self) -> dict[int, list[Hypothesis]]:
        """One token more for every image; the ``num_captions`` best captions, best first, of those that are done, which
        leave. Fewer only where a tiny vocabulary or the options leave no more different ones."""
        return step_together([self])[0]

    def _advance(self) -> tuple[dict[int, list[Hypothesis]], Tensor]:
        """Those that are done, which leave, and the next tokens (R,) of the others' rows, which are in order."""
        search, logits = self._search, self._logits
        assert search is not None and logits is not None
        tokens, parents = search.advance(logits)
        stays = search.open.tolist()
        done: dict[int, list[Hypothesis]] = {}
        if not all(stays):
            places = [place for place, open_ in enumerate(stays) if not open_]
            found = search.hypotheses(torch.tensor(places, device=tokens.device))
            done = {
                self._images[place]: captions[: self._num_captions]
                for place, captions in zip(places, found, strict=True)
            }
            kept = self._keep(stays)
            chosen = rows_of(kept, self._rows)
            tokens = tokens[chosen]
            if parents is not None:
                first = rows_of(torch.arange(len(kept), device=kept.device), self._rows) // self._rows * self._rows
                parents = parents[chosen] % self._rows + first
        if self._images and parents is not None:
            self._decoder.reorder(parents)
        return done, tokens

    @torch.no_grad()
    def drop(self, images: Collection[int]) -> None:
        """Give up these of the images under way."""
        stays = [image not in images for image in self._images]
        if not all(stays):
            kept = self._keep(stays)
            if self._logits is not None:
                self._logits = self._logits[rows_of(kept, self._rows)]

    def _keep(self, stays: Sequence[bool]) -> Tensor:
        """Only the images at these places stay; returns their old places (B',)."""
        order = pack(stays)
        self._images = [self._images[place] for place in order]
        assert self._search is not None and self._logits is not None
        kept = torch.tensor(order, device=self._logits.device, dtype=torch.long)
        self._decoder.keep(kept)
        if order:
            self._search.keep(kept)
        else:
            self._search = self._logits = None
        return kept


@torch.no_grad()
def step_together(sessions: Sequence[DecodeSession]) -> list[dict[int, list[Hypothesis]]]:
    """``DecodeSession.step`` of several sessions of one captioner, none of them empty: a family that can
    (``shared_steps``) computes the rows of all in one pass, whatever their strategies."""
    advanced = [session._advance() for session in sessions]
    going = [(session, tokens) for session, (_, tokens) in zip(sessions, advanced, strict=True) if session.images]
    if going:
        logits = GuidedRows.step([session._decoder for session, _ in going], [tokens for _, tokens in going])
        for (session, _), own in zip(going, logits, strict=True):
            session._logits = own
    return [done for done, _ in advanced]
