"""The recipes that start from a captioner, from its folder to a checkpoint with a card, on a tiny captioner."""

from pathlib import Path

import pytest
import torch
import yaml

from models.card import WeightsCard, read_card
from models.families.compact import CompactCaptioner
from tests.tiny_scorer import write_tiny_scorer
from tests.training.tiny_run import overrides, write_data
from training.cli import train
from training.recipe import build_task, read_recipe

RECIPES = ["mle", "smile", "contrastive", "retrieval", "scst", "unkt_teacher"]
SCORED = {"contrastive": False, "retrieval": True, "scst": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With data, a tiny captioner in ``base`` and a tiny scorer in ``scorer``."""
    folder = tmp_path_factory.mktemp("recipes")
    data = write_data(folder / "data")
    settings = [*overrides(data), "train.epochs=1", "id=base"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")  # captions are then cut in Python, not in a Java that starts every time
        build_task(read_recipe(Path("concise_start.yaml"), settings)).run(folder / "start" / "run")
    (folder / "start" / "run" / "base").rename(folder / "base")
    write_tiny_scorer(folder / "scorer")
    return folder


def settings_for(folder: Path, name: str) -> list[str]:
    scorer = f"local-dir:{folder / 'scorer'}"
    words = [
        f"data.options.path={folder / 'data' / 'dataset.json'}",
        f"data.options.images_root={folder / 'data'}",
        f"init={folder / 'base'}",
        f"select.scorer={scorer}",
        "select.decode={name: greedy, options: {max_tokens: 6}}",
        *(f"train.{word}" for word in "images_per_step=4 epochs=1 warmup_steps=1 threads=1 learning_rate=0.01".split()),
    ]
    if SCORED.get(name):
        words.append(f"objective.options.scorer={scorer}")
    if name == "retrieval":
        words.append("objective.options.loss=cos")  # the hinge may have no gradient on three batches
    if name == "unkt_teacher":
        words.append(f"data.uncertain.scorer={scorer}")
    return words


def changed_tensors(folder: Path, trained: Path) -> set[str]:
    before, after = (CompactCaptioner.load(str(path)).state_dict() for path in (folder / "base", trained))
    return {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_changes_the_decoder_and_leaves_the_encoder(
    folder: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    task = build_task(read_recipe(Path(f"{name}.yaml"), settings_for(folder, name)))
    trained = task.run(tmp_path / name)
    changed = changed_tensors(folder, trained)
    assert changed
    assert not [tensor for tensor in changed if ".vision." in tensor]
    card = read_card(trained)
    assert isinstance(card, WeightsCard) and card.objective is not None
    assert card.objective.name == name.partition("_")[0] or name == "unkt_teacher"
    assert "r_at_1" in card.measurements[0].values
    assert card.origin[0].startswith("base (")


def test_the_teacher_of_unkt_is_trained_first(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.chdir(tmp_path)
    plan = read_recipe(Path("unkt_teacher.yaml"), settings_for(folder, "unkt_teacher"))
    Path("tiny_teacher.yaml").write_text(yaml.safe_dump(plan), encoding="utf-8")
    words = [
        *settings_for(folder, "unkt"),
        "after=[tiny_teacher.yaml]",
        "objective.options.teacher=runs/tiny_teacher/unkt-teacher",
    ]
    train(Path("unkt.yaml"), words)
    assert (tmp_path / "runs" / "tiny_teacher" / "unkt-teacher" / "card.json").is_file()
    assert changed_tensors(folder, tmp_path / "runs" / "unkt" / "unkt")
