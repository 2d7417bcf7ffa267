"""What SMILE's loss and the feature cache save in training: ``python -m benchmarks.training --help``.

The contestants take turns, so that whatever else the machine does meets both. Memory is what torch allocates beyond
what lives before: activations and gradients, without the weights and their gradients.
"""

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.pictures import random_jpeg
from benchmarks.report import add_record_option, hardware, markdown_table, record, say
from models.catalog import find_captioner
from models.device import set_threads
from models.families.base import TorchCaptioner
from models.interfaces import TeacherForced
from models.pipeline import load_captioner
from training.augment import ViewOptions, make_view
from training.batches import CaptionItems, collator
from training.data import Example
from training.features import FeatureCache, build_cache
from training.objectives.interface import Batch, Rows
from training.objectives.smile import Smile

CAPTIONS, LENGTH, VOCABULARY, WIDTH = 32, 30, 30_524, 768
"""BLIP's, and the batch of the paper's recipe."""
IMAGES = 24
"""Of one training step that is measured."""
TEXT = "a man in a red shirt is riding a bicycle down a street past a parked car"

Step = Callable[[], None]


class Head(TorchCaptioner):
    """An output layer without the rest: what would reach it is given in place of the picture's features."""

    family = "head"

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(WIDTH, VOCABULARY)
        self.vocab_size = VOCABULARY

    def output_layer(self) -> tuple[Tensor, Tensor | None]:
        return self.model.weight, self.model.bias

    def encode_from_stem(self, features: Tensor) -> Tensor:
        return features

    def forward_teacher(
        self, memory: Tensor, *_: object, at: Tensor | None = None, output_logits: bool = True, **__: object
    ) -> TeacherForced:  # type: ignore[override]
        states = memory[at]
        return TeacherForced(self.project(states) if output_logits else None, states)


def masked_full_softmax(head: Head, states: Tensor, labels: Tensor) -> Tensor:
    """SMILE as its authors wrote it: all logits of (C, T, D) states, those of words that the caption (C, T) does not
    have at minus infinity but for the first position, one cross-entropy over the whole vocabulary."""
    logits = head.project(states)
    mask = torch.zeros(len(labels), VOCABULARY).scatter_(1, labels, 1).unsqueeze(1).repeat(1, labels.shape[1], 1)
    mask[:, 0] = 1
    masked = logits.masked_fill(mask == 0, -torch.inf)
    return nn.functional.cross_entropy(masked.view(-1, VOCABULARY), labels.view(-1))


def heads() -> dict[str, Step]:
    """One step of each formulation, loss and gradients, from the same states and labels; they are equal."""
    torch.manual_seed(0)
    head, states = Head(), torch.randn(CAPTIONS, LENGTH, WIDTH, requires_grad=True)
    labels = torch.randint(1000, VOCABULARY, (CAPTIONS, LENGTH))
    rows = Rows(labels, labels, torch.zeros_like(labels))
    objective = Smile(Smile.Options())

    def ours() -> Tensor:
        return objective(head, Batch(torch.arange(CAPTIONS), states, rows)).total

    def papers() -> Tensor:
        return masked_full_softmax(head, states, labels)

    def step(loss: Callable[[], Tensor]) -> Step:
        def run() -> None:
            loss().backward()
            head.zero_grad(set_to_none=True)
            states.grad = None

        return run

    torch.testing.assert_close(ours(), papers())
    return {"masked full softmax": step(papers), "limner": step(ours)}


def peak_bytes(step: Step) -> int:
    """Most bytes that torch held at once beyond those before the step."""
    step()
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    held = most = 0
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]  # type: ignore[union-attr]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


class Pictures:
    """Training pictures on disk, made for this, with five captions each."""

    def __init__(self, folder: Path, count: int) -> None:
        self.examples = []
        for number in range(count):
            path = folder / f"{number}.jpg"
            path.write_bytes(random_jpeg((500, 375), number))
            self.examples.append(Example(str(number), path, (TEXT,) * 5))


class Uncached(FeatureCache):
    """Features that are computed each time they are asked for."""

    def __init__(self, captioner: TorchCaptioner, examples: Sequence[Example], views: ViewOptions) -> None:
        self._captioner, self._examples, self._options = captioner, examples, views
        self.views = views.count

    def __len__(self) -> int:
        return len(self._examples)

    def get(self, index: int, view: int) -> Tensor:
        example = self._examples[index]
        image = make_view(example.load().image, view, self._options, 0, example.image_id)
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            return self._captioner.encode_stem(self._captioner.preprocess(image)[None])[0].float().clone()


def training_steps(folder: Path, captions_per_image: int) -> dict[str, Step]:
    """A step of the SMILE recipe with and without the cache: reading, collating, loss, gradients, update."""
    captioner = load_captioner(find_captioner("concise"), device="cpu")
    assert isinstance(captioner, TorchCaptioner)
    captioner.train_encoder(False)
    captioner.train()
    trained = [parameter for name, parameter in captioner.named_parameters() if ".vision." not in name]
    optimiser = torch.optim.AdamW(trained, lr=1e-6, fused=True)
    objective = Smile(Smile.Options(mle_weight=0.5))
    pictures, views = Pictures(folder, 2 * IMAGES), ViewOptions()
    caches = {
        "no cache": Uncached(captioner, pictures.examples, views),
        "limner": build_cache(folder / "features", captioner, pictures.examples, views, 0),
    }
    collate = collator(packed=True)
    turn = 0

    def step(cache: FeatureCache) -> Step:
        items = CaptionItems(
            captioner, pictures.examples, cache, max_tokens=30, seed=0, captions_per_image=captions_per_image
        )

        def run() -> None:
            nonlocal turn
            turn += 1
            batch = collate([items[turn, (turn * IMAGES + number) % len(items)] for number in range(IMAGES)])["batch"]
            optimiser.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):  # as the recipe has it
                loss = objective(captioner, batch).total
            loss.backward()
            optimiser.step()

        return run

    return {name: step(cache) for name, cache in caches.items()}


def ratios(steps: dict[str, Step], turns: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds of the first, of the second, and how many times faster the second is, turn by turn."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for run in steps.values():
        run()
    for _ in range(turns):
        for name, run in steps.items():
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
    first, second = seconds.values()
    return first, second, [a / b for a, b in zip(first, second, strict=True)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.training", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=7, help="of each contestant")
    add_record_option(parser)
    options = parser.parse_args(arguments)
    set_threads(None)
    say("## SMILE's loss\n")
    say(f"- {hardware()}, {torch.get_num_threads()} torch threads, fp32; {options.turns} turns")
    say(f"- {CAPTIONS} captions of {LENGTH} tokens, {VOCABULARY} words, width {WIDTH}, lambda 0; loss and gradients\n")
    both = heads()
    memory = {name: peak_bytes(step) - _WEIGHT_GRADIENTS for name, step in both.items()}
    papers, ours, times = ratios(both, options.turns)
    record(options.record, "loss", times)
    record(options.record, "loss, memory", [memory["masked full softmax"] / memory["limner"]])
    rows = [
        ("masked full softmax", 1000 * statistics.median(papers), memory["masked full softmax"] / 2**20, "", ""),
        ("limner", 1000 * statistics.median(ours), memory["limner"] / 2**20, _spread(times), _times(memory)),
    ]
    say(markdown_table(("loss", "ms", "peak MiB", "times faster (range)", "of the memory"), rows) + "\n")
    say("## A training step\n")
    say(f"- `concise`, SMILE (lambda 0.5), {IMAGES} JPEGs of 500x375 px a step, frozen encoder; read to update\n")
    rows = []
    for captions, what in ((1, "independent pairs"), (5, "5 captions an image")):
        with tempfile.TemporaryDirectory() as folder:
            without, with_cache, times = ratios(training_steps(Path(folder), captions), options.turns)
            record(options.record, f"step, {what}", times)
            pace = [IMAGES / statistics.median(seconds) for seconds in (without, with_cache)]
            rows.append((what, *pace, _spread(times)))
    say(markdown_table(("captions", "no cache, images/s", "limner, images/s", "times faster (range)"), rows) + "\n")


_WEIGHT_GRADIENTS = 4 * VOCABULARY * (WIDTH + 1)


def _spread(times: Sequence[float]) -> str:
    return f"{statistics.median(times):.2f} ({min(times):.2f} to {max(times):.2f})"


def _times(memory: dict[str, int]) -> str:
    return f"1/{memory['masked full softmax'] / memory['limner']:.1f}"


if __name__ == "__main__":
    main()
