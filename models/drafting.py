"""How small a JPEG may be decoded for those who will look at it (``draft_px`` of ``models.images.load_image``)."""

SPARE = 2
"""Times the pixels that a model sees which a draft keeps on each side: what the decoder's coarse averaging leaves of
aliasing is then smoothed by the resizing after it."""


DRAFT_HELP = f"Decode large JPEGs at 1/2, 1/4 or 1/8, where that is still {SPARE} times what the models see: faster."


def draft_px(*sides_px: int | None) -> int | None:
    """The fewest pixels on a side for models that see so many; None where one of them needs pictures in full."""
    known = [side for side in sides_px if side is not None]
    return SPARE * max(known) if known and len(known) == len(sides_px) else None
