import torch

from models.families.fused.rows import BLOCK, Rows, merge_rows


def filled(columns: int, padding: list[int], value: float = 1.0) -> Rows:
    """Rows of one layer, one head, one feature: column c holds ``value`` + c."""
    rows = Rows.empty(padding, (1, 1, 1), torch.float32, torch.device("cpu"))
    rows.make_room(columns)
    rows.keys_values[0, :, :columns, :, 0, 0] = torch.arange(columns).view(1, -1, 1) + value
    return rows


def held(rows: Rows) -> list[list[float]]:
    """What each row holds, without padding."""
    begins = rows.begins().tolist()
    return [rows.keys_values[0, r, begin : rows.columns, 0, 0, 0].tolist() for r, begin in enumerate(begins)]


def test_room_comes_in_blocks_and_keeps_what_was_there() -> None:
    rows = filled(BLOCK, [0])
    before = rows.keys_values
    rows.make_room(1)
    assert rows.keys_values.shape[2] == 2 * BLOCK
    assert torch.equal(rows.keys_values[:, :, :BLOCK], before)
    same = rows.keys_values
    rows.make_room(BLOCK - 1)
    assert rows.keys_values is same


def test_positions_and_mask_leave_padding_out() -> None:
    rows = filled(4, [0, 2])
    assert rows.positions(4, 99).tolist() == [[0, 1, 2, 3], [0, 0, 0, 1]]
    assert rows.positions(1, 3).tolist() == [[2], [1]]
    assert rows.mask(1)[:, 0, 0].tolist() == [[True] * 4, [False, False, True, True]]
    full = rows.mask(4)[1, 0]
    assert full.tolist() == [
        [True, False, False, False],
        [False, True, False, False],
        [False, False, True, False],
        [False, False, True, True],
    ]
    plain = filled(3, [0, 0])
    assert plain.mask(1) is None
    assert plain.mask(3).squeeze().tolist() == torch.ones(3, 3).tril().bool().tolist()
    assert plain.positions(2, 99).tolist() == [[1, 2]]


def test_rows_are_widened_and_swapped() -> None:
    rows = filled(3, [0, 1])
    rows.keys_values[0, 1] += 10
    rows.select(torch.tensor([0, 0, 1, 1]))
    assert held(rows) == [[1, 2, 3], [1, 2, 3], [12, 13], [12, 13]]
    same = rows.keys_values
    rows.select(torch.arange(4))
    assert rows.keys_values is same


def test_merged_rows_end_together_and_kept_ones_lose_the_padding_they_share() -> None:
    rows = merge_rows([filled(5, [0, 3]), filled(2, [0], 50.0)])
    assert (rows.columns, rows.padding) == (5, [0, 3, 3])
    assert held(rows) == [[1, 2, 3, 4, 5], [4, 5], [50, 51]]
    assert bool(rows.keys_values.isfinite().all())
    rows.keep(torch.tensor([2, 1]))
    assert (rows.columns, rows.padding) == (2, [0, 0])
    assert held(rows) == [[50, 51], [4, 5]]
    rows.make_room(BLOCK)
    assert held(rows)[0][:2] == [50, 51]
