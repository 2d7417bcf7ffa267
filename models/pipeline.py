"""Pictures in, captions out: one captioner and, if wanted, one scorer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL.Image import Image

from models.caption_session import Ask, CaptionSession, Company, Manner
from models.card import ArithmeticCard, WeightsCard
from models.catalog import CaptionerEntry, find_captioner
from models.decoding.strategy import Strategy
from models.device import pick_device, pick_dtype
from models.drafting import draft_px
from models.errors import RequestError
from models.families import FAMILIES
from models.feature_cache import encoder_key
from models.interfaces import Caption, Captioner
from models.lookup import resolve

if TYPE_CHECKING:
    from models.clip_scorer import ClipScorer


@dataclass(frozen=True)
class PipelineResult:
    """Captions of each image, best first, and what the stages took for all of them together."""

    captions: list[list[Caption]]
    timing_ms: dict[str, float] = field(default_factory=dict)
    """``encode``, ``decode``, ``score``."""


class CaptionPipeline:
    """A loaded captioner, ready to use. Calls must not overlap: one thread owns it."""

    def __init__(
        self,
        captioner: Captioner,
        *,
        model_id: str,
        card: WeightsCard | ArithmeticCard,
        scorer: ClipScorer | None = None,
    ) -> None:
        self.captioner = captioner
        if isinstance(captioner, torch.nn.Module):
            captioner.requires_grad_(False)  # nobody trains it here, so its weights may be packed
        self.model_id = model_id
        self.card = card
        self.scorer = scorer

    def with_captioner(self, captioner: Captioner) -> CaptionPipeline:
        """The same with another captioner, of the same architecture and vocabulary."""
        return CaptionPipeline(captioner, model_id=self.model_id, card=self.card, scorer=self.scorer)

    @cached_property
    def encoder_key(self) -> str | None:
        """The name of the captioner's encoder (``models.feature_cache.encoder_key``)."""
        return encoder_key(self.captioner)

    @cached_property
    def draft_px(self) -> int | None:
        """How small a JPEG may be decoded for captioner and scorer (``draft_px`` of ``models.images.load_image``). The
        same whether scores are wanted or not, so that they do not change captions."""
        seen_by_scorer = [self.scorer.input_side_px] if self.scorer else []
        return draft_px(self.captioner.input_side_px, *seen_by_scorer)

    @property
    def scorer_id(self) -> str | None:
        """The id that scores carry; None without a scorer."""
        return self.scorer.scorer_id if self.scorer else None

    @torch.inference_mode()
    def caption(
        self,
        images: Sequence[Image],
        strategy: Strategy,
        *,
        num_captions: int = 1,
        seeds: Sequence[int | None] | None = None,
        prompts: list[str] | None = None,
        score: bool | Sequence[bool] = False,
        rerank: bool = False,
    ) -> PipelineResult:
        """Captions of RGB pictures, in order.

        Args:
            seeds: one per image, for ``sample``; None entries stand for the strategy's own seed.
            score: whether captions get a CLIPScore, for all or for each image.
            rerank: give those of all candidates that have the highest CLIPScore, in its order; all get one then.

        Raises:
            RequestError: ``invalid_request`` or ``unsupported_option`` for what the strategy, the captioner or a
                pipeline without a scorer cannot do.
        """
        count = len(images)
        wanted = [score or rerank] * count if isinstance(score, bool) else [one or rerank for one in score]
        if any(wanted) and self.scorer is None:
            raise RequestError("unsupported_option", "score: no scorer is loaded")
        columns = zip(images, seeds or [None] * count, prompts or [""] * count, wanted, strict=True)
        manner = Manner(strategy, num_captions, rerank)
        asks = [Ask(manner, image, seed=seed, prompt=prompt, score=scored) for image, seed, prompt, scored in columns]
        return self.caption_asks(asks)

    @torch.inference_mode()
    def caption_asks(self, asks: Sequence[Ask], company: Company | None = None) -> PipelineResult:
        """As ``caption``, of pictures that may be prepared already and wanted each in its own manner.

        Args:
            company: others that join between steps; it is also told what became of these pictures, as soon as each is
                done. The result holds these pictures only, without captions for those that left.
        """
        count = len(asks)
        session = CaptionSession(self)
        if not asks:
            return PipelineResult([], {"score": 0.0})
        encode_ms = session.add(asks)
        found: dict[int, list[Caption]] = {}
        while session.images:
            for number, result in session.step().items():
                if number < count:
                    found[number] = list(result.captions)
                if company is not None:
                    company.done(number, result)
            if company is not None:
                session.drop(company.leaving())
                if session.takes_more and (joining := company.joining(session.images)):
                    session.add(joining)
        captions = [found.get(number, []) for number in range(count)]
        return PipelineResult(captions, {"encode": encode_ms, "decode": session.decode_ms, "score": session.score_ms})

    def score(self, images: Sequence[Image], captions: Sequence[Sequence[str]]) -> list[list[float]]:
        """CLIPScores of given captions of each image.

        Raises:
            RequestError: ``unsupported_option`` without a scorer.
        """
        if self.scorer is None:
            raise RequestError("unsupported_option", "score: no scorer is loaded")
        return self.scorer.score(images, captions)


def load_captioner(
    entry: CaptionerEntry,
    *,
    models_dir: Path | None = None,
    device: str = "auto",
    dtype: str = "fp32",
    coefficients: Mapping[str, float] | None = None,
) -> Captioner:
    """The captioner of a catalogue entry, in eval mode.

    Args:
        coefficients: how far along each direction of a mix or spectrum; None: as its card says.

    Raises:
        RequestError: ``unsupported_option`` for coefficients of a model that is no mix, and for a dtype that its family
            does not have.
        UnknownNameError: the card names a family that does not exist.
        CheckpointError: it cannot be loaded.
    """
    family: Any = resolve("captioner family", FAMILIES, entry.card.family)
    target = pick_device(device)
    options: dict[str, Any] = {"device": target, "dtype": pick_dtype(dtype, target)}
    if options["dtype"] == torch.int8 and not getattr(family, "takes_int8", False):
        raise RequestError("unsupported_option", f"models of the family {entry.card.family!r} cannot run in {dtype}")
    if isinstance(entry.card, ArithmeticCard) or entry.card.parts:  # ours: they may name other models of the same root
        options["models_dir"] = models_dir
    if coefficients is not None:
        if not isinstance(entry.card, ArithmeticCard):
            raise RequestError("unsupported_option", f"mix: model {entry.id!r} has no directions")
        options["coefficients"] = coefficients
    captioner: Captioner = family.load(entry.source, **options)
    return captioner


def load_pipeline(
    model: str,
    *,
    models_dir: Path | None = None,
    scorer: str | None = "scorer",
    device: str = "auto",
    dtype: str = "fp32",
    coefficients: Mapping[str, float] | None = None,
) -> CaptionPipeline:
    """The pipeline of a model and a scorer, named as ``find_model`` and ``load_scorer`` take them; ``coefficients`` as
    in ``load_captioner``.

    Raises:
        UnknownNameError: one of them does not exist.
        CheckpointError: one of them cannot be loaded.
    """
    entry = find_captioner(model, models_dir)
    captioner = load_captioner(entry, models_dir=models_dir, device=device, dtype=dtype, coefficients=coefficients)
    loaded = None
    if scorer:
        from models.clip_scorer import load_scorer  # deferred: open_clip takes seconds to import

        loaded = load_scorer(scorer, models_dir=models_dir, device=device)
    return CaptionPipeline(captioner, model_id=entry.id, card=entry.card, scorer=loaded)
