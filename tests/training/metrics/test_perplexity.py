"""Perplexity under a tiny random GPT-2 against a slow twin that scores one caption at a time."""

import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from models.errors import CheckpointError, RequestError
from tests.training.metrics.helpers import compute, remove_start_token, texts, write_language_model
from training.metrics import build_metrics

CAPTIONS = ("a dog runs", "a cat sits on grass", "two dogs", "zebra", "a dog runs")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(tmp_path_factory.mktemp("lm"))


def slow(folder: Path, captions: tuple[str, ...], start: bool = True) -> list[tuple[float, int]]:
    """Negative log-likelihood and tokens of each caption, token by token."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    found = []
    for caption in captions:
        ids = ([tokenizer.bos_token_id] if start else []) + tokenizer.convert_tokens_to_ids(caption.split())
        total = 0.0
        for end in range(1, len(ids)):
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([ids[:end]])).logits[0, -1]
            total -= float(logits.log_softmax(0)[ids[end]])
        found.append((total, max(0, len(ids) - 1)))
    return found


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_equals_the_slow_twin(folder: Path, start: bool, batch_size: int) -> None:
    counts = slow(folder, CAPTIONS, start)
    scored = [(total, tokens) for total, tokens in counts if tokens]
    values = compute(
        "perplexity", texts(*CAPTIONS), model=str(folder), start_token=start, batch_size=batch_size, device="cpu"
    )
    expected = math.exp(sum(total for total, _ in scored) / sum(tokens for _, tokens in scored))
    assert values["perplexity"] == pytest.approx(expected, rel=1e-5)
    own = [math.exp(total / tokens) for total, tokens in scored]
    assert values["mean_perplexity"] == pytest.approx(sum(own) / len(own), rel=1e-5)


def test_captions_may_be_written_as_sentences(folder: Path) -> None:
    plain = compute("perplexity", texts("A dog runs ."), model=str(folder), device="cpu")
    written = compute("perplexity", texts("a dog runs"), model=str(folder), device="cpu", as_sentence=True)
    # The tokenizer of the test cuts the full stop off a word, as those of real models do.
    assert written == pytest.approx(plain)


def test_empty_captions_are_left_out_and_the_reader_is_told(folder: Path) -> None:
    metric = build_metrics([{"name": "perplexity", "options": {"model": str(folder), "device": "cpu"}}])["perplexity"]
    with_empty, without = texts("a dog", "", " "), texts("a dog")
    assert metric.compute(with_empty) == pytest.approx(metric.compute(without))
    assert metric.notes(with_empty) == ("2 empty captions left out",)
    assert metric.notes(without) == ()
    assert metric.compute(texts("", "")) == {"perplexity": 0.0, "mean_perplexity": 0.0}


def test_a_caption_longer_than_the_model_is_cut(tmp_path: Path) -> None:
    short = write_language_model(tmp_path, positions=4)
    cut = compute("perplexity", texts("a dog runs on grass"), model=str(short), device="cpu")
    assert cut == pytest.approx(compute("perplexity", texts("a dog runs"), model=str(short), device="cpu"))


def test_the_model_is_looked_for_at_once(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="model: is required"):
        build_metrics(["perplexity"])
    with pytest.raises(CheckpointError):
        build_metrics([{"name": "perplexity", "options": {"model": str(tmp_path), "device": "cpu"}}])


def test_a_model_without_a_start_token_is_refused_unless_it_is_not_wanted(tmp_path: Path) -> None:
    folder = write_language_model(tmp_path)
    remove_start_token(folder)
    with pytest.raises(RequestError, match="has no start token; set start_token=false"):
        compute("perplexity", texts("a dog"), model=str(folder), device="cpu")
    assert compute("perplexity", texts("a dog"), model=str(folder), device="cpu", start_token=False)
