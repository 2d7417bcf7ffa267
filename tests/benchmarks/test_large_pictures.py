"""Large pictures that benchmarks make."""

import io

from PIL import Image

from benchmarks.large_pictures import Enlarger, encoded


def test_enlarged_pictures_keep_their_looks_and_get_grain() -> None:
    enlarger = Enlarger((80, 60))
    grey = Image.new("RGB", (8, 6), (128, 128, 128))
    first, second = enlarger.enlarged(grey), enlarger.enlarged(grey)
    assert first.size == (80, 60) and first.tobytes() != second.tobytes()
    levels = first.tobytes()
    assert abs(sum(levels) / len(levels) - 128) < 1 and max(levels) - min(levels) > 16


def test_mosaics_are_full_of_tiles_and_files_are_of_the_kind_asked_for() -> None:
    mosaic = Enlarger((40, 30)).mosaic([Image.new("RGB", (9, 9), "red"), Image.new("RGB", (9, 9), "blue")], (10, 10))
    colours = {colour for _, colour in mosaic.getcolors() or ()}
    assert mosaic.size == (40, 30) and colours == {(255, 0, 0), (0, 0, 255)}
    assert {kind: Image.open(io.BytesIO(encoded(mosaic, kind))).format for kind in ("JPEG", "PNG", "WEBP")} == {
        kind: kind for kind in ("JPEG", "PNG", "WEBP")
    }
