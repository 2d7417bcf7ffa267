"""Captioners as objects: families, decoding, checkpoints, scorer, image loading. Imports no torch by itself."""

__version__ = "0.1.0"
