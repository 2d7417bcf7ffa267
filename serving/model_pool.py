"""The models of one replica: each as its card has it, and at every other point of its weight space on request."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from models.card import ArithmeticCard, MixCard
from models.catalog import CaptionerEntry, find_captioner
from models.clip_scorer import ClipScorer, load_scorer
from models.errors import UnknownNameError
from models.families.base import TorchCaptioner
from models.interfaces import Captioner
from models.mixing.variants import Variants, load_variants
from models.pipeline import CaptionPipeline, load_captioner
from serving.args import AppArgs
from serving.lease_cache import LeaseCache
from serving.points import Coefficients


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model in memory; each is equal to itself alone."""

    pipeline: CaptionPipeline
    """As its card has it; of a spectrum, its base."""
    variants: Variants | None = None
    """None: it has no directions."""


class ModelPool:
    """Pipelines by model and point. Mixes are made on another thread and kept within ``max_bytes``, so that making one
    holds nobody else up."""

    def __init__(self, models: Mapping[str, LoadedModel], max_bytes: int) -> None:
        self._models = dict(models)
        self._mixes: LeaseCache[tuple[LoadedModel, Coefficients], CaptionPipeline] = LeaseCache(
            _mix, lambda key: _variants(key[0]).bytes_of_one, max_bytes
        )

    def __iter__(self) -> Iterator[str]:
        """Their ids."""
        return iter(self._models)

    def __contains__(self, model: str) -> bool:
        return model in self._models

    def put(self, model: str, loaded: LoadedModel) -> None:
        """Add a model, or put it in the place of what had its id; who uses that goes on with it."""
        self.drop(model)
        self._models[model] = loaded

    def drop(self, model: str) -> None:
        """Forget a model, if it is there, and its mixes."""
        gone = self._models.pop(model, None)
        self._mixes.drop(lambda key: key[0] is gone)

    def __getitem__(self, model: str) -> CaptionPipeline:
        """The model as its card has it.

        Raises:
            UnknownNameError: ``unknown_model``.
        """
        return self.loaded(model).pipeline

    @asynccontextmanager
    async def lease(self, loaded: LoadedModel, coefficients: Coefficients | None) -> AsyncIterator[CaptionPipeline]:
        """The pipeline at that point of a model that ``loaded`` gave, kept while the block runs; the base and the model
        as it is are always there.

        Raises:
            DataError: ``not_finite``; the weights would overflow.
        """
        if coefficients is None or (not coefficients and loaded.pipeline.captioner is _variants(loaded).base):
            yield loaded.pipeline
            return
        async with self._mixes.lease((loaded, coefficients)) as pipeline:
            yield pipeline

    def loaded(self, model: str) -> LoadedModel:
        """What has that id now. Who keeps it goes on with it, whatever becomes of the id.

        Raises:
            UnknownNameError: ``unknown_model``.
        """
        try:
            return self._models[model]
        except KeyError:
            served = ", ".join(self._models)
            raise UnknownNameError("unknown_model", f"no model {model!r} here; there are: {served}") from None


def _variants(loaded: LoadedModel) -> Variants:
    assert loaded.variants is not None  # the ingress asks for points only of models that have them
    return loaded.variants


def _mix(key: tuple[LoadedModel, Coefficients]) -> CaptionPipeline:
    loaded, coefficients = key
    return _known(loaded.pipeline.with_captioner(_variants(loaded).at(dict(coefficients))))


def load_models(args: AppArgs) -> dict[str, LoadedModel]:
    """The models of ``args`` by id, in the order given, with one scorer for all.

    Raises:
        UnknownNameError, CheckpointError: as ``find_captioner``, ``load_captioner`` and ``load_scorer`` do.
    """
    scorer = load_scorer(args.scorer, models_dir=args.models_dir, device=args.device) if args.scorer else None
    entries = [find_captioner(name, args.models_dir) for name in args.models]
    return {entry.id: load_model(entry, args, scorer) for entry in entries}


def load_model(entry: CaptionerEntry, args: AppArgs, scorer: ClipScorer | None) -> LoadedModel:
    """One model. Raises as ``load_models`` does."""
    captioner, variants = _load(entry, args)
    pipeline = CaptionPipeline(captioner, model_id=entry.id, card=entry.card, scorer=scorer)
    return LoadedModel(_known(pipeline), variants)


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
