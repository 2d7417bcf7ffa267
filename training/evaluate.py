"""Evaluation of a captioner: captions for a split, then every metric."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from models.catalog import find_captioner
from models.clip_scorer import ClipScorer, load_scorer
from models.decoding import parse_decode
from models.decoding.strategy import Strategy
from models.device import pick_device, pick_dtype
from models.interfaces import Caption
from models.pipeline import CaptionPipeline, load_pipeline
from training.data import Example
from training.data.selection import Progress, Selection, image_batches
from training.metrics import available_metrics, build_metrics
from training.metrics.interface import Metric, MetricInputs, Need, ScorerFeatures
from training.metrics.measure import check_needs, measure, pair, tokenize_pairs
from training.metrics.tokenizer import Tokenizer, choose_tokenizer
from training.report import Evaluation


def evaluate(
    model: str,
    data: Selection,
    *,
    decode: Mapping[str, Any] | None = None,
    scorers: Sequence[str] = (),
    metrics: Sequence[str | Mapping[str, Any]] | None = None,
    tokenizer: str = "auto",
    batch_size: int = 32,
    models_dir: Path | None = None,
    device: str = "auto",
    dtype: str = "fp32",
    progress: Progress | None = None,
) -> Evaluation:
    """The metrics of ``model`` on one split, one caption per image.

    Args:
        decode: ``{"name", "options"}`` as in a request; None is the model's own default.
        scorers: references as ``models.clip_scorer.load_scorer`` takes; metrics that need one are given under each.
        metrics: names or ``{"name", "options"}``; None is every metric whose needs are met.
        tokenizer: ``auto``, ``java`` or ``python``, for BLEU and CIDEr.

    Raises:
        LimnerError: whatever is wrong with names, options, data, images or weights. All but the images is checked
            before the first caption is generated, Java included.
    """
    chosen = _choose_metrics(metrics, scored=bool(scorers), java=tokenizer != "python")
    needs_tokens = any("references" in metric.needs for metric in chosen.values())
    cutter = choose_tokenizer(tokenizer) if needs_tokens else None
    strategy = parse_decode(decode, find_captioner(model, models_dir).card.decoding)
    examples, report = data.read()
    loaded = [load_scorer(ref, models_dir=models_dir, device=device) for ref in scorers]
    pipeline = load_pipeline(model, models_dir=models_dir, scorer=None, device=device, dtype=dtype)
    run = _caption(pipeline, strategy, examples, loaded, batch_size, progress)
    inputs = _inputs(examples, run.captions, cutter)
    features = [_features(scorer, inputs.captions, images) for scorer, images in zip(loaded, run.images, strict=True)]
    context = {
        "split": data.split,
        "images": len(examples),
        **_conditions(strategy, cutter, loaded),
        "data": data.describe(),
        "data_report": report.summary(),
        **_where(device, dtype),
        "batch_size": batch_size,
        **run.timing(),
    }
    rows = tuple(_row(example, caption) for example, caption in zip(examples, run.captions, strict=True))
    return Evaluation(model, context, tuple(measure(chosen, inputs, features)), rows)


@dataclass(frozen=True)
class _Batch:
    """What one batch took."""

    images: int
    seconds: float
    stages_ms: Mapping[str, float]


@dataclass
class _Run:
    """What the pass over the images gathers."""

    images: list[list[torch.Tensor]]
    """Per scorer, the features (b, D) of each batch."""
    captions: list[Caption] = field(default_factory=list)
    batches: list[_Batch] = field(default_factory=list)

    def timing(self) -> dict[str, Any]:
        """Seconds per image, from preprocessing to text; the first batch warms up where there are more."""
        timed = self.batches[1:] or self.batches
        images = sum(batch.images for batch in timed)
        stages = {name: sum(batch.stages_ms[name] for batch in timed) / images for name in timed[0].stages_ms}
        return {
            "seconds_per_image": round(sum(batch.seconds for batch in timed) / images, 6),
            "timed_images": images,
            "stages_ms_per_image": {name: round(ms, 3) for name, ms in stages.items()},
            "threads": torch.get_num_threads(),
        }


def _caption(
    pipeline: CaptionPipeline,
    strategy: Strategy,
    examples: Sequence[Example],
    scorers: Sequence[ClipScorer],
    batch_size: int,
    progress: Progress | None,
) -> _Run:
    """One caption per example, and the image features of every scorer, in one pass over the pictures."""
    run = _Run(images=[[] for _ in scorers])
    for part, images in image_batches(examples, batch_size, progress):
        first = (strategy.seed or 0) + len(run.captions)
        started = time.perf_counter()
        result = pipeline.caption(images, strategy, seeds=list(range(first, first + len(part))))
        run.batches.append(_Batch(len(part), time.perf_counter() - started, result.timing_ms))
        run.captions.extend(captions[0] for captions in result.captions)
        for scorer, gathered in zip(scorers, run.images, strict=True):
            gathered.append(scorer.encode_images(images))
    return run


def _conditions(strategy: Strategy, cutter: Tokenizer | None, scorers: Sequence[ClipScorer]) -> dict[str, Any]:
    return {
        "decode": {"name": strategy.name, "options": strategy.options.model_dump(mode="json")},
        "tokenizer": cutter.name if cutter else None,
        "scorers": [scorer.scorer_id for scorer in scorers],
    }


def _where(device: str, dtype: str) -> dict[str, str]:
    """Device and precision as chosen, not as asked for."""
    chosen = pick_device(device)
    return {"device": str(chosen), "dtype": str(pick_dtype(dtype, chosen)).removeprefix("torch.")}


def _choose_metrics(specs: Sequence[str | Mapping[str, Any]] | None, *, scored: bool, java: bool) -> dict[str, Metric]:
    """The metrics asked for, or all that can be computed."""
    given: set[Need] = {"references", "finish_reasons"}
    if scored:
        given.add("scorer")
    if specs is None:
        return available_metrics(given, java=java)[0]
    chosen = build_metrics(specs)
    check_needs(chosen, given)
    return chosen


def _inputs(examples: Sequence[Example], captions: Sequence[Caption], cutter: Tokenizer | None) -> MetricInputs:
    ids = tuple(example.image_id for example in examples)
    texts = tuple(caption.text for caption in captions)
    tokenized = None
    if cutter is not None:
        references = {example.image_id: example.captions for example in examples}
        tokenized = tokenize_pairs(pair(zip(ids, texts, strict=True), references), cutter)
    return MetricInputs(ids, texts, tokenized, tuple(caption.finish_reason for caption in captions))


def _features(scorer: ClipScorer, captions: Sequence[str], images: Sequence[torch.Tensor]) -> ScorerFeatures:
    return ScorerFeatures(
        scorer=scorer.scorer_id,
        prefix=scorer.prefix,
        weight=scorer.weight,
        images=torch.cat(list(images)),
        texts=scorer.encode_texts(captions, prefix=False),
        prefixed_texts=scorer.encode_texts(captions, prefix=True),
    )


def _row(example: Example, caption: Caption) -> dict[str, Any]:
    return {
        "image_id": example.image_id,
        "file": example.file_name,
        "caption": caption.text,
        "logprob": caption.logprob,
        "tokens": caption.tokens,
        "finish_reason": caption.finish_reason,
    }
