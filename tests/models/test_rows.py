import torch

from models.rows import cat_left_padded, keep_rows, leading_padding, pack, rows_of


def test_rows_of_images_are_adjacent() -> None:
    assert rows_of(torch.tensor([2, 0]), 3).tolist() == [6, 7, 8, 0, 1, 2]


def test_gaps_are_filled_from_the_end() -> None:
    assert pack([True, False, True, False, True, True]) == [0, 4, 2, 5]
    assert pack([True, True]) == [0, 1]
    assert pack([False, False, True]) == [2]
    assert pack([False]) == []


def test_kept_rows_are_those_asked_for_in_any_order() -> None:
    for kept in ([0, 4, 2, 5], [0, 1], [5, 4, 3, 2, 1, 0], [2], [0, 1, 2, 3, 4, 5]):
        tensor = torch.arange(12.0).view(6, 2)
        expected = tensor[torch.tensor(kept)].clone()
        assert torch.equal(keep_rows(tensor, torch.tensor(kept)), expected)


def test_shorter_rows_are_padded_on_the_left_of_a_dimension() -> None:
    joined = cat_left_padded([torch.tensor([[1, 2, 3]]), torch.tensor([[4], [5]])], 9)
    assert joined.tolist() == [[1, 2, 3], [9, 9, 4], [9, 9, 5]]
    deep = cat_left_padded([torch.ones(1, 3, 2), torch.ones(2, 1, 2)], 0, dim=-2)
    assert deep[:, :, 0].tolist() == [[1, 1, 1], [0, 0, 1], [0, 0, 1]]


def test_leading_padding_is_what_every_row_has() -> None:
    assert leading_padding(torch.tensor([[0, 0, 1], [0, 1, 1]]) > 0) == 1
    assert leading_padding(torch.tensor([[1, 0]]) > 0) == 0
    assert leading_padding(torch.zeros(2, 3) > 0) == 3
