"""What is to be done with every picture, as plain values: a process anywhere can make the captioner from it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.drafting import DRAFT_BY_DEFAULT
from models.errors import RequestError
from serving.arms import check_arm_count
from serving.local_models import Choice, Wish, choose
from serving.points import calibrated_words, concise_end

if TYPE_CHECKING:
    from serving.folders.captioning import Place, Rows


@dataclass(frozen=True)
class FolderJob:
    """The options of ``limner caption`` that decide what is written about a picture, and where it is computed."""

    wish: Wish
    decode: Mapping[str, Any] | None = None
    """As in a request; None is the model's own."""
    num_captions: int = 1
    score: bool = False
    rerank: bool = False
    min_clip_score: float | None = None
    arms: tuple[tuple[str, Wish], ...] = ()
    """Labelled; where there are any, each captions every picture, and ``wish`` does not count."""
    scorer: str = "scorer"
    models_dir: Path | None = None
    device: str = "auto"
    dtype: str = "default"
    threads: int | None = None
    draft: bool = DRAFT_BY_DEFAULT
    """Whether large JPEGs may be decoded as small as the models allow."""

    def check(self) -> None:
        """Refuse what cannot be had, before any weights are loaded.

        Raises:
            RequestError: ``invalid_request`` or ``unsupported_option``.
            UnknownNameError: there is no such model or direction.
        """
        if self.arms:
            check_arm_count(len(self.arms))
            if any(each is not None for each in (self.wish.descriptiveness, self.wish.mix, self.wish.target_words)):
                detail = "compare: each arm says where it is, MODEL@D; not with descriptiveness, mix or target-words"
                raise RequestError("invalid_request", detail)
            if self.num_captions > 1 or self.rerank or self.min_clip_score is not None:
                detail = "compare: one scored caption of each arm; not with num-captions, rerank or min-clip-score"
                raise RequestError("invalid_request", detail)
        if self.min_clip_score is not None and not math.isfinite(self.min_clip_score):
            raise RequestError("invalid_request", f"min_clip_score: {self.min_clip_score} is no score; they go to 2.5")
        for choice in self._choices():
            choice.strategy.rows(self.num_captions)  # refuses more captions than the strategy can give
            if self.min_clip_score is not None and concise_end(choice.entry.card) is None:
                detail = f"min_clip_score: model {choice.entry.id!r} has no spectrum, so no concise end to fall back to"
                raise RequestError("unsupported_option", detail)

    def remarks(self) -> list[str]:
        """What was asked for and is only had nearly."""
        if (wanted := self.wish.target_words) is None:
            return []
        [choice] = self._choices()
        shortest, longest = calibrated_words(choice.entry.card)
        if shortest <= wanted <= longest:
            return []
        detail = f"captions of {choice.entry.id!r} have {shortest:g} to {longest:g} words on average"
        return [f"--target-words {wanted}: {detail}; taken: {choice.point.expected_words:g}"]

    def options(self) -> dict[str, Any]:
        """All that decides what the captions are, for the record."""
        choices = self._choices()
        labels: list[str | None] = [label for label, _ in self.arms] or [None]
        return {
            "models": [
                {
                    **({} if label is None else {"label": label}),
                    "model": choice.entry.id,
                    "card_sha256": hashlib.sha256(choice.entry.card.model_dump_json().encode()).hexdigest(),
                    "descriptiveness": choice.point.descriptiveness,
                    "coefficients": choice.point.coefficients and dict(choice.point.coefficients),
                    "decode": {
                        "name": choice.strategy.name,
                        "options": choice.strategy.options.model_dump(mode="json"),
                        "guidance": choice.strategy.guidance,
                    },
                }
                for label, choice in zip(labels, choices, strict=True)
            ],
            "num_captions": self.num_captions,
            "score": self.score,
            "rerank": self.rerank,
            "min_clip_score": self.min_clip_score,
            "scorer": self.scorer if self._needs_scorer else None,
            "dtype": self.dtype,
            **({"draft": True} if self.draft else {}),  # absent in records of old: their runs go on
        }

    def load(self) -> Rows:
        """The captioner, ready. Raises as ``load_pipeline`` does."""
        from models.device import set_threads  # deferred, as below: torch
        from serving.folders.captioning import CaptionRows, HowToWrite, Place

        set_threads(self.threads, respect_omp=True)
        if self.arms:
            return self._load_arms()
        [choice] = self._choices()
        scorer = self.scorer if self._needs_scorer else None
        pipeline = choice.load(scorer=scorer, device=self.device, dtype=self.dtype)
        place = Place(pipeline, choice.point)
        end = concise_end(choice.entry.card) if self.min_clip_score is not None else None
        floor = self.min_clip_score if end is not None and end.coefficients != choice.point.coefficients else None
        score = self.score or self.min_clip_score is not None
        how = HowToWrite(choice.strategy, self.num_captions, score, self.rerank, floor)
        return CaptionRows(place, how, self._fallback(choice, place))

    @property
    def _needs_scorer(self) -> bool:
        return bool(self.score or self.rerank or self.min_clip_score is not None or self.arms)

    def _choices(self) -> list[Choice]:
        wishes = [wish for _, wish in self.arms] or [self.wish]
        return [choose(wish, self.decode, self.models_dir) for wish in wishes]

    def _fallback(self, choice: Choice, place: Place) -> Callable[[], Place]:
        def load() -> Place:
            from models.pipeline import load_captioner
            from serving.folders.captioning import Place

            end = concise_end(choice.entry.card)
            assert end is not None
            captioner = load_captioner(
                choice.entry,
                models_dir=self.models_dir,
                device=self.device,
                dtype=self.dtype,
                coefficients=dict(end.coefficients or ()),
            )
            return Place(place.pipeline.with_captioner(captioner), end)

        return load

    def _load_arms(self) -> Rows:
        from models.clip_scorer import load_scorer
        from serving.compare_files import CompareRows, LocalArm

        measure = load_scorer(self.scorer, models_dir=self.models_dir, device=self.device)
        labels = [label for label, _ in self.arms]
        return CompareRows(
            [
                LocalArm(label, choice, choice.load(device=self.device, dtype=self.dtype))
                for label, choice in zip(labels, self._choices(), strict=True)
            ],
            measure,
        )
