import numpy as np
import torch

from tests.training.conftest import TinyData
from training.scorer.corpus import build_corpus


def test_captions_are_numbered_through_and_know_their_picture(data: TinyData) -> None:
    corpus = build_corpus(data.examples, data.cache)
    assert corpus.pictures == 4
    assert corpus.captions[2:4] == data.examples[1].captions
    assert corpus.owner.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_draw_has_distinct_pictures_and_captions_of_their_own(data: TinyData) -> None:
    corpus = build_corpus(data.examples, data.cache)
    for seed in range(20):
        pictures, views, captions = corpus.draw(3, np.random.default_rng(seed))
        assert len(set(pictures)) == len(pictures) == 3
        assert (corpus.owner[captions] == pictures).all()
        assert (views < data.cache.views).all()
    assert len(corpus.draw(100, np.random.default_rng(0))[0]) == 4


def test_grid_has_a_row_per_cell(data: TinyData) -> None:
    corpus = build_corpus(data.examples, data.cache)
    features = data.cache.get(2, 1)
    grid = corpus.grid([2], [1])
    assert torch.equal(grid[0], features.flatten(1).T)


def test_captions_that_differ_in_case_and_spacing_are_the_same(data: TinyData) -> None:
    examples = [*data.examples]
    first = examples[0].captions[0]
    examples[3] = type(examples[3])("other", examples[3].path, (f" {first.upper()}  ", "else"))
    same = build_corpus(examples, data.cache).same_text(np.array([0, 1, 6, 7]))
    assert same.sum() == 6 and same[0, 2] and same[2, 0]
