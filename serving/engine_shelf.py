"""The captioner's part in changes of what is served: models are loaded beside the engine, then put into it."""

from collections.abc import Mapping

from PIL import Image

from models.catalog import find_captioner
from models.decoding import parse_decode
from serving.args import AppArgs
from serving.caption_watch import CaptionWatch
from serving.engine import Engine
from serving.model_pool import LoadedModel, load_model
from serving.own_thread import in_own_thread


class EngineShelf:
    """A ``serving.model_changes.Shelf``. All models share the scorer of those that were there first."""

    def __init__(self, engine: Engine, models: Mapping[str, LoadedModel], watch: CaptionWatch, args: AppArgs) -> None:
        self._engine, self._watch, self._args = engine, watch, args
        self._scorer = next(iter(models.values())).pipeline.scorer

    async def load(self, model: str) -> LoadedModel:
        """The model, after it has captioned one picture. Raises as ``load_models`` does."""
        return await in_own_thread(lambda: self._load(model))

    def put(self, model: str, loaded: LoadedModel) -> None:
        """Serve it."""
        self._engine.put_model(model, loaded)
        self._watch.set_own_decoding(model, parse_decode(None, loaded.pipeline.card.decoding))

    async def drop(self, model: str) -> None:
        """Serve it no more; returns when its last request is answered."""
        await self._engine.drop_model(model)
        self._watch.set_own_decoding(model, None)

    def _load(self, model: str) -> LoadedModel:
        loaded = load_model(find_captioner(model, self._args.models_dir), self._args, self._scorer)
        pipeline = loaded.pipeline
        pipeline.caption([Image.new("RGB", (64, 64), "grey")], parse_decode(None, pipeline.card.decoding))
        return loaded
