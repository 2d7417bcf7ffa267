"""The architecture of a compact captioner, as stored in ``config.json``."""

import re

from pydantic import BaseModel, ConfigDict, Field, model_validator


class CompactConfig(BaseModel):
    """Sizes that fix the tensors of a compact captioner. Frozen: a change makes other weights.

    Bounds from above are far beyond what is trained: a file must not make a server build until its memory is gone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    vision: str = "tf_efficientnet_lite0"
    """timm name of the convolutional encoder; its batch norms are folded into the convolutions."""
    stem_blocks: int = Field(default=7, ge=1, le=7)
    """Blocks of the encoder that training always keeps frozen; the rest, and its last convolution, can be trained."""
    image_size_px: int = Field(default=224, ge=32, le=1024)
    vocab_size: int = Field(ge=8, le=1_000_000)
    width: int = Field(default=256, ge=8, le=8192)
    heads: int = Field(default=8, ge=1)
    encoder_layers: int = Field(default=0, ge=0, le=64)
    """Transformer layers over the grid of image features."""
    decoder_layers: int = Field(default=4, ge=1, le=64)
    feed_forward: int = Field(default=1024, ge=8, le=65_536)
    max_positions: int = Field(default=64, ge=8, le=4096)
    """Longest caption in tokens, the start token included."""
    pad_id: int = Field(default=0, ge=0)
    start_id: int = Field(default=2, ge=0)
    end_id: int = Field(default=3, ge=0)

    @model_validator(mode="after")
    def _fits(self) -> "CompactConfig":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if max(self.pad_id, self.start_id, self.end_id) >= self.vocab_size or self.start_id == self.end_id:
            raise ValueError(f"pad_id, start_id and end_id must be below {self.vocab_size}, start and end differ")
        if not re.fullmatch(r"tf_efficientnet_lite[0-4]", self.vision):
            raise ValueError(f"vision {self.vision!r} is none of tf_efficientnet_lite0 to tf_efficientnet_lite4")
        return self
