"""Defects as people read them."""

from training.data.report import DataReport, Defect


def test_a_defect_is_one_line_that_any_terminal_can_print() -> None:
    defect = Defect("line 3", "a\nb", "no such image file", "/x/\udcff\x1b[31mé.jpg", "missing")
    assert str(defect) == "missing: line 3 (image a\\nb): no such image file: /x/\\udcff\\x1b[31mé.jpg"
    str(defect).encode()


def test_the_summary_counts_kinds() -> None:
    defects = (Defect("1", "a", "empty"), Defect("2", "b", "empty"), Defect("3", "c", "twice", effect="kept"))
    report = DataReport({"train": 3}, {"train": 5}, defects)
    assert report.summary() == "train: 3 images, 5 captions; 2 dropped (empty); 1 kept (twice)"
    assert report.dropped_by_reason == {"empty": 2}
