"""Metric inputs: what they give, and some of their images."""

from dataclasses import replace
from typing import get_args

import torch

from tests.training.metrics.helpers import everything, paired, scored, texts
from training.metrics.interface import Need


def test_what_inputs_give() -> None:
    assert texts("a").gives == frozenset()
    assert paired({"1": "a"}, {"1": ["b"]}).gives == {"references"}
    assert scored(torch.eye(2), torch.eye(2)).gives == {"scorer"}
    assert everything().gives == set(get_args(Need))


def test_candidates_and_neighbours_need_their_tokens() -> None:
    whole = everything()
    assert whole.tokenized is not None
    bare = replace(whole, tokenized=replace(whole.tokenized, candidates=None, training=None))
    assert whole.gives - bare.gives == {"candidates", "neighbours"}
    assert "neighbours" not in replace(whole, features=None).gives


def test_some_images_in_another_order() -> None:
    whole = everything()
    some = whole.take([2, 0, 2])
    assert some.image_ids == ("2", "0", "2")
    assert some.captions == ("a dog runs",) * 3
    assert some.finish_reasons == ("stop",) * 3
    assert whole.candidates is not None and some.candidates is not None
    assert some.candidates[1] == whole.candidates[0]
    assert some.tokenized is not None and whole.tokenized is not None and some.tokenized.candidates is not None
    assert some.tokenized.references[0] == ("the dog runs fast", "dogs")
    assert some.tokenized.candidates[0] == whole.candidates[2]
    assert some.tokenized.training is whole.tokenized.training
    assert some.training_captions is whole.training_captions


def test_features_of_some_images() -> None:
    whole = everything()
    some = whole.take([2, 0, 2])
    assert whole.features is not None and some.features is not None
    for name in ("images", "texts", "prefixed_texts"):
        assert torch.equal(getattr(some.features, name), getattr(whole.features, name)[[2, 0, 2]])
    assert some.features.prefixed_references is not None
    assert [len(of) for of in some.features.prefixed_references] == [2, 2, 2]
    assert some.features.distractors is whole.features.distractors
    assert some.features.training_images is whole.features.training_images


def test_log_probabilities_of_some_images_keep_their_own_columns_first_and_the_distractors_last() -> None:
    whole, some = everything(), everything().take([2, 0])
    assert whole.logprobs is not None and some.logprobs is not None
    assert torch.equal(some.logprobs, whole.logprobs[[2, 0]][:, [2, 0, 5, 6]])


def test_what_was_not_given_stays_so() -> None:
    assert texts("a", "b").take([1]) == texts("a", "b").take([1])
    assert texts("a", "b").take([1]).gives == frozenset()
