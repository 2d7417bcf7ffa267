"""Everything about a GPU in one short run, without data, Ray or trained weights: ``python -m benchmarks.gpu``.

Each section stands for itself: one that fails prints its traceback, the others go on, and the exit status is 1. With
``--device cpu --tiny`` it runs anywhere, to see that it works.
"""

import argparse
import copy
import platform
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.blip import ours, pictures, theirs
from benchmarks.gpu_models import Setup, on_device, random_compact, small_blip, small_pixels
from benchmarks.pictures import jpeg_files
from benchmarks.report import add_record_option, hardware, markdown_table, peak_memory_mib, record, say
from models.cpus import usable_cores
from models.decoding import parse_decode
from models.decoding.loop import decode
from models.device import pick_device, set_threads
from models.families.base import TorchCaptioner
from models.families.blip import BlipCaptioner
from models.families.compact.config import CompactConfig
from models.images import load_image

GREEDY: dict[str, Any] = {"name": "greedy", "options": {}}
BEAM: dict[str, Any] = {"name": "beam", "options": {"beams": 3}}
_WARM_UP = 10
"""Runs of each before the first turn: a shape gets its graph when it has been asked for a few times."""


def take_turns(runs: dict[str, Callable[[], object]], setup: Setup) -> dict[str, list[float]]:
    """Milliseconds of each by turn; every other turn goes backwards."""
    for run in runs.values():
        for _ in range(1 if setup.tiny else _WARM_UP):
            run()
    times_ms: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(setup.turns):
        for name in list(runs) if turn % 2 else list(reversed(runs)):
            _wait(setup.device)
            began = time.perf_counter()
            runs[name]()
            _wait(setup.device)
            times_ms[name].append((time.perf_counter() - began) * 1000)
    return times_ms


def _lines(what: str, images: int, times_ms: dict[str, list[float]]) -> list[tuple[object, ...]]:
    """Under ``HEADER``; ratios are to the first, turn by turn."""
    base = next(iter(times_ms.values()))
    lines = []
    for name, own in times_ms.items():
        ratios = [first / each for first, each in zip(base, own, strict=True)]
        spread = [f"{value:.2f}" for value in (statistics.median(ratios), min(ratios), max(ratios))]
        median = statistics.median(own)
        lines.append((what, name, images, f"{median:.2f}", images / median * 1000, *spread))
    return lines


HEADER = ("what", "by", "batch", "ms, median", "images/s", "times as fast", "least", "most")


def captions(setup: Setup, file: Path | None) -> None:
    """From pixels on the device to captions of a fixed number of tokens, against ``generate`` of transformers."""
    eager = copy.copy(setup.captioner)
    eager.graphs = False
    lines = []
    for what, raw, beams in (("greedy", GREEDY, 1), ("beam 3", BEAM, 3)):
        for batch in setup.batches:
            size = setup.blip.config.vision_config.image_size
            pixels = pictures(batch, size).to(setup.device, setup.dtype)
            runs = {
                "transformers": theirs(setup.blip, pixels, setup.tokens, beams),
                "limner, no graphs": ours(eager, pixels, setup.tokens, raw),
                "limner": ours(setup.captioner, pixels, setup.tokens, raw),
            }
            times_ms = take_turns(runs, setup)
            lines += _lines(what, batch, times_ms)
            base, *_, own = times_ms.values()
            record(file, f"GPU, {what}, batch {batch}", [a / b for a, b in zip(base, own, strict=True)])
    say(markdown_table(HEADER, lines))
    say(f"\nEqual captions of the last batch, with graphs and without: {_agreement(eager, setup.captioner, setup)}.")


@torch.inference_mode()
def _agreement(one: BlipCaptioner, other: BlipCaptioner, setup: Setup) -> str:
    """In the device's dtype: graphs attend to masked columns where plain steps have none, which may round otherwise."""
    size, batch = setup.blip.config.vision_config.image_size, setup.batches[-1]
    pixels = pictures(batch, size).to(setup.device, setup.dtype)
    found = [ours(each, pixels, setup.tokens, GREEDY)() for each in (one, other)]
    return f"{sum(a == b for a, b in zip(*found, strict=True))} of {batch}"


def encoder(setup: Setup, _file: Path | None) -> None:
    """The vision encoder alone, pixels on the device."""
    lines = []
    for batch in setup.batches:
        pixels = pictures(batch, setup.blip.config.vision_config.image_size).to(setup.device, setup.dtype)

        @torch.inference_mode()
        def modules(pixels: torch.Tensor = pixels) -> object:
            return setup.blip.vision_model(pixel_values=pixels).last_hidden_state

        @torch.inference_mode()
        def fused(pixels: torch.Tensor = pixels) -> object:
            return setup.captioner.encode(pixels)

        lines += _lines("encode", batch, take_turns({"transformers": modules, "limner": fused}, setup))
    say(markdown_table(HEADER, lines))


def compact(setup: Setup, _file: Path | None) -> None:
    """A model of the bundled ones' size, from pixels on the host to captions of at most so many tokens."""
    captioner, lines = setup.compact, []
    for what, raw in (("greedy", GREEDY), ("beam 3", BEAM)):
        for batch in setup.batches:
            pixels = pictures(batch, 6 * 64)[:, :, : captioner.config.image_size_px, : captioner.config.image_size_px]
            run = ours(captioner, pixels.contiguous(), setup.tokens, raw)  # type: ignore[arg-type]
            lines += _lines(what, batch, take_turns({"limner": run}, setup))
    say(markdown_table(HEADER[:5], [line[:5] for line in lines]))


def scheduling(setup: Setup, _file: Path | None) -> None:
    """The captioner replica's scheduler while a batch of pictures waits at any time, against whole batches."""
    from benchmarks.gpu_scheduling import measure  # deferred: what it needs of the server may be absent

    waiting = setup.batches[-1]
    lines = measure(setup, waiting=waiting, pictures=waiting * (2 if setup.tiny else 8))
    say(markdown_table(("captions", "whole batches, images/s", "scheduler, images/s"), lines))


def preprocessing(setup: Setup, _file: Path | None) -> None:
    """From JPEG files to pixels on the host, by threads."""
    files, captioner = jpeg_files(4 if setup.tiny else 64), setup.captioner
    lines = []
    for threads in sorted({1, usable_cores()}):
        with ThreadPoolExecutor(threads) as pool:

            def run(pool: ThreadPoolExecutor = pool) -> object:
                return list(pool.map(lambda data: captioner.preprocess(load_image(data).image), files))

            run()
            began = time.perf_counter()
            run()
            lines.append((threads, len(files) / (time.perf_counter() - began)))
    say(markdown_table(("threads", "images/s"), lines))


def equality(setup: Setup, _file: Path | None) -> None:
    """Small fp32 captioners on the CPU and on the device: every caption must be equal."""
    count = 8 if setup.tiny else 200
    blip = BlipCaptioner(small_blip(), setup.captioner.image_processor, None)
    blip.image_processor = type(blip.image_processor)(size=dict.fromkeys(("height", "width"), blip.image_size_px[0]))
    sizes = {"image_size_px": 64, "vocab_size": 300, "encoder_layers": 1, "width": 64, "feed_forward": 128}
    for name, captioner in (("blip", blip), ("compact", random_compact(CompactConfig.model_validate(sizes)))):
        pixels = small_pixels(captioner, count)
        for raw in (GREEDY, BEAM):
            there, here = (_tokens(captioner, torch.device(d), pixels, raw) for d in (setup.device, "cpu"))
            equal = sum(a == b for a, b in zip(here, there, strict=True))
            say(f"- {name}, {raw['name']}: {equal} of {count} captions equal, {len(set(here))} different ones")
            assert equal == count, f"{name}: captions on {setup.device} differ from those on the CPU"


@torch.inference_mode()
def _tokens(captioner: TorchCaptioner, device: torch.device, pixels: torch.Tensor, raw: dict[str, Any]) -> list[Any]:
    """Captions, by batches of 50: later ones run as graphs."""
    moved, strategy = on_device(captioner, device, torch.float32), parse_decode({**raw, "options": raw["options"]})
    with torch.backends.cudnn.flags(allow_tf32=False):  # convolutions would take it by default
        parts = [decode(moved, moved.encode(part), strategy, batch=len(part)) for part in pixels.split(50)]
    return [image[0].tokens for part in parts for image in part]


SECTIONS: dict[str, Callable[[Setup, Path | None], None]] = {
    "captions": captions,
    "encoder": encoder,
    "compact": compact,
    "scheduling": scheduling,
    "preprocessing": preprocessing,
    "equality": equality,
}


def run_sections(names: Sequence[str], setup: Setup, file: Path | None) -> list[str]:
    """Run and print these; returns those that failed."""
    failed = []
    for name in names:
        say(f"\n### {name}: {(SECTIONS[name].__doc__ or '').strip()}\n")
        began = time.perf_counter()
        try:
            SECTIONS[name](setup, file)
        except Exception:
            failed.append(name)
            say(f"```\n{traceback.format_exc()}```")
        say(f"\n{time.perf_counter() - began:.0f} s; {_memory(setup.device)}")
    return failed


def _memory(device: torch.device) -> str:
    """The most held so far."""
    host = f"peak memory of the process {peak_memory_mib():.0f} MiB"
    if device.type != "cuda":
        return host
    return f"{host}, on the GPU {torch.cuda.max_memory_allocated(device) / 2**20:.0f} MiB"


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    device = pick_device(options.device)
    threads = set_threads(options.threads, respect_omp=True)
    setup = Setup(device, options.tiny, options.tokens, 2 if options.tiny else options.turns)
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU"
    say(f"## {card}\n")
    say(f"- {hardware()}; Python {platform.python_version()}, {threads} torch threads")
    say(f"- torch {torch.__version__}, CUDA {torch.version.cuda}, transformers {transformers.__version__}")
    say(f"- {setup.dtype}, random weights, {setup.tokens} tokens a caption; medians of {setup.turns} turns")
    failed = run_sections(options.only or list(SECTIONS), setup, options.record)
    say(f"\nFailed: {', '.join(failed)}" if failed else "\nAll sections ran.")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (default: %(default)s)")
    parser.add_argument("--tiny", action="store_true", help="models and batches of a size for tests")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), help="these sections (default: all)")
    parser.add_argument("--tokens", type=int, default=20, help="tokens of a caption (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=5, help="of each side, per row (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="torch threads on the host (default: the usable cores)")
    add_record_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
