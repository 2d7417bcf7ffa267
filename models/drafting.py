"""How small a JPEG may be decoded for those who will look at it (``draft_px`` of ``models.images.load_image``)."""

SPARE = 2
"""Times the pixels that a model sees which a draft keeps on each side. By ``benchmarks.preprocessing`` captions of
enlarged photographs then change as often as when these are saved once more as JPEGs; with 1 much more often."""

DRAFT_BY_DEFAULT = False
"""As with reduced precision, who wants the speed says so: captions are as good, but not all of them the same."""

DRAFT_HELP = f"Decode large JPEGs at 1/2, 1/4 or 1/8, where that is still {SPARE} times what the models see: faster."


def draft_px(*sides_px: int | None) -> int | None:
    """The fewest pixels on a side for models that see so many; None where one of them needs pictures in full."""
    known = [side for side in sides_px if side is not None]
    return SPARE * max(known) if known and len(known) == len(sides_px) else None
