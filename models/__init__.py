"""Captioners as objects: families, decoding, checkpoints, scorer, image loading. Imports no torch by itself."""
