"""Picture files through several arms at once."""

from pathlib import Path

import pytest

from models.clip_scorer import ClipScorer, load_scorer
from models.pipeline import load_pipeline
from serving.compare_files import LocalArm, compare_files
from serving.folders import opening
from serving.folders.captioning import CaptionRows, HowToWrite, Place
from serving.folders.opening import open_picture
from serving.folders.pictures import Opened
from serving.folders.sources import Sources
from serving.local_models import Wish, choose
from tests.models.mixing.tiny_dial import write_dial
from tests.serving.support import pictures
from tests.tiny_scorer import write_tiny_scorer


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dial(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> ClipScorer:
    return load_scorer(f"local-dir:{write_tiny_scorer(tmp_path_factory.mktemp('scorer') / 'tiny')}", device="cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, picture in enumerate(pictures(5)):
        (tmp_path / f"{number}.png").write_bytes(picture)
    (tmp_path / "2b.png").write_bytes(b"<html>")
    (tmp_path / "notes.txt").write_text("no picture")
    return tmp_path


def arm(label: str, wish: Wish, models_dir: Path) -> LocalArm:
    choice = choose(wish, None, models_dir)
    return LocalArm(label, choice, choice.load(device="cpu"))


def opened(folder: Path) -> list[Opened]:
    found = map(open_picture, Sources([str(folder)]))
    return [each for each in found if not each.is_no_picture]


def test_each_arm_gives_what_it_gives_alone(folder: Path, models_dir: Path, scorer: ClipScorer) -> None:
    arms = [arm("a", Wish("dial", 0.0), models_dir), arm("b", Wish("dial", 1.0), models_dir)]
    found = list(compare_files(arms, scorer, opened(folder), batch_size=2))
    assert [picture.file.name for picture in found] == ["0.png", "1.png", "2.png", "2b.png", "3.png", "4.png"]
    for number, each in enumerate(arms):
        pipeline = each.pipeline
        alone = CaptionRows(Place(pipeline), HowToWrite(each.choice.strategy))(opened(folder))
        for picture, row in zip(found, alone, strict=True):
            mine = picture.results[number]
            assert mine.point == each.choice.point
            assert (mine.error and mine.error.code) == (row["error"] and row["error"]["code"])
            assert [caption.text for caption in mine.captions] == [caption["text"] for caption in row["captions"]]
    bad = found[3]
    assert [result.error and result.error.code for result in bad.results] == ["not_an_image"] * 2 and not bad.image
    texts = {tuple(result.captions[0].text for result in picture.results) for picture in found if picture.image}
    assert any(first != second for first, second in texts)


def test_scores_are_those_of_the_scorer_and_equal_for_equal_captions(
    folder: Path, models_dir: Path, scorer: ClipScorer
) -> None:
    arms = [arm(label, Wish(model), models_dir) for label, model in (("a", "base"), ("b", "base"), ("c", "smile"))]
    for picture in compare_files(arms, scorer, opened(folder)):
        if picture.image is None:
            continue
        first, second, third = (result.captions[0] for result in picture.results)
        assert first.scorer == scorer.scorer_id
        assert first.clip_score == second.clip_score
        ((wanted,),) = scorer.score([picture.image], [[third.text]])
        assert third.clip_score == pytest.approx(wanted, abs=1e-5)


def test_each_picture_is_opened_once(folder: Path, scorer: ClipScorer, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[bytes] = []
    load = opening.load_image
    monkeypatch.setattr(opening, "load_image", lambda data, **how: loaded.append(data) or load(data, **how))
    pipeline = load_pipeline("fake", scorer=None, device="cpu")
    arms = [LocalArm(label, choose(Wish("fake"), None), pipeline) for label in "abc"]
    assert len(list(compare_files(arms, scorer, opened(folder), batch_size=2))) == 6
    assert len(loaded) == len(set(loaded)) == 6  # and the text file, by its first bytes, not at all
