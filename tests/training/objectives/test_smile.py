"""SMILE: golden and given values, a slow twin with the whole mask, the mix with likelihood, what is projected."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from models.families.compact import CompactCaptioner
from models.interfaces import TeacherForced
from tests.support import CASES
from tests.training.objectives.support import UNEQUAL, batch_of, rows_of, train, with_gradient
from training.objectives.interface import IGNORE, Batch, Loss, Targets
from training.objectives.mle import Mle
from training.objectives.smile import Smile, caption_subsets, reverse_cross_entropy, subset_cross_entropy
from training.objectives.subset_projection import project_subset

GIVEN: dict[str, Any] = json.loads((CASES / "loss.json").read_text(encoding="utf-8"))
LOGITS = torch.tensor(GIVEN["logits"])
GIVEN_CASES: dict[str, Any] = {case["name"]: case for case in GIVEN["cases"]}


def one_caption(*labels: int) -> Targets:
    kept = torch.tensor([label for label in labels if label != IGNORE], dtype=torch.long)
    return Targets(kept, torch.zeros_like(kept), torch.zeros(min(1, len(kept)), dtype=torch.long))


def subset_losses(logits: Tensor, targets: Targets, label_smoothing: float = 0.0) -> Tensor:
    """The loss of every target under the subset of its caption."""
    words, valid = (part[targets.caption] for part in caption_subsets(targets))
    return subset_cross_entropy(logits.gather(1, words), words, valid, targets.labels, label_smoothing)


def slow_losses(logits: Tensor, targets: Targets) -> Tensor:
    """The same by its definition: the softmax over V with every logit outside the subset at minus infinity."""
    mask = torch.full_like(logits, -torch.inf)
    for row, caption in enumerate(targets.caption):
        mask[row, targets.labels[targets.caption == caption]] = 0
    return cross_entropy(logits + mask, targets.labels, reduction="none")


def given_case(name: str, dtype: torch.dtype = torch.float32, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Mean loss and the gradient of the logits of a given case."""
    case = GIVEN_CASES[name]
    targets = one_caption(*case["labels"])
    assert sorted(set(targets.labels.tolist())) == case.get("subset", [2, 3, 7])
    logits = (LOGITS * case.get("scale", 1.0)).to(dtype).requires_grad_()
    losses = subset_losses(logits[: len(targets.labels)], targets, smoothing)
    loss = losses.sum() / max(len(losses), 1)
    loss.backward()
    assert logits.grad is not None and torch.isfinite(logits.grad).all()
    return loss.detach(), logits.grad


# --- the loss of logits ---------------------------------------------------------------------------------------------


def test_golden_vector() -> None:
    """Labels 3, 2 of five words: the first over all of them, the second over {2, 3}, so that the 9 does not matter."""
    first, second = torch.zeros(1, 5), torch.tensor([[0.0, 0.0, 1.0, 2.0, 9.0]])
    losses = subset_losses(torch.cat([first, second]), one_caption(3, 2))
    plain = cross_entropy(first, torch.tensor([3]))
    assert float(losses[1]) == pytest.approx(1.313262, abs=1e-6)
    assert float(losses[1]) == pytest.approx(math.log(1 + math.e))
    assert float(plain + losses[1]) / 2 == pytest.approx(1.461350, abs=1e-6)


def test_given_value() -> None:
    assert float(given_case("plain")[0]) == pytest.approx(GIVEN_CASES["plain"]["subset_ce"], abs=2e-6)


@pytest.mark.parametrize("name", ["plain", "smoothing_times_minus_inf"])
def test_smoothing_stays_within_the_subset(name: str) -> None:
    loss, grad = given_case(name, smoothing=0.1)
    assert float(loss) == pytest.approx(GIVEN_CASES[name]["subset_ce_smooth_0.1"], abs=2e-6)
    assert not grad[:, [0, 1, 4, 5, 6, 8, 9, 10, 11]].any()


def test_a_subset_of_one_token_has_neither_loss_nor_gradient() -> None:
    loss, grad = given_case("one_token_subset")
    assert float(loss) == 0.0
    assert not grad.any()


def test_an_empty_subset_is_no_nan() -> None:
    loss, grad = given_case("empty_subset")
    assert float(loss) == 0.0
    assert not grad.any()


def test_a_label_outside_its_subset_is_refused() -> None:
    case = GIVEN_CASES["label_outside_subset"]
    words = torch.tensor([case["subset"]] * 4)
    labels = torch.tensor(case["labels"][:4])
    with pytest.raises(ValueError, match="label"):
        subset_cross_entropy(LOGITS[:4].gather(1, words), words, torch.ones_like(words, dtype=torch.bool), labels)


@pytest.mark.parametrize("name", ["half_precision_fill", "large_logits"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_finite_and_right(name: str, dtype: torch.dtype) -> None:
    loss, _ = given_case(name, dtype)
    assert loss.dtype == torch.float32
    scale = GIVEN_CASES[name].get("scale", 1.0)
    targets = one_caption(*GIVEN_CASES[name]["labels"])
    exact = slow_losses((LOGITS * scale).to(dtype).float()[:4], targets).mean()
    torch.testing.assert_close(loss, exact, rtol=1e-6, atol=1e-6)


def random_case(seed: int) -> tuple[Tensor, Targets]:
    """Captions that repeat words and contain token 0, under logits of a wide spread."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 9, (6,), generator=generator)
    labels = torch.randint(0, 12, (int(lengths.sum()),), generator=generator)
    logits = torch.randn(len(labels), 40, generator=generator) * 6
    return logits, Targets(labels, torch.arange(6).repeat_interleave(lengths), torch.zeros(6, dtype=torch.long))


@pytest.mark.parametrize("seed", range(5))
def test_equal_to_the_masked_softmax_in_value_and_gradient(seed: int) -> None:
    logits, targets = random_case(seed)
    fast, slow = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    ours, theirs = subset_losses(fast, targets), slow_losses(slow, targets)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    ours.sum().backward()
    theirs.sum().backward()
    assert fast.grad is not None and slow.grad is not None
    torch.testing.assert_close(fast.grad, slow.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_likelihood_plus_the_log_of_the_mass_on_the_subset(seed: int) -> None:
    logits, targets = random_case(seed)
    mass = torch.stack(
        [
            row.softmax(-1)[targets.labels[targets.caption == caption].unique()].sum()
            for row, caption in zip(logits, targets.caption, strict=True)
        ]
    )
    plain = cross_entropy(logits, targets.labels, reduction="none")
    torch.testing.assert_close(subset_losses(logits, targets), plain + mass.log(), rtol=1e-5, atol=2e-5)


def test_reversed_subset_worked_out_by_hand() -> None:
    """Caption 3 3 2 of five words, all logits 0: each label competes with 0, 1 and 4 only."""
    targets = one_caption(3, 3, 2)
    logits = torch.tensor([[0.0, 0.0, 9.0, 0.0, 0.0], [0.0, 0.0, 9.0, 0.0, 0.0], [0.0, 0.0, 0.0, 9.0, 0.0]])
    losses = reverse_cross_entropy(logits, *caption_subsets(targets), targets.caption, targets.labels)
    torch.testing.assert_close(losses, torch.full((3,), math.log(4)))


# --- the loss of a captioner ----------------------------------------------------------------------------------------


def smile(captioner: CompactCaptioner, batch: Batch, **options: Any) -> Loss:
    return Smile(Smile.Options(**options))(captioner, batch)


@torch.no_grad()
@pytest.mark.parametrize("seed", [0, 1])
def test_slow_twin_of_the_whole_objective(captioner: CompactCaptioner, seed: int) -> None:
    """From the decoder that generates captions: one mask over the vocabulary for each caption, none for first words."""
    batch = batch_of(captioner, UNEQUAL[seed:])
    memory = captioner.encode_from_stem(batch.features)
    losses = []
    for picture, captions in enumerate(UNEQUAL[seed:]):
        for ids in (captioner.tokenize([caption], 12)[0] for caption in captions):
            state, logits = captioner.start(memory[picture : picture + 1])
            mask = torch.full((1, captioner.vocab_size), -torch.inf)
            mask[:, [*ids, captioner.end_id]] = 0
            for place, label in enumerate([*ids, captioner.end_id]):
                masked = logits if place == 0 else logits + mask
                losses.append(cross_entropy(masked, torch.tensor([label])))
                logits = captioner.step(state, torch.tensor([label]))
    mean = torch.stack(losses).mean()
    torch.testing.assert_close(smile(captioner, batch).total, mean, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_lambda_mixes_both_losses(captioner: CompactCaptioner) -> None:
    batch = batch_of(captioner)
    pure, plain = smile(captioner, batch).total, Mle(Mle.Options())(captioner, batch).total
    mixed = smile(captioner, batch, mle_weight=0.3)
    torch.testing.assert_close(mixed.total, 0.3 * plain + 0.7 * pure)
    torch.testing.assert_close(mixed.parts["smile"], pure)
    torch.testing.assert_close(mixed.parts["mle"], plain)
    assert pure < plain
    torch.testing.assert_close(smile(captioner, batch, mle_weight=1).total, plain)
    smooth = Mle(Mle.Options(label_smoothing=0.1))(captioner.train(), batch).total
    captioner.eval()
    torch.testing.assert_close(smile(captioner, batch, mle_weight=1, label_smoothing=0.1).total, smooth)


class Counting(CompactCaptioner):
    """A captioner that remembers what it was asked to project."""

    def watch(self) -> "Counting":
        self.projected: list[tuple[int, int | None]] = []
        self.forced: list[bool] = []
        return self

    def project(self, states: Tensor, words: Tensor | None = None) -> Tensor:
        self.projected.append((len(states), None if words is None else words.shape[1]))
        return super().project(states, words)

    def forward_teacher(self, *args: Any, output_logits: bool = True, **kwargs: Any) -> TeacherForced:
        self.forced.append(output_logits)
        return super().forward_teacher(*args, output_logits=output_logits, **kwargs)


@pytest.fixture
def counting(captioner: CompactCaptioner) -> Counting:
    own = Counting(captioner.config, captioner.tokenizer)
    own.load_state_dict(captioner.state_dict())
    return own.watch().eval()


def test_the_whole_vocabulary_is_projected_for_first_tokens_only(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    subset = []

    def watched(states: Tensor, words: Tensor, whole: Tensor, *layer: Any) -> tuple[Tensor, Tensor]:
        subset.append((*words.shape, int(whole.sum())))
        return project_subset(states, words, whole, *layer)

    monkeypatch.setattr("training.objectives.smile.project_subset", watched)
    batch = batch_of(counting)
    targets = batch.captions.targets
    smile(counting, batch)
    assert counting.forced == [False]
    assert counting.projected == []
    assert subset == [(len(targets.labels), 7, len(targets.row))]  # 6 tokens and the end at most
    counting.watch()
    smile(counting, batch, mle_weight=0.5)
    assert counting.forced == [True]
    assert counting.projected == []


def test_words_outside_the_subset_get_no_gradient_after_the_first_token(trainee: CompactCaptioner) -> None:
    """The weights of the output layer: with ``none`` those of words that no caption has, with ``mle`` all."""
    batch = batch_of(trainee, [["a dog", "the dog"]])
    used = {int(token) for token in batch.captions.targets.labels} | {trainee.start_id}
    for first, expected in (("none", used), ("mle", set(range(trainee.vocab_size)))):
        trainee.zero_grad()
        smile(trainee, batch, first_token=first).total.backward()
        grad = trainee.model.token_embedding.weight.grad
        assert grad is not None
        assert set(grad.abs().sum(1).nonzero().flatten().tolist()) == expected


@torch.no_grad()
def test_padding_makes_no_difference(captioner: CompactCaptioner) -> None:
    """A short caption beside a long one, and the same as two batches."""
    captions = ("a dog", "the child sits on grass")
    both = batch_of(captioner, [[caption] for caption in captions])
    total = torch.zeros(())
    for picture, caption in enumerate(captions):
        rows = rows_of(captioner, [[caption]])
        own = smile(captioner, replace(both, features=both.features[picture : picture + 1], captions=rows)).total
        total += own * len(rows.targets.labels)
    assert bool((both.captions.segments < 0).any())
    mean = total / len(both.captions.targets.labels)
    torch.testing.assert_close(smile(captioner, both).total, mean, rtol=1e-5, atol=1e-5)


def test_a_batch_without_targets_has_no_loss(trainee: CompactCaptioner) -> None:
    batch = batch_of(trainee)
    empty = replace(batch, captions=replace(batch.captions, labels=torch.full_like(batch.captions.labels, IGNORE)))
    for subset in ("caption", "random", "reverse"):
        loss = smile(trainee, empty, subset=subset, mle_weight=0.5).total
        loss.backward()
        assert float(loss.detach()) == 0.0
        assert with_gradient(trainee) == set()


@pytest.mark.parametrize("subset", ["caption", "random"])
def test_twenty_steps_lower_the_loss(trainee: CompactCaptioner, batch: Batch, subset: str) -> None:
    history = train(trainee, Smile(Smile.Options(subset=subset)), batch)
    assert history[-1]["smile"] < 0.5 * history[0]["smile"]
