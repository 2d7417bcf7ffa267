"""A whole tiny run of the task, from recipe to checkpoint folder."""

from pathlib import Path

import pytest
import torch
import yaml

from models.card import WeightsCard, read_card
from models.decoding import parse_decode
from models.decoding.loop import decode
from models.errors import DataError, RequestError
from models.families.compact import CompactCaptioner
from models.images import read_image
from tests.models.families.tiny_models import save_blip
from tests.training.tiny_run import overrides, write_data
from training.caption_trainer import TrainedModule
from training.captioner_config import TrainSettings
from training.captioner_task import CaptionerTask, _parameter_groups
from training.objectives import choose_objective
from training.recipe import build_task, read_recipe
from training.trainer import checkpoints, read_best


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return [*overrides(write_data(tmp_path_factory.mktemp("shapes"))), "train.epochs=2"]


def task_of(*words: str) -> CaptionerTask:
    task = build_task(read_recipe(Path("concise_start.yaml"), words))
    assert isinstance(task, CaptionerTask)
    return task


@pytest.fixture(scope="module")
def run_folder(settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of six steps."""
    out = tmp_path_factory.mktemp("runs") / "run"
    assert task_of(*settings).run(out) == out / "concise-start"
    return out


@pytest.fixture(scope="module")
def card(run_folder: Path) -> WeightsCard:
    card = read_card(run_folder / "concise-start")
    assert isinstance(card, WeightsCard)
    return card


def test_the_checkpoint_captions_a_picture(run_folder: Path, settings: list[str]) -> None:
    captioner = CompactCaptioner.load(str(run_folder / "concise-start"))
    image = read_image(Path(settings[0].partition("=")[2]).parent / "0.png").image
    with torch.inference_mode():
        memory = captioner.encode(captioner.preprocess(image)[None])
        ((best,),) = decode(captioner, memory, parse_decode({"name": "greedy", "options": {"max_tokens": 5}}), batch=1)
    assert len(best.tokens) <= 5
    assert "[UNK]" not in captioner.detokenize(best.tokens)


def test_the_card_tells_where_the_weights_come_from(card: WeightsCard, run_folder: Path) -> None:
    assert (card.id, card.family, card.seed) == ("concise-start", "compact", 0)
    assert card.objective is not None and card.objective.name == "mle"
    (source,) = card.data
    assert (source.split, source.images, source.captions) == ("train", 12, 24)
    assert source.terms and card.licence
    (measured,) = card.measurements
    assert (measured.split, measured.images) == ("val", 4)
    best = read_best(run_folder)
    assert best is not None and measured.values == best["values"]


def test_a_run_is_reproducible_from_its_checkpoint(run_folder: Path, settings: list[str]) -> None:
    stored = yaml.safe_load((run_folder / "concise-start" / "recipe.yaml").read_text(encoding="utf-8"))
    task = build_task(stored)
    assert isinstance(task, CaptionerTask)
    assert task.config == task_of(*settings).config


def test_a_finished_run_is_not_trained_again(run_folder: Path, settings: list[str]) -> None:
    before = states(run_folder)
    hashes = read_card(run_folder / "concise-start").files
    task_of(*settings).run(run_folder)
    assert states(run_folder) == before
    assert read_card(run_folder / "concise-start").files == hashes


def states(run_folder: Path) -> dict[str, int]:
    """When the checkpoints were written."""
    return {str(path): path.stat().st_mtime_ns for path in checkpoints(run_folder)}


def test_features_lie_beside_the_runs_so_that_these_share_them(run_folder: Path) -> None:
    assert len(list((run_folder.parent / "features").glob("*.npy"))) == 2  # train and val


def test_a_folder_with_another_run_is_refused(run_folder: Path, settings: list[str]) -> None:
    with pytest.raises(DataError, match="other settings"):
        task_of(*settings, "seed=1").run(run_folder)


def test_a_folder_in_which_nothing_was_trained_is_free(settings: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(DataError, match="cannot read"):
        task_of(*settings, "data.options.path=nowhere.json").run(out)
    assert [path.name for path in out.iterdir()] == ["recipe.yaml"]
    assert task_of(*settings, "train.epochs=1").run(out).is_dir()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_run_needs_a_folder(settings: list[str], tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be the folder of a run"):
        task_of(*settings).run(tmp_path / place)


def test_a_data_set_without_validation_split_is_refused(settings: list[str], tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", val=0)
    with pytest.raises(DataError, match="'val'"):
        task_of(*settings, f"data.options.path={data}", f"data.options.images_root={data.parent}").run(tmp_path / "run")


@pytest.mark.parametrize("setting", ["select.decode", "decoding"])
def test_guidance_of_a_captioner_without_null_memory_is_refused_at_once(tmp_path: Path, setting: str) -> None:
    data = write_data(tmp_path / "data")
    words = [f"data.options.path={data}", f"data.options.images_root={data.parent}"]
    words += [f"init={save_blip(tmp_path / 'blip')}", f"{setting}={{name: greedy, guidance: 2}}"]
    task = build_task(read_recipe(Path("mle.yaml"), words))
    with pytest.raises(RequestError, match="unsupported_option: decode.guidance 2: .*'blip'"):
        task.run(tmp_path / "run")
    assert not (tmp_path / "features").exists()


def test_decay_and_rates_of_the_parameters(trainee: CompactCaptioner) -> None:
    settings = TrainSettings(epochs=1, learning_rate=1e-3, vision_learning_rate=1e-5, weight_decay=0.1)
    groups = _parameter_groups(TrainedModule(trainee, choose_objective("mle", {}).build()), settings)
    found = {id(tensor): (group["lr"], group["weight_decay"]) for group in groups for tensor in group["params"]}
    model = trainee.model
    assert found[id(model.vision.top[0].weight)] == (1e-5, 0.1)
    assert found[id(model.vision.top[0].bias)] == (1e-5, 0.0)
    assert found[id(model.token_embedding.weight)] == (1e-3, 0.1)
    assert found[id(model.final_norm.weight)] == (1e-3, 0.0)
    assert len(found) == sum(tensor.requires_grad for tensor in trainee.parameters())
