"""Milliseconds per picture of a captioner, stage by stage: ``python -m benchmarks.captioning --help``."""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image

from benchmarks.pictures import jpeg_files
from benchmarks.report import hardware, markdown_table, peak_memory_mib, percentile, say
from models.catalog import DEFAULT_SCORER
from models.decoding import parse_decode
from models.decoding.strategy import Strategy
from models.device import pick_device, pick_dtype, set_threads
from models.images import load_image
from models.pipeline import CaptionPipeline, load_pipeline

STRATEGIES: dict[str, dict[str, Any]] = {
    "greedy": {"name": "greedy"},
    "beam 3": {"name": "beam", "options": {"beams": 3}},
}
STAGES = ("encode", "decode", "score")
HEADER = ("decoding", "batch", "runs", "encode", "decode", "score", "p50", "p95", "min", "images/s", "tokens/image")


@dataclass(frozen=True)
class Run:
    """One call of the pipeline."""

    images: int
    total_ms: float
    stages_ms: dict[str, float]
    tokens: int


def time_call(pipeline: CaptionPipeline, images: Sequence[Image], strategy: Strategy) -> Run:
    """One call, timed; captions are scored when there is a scorer."""
    began = time.perf_counter()
    result = pipeline.caption(images, strategy, score=pipeline.scorer is not None)
    total_ms = (time.perf_counter() - began) * 1000
    tokens = sum(caption.tokens for captions in result.captions for caption in captions)
    return Run(len(images), total_ms, result.timing_ms, tokens)


def measure(
    pipeline: CaptionPipeline, pictures: Sequence[Image], strategy: Strategy, batch: int, *, seconds: float
) -> list[Run]:
    """Runs over the pictures in turn, at least three, for about ``seconds``; two more before them warm up."""
    supply = cycle(pictures)
    runs: list[Run] = []
    for _ in range(2):
        time_call(pipeline, list(islice(supply, batch)), strategy)
    began = time.perf_counter()
    while len(runs) < 3 or time.perf_counter() - began < seconds:
        runs.append(time_call(pipeline, list(islice(supply, batch)), strategy))
    return runs


def row_of(name: str, batch: int, runs: Sequence[Run]) -> tuple[object, ...]:
    """A row under ``HEADER``: milliseconds per picture, of the stages the medians."""
    totals = [run.total_ms / run.images for run in runs]
    stages = [statistics.median(run.stages_ms[stage] / run.images for run in runs) for stage in STAGES]
    images = sum(run.images for run in runs)
    rate = images / sum(run.total_ms for run in runs) * 1000
    tokens = sum(run.tokens for run in runs) / images
    return (
        name,
        batch,
        len(runs),
        *stages,
        percentile(totals, 0.5),
        percentile(totals, 0.95),
        min(totals),
        rate,
        tokens,
    )


def decode_row(files: Sequence[bytes], pictures: Sequence[Image]) -> str:
    """One line on how long opening a JPEG file takes, which no other number holds."""
    times = []
    for data in files:
        began = time.perf_counter()
        load_image(data)
        times.append((time.perf_counter() - began) * 1000)
    pixels = statistics.mean(picture.width * picture.height for picture in pictures) / 1e6
    p50, p95 = percentile(times, 0.5), percentile(times, 0.95)
    return f"JPEG decode (apart): p50 {p50:.1f} ms, p95 {p95:.1f} ms, {pixels:.2f} Mpx on average"


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    threads = set_threads(options.threads, respect_omp=True)
    files = jpeg_files(options.pictures)
    pictures = [load_image(data).image for data in files]
    scorer = None if options.no_scorer else options.scorer
    began = time.perf_counter()
    pipeline = load_pipeline(
        options.model, models_dir=options.models_dir, scorer=scorer, device=options.device, dtype=options.dtype
    )
    loading_s = time.perf_counter() - began
    say(f"## Captioning: `{pipeline.model_id}`, scorer `{pipeline.scorer_id}`\n")
    say(f"- {hardware()}")
    say(f"- torch {torch.__version__}, {threads} threads, {_precision(options.dtype, options.device)}")
    say(f"- loading the models: {loading_s:.1f} s; {len(files)} pictures")
    say(f"- {decode_row(files, pictures)}")
    rows = []
    for name, raw in STRATEGIES.items():
        for batch in options.batch:
            runs = measure(pipeline, pictures, parse_decode(raw), batch, seconds=options.seconds)
            rows.append(row_of(name, batch, runs))
    say(f"- peak memory: {peak_memory_mib():.0f} MiB")
    say("- milliseconds per picture; stages are medians, p50, p95 and min are of whole calls after two that warm up\n")
    say(markdown_table(HEADER, rows) + "\n")


def _precision(dtype: str, device: str) -> str:
    chosen = pick_device(device)
    return f"{str(pick_dtype(dtype, chosen)).removeprefix('torch.')} on {chosen}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.captioning", description=__doc__)
    parser.add_argument("--model", default="concise", help="id, folder or hub id (default: %(default)s)")
    parser.add_argument("--models-dir", type=Path, help="folder of more models")
    parser.add_argument("--scorer", default=DEFAULT_SCORER, help="as limner takes it (default: %(default)s)")
    parser.add_argument("--no-scorer", action="store_true", help="leave the scores out")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="default", help="default, fp32, bf16, int8 or auto")
    parser.add_argument("--threads", type=int, help="torch threads (default: the usable cores)")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32], help="pictures per call")
    parser.add_argument("--pictures", type=int, default=32, help="different pictures")
    parser.add_argument("--seconds", type=float, default=8.0, help="measured time per row")
    return parser


if __name__ == "__main__":
    main()
