"""What training starts from: a new compact captioner, or one that exists."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from models.catalog import find_captioner
from models.errors import DataError
from models.families.base import TorchCaptioner
from models.families.compact import CompactCaptioner
from models.families.compact.config import CompactConfig
from models.pipeline import load_captioner
from training.captioner_config import CaptionerConfig, ModelSettings
from training.data import Example
from training.packages import bert_vocabulary, load_imagenet, word_piece_vectors
from training.tokenizer import build_tokenizer


def starting_captioner(config: CaptionerConfig, train: Sequence[Example]) -> TorchCaptioner:
    """The captioner that the recipe starts from, with its dropout; what training may change requires a gradient.

    Raises:
        LimnerError: the captioner to start from cannot be loaded, or is of a family that cannot be trained.
        MissingDependencyError: a package with the weights of a new one is absent.
    """
    captioner = new_captioner(config, train) if config.init is None else load_trainable(config.init)
    captioner.requires_grad_(True)
    captioner.train_encoder(bool(config.train.vision_learning_rate))
    set_dropout(captioner, config.model)
    return captioner


def new_captioner(config: CaptionerConfig, train: Sequence[Example]) -> CompactCaptioner:
    """A compact captioner with ImageNet's encoder and a random decoder, its word pieces chosen by the captions."""
    model = config.model
    captions = (caption for example in train for caption in example.captions)
    tokenizer = build_tokenizer(
        captions, bert_vocabulary(), min_count=model.min_piece_count, always=model.keep_pieces_of
    )
    fields = {name: value for name, value in model.model_dump().items() if name in CompactConfig.model_fields}
    captioner = CompactCaptioner(CompactConfig(vocab_size=tokenizer.get_vocab_size(), **fields), tokenizer)
    if config.word_vectors == "minilm":
        numbers = tokenizer.get_vocab()
        pieces = sorted(numbers, key=numbers.__getitem__)
        captioner.model.token_embedding.weight.data.copy_(word_piece_vectors(pieces, model.width))
    load_imagenet(captioner.model.vision, model.vision)
    captioner.model.vision.to(memory_format=torch.channels_last)
    return captioner


def load_trainable(ref: str, models_dir: Path | None = None) -> TorchCaptioner:
    """The captioner that ``ref`` names, in fp32.

    Raises:
        DataError: ``bad_recipe``, it has no weights.
        LimnerError: it cannot be found or loaded.
    """
    captioner = load_captioner(find_captioner(ref, models_dir), models_dir=models_dir)
    if not isinstance(captioner, TorchCaptioner):
        raise DataError("bad_recipe", f"{ref!r} has no weights that could be trained")
    return captioner


def set_dropout(captioner: TorchCaptioner, settings: ModelSettings) -> None:
    """Give a compact captioner the dropout of a recipe; captioners of other families keep that of their config."""
    if not isinstance(captioner, CompactCaptioner):
        return
    for module in captioner.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = settings.dropout
    captioner.model.feature_dropout.p = settings.feature_dropout
