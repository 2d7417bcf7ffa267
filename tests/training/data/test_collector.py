"""Pictures that are there, or only seem to be."""

import os
from pathlib import Path

from tests.training.data.tiny import picture
from training.data import Dataset
from training.data.collector import Collector, Entry


def collect(root: Path, *names: str) -> Dataset:
    collector = Collector()
    for number, name in enumerate(names):
        collector.add(Entry(f"[{number}]", "train", None, name, [("", "a cat")]), root)
    return collector.dataset(None, look=True)


def test_only_regular_files_are_there(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    os.symlink(tmp_path / "gone.png", tmp_path / "dangling.png")
    os.symlink(tmp_path / "loop.png", tmp_path / "loop.png")
    names = ["folder.png", "pipe.png", "dangling.png", "loop.png", "x" * 300 + ".png", "gone/1.png"]
    report = collect(tmp_path, *names).report
    assert [defect.image_id for defect in report.missing] == names
    assert report.images["train"] == 0


def test_links_inside_the_folder_are_trusted(tmp_path: Path) -> None:
    root = tmp_path / "images"
    root.mkdir()
    (tmp_path / "elsewhere.png").write_bytes(picture())
    os.symlink(tmp_path / "elsewhere.png", root / "1.png")
    (example,) = collect(root, "1.png").split("train")
    assert example.load().size == (12, 10)


def test_an_id_taken_twice_over_becomes_the_whole_path(tmp_path: Path) -> None:
    collector = Collector()
    for folder, image_id in (("a", "1"), ("b", "x.png"), ("c", "1")):
        collector.add(Entry(folder, "train", image_id, "x.png", [("", "a cat")]), tmp_path / folder)
    ids = [example.image_id for example in collector.dataset(None, look=False).split("train")]
    assert ids == ["1", "x.png", str(tmp_path / "c" / "x.png")]
