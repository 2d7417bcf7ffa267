"""Metric inputs from plain captions, and one-call computation by name."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from models.interfaces import FinishReason
from training.metrics import build_metrics
from training.metrics.interface import MetricInputs, ScorerFeatures
from training.metrics.measure import pair, tokenize_pairs
from training.metrics.tokenizer import PythonPtbTokenizer, Tokenizer

LANGUAGE_MODEL_WORDS = ["<unk>", "<s>", "a", "dog", "cat", "runs", "sits", ".", "A", "two", "dogs", "on", "grass"]


def texts(*captions: str) -> MetricInputs:
    """Captions alone."""
    return MetricInputs(tuple(str(index) for index in range(len(captions))), captions)


def paired(
    captions: Mapping[str, str], references: Mapping[str, Sequence[str]], tokenizer: Tokenizer | None = None
) -> MetricInputs:
    """Captions with tokenised references, by image id."""
    pairs = pair(captions.items(), references)
    tokenized = tokenize_pairs(pairs, tokenizer or PythonPtbTokenizer())
    return MetricInputs(tuple(pairs.captions), tuple(pairs.captions.values()), tokenized)


def ended(*reasons: FinishReason) -> MetricInputs:
    """Captions that ended so."""
    names = tuple("x" for _ in reasons)
    return MetricInputs(names, names, finish_reasons=reasons)


def scored(images: torch.Tensor, captions: torch.Tensor, prefixed: torch.Tensor | None = None) -> MetricInputs:
    """Captions known by their features (N, D) under a scorer of weight 2.5."""
    names = tuple(str(index) for index in range(len(images)))
    prefixed = captions if prefixed is None else prefixed
    features = ScorerFeatures("toy", "A photo depicts ", 2.5, images, captions, prefixed)
    return MetricInputs(names, names, features=features)


def sets(
    *candidates: Sequence[str],
    references: Sequence[Sequence[str]] | None = None,
    training: Sequence[Sequence[str]] | None = None,
) -> MetricInputs:
    """Sets of captions, the first of each its image's caption; the references are the captions themselves if not given.

    Everything is lower-case words without punctuation, so tokens are the texts.
    """
    ids = [str(index) for index in range(len(candidates))]
    pairs = pair(
        zip(ids, (of[0] for of in candidates), strict=True),
        dict(zip(ids, references or [[of[0]] for of in candidates], strict=True)),
    )
    return MetricInputs(
        tuple(ids),
        tuple(pairs.captions.values()),
        tokenize_pairs(pairs, PythonPtbTokenizer(), candidates=candidates, training=training),
        candidates=tuple(map(tuple, candidates)),
        training_captions=None if training is None else tuple(map(tuple, training)),
    )


def everything() -> MetricInputs:
    """Inputs of five images that give every need, with ties, repeats and an empty caption."""
    candidates = [
        ["a dog runs", "two dogs run on grass", "a dog"],
        ["", "a cat sits", "cat"],
        ["a dog runs", "a brown dog runs runs", "the dog the dog the dog"],
        ["two men ride horses", "a man rides a horse", "men on horses"],
        ["a red car", "a car parked on a street", "cars"],
    ]
    references = [
        ["a dog is running", "a brown dog runs on the grass"],
        ["a cat sits on a mat"],
        ["the dog runs fast", "dogs"],
        ["a man rides a horse", "two men with a horse"],
        ["a red car on the street", "parked car"],
    ]
    training = [["a dog runs", "dog on grass"], ["a cat sits on a sofa"], ["a man on a horse"], ["cars on a street"]]
    unit = torch.nn.functional.normalize(torch.randn(17, 6, generator=torch.Generator().manual_seed(1)), dim=1)
    features = ScorerFeatures(
        "toy",
        "A photo depicts ",
        2.5,
        images=unit[:5],
        texts=unit[5:10],
        prefixed_texts=(unit[:5] + unit[5:10]) / (unit[:5] + unit[5:10]).norm(dim=1, keepdim=True),
        prefixed_references=tuple(unit[10 : 10 + len(of)] for of in references),
        distractors=unit[12:14],
        training_images=unit[13:17],
    )
    return replace(
        sets(*candidates, references=references, training=training),
        features=features,
        finish_reasons=("stop", "length", "stop", "stop", "stop"),
        logprobs=torch.randn(5, 7, generator=torch.Generator().manual_seed(2)) - 30,
    )


def compute(name: str, inputs: MetricInputs, **options: object) -> dict[str, float]:
    """What the metric called ``name`` returns."""
    return build_metrics([{"name": name, "options": options}])[name].compute(inputs)


def write_language_model(folder: Path, *, positions: int = 16) -> Path:
    """The folder, now with a random GPT-2 of a few kilobytes that knows ``LANGUAGE_MODEL_WORDS``."""
    words = {word: index for index, word in enumerate(LANGUAGE_MODEL_WORDS)}
    tokenizer = FastTokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()  # type: ignore[assignment]
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>").save_pretrained(folder)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(words), n_positions=positions, n_embd=8, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1
    )
    model = GPT2LMHeadModel(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)  # far from uniform, so that every token's likelihood is its own
    model.save_pretrained(folder)
    return folder


def remove_start_token(folder: Path) -> None:
    """Takes the start token away from the folder's tokenizer."""
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    del config["bos_token"]
    path.write_text(json.dumps(config), encoding="utf-8")
