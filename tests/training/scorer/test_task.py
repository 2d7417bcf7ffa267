"""A run of the recipe that takes seconds, and what comes out of it."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from models.card import ScorerCard, read_card
from models.checkpoints import sha256_of
from models.clip_scorer import load_scorer
from models.errors import DataError
from tests.training.tiny_run import write_data
from training.recipe import build_task, read_recipe

RECIPE = Path("scorer.yaml")


def _overrides(data: Path) -> list[str]:
    model = (
        "image_size_px=64 embed_dim=16 text_width=32 text_heads=2 text_layers=1 text_start_layers=[] min_piece_count=1"
    )
    teacher = "trained_layers=1 steps=6 batch_size=6"
    student = "steps=6 batch_size=6 spliced=10 spliced_per_step=3"
    train = "bf16=false threads=1 validate_every_steps=3 warmup_steps=1"
    groups = {"model": model, "teacher": teacher, "student": student, "train": train}
    return [
        f"data.options.path={data}",
        f"data.options.images_root={data.parent}",
        "views.count=2",
        *(f"{group}.{word}" for group, words in groups.items() for word in words.split()),
    ]


def _run(settings: list[str], out: Path) -> Path:
    return build_task(read_recipe(RECIPE, settings)).run(out)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return _overrides(write_data(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def scorer_folder(settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _run(settings, tmp_path_factory.mktemp("unbroken") / "run")


def test_the_scorer_is_loaded_by_open_clip_and_gives_scores(scorer_folder: Path) -> None:
    scorer = load_scorer(f"local-dir:{scorer_folder}", device="cpu")
    [[red, blue]] = scorer.score([Image.new("RGB", (48, 48), (220, 40, 40))], [["a red ball", "a blue box"]])
    assert 0 <= red <= 2.5 and 0 <= blue <= 2.5
    assert scorer.encode_texts(["a " * 200]).shape == (1, 16)


def test_the_card_says_what_was_measured(scorer_folder: Path) -> None:
    card = read_card(scorer_folder)
    assert isinstance(card, ScorerCard)
    assert card.id == "scorer" and card.prefix == "A photo depicts " and card.weight == 2.5
    assert card.score_range is not None and 0 <= card.score_range[0] <= card.score_range[1] <= 2.5
    assert card.measurements[0].split == "val" and card.measurements[0].images == 4
    assert {"r_at_1", "prefix_r_at_1"} <= card.measurements[0].values.keys()
    assert set(card.files) == {"open_clip_config.json", "recipe.yaml", "tokenizer.json", "tokenizer_config.json"}


def test_weights_are_half_precision(scorer_folder: Path) -> None:
    from safetensors.torch import load_file

    stored = load_file(scorer_folder / "open_clip_model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16, torch.int64}
    assert json.loads((scorer_folder / "open_clip_config.json").read_text())["model_cfg"]["embed_dim"] == 16


def test_a_run_that_stopped_between_checkpoints_ends_in_the_same_weights(
    settings: list[str], scorer_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.scorer import student

    out, draws = tmp_path / "run", student.student_batches

    def failing(*args: object) -> object:
        draw, left = draws(*args), [4]  # type: ignore[arg-type]

        def limited(rng: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return draw(rng)

        return limited

    with monkeypatch.context() as patched:
        patched.setattr(student, "student_batches", failing)
        with pytest.raises(KeyboardInterrupt):
            _run(settings, out)
    assert not (out / "scorer").exists()
    name = "open_clip_model.safetensors"
    assert sha256_of(_run(settings, out) / name) == sha256_of(scorer_folder / name)


def test_a_folder_with_other_settings_is_refused(settings: list[str], scorer_folder: Path) -> None:
    with pytest.raises(DataError, match="other settings"):
        _run([*settings, "seed=1"], scorer_folder.parent)
