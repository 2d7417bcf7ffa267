"""BLIP-base against ``generate`` of transformers, and against what the machine can do: ``python -m benchmarks.blip``.

Random weights: the time does not depend on them, since every caption has the same number of tokens. How often captions
agree does: a random model hardly prefers one word to the next, so that a trained one agrees more often.
"""

import argparse
import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import BlipForConditionalGeneration

from benchmarks.blip_base import random_blip
from benchmarks.contest import HEADER, Captions, Group, measure, ours, pictures, theirs
from benchmarks.report import add_record_option, hardware, markdown_table, peak_memory_mib, say
from models.device import cpu_has_int8, set_threads
from models.families.blip import BlipCaptioner

BEAM: dict[str, Any] = {"name": "beam", "options": {"beams": 3}}


def captioner_of(model: BlipForConditionalGeneration, dtype: str) -> BlipCaptioner:
    """A captioner with the weights of ``model`` in ``dtype``: fp32, bf16 or int8."""
    captioner = BlipCaptioner(copy.deepcopy(model), None, None).eval()
    if dtype != "fp32":
        captioner.to(torch.bfloat16)
    captioner.precision = "int8" if dtype == "int8" else "stored"
    return captioner


@dataclass(frozen=True)
class Machine:
    """What this machine can do at the threads set."""

    bytes_per_s: float
    flops_per_s: dict[torch.dtype, float]


def measure_machine() -> Machine:
    """The best of a few tries: reading memory, and square products."""
    numbers = torch.ones(2**27)
    read_s = _best(lambda: numbers.sum())
    flops = {}
    for dtype in (torch.float32, torch.bfloat16):
        square = torch.randn(2048, 2048).to(dtype)
        flops[dtype] = 2 * 2048**3 / _best(lambda square=square: square @ square)
    return Machine(numbers.nbytes / read_s, flops)


def limit_s(model: BlipForConditionalGeneration, machine: Machine, dtype: str, images: int, tokens: int) -> float:
    """Products of the encoder and of the memory's keys and values at the matmul rate; then per token every weight of
    the decoder and every image's keys and values once from memory."""
    config, stored = model.config, torch.float32 if dtype == "fp32" else torch.bfloat16
    vision, text = config.vision_config, config.text_config
    positions = (vision.image_size // vision.patch_size) ** 2 + 1
    blocks = sum(p.numel() for p in model.vision_model.encoder.parameters())
    attention = 2 * positions * vision.hidden_size * vision.num_hidden_layers
    memory_kv = 2 * text.encoder_hidden_size * text.hidden_size * text.num_hidden_layers
    flops = 2 * positions * (blocks + attention + memory_kv) * images
    weights = sum(p.numel() for p in model.text_decoder.parameters()) - memory_kv
    weight_bytes = weights * {"fp32": 4, "bf16": 2, "int8": 1}[dtype]
    memory_bytes = 2 * positions * text.hidden_size * text.num_hidden_layers * images * stored.itemsize
    return flops / machine.flops_per_s[stored] + tokens * (weight_bytes + memory_bytes) / machine.bytes_per_s


def agreement(exact: Captions, found: Captions) -> str:
    """How many captions are equal, and how many tokens come before the first that differs."""
    pairs = list(zip(exact, found, strict=True))
    before = [next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a)) for a, b in pairs]
    equal = sum(a == b for a, b in pairs)
    return f"{equal} of {len(pairs)} captions equal, {sum(before)} of {sum(map(len, exact))} tokens before a difference"


@torch.inference_mode()
def drift(exact: BlipCaptioner, captioner: BlipCaptioner, pixels: Tensor) -> str:
    """How far the logits of the first word are from those of ``exact``, against how much these vary over words."""
    ends = [one.start(one.encode(pixels))[1].float() for one in (exact, captioner)]
    error = (ends[1] - ends[0]).std() / ends[0].std(dim=1).mean()
    return f"logits off by {float(error):.2%} of their standard deviation"


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    threads, turns = set_threads(options.threads, respect_omp=True), 2 if options.quick else options.turns
    machine, model = measure_machine(), random_blip()
    dtypes = ["fp32", "bf16"] + ["int8"] * cpu_has_int8()
    captioners = {dtype: captioner_of(model, dtype) for dtype in dtypes}
    pixels = pictures(options.pictures, model.config.vision_config.image_size)
    say("## BLIP-base against transformers\n")
    say(f"- {hardware()}; torch {torch.__version__}, transformers {transformers.__version__}, {threads} threads")
    say(f"- {options.tokens} tokens a caption, pixels in, captions out; {turns} turns of each after one that warms up")
    rates = ", ".join(f"{str(d).removeprefix('torch.')} {f / 1e9:.0f} GFLOP/s" for d, f in machine.flops_per_s.items())
    say(f"- memory {machine.bytes_per_s / 1e9:.1f} GB/s; products of 2048 x 2048: {rates}")
    say("- ratio: baseline / ours, median, least and most of the turns; the limit: weights once a token, memory once a")
    say("  token and image at that bandwidth, products of the encoder at that rate\n")
    groups = [_beam(model, captioners, machine, pixels[:batch], options.tokens) for batch in (1, 4)]
    for group in [*groups, _diverse(model, captioners["fp32"], machine, pixels[:1], options.tokens)]:
        say(markdown_table(HEADER, measure(group, turns, options.record)) + "\n")
    exact = theirs(model, pixels, options.tokens, beams=3)()
    for dtype, captioner in captioners.items():
        found = [one for part in pixels.split(4) for one in ours(captioner, part, options.tokens, BEAM)()]
        say(f"- {dtype}: {agreement(exact, found)}; {drift(captioners['fp32'], captioner, pixels[:4])}")
    say(f"- peak memory of all of them together: {peak_memory_mib():.0f} MiB")


def _beam(
    model: BlipForConditionalGeneration,
    captioners: dict[str, BlipCaptioner],
    machine: Machine,
    pixels: Tensor,
    tokens: int,
) -> Group:
    names = {dtype: f"beam 3, batch {len(pixels)}, {dtype}" for dtype in captioners}
    return Group(
        "transformers fp32",
        theirs(model, pixels, tokens, beams=3),
        {names[dtype]: ours(captioner, pixels, tokens, BEAM) for dtype, captioner in captioners.items()},
        len(pixels),
        {name: limit_s(model, machine, dtype, len(pixels), tokens) for dtype, name in names.items()},
    )


def _diverse(
    model: BlipForConditionalGeneration, captioner: BlipCaptioner, machine: Machine, pixels: Tensor, tokens: int
) -> Group:
    name, options = "diverse beam, 4 groups of 1, fp32", {"beams": 4, "groups": 4}
    greedy = ours(captioner, pixels, tokens, {"name": "greedy", "options": {}})
    return Group(
        "4 greedy runs, ours",
        lambda: [caption for _ in range(4) for caption in greedy()],
        {name: ours(captioner, pixels, tokens, {"name": "diverse_beam", "options": options})},
        1,
        {name: limit_s(model, machine, "fp32", 1, tokens)},
    )


def _best(run: Callable[[], object], tries: int = 5) -> float:
    times = []
    for _ in range(tries):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.blip", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=5, help="of each side, per row (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="two turns")
    parser.add_argument("--tokens", type=int, default=20, help="tokens of a caption (default: %(default)s)")
    parser.add_argument("--pictures", type=int, default=16, help="for the agreement (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="torch threads (default: the usable cores)")
    add_record_option(parser)
    return parser


if __name__ == "__main__":
    main()
