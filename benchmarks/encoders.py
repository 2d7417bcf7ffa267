"""BLIP-base's vision encoder by transformers, ONNX Runtime and ours: ``python -m benchmarks.encoders``.

ONNX Runtime takes part where it is installed: ``pip install -e .[bench]``.
"""

import argparse
import importlib.util
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from benchmarks.blip import captioner_of
from benchmarks.blip_base import random_blip
from benchmarks.contest import pictures
from benchmarks.report import hardware, markdown_table, say
from models.device import set_threads

HEADER = ("encoder", "batch", "ms per picture", "times as fast as transformers", "from", "to", "off by")
Encode = Callable[[Tensor], Tensor]


class _States(nn.Module):
    """The encoder with one output, as an export wants it."""

    def __init__(self, vision: Any) -> None:
        super().__init__()
        self._vision = vision

    def forward(self, pixels: Tensor) -> Tensor:
        states: Tensor = self._vision(pixel_values=pixels).last_hidden_state
        return states


def onnx_encoder(vision: Any, folder: Path, threads: int) -> Encode:
    """The encoder in ONNX Runtime, fp32, all graph optimisations, as many threads."""
    import onnxruntime  # optional

    file = folder / "vision.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = {"pixels": {0: torch.export.Dim("batch", min=1, max=64)}}
        torch.onnx.export(_States(vision), (pictures(2, 384),), file, dynamic_shapes=shapes, verbose=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    (name,) = (given.name for given in session.get_inputs())
    return lambda pixels: torch.from_numpy(session.run(None, {name: pixels.numpy()})[0])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.encoders", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=5, help="of each, per row (default: %(default)s)")
    options = parser.parse_args(arguments)
    threads, model = set_threads(None), random_blip()
    states, ours = _States(model.vision_model).eval(), {dtype: captioner_of(model, dtype) for dtype in ("fp32", "bf16")}
    say("## BLIP-base's vision encoder\n")
    say(f"- {hardware()}; torch {torch.__version__}, transformers {transformers.__version__}, {threads} threads")
    say("- off by: the root mean square of what differs from transformers in fp32, relative to that of the states\n")
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        runs: dict[str, Encode] = {"transformers, fp32": states}
        if importlib.util.find_spec("onnxruntime") is not None:
            with torch.inference_mode(False), torch.no_grad():
                runs["ONNX Runtime, fp32"] = onnx_encoder(model.vision_model, Path(folder), threads)
        runs |= {f"limner, {dtype}": captioner.encode for dtype, captioner in ours.items()}
        rows = [row for batch in (1, 4) for row in _rows(runs, pictures(batch, 384), options.turns)]
    say(markdown_table(HEADER, rows) + "\n")


def _rows(runs: dict[str, Encode], pixels: Tensor, turns: int) -> list[tuple[object, ...]]:
    found = {name: run(pixels).float() for name, run in runs.items()}
    exact = next(iter(found.values()))
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(turns):
        for name in runs if turn % 2 else reversed(runs):
            began = time.perf_counter()
            runs[name](pixels)
            seconds[name].append(time.perf_counter() - began)
    base = next(iter(seconds.values()))
    rows: list[tuple[object, ...]] = []
    for name, own in seconds.items():
        ratios = [first / each for first, each in zip(base, own, strict=True)]
        spread = [f"{value:.2f}" for value in (statistics.median(ratios), min(ratios), max(ratios))]
        off = float((found[name] - exact).norm() / exact.norm())
        rows.append((name, len(pixels), statistics.median(own) / len(pixels) * 1000, *spread, f"{off:.1e}"))
    return rows


if __name__ == "__main__":
    main()
