"""The ``compact`` family: the embedded default, an EfficientNet-Lite grid and a small transformer decoder."""

from models.families.compact.captioner import CompactCaptioner

__all__ = ["CompactCaptioner"]
