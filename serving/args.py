"""What the application is started with: ``build_app`` takes it from Python, a Serve config file or the command line."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from models.catalog import DEFAULT_MODEL, DEFAULT_SCORER
from serving.drift import DriftOptions, ScoreBaseline

_MIB = 1 << 20


class Limits(BaseModel):
    """Every bound on what a client may ask for. A refusal is always limner's own, never Ray's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_body_bytes: int = Field(default=32 * _MIB, gt=0)
    max_image_bytes: int = Field(default=20 * _MIB, gt=0)
    max_image_px: int = Field(default=64_000_000, gt=0)
    max_images: int = Field(default=32, gt=0, description="images of one request")
    max_rows: int = Field(default=64, gt=0, description="captions x beams of one image")
    max_queue_images: int = Field(default=256, gt=0, description="images that wait in one replica")
    max_waiting_px: int = Field(default=192_000_000, gt=0, description="decoded pixels that wait in one replica")
    deadline_s: float = Field(default=120.0, gt=0, description="from arrival at the replica to the answer")
    body_timeout_s: float = Field(default=30.0, gt=0, description="for receiving the whole body")

    @model_validator(mode="after")
    def _one_request_fits_the_queue(self) -> Self:
        if self.max_queue_images < self.max_images:
            raise ValueError(
                f"max_queue_images ({self.max_queue_images}) is below max_images ({self.max_images}): "
                "the largest allowed request would never fit the queue"
            )
        return self


class MonitorArgs(BaseModel):
    """How the quality of captions is watched while they are served."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sample_share: float = Field(
        default=0.1, ge=0, le=1, description="of the images that no request wants scored: how many are, off its path"
    )
    max_waiting_images: int = Field(default=32, gt=0, description="sampled images that wait in one replica")
    max_waiting_bytes: int = Field(default=32 * _MIB, gt=0, description="of them, encoded")
    scorer_device: str = Field(default="cpu", description="where the sample is scored; Ray is asked for no GPU")
    drift: DriftOptions = DriftOptions()
    baselines: dict[str, ScoreBaseline] = Field(
        default={}, description="healthy CLIPScores by model id; other models start with their first live ones"
    )


class AppArgs(BaseModel):
    """Arguments of ``serving.app:build_app``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: tuple[str, ...] = Field(default=(DEFAULT_MODEL,), min_length=1, description="ids or folders, default first")
    models_dir: Path | None = Field(default=None, description="where ids are looked up; None: the bundled models")
    scorer: str | None = Field(default=DEFAULT_SCORER, description="None: no caption is scored")
    device: str = "auto"
    dtype: str = Field(default="default", description="default: fp32 on a CPU, bf16 on CUDA")
    threads: int | None = Field(default=None, gt=0, description="torch threads of the captioner; None: one per core")
    max_batch_images: int = Field(default=32, gt=0)
    max_batch_rows: int = Field(default=192, gt=0, description="images x beams of one forward pass")
    decode_threads: int = Field(default=2, gt=0, description="threads that open images")
    limits: Limits = Limits()
    monitor: MonitorArgs = MonitorArgs()

    @property
    def scores_a_sample(self) -> bool:
        """Whether a process of its own scores a sample of what no request wants scored."""
        return self.scorer is not None and self.monitor.sample_share > 0
