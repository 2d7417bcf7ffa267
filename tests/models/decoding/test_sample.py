from collections import Counter

import numpy as np
import pytest
import torch
from transformers import TopKLogitsWarper, TopPLogitsWarper

from models.decoding.loop import decode
from models.decoding.sample import Sample
from models.decoding.sampling import draw, keep_top_k, keep_top_p, uniforms
from tests.models.decoding.test_beam import texts
from tests.models.decoding.toy import ToyCaptioner, random_model, table


def sample(**options: object) -> Sample:
    return Sample(Sample.Options.model_validate({"max_tokens": 9} | options))


def test_an_images_captions_do_not_depend_on_its_batch() -> None:
    models = [random_model(seed) for seed in range(4)]
    strategy, seeds = sample(temperature=1.3, top_p=0.95), [11, 12, 11, 2**63 - 1]
    together = ToyCaptioner(*models)
    batch = decode(together, together.memory, strategy, batch=4, num_captions=5, seeds=seeds)
    for model, seed, expected in zip(models, seeds, batch, strict=True):
        alone = ToyCaptioner(model)
        assert decode(alone, alone.memory, strategy, batch=1, num_captions=5, seeds=[seed]) == [expected]


def test_more_captions_keep_the_first_ones() -> None:
    captioner = ToyCaptioner(random_model(1))
    few, many = (
        decode(captioner, captioner.memory, sample(seed=5), batch=1, num_captions=count)[0] for count in (2, 6)
    )
    assert set(few) <= set(many)


def test_seeds() -> None:
    captioner = ToyCaptioner(random_model(1), random_model(1))

    def run(strategy: Sample, seeds: list[int | None] | None = None) -> list[list[str]]:
        found = decode(captioner, captioner.memory, strategy, batch=2, num_captions=8, seeds=seeds)
        return [texts(captioner, hypotheses) for hypotheses in found]

    own = run(sample(seed=7))
    assert own[0] == own[1] == run(sample(), [7, 7])[0] == run(sample(seed=7), [None, 8])[0]
    assert run(sample(seed=7), [None, 8])[1] != own[0]
    assert run(sample()) != run(sample())  # fresh entropy


def test_logprob_is_the_models_own_whatever_the_temperature() -> None:
    captioner = ToyCaptioner(table({"": {"a": 0.75, "b": 0.25}}))
    strategy = sample(temperature=2.0, seed=0)
    (found,) = decode(captioner, captioner.memory, strategy, batch=1, num_captions=20)
    probability = {"a.": 0.75, "b.": 0.25}
    assert {text for text in texts(captioner, found)} == set(probability)
    assert [h.logprob for h in found] == pytest.approx([np.log(probability[t]) / 2 for t in texts(captioner, found)])
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


def test_captions_come_as_often_as_they_are_probable() -> None:
    captioner = ToyCaptioner(table({"": {"a": 0.5, "b": 0.3, "c": 0.2}, "a": {"d": 0.1, ".": 0.9}}))
    (found,) = decode(captioner, captioner.memory, sample(seed=3), batch=1, num_captions=4000)
    counts = Counter(texts(captioner, found))
    for text, probability in (("a.", 0.45), ("ad.", 0.05), ("b.", 0.3), ("c.", 0.2)):
        deviation = (probability * (1 - probability) / 4000) ** 0.5
        assert counts[text] / 4000 == pytest.approx(probability, abs=4 * deviation)


def test_low_temperature_is_greedy() -> None:
    captioner = ToyCaptioner(random_model(1))
    (found,) = decode(captioner, captioner.memory, sample(seed=0, temperature=0.01), batch=1, num_captions=4)
    assert len({h.tokens for h in found}) == 1


@pytest.mark.parametrize("k", [1, 3, 7, 50])
def test_top_k_equals_transformers(k: int) -> None:
    logits = torch.randn(5, 9, generator=torch.Generator().manual_seed(k))
    expected = TopKLogitsWarper(k)(torch.zeros(5, 0, dtype=torch.long), logits.clone())
    assert torch.equal(keep_top_k(logits, k), expected)


@pytest.mark.parametrize("p", [0.01, 0.5, 0.9, 0.999])
def test_top_p_equals_transformers(p: float) -> None:
    logits = torch.randn(5, 9, generator=torch.Generator().manual_seed(1))
    expected = TopPLogitsWarper(p)(torch.zeros(5, 0, dtype=torch.long), logits.clone())
    assert torch.equal(keep_top_p(logits, p), expected)


def test_draw_inverts_the_cumulative_distribution() -> None:
    logits = torch.tensor([0.2, 0.0, 0.5, 0.3, 0.0]).log().expand(7, -1)
    numbers = torch.tensor([0.0, 0.19, 0.21, 0.69, 0.71, 0.99, 1 - 2**-53], dtype=torch.float64)
    assert draw(logits, numbers).tolist() == [0, 0, 2, 2, 3, 3, 3]


def test_streams_differ_by_seed_and_caption_and_keep_their_beginning() -> None:
    streams = [tuple(uniforms(seed, caption, 4)) for seed in (0, 1, 2**63 - 1) for caption in (0, 1, 63)]
    assert len(set(streams)) == len(streams)
    assert np.array_equal(uniforms(5, 2, 40)[:3], uniforms(5, 2, 3))
