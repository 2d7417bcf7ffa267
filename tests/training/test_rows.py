"""From captions to rows: worked out by hand."""

from models.families.compact import CompactCaptioner
from training.objectives.interface import IGNORE
from training.rows import caption_ids, make_rows

X = IGNORE
CAPTIONS = [[[2, 5, 6, 3], [2, 7, 3]], [[2, 8, 3]], [[2, 3]]]
"""Token ids of the captions of three pictures, from start token 2 to end token 3."""


def test_ids_go_from_start_to_end_also_where_a_caption_is_cut(captioner: CompactCaptioner) -> None:
    start, end = captioner.start_id, captioner.end_id
    words = {word: number for word, number in captioner.vocabulary().items()}
    long, short = caption_ids(captioner, ["the dog runs on grass", "a dog"], 3)
    assert long == [start, words["the"], words["dog"], words["run"], end]
    assert short == [start, words["a"], words["dog"], end]


def test_an_empty_caption_is_its_end(captioner: CompactCaptioner) -> None:
    assert caption_ids(captioner, [""], 3) == [[captioner.start_id, captioner.end_id]]


def test_packed_rows() -> None:
    rows = make_rows(CAPTIONS, packed=True)
    assert rows.input_ids.tolist() == [[2, 5, 6, 2, 7], [2, 8, 0, 0, 0], [2, 0, 0, 0, 0]]
    assert rows.labels.tolist() == [[5, 6, 3, 7, 3], [8, 3, X, X, X], [3, X, X, X, X]]
    assert rows.segments.tolist() == [[0, 0, 0, 1, 1], [0, 0, -1, -1, -1], [0, -1, -1, -1, -1]]
    assert rows.targets.row.tolist() == [0, 0, 1, 2]


def test_one_row_for_each_caption_and_as_many_rows_for_each_picture() -> None:
    rows = make_rows(CAPTIONS, packed=False)
    assert rows.input_ids.tolist() == [[2, 5, 6], [2, 7, 0], [2, 8, 0], [0, 0, 0], [2, 0, 0], [0, 0, 0]]
    assert rows.labels.tolist() == [[5, 6, 3], [7, 3, X], [8, 3, X], [X, X, X], [3, X, X], [X, X, X]]
    # A row that fills up has one token, which no loss looks at: attention over nothing may be NaN.
    assert rows.segments.tolist() == [[0, 0, 0], [0, 0, -1], [0, 0, -1], [0, -1, -1], [0, -1, -1], [0, -1, -1]]
    assert rows.targets.row.tolist() == [0, 1, 2, 4]


def test_a_picture_with_many_captions_has_several_packed_rows() -> None:
    """And so has every other; a picture's rows are adjacent and its captions in their order."""
    many = [[2, word, 3] for word in range(10, 17)]
    rows = make_rows([many[:2], many], packed=True)
    assert rows.input_ids.shape == (4, 10)
    assert rows.targets.row.tolist() == [0, 0, 2, 2, 2, 2, 2, 3, 3]
    assert rows.targets.labels[rows.targets.first].tolist() == [10, 11, *range(10, 17)]
    assert rows.segments[3].tolist() == [0, 0, 1, 1, *[-1] * 6]
    assert not rows.is_target[1].any()


def test_both_kinds_of_rows_have_the_same_targets() -> None:
    packed, single = make_rows(CAPTIONS, packed=True).targets, make_rows(CAPTIONS, packed=False).targets
    assert packed.labels.tolist() == single.labels.tolist()
    assert packed.caption.tolist() == single.caption.tolist()


def test_pictures_without_captions_have_rows_without_targets() -> None:
    for packed in (True, False):
        rows = make_rows([[], []], packed=packed)
        assert rows.input_ids.shape == (2, 1)
        assert len(rows.targets.labels) == 0
