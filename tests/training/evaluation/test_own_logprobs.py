"""log p(caption | picture) against one caption at a time, step by step."""

from pathlib import Path

import pytest
import torch

from models.families.compact import CompactCaptioner
from models.families.fake import FakeCaptioner
from models.interfaces import Captioner
from tests.training.conftest import TinyData
from tests.training.support import write_dataset
from training.data.selection import Selection
from training.evaluation import own_logprobs
from training.evaluation.own_logprobs import caption_logprobs

CAPTIONS = ["a dog", "the dog runs on grass", "", "a child plays in the grass"]


def slow_logprob(captioner: Captioner, caption: str, pixels: torch.Tensor) -> float:
    """By the steps of decoding."""
    with torch.inference_mode():
        state, logits = captioner.start(captioner.encode(pixels[None]))
        total = 0.0
        for token in [*captioner.tokenize([caption], 20)[0], captioner.end_id]:
            total += float(logits.float().log_softmax(-1)[0, token])
            logits = captioner.step(state, torch.tensor([token]))
    return total


@pytest.mark.parametrize("tokens_per_pass", [1, 8, 1024])
def test_equal_to_decoding_step_by_step(
    captioner: CompactCaptioner, data: TinyData, monkeypatch: pytest.MonkeyPatch, tokens_per_pass: int
) -> None:
    monkeypatch.setattr(own_logprobs, "_TOKENS_PER_PASS", tokens_per_pass)
    examples = data.examples[:3]
    found = caption_logprobs(captioner, CAPTIONS, examples)
    pixels = [captioner.preprocess(example.load().image) for example in examples]
    slow = [[slow_logprob(captioner, caption, picture) for picture in pixels] for caption in CAPTIONS]
    assert torch.allclose(found, torch.tensor(slow), atol=1e-4)
    assert found.shape == (4, 3)


def test_a_captioner_without_weights_has_probabilities_too(tmp_path: Path) -> None:
    examples, _ = Selection(write_dataset(tmp_path)).read()
    done: list[int] = []
    found = caption_logprobs(FakeCaptioner(), ["a red dog"], examples, lambda count, total: done.append(count))
    assert found.shape == (1, 4)
    assert (found < 0).all() and len(set(found[0].tolist())) == 4
    assert done == [1, 2, 3, 4]
