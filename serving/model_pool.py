"""The models of one replica: each as its card has it, and at every other point of its weight space on request."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from models.card import ArithmeticCard, MixCard
from models.catalog import CaptionerEntry, find_captioner
from models.clip_scorer import load_scorer
from models.errors import UnknownNameError
from models.families.base import TorchCaptioner
from models.interfaces import Captioner
from models.mixing.variants import Variants, load_variants
from models.pipeline import CaptionPipeline, load_captioner
from serving.args import AppArgs
from serving.lease_cache import LeaseCache
from serving.points import Coefficients


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory."""

    pipeline: CaptionPipeline
    """As its card has it; of a spectrum, its base."""
    variants: Variants | None = None
    """None: it has no directions."""


class ModelPool:
    """Pipelines by model and point. Mixes are made on another thread and kept within ``max_bytes``, so that making one
    holds nobody else up."""

    def __init__(self, models: Mapping[str, LoadedModel], max_bytes: int) -> None:
        self._models = models
        self._mixes: LeaseCache[tuple[str, Coefficients], CaptionPipeline] = LeaseCache(
            self._mix, lambda key: self._variants(key[0]).bytes_of_one, max_bytes
        )

    def __getitem__(self, model: str) -> CaptionPipeline:
        """The model as its card has it.

        Raises:
            UnknownNameError: ``unknown_model``.
        """
        return self._model(model).pipeline

    @asynccontextmanager
    async def lease(self, model: str, coefficients: Coefficients | None) -> AsyncIterator[CaptionPipeline]:
        """The pipeline there, kept while the block runs; the base and the model as it is are always there.

        Raises:
            UnknownNameError: ``unknown_model``.
            DataError: ``not_finite``; the weights would overflow.
        """
        loaded = self._model(model)
        if coefficients is None or (not coefficients and loaded.pipeline.captioner is self._variants(model).base):
            yield loaded.pipeline
            return
        async with self._mixes.lease((model, coefficients)) as pipeline:
            yield pipeline

    def _model(self, model: str) -> LoadedModel:
        try:
            return self._models[model]
        except KeyError:
            served = ", ".join(self._models)
            raise UnknownNameError("unknown_model", f"no model {model!r} here; there are: {served}") from None

    def _variants(self, model: str) -> Variants:
        variants = self._models[model].variants
        assert variants is not None, model  # the ingress asks for points only of models that have them
        return variants

    def _mix(self, key: tuple[str, Coefficients]) -> CaptionPipeline:
        model, coefficients = key
        return _known(self._models[model].pipeline.with_captioner(self._variants(model).at(dict(coefficients))))


def load_models(args: AppArgs) -> dict[str, LoadedModel]:
    """The models of ``args`` by id, in the order given, with one scorer for all.

    Raises:
        UnknownNameError, CheckpointError: as ``find_captioner``, ``load_captioner`` and ``load_scorer`` do.
    """
    scorer = load_scorer(args.scorer, models_dir=args.models_dir, device=args.device) if args.scorer else None
    found = {}
    for name in args.models:
        entry = find_captioner(name, args.models_dir)
        loaded = _load(entry, args)
        pipeline = CaptionPipeline(loaded[0], model_id=entry.id, card=entry.card, scorer=scorer)
        found[entry.id] = LoadedModel(_known(pipeline), loaded[1])
    return found


def _known(pipeline: CaptionPipeline) -> CaptionPipeline:
    """The pipeline, with the key of its encoder computed: that takes too long for where it is needed."""
    _ = pipeline.encoder_key  # cached from now on
    return pipeline


def _load(entry: CaptionerEntry, args: AppArgs) -> tuple[Captioner, Variants | None]:
    options: dict[str, Any] = {"models_dir": args.models_dir, "device": args.device, "dtype": args.dtype}
    if not isinstance(entry.card, ArithmeticCard):
        return load_captioner(entry, **options), None
    base = load_captioner(entry, **options, coefficients={})
    assert isinstance(base, TorchCaptioner)  # what has weights to mix
    variants = load_variants(base, entry, args.models_dir)
    return variants.at(entry.card.coefficients) if isinstance(entry.card, MixCard) else base, variants
