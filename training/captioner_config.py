"""The settings of a recipe of the task ``captioner``."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from models.card import DataSource, Decoding, Named
from training.augment import ViewOptions
from training.data import DataReport
from training.uncertain import UncertainPairs


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DataSettings(_Settings):
    """A data set and what its card says of it."""

    name: str
    terms: str
    format: str = "karpathy"
    options: dict[str, Any]
    agreeing: int | None = Field(default=None, ge=1)
    """Train on this many captions of each picture only: those that agree best with its others."""
    uncertain: UncertainPairs | None = None
    """Of those, train on these pairs only."""

    def source(self, report: DataReport) -> DataSource:
        """The training split as a card tells of it."""
        return DataSource(
            name=self.name,
            split="train",
            images=report.images["train"],
            captions=report.pairs["train"],
            terms=self.terms,
        )


class ModelSettings(_Settings):
    """Architecture and regularisation of the captioner."""

    vision: str = "tf_efficientnet_lite0"
    stem_blocks: int = Field(default=7, ge=1, le=7)
    """The encoder's first blocks, which stay frozen even where it is trained."""
    image_size_px: int = 224
    width: int = 256
    heads: int = 8
    encoder_layers: int = 0
    decoder_layers: int = 4
    feed_forward: int = 1024
    max_positions: int = 64
    min_piece_count: int = Field(default=3, ge=1)
    """Word pieces that occur less often in the training captions are split further."""
    keep_pieces_of: list[str] = ["A photo depicts "]
    dropout: float = Field(default=0.3, ge=0, lt=1)
    feature_dropout: float = Field(default=0.3, ge=0, lt=1)


class TrainSettings(_Settings):
    """Optimisation. Rates fall by a cosine to ``final_rate`` of their peak after a linear warm-up."""

    epochs: int = Field(ge=1)
    images_per_step: int = Field(default=24, ge=1)
    max_caption_tokens: int = Field(default=28, ge=4)
    learning_rate: float = Field(default=8e-4, gt=0)
    vision_learning_rate: float = Field(default=1e-4, ge=0)
    """Of the encoder, a compact captioner's last blocks; 0 freezes it."""
    captions_per_image: int | None = Field(default=None, ge=1)
    """Captions of a picture in a step, drawn anew each time; None: all."""
    final_rate: float = Field(default=0.02, ge=0, le=1)
    warmup_steps: int = Field(default=300, ge=0)
    weight_decay: float = Field(default=0.05, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    average_decay: float = Field(default=0.999, ge=0, lt=1)
    bf16: bool = True
    threads: int | None = Field(default=None, ge=1)
    save_every_steps: int | None = Field(default=None, ge=1)
    """None: once an epoch."""
    log_every_steps: int = Field(default=50, ge=1)
    tensorboard: bool = Field(default=False, exclude=True)
    """Write the log for TensorBoard too, into the folder ``tensorboard`` of the run. What is trained does not depend on
    it, so that a run may go on with or without."""
    patience: int | None = Field(default=None, ge=1)
    """Validations without a better one after which training stops; None: it runs to its end."""


ValidationValue = Literal[
    "nll",
    "bleu1",
    "bleu2",
    "bleu3",
    "bleu4",
    "cider",
    "mean_words",
    "lexical_diversity",
    "repetition",
    "cut",
    "clip_score",
    "r_at_1",
    "r_at_5",
    "r_at_10",
    "mean_rank",
    "median_rank",
]
"""What ``training.validation`` measures."""


class SelectSettings(_Settings):
    """How the best weights are told, on the validation split."""

    metric: ValidationValue = "cider"
    """Those after ``cut`` need a scorer."""
    mode: Literal["max", "min"] = "max"
    scorer: str | None = None
    decode: Decoding = Decoding(name="beam", options={"beams": 3})


class CaptionerConfig(_Settings):
    """A recipe of the task ``captioner``."""

    id: str
    description: str
    licence: str
    seed: int = 0
    data: DataSettings
    init: str | None = None
    """The captioner to start from: a model id, a folder or a hub id; None: a new compact one."""
    model: ModelSettings = ModelSettings()
    """Of a new captioner; of an old one only the dropout."""
    word_vectors: Literal["minilm", "random"] = "minilm"
    """What a new captioner's word pieces start from. Its encoder starts from ImageNet weights, the rest at random."""
    objective: Named = Named(name="mle")
    views: ViewOptions = ViewOptions()
    train: TrainSettings
    select: SelectSettings = SelectSettings()
    decoding: Decoding | None = None
    """How the finished captioner decodes where nobody says how; None: the default strategy."""

    @field_validator("model")
    @classmethod
    def _old_sizes_stay(cls, model: ModelSettings, info: ValidationInfo) -> ModelSettings:
        changed = sorted(model.model_fields_set - {"dropout", "feature_dropout"})
        if info.data.get("init") and changed:
            raise ValueError(f"{', '.join(changed)} cannot change: the captioner starts from {info.data['init']!r}")
        return model

    @field_validator("train")
    @classmethod
    def _captions_fit_the_decoder(cls, train: TrainSettings, info: ValidationInfo) -> TrainSettings:
        model = info.data.get("model")
        if model and train.max_caption_tokens >= model.max_positions:
            most = f"model.max_positions {model.max_positions} leaves room for {model.max_positions - 1}"
            raise ValueError(f"max_caption_tokens is {train.max_caption_tokens}, but {most}")
        return train
