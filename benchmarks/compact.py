"""The compact decoder in our sessions against the same weights under ``generate`` of transformers, and against sessions
that nobody leaves: ``python -m benchmarks.compact --help``."""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from benchmarks.generate_twin import GenerateTwin
from benchmarks.pictures import random_jpeg
from benchmarks.report import add_record_option, hardware, markdown_table, record, say
from models.decoding import parse_decode
from models.decoding.loop import decode
from models.device import set_threads
from models.families.compact import CompactCaptioner
from models.images import load_image
from models.interfaces import DecodeState
from models.pipeline import load_pipeline
from models.rows import rows_of

Captions = list[tuple[int, ...]]
BEAMS, MOST_TOKENS = 3, 40
HEADER = ("decoder", "batch", "turns", "ms, median", "ms, least", "ms, most", "times as fast", "least", "most")


class NobodyLeaves:
    """A captioner whose images stay until the last of them is done, as in a batch of fixed rows."""

    def __init__(self, captioner: CompactCaptioner) -> None:
        self._captioner = captioner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._captioner, name)

    def start(self, memory: Tensor, prompts: list[str] | None = None) -> tuple[DecodeState, Tensor]:
        state, logits = self._captioner.start(memory, prompts)
        state.extra["images"] = torch.arange(len(memory))
        return state, logits

    def keep(self, state: DecodeState, images: Tensor) -> None:
        state.extra["images"] = state.extra["images"][images]

    def reorder(self, state: DecodeState, rows: Tensor) -> None:
        images = state.extra["images"]
        count = len(rows) // len(images)
        everybody = rows_of(torch.arange(len(state.memory[0][0])), count)
        if len(rows) > len(images) * state.cache.rows:  # the rows are widened
            self._captioner.reorder(state, rows)
            return
        own = rows_of(images, count)
        everybody[own] = rows % count + own // count * count
        self._captioner.reorder(state, everybody)

    def step(self, state: DecodeState, tokens: Tensor) -> Tensor:
        own = rows_of(state.extra["images"], state.cache.rows)
        everybody = torch.full((len(state.memory[0][0]) * state.cache.rows,), self._captioner.end_id)
        everybody[own] = tokens
        return self._captioner.step(state, everybody)[own]


def contestants(
    captioner: CompactCaptioner, memory: Tensor, options: dict[str, Any]
) -> dict[str, Callable[[], Captions]]:
    """Functions that decode all of ``memory``, the slower first."""
    strategy = parse_decode({"name": "beam", "options": {"beams": BEAMS, "max_tokens": MOST_TOKENS, **options}})
    twin, staying = GenerateTwin(captioner).eval(), NobodyLeaves(captioner)
    asked = {"num_beams": BEAMS, "max_new_tokens": MOST_TOKENS, "do_sample": False, "early_stopping": False}
    asked |= {"length_penalty": options["length_penalty"], "no_repeat_ngram_size": options["no_repeat_ngram"]}

    def generate() -> Captions:
        start = torch.full((len(memory), 1), captioner.start_id)
        rows = twin.generate(input_ids=start, encoder_hidden_states=memory, **asked)  # type: ignore[operator]
        return [_until_end(row[1:], captioner.end_id) for row in rows.tolist()]

    def ours(by: Any) -> Captions:
        return [found[0].tokens for found in decode(by, memory, strategy, batch=len(memory))]

    return {
        f"transformers {transformers.__version__} generate": generate,
        "a session that nobody leaves": lambda: ours(staying),
        "a session": lambda: ours(captioner),
    }


def _until_end(tokens: list[int], end: int) -> tuple[int, ...]:
    return tuple(tokens[: tokens.index(end)] if end in tokens else tokens)


@torch.inference_mode()
def measure(runs: dict[str, Callable[[], Captions]], turns: int) -> tuple[dict[str, list[float]], Captions]:
    """Milliseconds of each by turn, after one turn that warms up and shows that all give equal captions."""
    captions = {name: run() for name, run in runs.items()}
    first, *others = captions.values()
    assert all(other == first for other in others), "the captions differ"
    times_ms: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(turns):
        order = list(runs.items())
        for name, run in order if turn % 2 else reversed(order):
            began = time.perf_counter()
            run()
            times_ms[name].append((time.perf_counter() - began) * 1000)
    return times_ms, first


def rows_of_table(times_ms: dict[str, list[float]], batch: int) -> list[tuple[object, ...]]:
    """Rows under ``HEADER``; ratios are to the first, turn by turn."""
    base = next(iter(times_ms.values()))
    rows = []
    for name, own in times_ms.items():
        ratios = [first / each for first, each in zip(base, own, strict=True)]
        spread = [f"{value:.2f}" for value in (statistics.median(ratios), min(ratios), max(ratios))]
        rows.append((name, batch, len(own), statistics.median(own), min(own), max(own), *spread))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    threads = set_threads(options.threads, respect_omp=True)
    pipeline = load_pipeline("concise", scorer=None, device="cpu")
    captioner = pipeline.captioner
    assert isinstance(captioner, CompactCaptioner) and pipeline.card.decoding is not None
    own = {key: value for key, value in pipeline.card.decoding.options.items() if key != "beams"}
    say("## The compact decoder\n")
    say(f"- {hardware()}")
    say(
        f"- torch {torch.__version__}, {threads} threads, fp32; the memory of the pictures is given, captions are equal"
    )
    say(f"- beam {BEAMS}, at most {MOST_TOKENS} tokens, {own}; one turn before the others warms up")
    rows = []
    for batch in (32,) if options.quick else (1, 8, 32):
        memory = _memory(captioner, options.pictures, batch)
        times_ms, captions = measure(contestants(captioner, memory, own), 3 if options.quick else options.turns)
        lengths = [len(caption) + 1 for caption in captions]
        say(f"- batch {batch}: {statistics.mean(lengths):.1f} tokens a caption, {min(lengths)} to {max(lengths)}")
        rows += rows_of_table(times_ms, batch)
        first, *_, ours_ms = times_ms.values()
        record(options.record, f"compact, batch {batch}", [a / b for a, b in zip(first, ours_ms, strict=True)])
    say("\n" + markdown_table(HEADER, rows) + "\n")


@torch.inference_mode()
def _memory(captioner: CompactCaptioner, folder: Path | None, count: int) -> Tensor:
    if folder is None:
        bodies = [random_jpeg((320, 240), seed=seed) for seed in range(count)]
    else:
        bodies = [path.read_bytes() for path in sorted(folder.iterdir())[:count]]
    return captioner.encode(torch.stack([captioner.preprocess(load_image(body).image) for body in bodies]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.compact", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="batch 32 alone, three turns")
    parser.add_argument("--turns", type=int, default=7, help="of each, per row")
    parser.add_argument("--threads", type=int, help="torch threads (default: the usable cores)")
    parser.add_argument("--pictures", type=Path, help="a folder of pictures (default: random ones)")
    add_record_option(parser)
    return parser


if __name__ == "__main__":
    main()
