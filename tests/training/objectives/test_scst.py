"""Self-critical training: advantages and the policy gradient by hand, its sign, repetition, the reward that rises."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from models.errors import RequestError
from models.families.base import TorchCaptioner
from models.families.compact import CompactCaptioner
from models.interfaces import Hypothesis
from tests.training.objectives.support import UNEQUAL, batch_of, train
from training.objectives import choose_objective
from training.objectives.contrastive import sequence_logprobs
from training.objectives.generation import generate, generated_rows
from training.objectives.interface import Batch, Loss, Resources
from training.objectives.mle import Mle
from training.objectives.scst import Scst, policy_loss
from training.seeds import seed_of

COUNT = 3
MAX_TOKENS = 7


def scst(resources: Resources, **options: Any) -> Scst:
    return Scst(Scst.Options(**{"samples": COUNT, "max_tokens": MAX_TOKENS, "mle_weight": 0, **options}), resources)


def run(objective: Scst, captioner: TorchCaptioner, batch: Batch, seed: int = 0) -> Loss:
    torch.manual_seed(seed)
    return objective(captioner, batch)


def sampled(objective: Scst, captioner: TorchCaptioner, batch: Batch, seed: int = 0) -> list[list[Hypothesis]]:
    """The captions that a run with this seed samples."""
    torch.manual_seed(seed)
    first = int(torch.randint(2**62, ()))
    seeds = [seed_of(first, "sample", image) for image in batch.images.tolist()]
    memory = captioner.encode_from_stem(batch.features)
    return generate(captioner, memory, objective._sample, batch=len(seeds), num_captions=COUNT, seeds=seeds)


def token_logprobs(captioner: TorchCaptioner, batch: Batch, picture: int, caption: Hypothesis) -> list[float]:
    """log p of each written token, token by token through the decoder; the end too, unless the caption was cut."""
    tokens = [*caption.tokens, *[captioner.end_id] * (caption.finish_reason == "stop")]
    state, logits = captioner.start(captioner.encode_from_stem(batch.features)[picture : picture + 1])
    found = []
    for token in tokens:
        found.append(float(logits.log_softmax(-1)[0, token]))
        logits = captioner.step(state, torch.tensor([token]))
    return found


@torch.no_grad()
@pytest.mark.parametrize("baseline", ["leave_one_out", "greedy"])
@pytest.mark.parametrize("reward", ["retrieval", "clip_score", "cider"])
def test_slow_twin_of_the_whole_objective(
    captioner: CompactCaptioner, resources: Resources, reward: str, baseline: str
) -> None:
    batch, objective = batch_of(captioner), scst(resources, reward=reward, baseline=baseline)
    captions = sampled(objective, captioner, batch)
    assert len({one.finish_reason for of_picture in captions for one in of_picture}) == 2  # some are cut
    total, tokens, mean = 0.0, 0, 0.0
    for picture, of_picture in enumerate(captions):
        texts = [captioner.detokenize(one.tokens) for one in of_picture]
        rewards = [float(objective._reward([picture], [[text]])) for text in texts]
        mean += sum(rewards) / (3 * COUNT)
        memory = captioner.encode_from_stem(batch.features)[picture : picture + 1]
        ((greedy,),) = generate(captioner, memory, objective._greedy, batch=1)
        rivals = [float(objective._reward([picture], [[captioner.detokenize(greedy.tokens)]]))]
        for number, one in enumerate(of_picture):
            if baseline == "leave_one_out":
                rivals = [value for other, value in enumerate(rewards) if other != number]
            logs = token_logprobs(captioner, batch, picture, one)
            total -= (rewards[number] - sum(rivals) / len(rivals)) * sum(logs)
            tokens += len(logs)
    loss = run(objective, captioner, batch)
    assert float(loss.total) == pytest.approx(total / tokens, rel=1e-3, abs=1e-5)
    assert float(loss.parts["reinforce"]) == float(loss.total)
    assert float(loss.parts["reward"]) == pytest.approx(mean, rel=1e-4, abs=1e-6)


@torch.no_grad()
def test_the_likelihood_keeps_the_language(captioner: CompactCaptioner, resources: Resources) -> None:
    batch = batch_of(captioner)
    alone = run(scst(resources), captioner, batch)
    both = run(scst(resources, mle_weight=0.2), captioner, batch)
    mle = Mle(Mle.Options())(captioner, batch).total
    torch.testing.assert_close(both.total, alone.total + 0.2 * mle)
    torch.testing.assert_close(both.parts["mle"], mle)
    assert "mle" not in alone.parts


def test_captions_are_sampled_by_torchs_generator(captioner: CompactCaptioner, resources: Resources) -> None:
    batch, objective = batch_of(captioner), scst(resources)
    losses = [float(run(objective, captioner, batch, seed).total.detach()) for seed in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]


def test_equal_rewards_teach_nothing(trainee: CompactCaptioner, resources: Resources) -> None:
    rows = generated_rows(trainee, sampled(scst(resources), trainee, batch_of(trainee)))
    memory = trainee.encode_from_stem(batch_of(trainee).features)
    loss = policy_loss(trainee, memory, rows, torch.zeros(3 * COUNT))
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert not any(p.grad.any() for p in trainee.parameters() if p.grad is not None)


@pytest.mark.parametrize("family", ["compact", "blip"])
def test_a_caption_with_a_higher_reward_gets_likelier_than_its_rival(
    load: Callable[[str], TorchCaptioner], resources: Resources, family: str
) -> None:
    captioner = load(family)
    batch = batch_of(captioner, UNEQUAL[:1])
    captions = sampled(scst(resources), captioner, batch)
    rows = generated_rows(captioner, captions)
    memory = captioner.encode_from_stem(batch.features).detach()

    def logs() -> Tensor:
        with torch.no_grad():
            return sequence_logprobs(captioner, memory, rows)

    before = logs()
    policy_loss(captioner, memory, rows, torch.tensor([1.0, -1.0, 0.0])).backward()
    with torch.no_grad():
        for parameter in captioner.parameters():
            if parameter.grad is not None:
                parameter -= 1e-3 * parameter.grad
    gain = logs() - before
    assert gain[0] > gain[1] + 1e-4


@torch.no_grad()
def test_the_policy_is_the_one_that_is_sampled_from(captioner: CompactCaptioner, resources: Resources) -> None:
    batch = batch_of(captioner, UNEQUAL[:1])
    rows = generated_rows(captioner, sampled(scst(resources), captioner, batch))
    memory = captioner.encode_from_stem(batch.features)
    advantages = torch.tensor([1.0, -2.0, 0.5])
    hot = deepcopy(captioner)
    hot.model.final_norm.weight.div_(2)  # logits are linear in the normalised state
    hot.model.final_norm.bias.div_(2)
    torch.testing.assert_close(
        policy_loss(captioner, memory, rows, advantages, temperature=2.0), policy_loss(hot, memory, rows, advantages)
    )


@torch.no_grad()
def test_repeated_words_cost(captioner: CompactCaptioner, resources: Resources) -> None:
    batch = batch_of(captioner, UNEQUAL[:1])
    ids = captioner.tokenize(["a dog a dog a dog", "a dog runs"], 12)
    captions = [[Hypothesis(tuple(tokens), 0.0, 0.0, "stop") for tokens in ids]]
    plain = scst(resources)._rewards(captioner, captions, batch)
    cost = plain - scst(resources, repetition_weight=3)._rewards(captioner, captions, batch)
    torch.testing.assert_close(cost, torch.tensor([[3 * 0.5, 0.0]]))  # 2 of its 4 runs of three words stood there


def test_needs() -> None:
    assert Scst.needs(Scst.Options()) == Scst.needs(Scst.Options(reward="clip_score")) == {"scorer"}
    assert Scst.needs(Scst.Options(reward="cider")) == frozenset()


@pytest.mark.parametrize("options", [{"samples": 1}, {"temperature": 0.001}, {"max_tokens": 1000}, {"reward": "bleu"}])
def test_options_out_of_range_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=next(iter(options))):
        choose_objective("scst", options)


@pytest.mark.parametrize("reward", ["retrieval", "cider"])
def test_twenty_steps_raise_the_reward(
    trainee: CompactCaptioner, resources: Resources, batch: Batch, reward: str
) -> None:
    apart = replace(resources, image_features=torch.randn(4, 16))  # a random encoder finds all pictures alike
    history = train(trainee, scst(apart, reward=reward, samples=8), batch)
    rewards = [float(parts["reward"]) for parts in history]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.1
