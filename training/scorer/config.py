"""What a recipe of the task ``scorer`` may say."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from models.clip_scorer import PREFIX
from training.augment import ViewOptions
from training.captioner_config import DataSettings


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSettings(_Settings):
    """The dual encoder that is shipped, in open_clip's terms."""

    vision: str = "tf_efficientnet_lite0"
    image_size_px: int = 224
    embed_dim: int = 256
    text_width: int = 384
    text_layers: int = 2
    text_heads: int = 12
    text_start_layers: list[int] = [0, 5]
    """MiniLM layers that the text layers start from; empty: start at random."""
    context_length: int = 64
    min_piece_count: int = Field(default=3, ge=1)
    """Of the shared tokenizer: as in the captioner's recipe."""
    prefix: str = PREFIX


class TeacherSettings(_Settings):
    """MiniLM with its upper layers trained, against the image tower that is shipped."""

    trained_layers: int = Field(default=2, ge=1)
    steps: int = Field(default=330, ge=1)
    batch_size: int = Field(default=500, ge=2)
    learning_rate: float = Field(default=1e-3, gt=0)
    slow_learning_rate: float = Field(default=1e-4, ge=0)
    """Of pretrained parts: MiniLM's layers and the vision tower's last convolution."""
    weight_decay: float = Field(default=0.2, ge=0)
    dropout: float = Field(default=0.2, ge=0, lt=1)
    token_dropout: float = Field(default=0.1, ge=0, lt=1)


class StudentSettings(_Settings):
    """The native text tower learns the teacher's text vectors, and both towers the contrastive loss."""

    steps: int = Field(default=400, ge=1)
    batch_size: int = Field(default=500, ge=2)
    spliced: int = Field(default=60_000, ge=0)
    """Further texts to distil on, made by joining captions at a shared word."""
    spliced_per_step: int = Field(default=250, ge=0)
    prefix_share: float = Field(default=0.5, ge=0, le=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    slow_learning_rate: float = Field(default=1e-4, ge=0)
    """Of the image tower, which starts as the teacher's."""
    weight_decay: float = Field(default=0.1, ge=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    unknown_share: float = Field(default=0.03, ge=0, lt=1)
    """Share of word pieces that are replaced by the unknown piece."""
    cosine_weight: float = Field(default=4.0, ge=0)
    ranking_weight: float = Field(default=1.0, ge=0)
    """Of the divergence between the teacher's and the student's ranking of all training pictures."""
    ranking_scale: float = Field(default=25.0, gt=0)
    contrastive_weight: float = Field(default=0.3, ge=0)
    image_weight: float = Field(default=0.5, ge=0)


class ImageRegularisation(_Settings):
    """Of the image tower's head, in both stages."""

    cells: int = Field(default=36, ge=1)
    """Grid cells that each step pools, drawn anew."""
    pooled_dropout: float = Field(default=0.3, ge=0, lt=1)
    hidden_dropout: float = Field(default=0.4, ge=0, lt=1)


class TrainSettings(_Settings):
    """What both stages share. Rates fall by a cosine to ``final_rate`` of their peak after a linear warm-up."""

    warmup_steps: int = Field(default=30, ge=0)
    final_rate: float = Field(default=0.02, ge=0, le=1)
    max_grad_norm: float = Field(default=1.0, gt=0)
    average_decay: float = Field(default=0.985, ge=0, lt=1)
    label_smoothing: float = Field(default=0.05, ge=0, lt=1)
    max_logit_scale: float = Field(default=60.0, gt=0)
    bf16: bool = True
    threads: int | None = Field(default=None, ge=1)
    validate_every_steps: int = Field(default=50, ge=1)
    texts_per_pass: int = Field(default=125, ge=1)
    """Captions of like length that go through a text tower together."""


class Config(_Settings):
    """A recipe of the task ``scorer``."""

    id: str
    description: str
    licence: str
    seed: int = 0
    data: DataSettings
    model: ModelSettings = ModelSettings()
    views: ViewOptions = ViewOptions()
    image: ImageRegularisation = ImageRegularisation()
    teacher: TeacherSettings = TeacherSettings()
    student: StudentSettings = StudentSettings()
    train: TrainSettings = TrainSettings()

    def open_clip_config(self, vocab_size: int, end_id: int) -> dict[str, Any]:
        """``open_clip_config.json`` of the model that the recipe makes."""
        model = self.model
        return {
            "model_cfg": {
                "embed_dim": model.embed_dim,
                "vision_cfg": {
                    "timm_model_name": model.vision,
                    "timm_pool": "avg",
                    "timm_proj": "mlp",
                    "image_size": model.image_size_px,
                },
                "text_cfg": {
                    "context_length": model.context_length,
                    "vocab_size": vocab_size,
                    "width": model.text_width,
                    "heads": model.text_heads,
                    "layers": model.text_layers,
                    "pool_type": "eos",
                    "eos_id": end_id,
                    "hf_tokenizer_name": "tokenizer.json",  # for local-dir: any name means "beside this file"
                },
            },
            "preprocess_cfg": {
                "mean": [0.5, 0.5, 0.5],
                "std": [0.5, 0.5, 0.5],
                "interpolation": "bicubic",
                "resize_mode": "squash",
            },
        }
