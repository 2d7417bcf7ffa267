"""What opening and resizing pictures takes on one core, with and without drafts, and what drafts do to captions:
``python -m benchmarks.preprocessing --help``."""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import BlipImageProcessorPil

from benchmarks.draft_captions import HEADER as CAPTIONS_HEADER
from benchmarks.draft_captions import agreement
from benchmarks.large_pictures import Enlarger, Size, encoded
from benchmarks.pictures import jpeg_files
from benchmarks.report import add_record_option, hardware, markdown_table, record, say
from models.catalog import DEFAULT_MODEL, DEFAULT_SCORER
from models.device import set_threads
from models.families.resizing import to_pixels
from models.images import load_image
from models.pipeline import CaptionPipeline
from serving.local_models import Wish, choose

HEADER = ("what", "picture", "turns", "ms before", "ms now", "times as fast", "least", "most")
SIZES: tuple[Size, ...] = ((500, 375), (2000, 1500), (4000, 3000))
_SQUARE_PX = 224

Run = Callable[[], object]


def contestants(pipeline: CaptionPipeline) -> list[tuple[str, str, Run, Run]]:
    """What, of which picture, as it was and as it is."""
    photograph = load_image(jpeg_files(1)[0]).image
    found: list[tuple[str, str, Run, Run]] = []
    for size in SIZES:
        large = Enlarger(size).enlarged(photograph)
        for kind in ("JPEG", "PNG", "WEBP") if size == SIZES[1] else ("JPEG",):
            data = encoded(large, kind)
            name = f"{kind} of {size[0]}x{size[1]}, {len(data) // 1024} KiB"
            found.append(("opened: full, draft", name, *_opened(pipeline, data)))
            found.append(("opened and resized: full, draft", name, *_prepared(pipeline, data)))
        name = f"{size[0]}x{size[1]}"
        processor = BlipImageProcessorPil()
        before, now = _by(_processed, processor, large), _by(to_pixels, processor, large)
        found.append(("BLIP: the processor, to_pixels", name, before, now))
        before, now = _by(_expression, large), _by(pipeline.captioner.preprocess, large)
        found.append(("compact: as an expression, in place", name, before, now))
    return found


def _opened(pipeline: CaptionPipeline, data: bytes) -> tuple[Run, Run]:
    return lambda: load_image(data), lambda: load_image(data, draft_px=pipeline.draft_px)


def _prepared(pipeline: CaptionPipeline, data: bytes) -> tuple[Run, Run]:
    prepare = pipeline.captioner.preprocess
    return lambda: prepare(load_image(data).image), lambda: prepare(load_image(data, draft_px=pipeline.draft_px).image)


def _by(function: Callable[..., object], *arguments: object) -> Run:
    return lambda: function(*arguments)


def _processed(processor: BlipImageProcessorPil, image: Image.Image) -> torch.Tensor:
    """As ``to_pixels``, with the processor's own resizing."""
    pixels: torch.Tensor = processor(images=image, return_tensors="pt")["pixel_values"][0]
    return pixels


def _expression(image: Image.Image) -> torch.Tensor:
    """As the family ``compact``, with an array for each operation."""
    pixels = np.asarray(image.resize((_SQUARE_PX, _SQUARE_PX), Image.Resampling.BICUBIC), dtype=np.float32)
    return torch.from_numpy(pixels / 127.5 - 1).permute(2, 0, 1)


def measure(before: Run, now: Run, turns: int) -> tuple[list[float], list[float]]:
    """Milliseconds of processor time of both by turn; which goes first alternates. One turn before warms up."""
    times_ms: dict[Run, list[float]] = {before: [], now: []}
    for turn in range(turns + 1):
        for run in (before, now) if turn % 2 else (now, before):
            began = time.thread_time()
            run()
            times_ms[run].append((time.thread_time() - began) * 1000)
    return times_ms[before][1:], times_ms[now][1:]


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    set_threads(1)
    choice = choose(Wish(options.model), None)
    pipeline = choice.load(scorer=options.scorer, device="cpu")
    say("## Preprocessing\n")
    say(f"- {hardware()}; one thread; {options.model} and {options.scorer} need {pipeline.draft_px} px on a side")
    say("- pictures are enlarged with grain, quality 90; of the two, which goes first alternates from turn to turn")
    say("- times are of the processor, which other work on the machine lengthens less than those of the clock\n")
    rows: list[tuple[object, ...]] = []
    for what, name, before, now in contestants(pipeline) if options.turns else ():
        times_ms = measure(before, now, options.turns)
        ratios = [a / b for a, b in zip(*times_ms, strict=True)]
        record(options.record, f"{what}, {name}", ratios)
        spread = [f"{value:.2f}" for value in (statistics.median(ratios), min(ratios), max(ratios))]
        rows.append((what, name, options.turns, *map(statistics.median, times_ms), *spread))
    if rows:
        say(markdown_table(HEADER, rows) + "\n")
    if options.data is not None:
        set_threads(options.threads, respect_omp=True)
        say(f"Captions of {options.model} in its own decoding, scored by {options.scorer}, split {options.split}.\n")
        for found in agreement(pipeline, choice.strategy, options):
            say(markdown_table(CAPTIONS_HEADER, found) + "\n")


def _size(word: str) -> Size:
    width, height = map(int, word.split("x"))
    return width, height


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.preprocessing", description=" ".join((__doc__ or "").split()))
    parser.add_argument("--turns", type=int, default=15, help="of each pair whose times are compared; 0: no times")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--scorer", default=DEFAULT_SCORER)
    parser.add_argument("--threads", type=int, help="torch threads for captions (default: the usable cores)")
    parser.add_argument(
        "--data", type=Path, help="dataset_*.json in Karpathy's format: compare captions of its pictures"
    )
    parser.add_argument("--images", type=Path, help="its folder of pictures (default: images, beside it)")
    parser.add_argument("--split", default="val")
    parser.add_argument("--pictures", type=int, default=500, help="of the split, at the most")
    parser.add_argument("--size", type=_size, action="append", help="WxH of these pictures; repeatable")
    parser.add_argument("--tiles", type=Path, help="a folder of detailed pictures: mosaics of them are compared, too")
    add_record_option(parser)
    return parser


if __name__ == "__main__":
    main()
