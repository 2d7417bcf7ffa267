"""A stage of the scorer's training: a run of ``training.trainer`` whose batches are drawn step by step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils.data import DataLoader, Dataset
from transformers import TrainingArguments

from training.averaging import trained_tensors
from training.metrics.retrieval import own_ranks, summarize
from training.scorer.config import TrainSettings
from training.scorer.corpus import Corpus
from training.seeds import seed_of
from training.trainer import StepTrainer, checkpoints, load_best, read_best

SELECT_BY = "recall"
_PICTURES_PER_PASS = 250

Draw = Callable[[np.random.Generator], dict[str, Any]]
"""One batch, from the step's own generator."""


class DualModule(Protocol):
    """What a stage trains: a module that returns ``{"loss", ...}`` for a batch and encodes for validation."""

    image: nn.Module

    def encode_captions(self, corpus: Corpus, prefix: bool) -> Tensor: ...


class _Steps(Dataset[dict[str, Any]]):
    """The batches of a run, each a function of (seed, step)."""

    def __init__(self, draw: Draw, steps: int, seed: int) -> None:
        self._draw = draw
        self._steps = steps
        self._seed = seed

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: int) -> dict[str, Any]:
        return self._draw(np.random.default_rng(seed_of(self._seed, "batch", step)))


class _Retrieval:
    """Text-to-image retrieval on the validation split, with and without the prefix."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    @torch.no_grad()
    def run(self, module: Any) -> dict[str, float]:
        """R@k of both kinds; ``recall`` is the sum over k without prefix. The module is in eval mode meanwhile."""
        module.eval()
        own = torch.from_numpy(self._corpus.owner)
        images = encode_pictures(module.image, self._corpus, view=0)
        values: dict[str, float] = {}
        for name, prefix in (("", False), ("prefix_", True)):
            found = summarize(own_ranks(module.encode_captions(self._corpus, prefix), images, own))
            values |= {f"{name}{key}": value for key, value in found.items() if key.startswith("r_at_")}
        values[SELECT_BY] = values["r_at_1"] + values["r_at_5"] + values["r_at_10"]
        module.train()
        return values


class _StageTrainer(StepTrainer):
    """Steps in their order, one batch each."""

    def get_train_dataloader(self) -> Any:
        steps = cast(Dataset[Any], self.train_dataset)
        return self.accelerator.prepare(DataLoader(steps, batch_size=1, shuffle=False, collate_fn=_only))


@dataclass(frozen=True)
class _SelectBy:
    metric: str = SELECT_BY
    mode: Literal["max", "min"] = "max"


def run_stage(
    folder: Path,
    module: nn.Module,
    draw: Draw,
    validation: Corpus,
    *,
    steps: int,
    rates: tuple[float, float, Sequence[str]],
    weight_decay: float,
    settings: TrainSettings,
    seed: int,
) -> dict[str, float]:
    """Train ``module``, continuing what is in ``folder``, give it its best averaged weights and return their values.

    Args:
        rates: learning rate, the slow one, and the starts of the names of slow parameters.

    Raises:
        DataError: the loss is not finite.
    """
    folder.mkdir(parents=True, exist_ok=True)
    retrieval = _Retrieval(validation)
    trainer = _StageTrainer(
        module,
        _arguments(folder, steps, rates[0], settings, seed),
        _Steps(draw, steps, seed),
        lambda: retrieval.run(module),
        groups=_parameter_groups(module, rates, weight_decay),
        average_decay=settings.average_decay,
        select=_SelectBy(),
    )
    found = checkpoints(folder)
    trainer.train(resume_from_checkpoint=str(found[-1]) if found else None)
    load_best(folder, module)
    module.eval()
    best = read_best(folder)
    assert best is not None  # the last step of a run always validates
    return cast(dict[str, float], best["values"])


@torch.no_grad()
def encode_pictures(image: nn.Module, corpus: Corpus, view: int) -> Tensor:
    """Unit vectors (B, D) of one view of every picture."""
    parts = []
    for start in range(0, corpus.pictures, _PICTURES_PER_PASS):
        pictures = range(start, min(start + _PICTURES_PER_PASS, corpus.pictures))
        parts.append(image(corpus.grid(pictures, [view] * len(pictures))))
    return unit(torch.cat(parts))


def unit(vectors: Tensor) -> Tensor:
    """The rows in fp32 at norm 1."""
    return normalize(vectors.float(), dim=-1)


def _only(batches: list[dict[str, Any]]) -> dict[str, Any]:
    return batches[0]


def _arguments(folder: Path, steps: int, rate: float, settings: TrainSettings, seed: int) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(folder),
        seed=seed,
        max_steps=steps,
        learning_rate=rate,
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr_rate": settings.final_rate},
        warmup_steps=min(settings.warmup_steps, steps - 1),
        max_grad_norm=settings.max_grad_norm,
        bf16=settings.bf16,
        use_cpu=not torch.cuda.is_available(),
        eval_strategy="steps",
        eval_steps=min(settings.validate_every_steps, steps),
        save_strategy="steps",
        save_steps=min(settings.validate_every_steps, steps),
        logging_steps=min(settings.validate_every_steps, steps),
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
    )


def _parameter_groups(
    module: nn.Module, rates: tuple[float, float, Sequence[str]], weight_decay: float
) -> list[dict[str, Any]]:
    """Matrices with weight decay, vectors and scalars without; names that start as ``rates[2]`` at the slow rate."""
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in trained_tensors(module).items():
        groups.setdefault((name.startswith(tuple(rates[2])), parameter.ndim > 1), []).append(parameter)
    return [
        {"params": members, "lr": rates[1] if slow else rates[0], "weight_decay": weight_decay if matrix else 0.0}
        for (slow, matrix), members in groups.items()
    ]
