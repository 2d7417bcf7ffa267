"""``limner caption`` over a folder against the bare model in a loop: ``python -m benchmarks.folder --help``."""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import hardware, markdown_table, say
from models.cpus import usable_cores
from models.device import set_threads
from models.images import read_image
from models.pipeline import CaptionPipeline
from serving.folders.captioning import CaptionRows, HowToWrite, Place
from serving.folders.jsonl import JsonLines
from serving.folders.outputs import Destination
from serving.folders.run import LocalStage, run
from serving.folders.sources import Sources
from serving.folders.summary import Summary
from serving.local_models import Choice, Wish, choose

HEADER = ("round", "pictures", "bare images/s", "folder images/s", "ratio")


def bare(pipeline: CaptionPipeline, choice: Choice, files: Sequence[Path], batch: int) -> float:
    """Seconds of a loop that reads, decodes and captions, and writes nothing."""
    began = time.perf_counter()
    for first in range(0, len(files), batch):
        pipeline.caption([read_image(name).image for name in files[first : first + batch]], choice.strategy)
    return time.perf_counter() - began


def folder(pipeline: CaptionPipeline, choice: Choice, files: Sequence[Path], batch: int, workers: int) -> float:
    """Seconds of all that ``limner caption LIST --out FILE.jsonl`` does once the model is loaded."""
    with tempfile.TemporaryDirectory() as place:
        listed = Path(place, "list.txt")
        listed.write_text("".join(f"{name}\n" for name in files))
        rows = CaptionRows(Place(pipeline, choice.point), HowToWrite(choice.strategy))
        output = JsonLines(Destination(Path(place, "captions.jsonl")))
        summary = Summary()
        began = time.perf_counter()
        output.open(go_on=False)
        run(Sources([str(listed)]), LocalStage(lambda: rows, batch_size=batch, workers=workers), output, summary)
        output.close()
        seconds = time.perf_counter() - began
    assert (summary.captioned, summary.failed) == (len(files), 0)
    return seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both rates for each round, and the time of the whole command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="pictures")
    parser.add_argument("--model", default="dial")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pictures", type=int, default=1000, help="of each round; the rounds share none")
    parser.add_argument("--workers", type=int, default=max(1, usable_cores() // 2))
    parser.add_argument("--whole", action="store_true", help="the command over all pictures, too, with its start")
    args = parser.parse_args(arguments)
    threads = set_threads(None, respect_omp=True)
    choice = choose(Wish(args.model), None)
    pipeline = choice.load(device="cpu")
    files = sorted(path.resolve() for path in args.folder.iterdir() if path.is_file())
    how = f"{args.model}, its own decoding, fp32, batch {args.batch}; {args.workers} workers"
    say(f"{hardware()}; {threads} threads; {how}")
    bare(pipeline, choice, files[: 4 * args.batch], args.batch)  # warms up
    rows: list[tuple[object, ...]] = []
    ratios: list[float] = []
    for number in range(args.rounds):
        some = files[number * args.pictures : (number + 1) * args.pictures]
        times = {True: 0.0, False: 0.0}
        for is_bare in (True, False) if number % 2 else (False, True):  # neither is always the first
            times[is_bare] = (
                bare(pipeline, choice, some, args.batch)
                if is_bare
                else folder(pipeline, choice, some, args.batch, args.workers)
            )
        rates = [len(some) / times[each] for each in (True, False)]
        ratios.append(rates[1] / rates[0])
        rows.append((number + 1, len(some), *rates, f"{ratios[-1]:.3f}"))
    say(markdown_table(HEADER, rows))
    ratios.sort()
    say(f"folder / bare: median x{statistics.median(ratios):.3f}, from {ratios[0]:.3f} to {ratios[-1]:.3f}")
    if args.whole:
        whole(args.folder, args.model, args.batch)


def whole(pictures: Path, model: str, batch: int) -> None:
    """The command as people type it."""
    with tempfile.TemporaryDirectory() as place:
        words = ["caption", str(pictures), "--model", model, "--batch-size", str(batch), "--out", f"{place}/c.jsonl"]
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "models.cli", *words], check=True)
        seconds = time.perf_counter() - began
        number = len(Path(place, "c.jsonl").read_text().splitlines())
    say(f"limner caption: {number} pictures in {seconds:.1f} s, {number / seconds:.1f} images/s with its start")


if __name__ == "__main__":
    main()
