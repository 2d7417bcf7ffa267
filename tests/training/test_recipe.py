"""Recipes: reading, overriding, refusing."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from models.errors import DataError, RequestError, UnknownNameError
from training.captioner_config import CaptionerConfig
from training.cli import _OF_DATA, _runs
from training.recipe import build_task, read_recipe, recipes_before

CONCISE = Path("concise_start.yaml")
SHIPPED = sorted(path.name for path in (files("training") / "recipes").iterdir() if path.name.endswith(".yaml"))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that holds nothing."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config_of(*overrides: str) -> CaptionerConfig:
    config = build_task(read_recipe(CONCISE, overrides)).config  # type: ignore[attr-defined]
    assert isinstance(config, CaptionerConfig)
    return config


# --- files ----------------------------------------------------------------------------------------------------------


def test_the_recipe_of_the_embedded_default_is_shipped() -> None:
    assert "concise.yaml" in SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_recipes_are_found_by_name_and_valid(name: str, elsewhere: Path) -> None:
    recipe = read_recipe(Path(name))
    assert recipe["id"]
    assert all(earlier.name in SHIPPED for earlier in recipes_before(recipe))
    build_task(recipe)


def test_a_recipe_extends_another_group_by_group_but_a_variant_as_a_whole(elsewhere: Path) -> None:
    Path("parent.yaml").write_text(
        "id: a\ntrain: {epochs: 3, threads: 1}\nobjective: {name: mle, options: {label_smoothing: 0.1}}\n"
    )
    Path("child.yaml").write_text("extends: parent.yaml\nid: b\ntrain: {epochs: 1}\nobjective: {name: smile}\n")
    expected = {"id": "b", "train": {"epochs": 1, "threads": 1}, "objective": {"name": "smile"}}
    assert read_recipe(Path("child.yaml")) == expected


@pytest.mark.parametrize("text", ["extends: me.yaml", "extends: [a, b]", "extends: nothing.yaml"])
def test_a_recipe_that_cannot_extend_is_refused(text: str, elsewhere: Path) -> None:
    Path("me.yaml").write_text(text)
    with pytest.raises(DataError) as caught:
        read_recipe(Path("me.yaml"))
    assert caught.value.code == "bad_recipe"


def test_recipes_that_come_before_are_a_list_of_names() -> None:
    assert recipes_before({"after": ["one.yaml"]}) == [Path("one.yaml")]
    with pytest.raises(DataError, match="list"):
        recipes_before({"after": "one.yaml"})


def test_an_own_file_comes_before_a_shipped_one(elsewhere: Path) -> None:
    CONCISE.write_text("task: mine\n", encoding="utf-8")
    assert read_recipe(CONCISE) == {"task": "mine"}


def test_a_name_that_there_is_not_is_answered_with_those_that_there_are(elsewhere: Path) -> None:
    with pytest.raises(DataError, match="those that come with limner are in .*: concise.yaml, .*smile.yaml"):
        read_recipe(Path("conise.yaml"))


@pytest.mark.parametrize("path", ["no-such.yaml", "folder/concise.yaml", "."])
def test_files_that_cannot_be_read(path: str, elsewhere: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_recipe(Path(path))


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"task: [", "no YAML"), (b"\xff\xfe\x00task", "no YAML"), (b"- task", "no mapping"), (b"", "no mapping")],
)
def test_files_that_hold_no_recipe(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(DataError, match=reason) as caught:
        read_recipe(path)
    assert caught.value.code == "bad_recipe"
    assert "bad.yaml" in caught.value.detail


def test_yaml_cannot_run_code(tmp_path: Path) -> None:
    path = tmp_path / "evil.yaml"
    path.write_text(f"!!python/object/apply:pathlib.Path.touch [{tmp_path / 'touched'}]", encoding="utf-8")
    with pytest.raises(DataError):
        read_recipe(path)
    assert not (tmp_path / "touched").exists()


# --- overrides ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "keys", "value"),
    [
        ("seed=7", ["seed"], 7),
        ("train.epochs=2", ["train", "epochs"], 2),
        ("train.bf16=false", ["train", "bf16"], False),
        ("train.save_every_steps=null", ["train", "save_every_steps"], None),
        ("views.crop_scale=[0.5, 1.0]", ["views", "crop_scale"], [0.5, 1.0]),
        ("objective.options.image_dropout=0.2", ["objective", "options", "image_dropout"], 0.2),
        ("description=a=b", ["description"], "a=b"),
        ("select.decode={name: greedy}", ["select", "decode"], {"name": "greedy"}),
        ("new.group.key=1", ["new", "group", "key"], 1),
    ],
)
def test_an_override_is_a_dotted_key_and_a_yaml_value(word: str, keys: list[str], value: Any) -> None:
    at: Any = read_recipe(CONCISE, [word])
    for key in keys:
        at = at[key]
    assert at == value


def test_an_override_leaves_its_neighbours_and_the_last_one_counts() -> None:
    plain = read_recipe(CONCISE)
    changed = read_recipe(CONCISE, ["train.epochs=1", "train.epochs=3"])
    assert changed["train"] == {**plain["train"], "epochs": 3}
    assert changed["data"] == plain["data"]


@pytest.mark.parametrize(
    "word", ["seed", "=3", "", "seed.of=3", "train.epochs.first=1", "seed=[1", "data.name=2024-02-30"]
)
def test_words_that_are_no_override(word: str) -> None:
    with pytest.raises(DataError) as caught:
        read_recipe(CONCISE, [word])
    assert caught.value.code == "bad_recipe"
    assert repr(word) in caught.value.detail


def test_settings_have_their_types() -> None:
    config = config_of("train.learning_rate=8e-4", "train.threads=null", "views.crop_scale=[0.5, 1]")
    assert config.train.learning_rate == 8e-4  # YAML takes a number without a point for text
    assert config.train.threads is None
    assert config.views.crop_scale == (0.5, 1.0)


# --- what does not fit ----------------------------------------------------------------------------------------------


def test_a_recipe_names_its_task() -> None:
    with pytest.raises(DataError, match="captioner"):
        build_task({"seed": 1})
    with pytest.raises(UnknownNameError, match="'poet'.*captioner"):
        build_task({"task": "poet"})


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("sede=1", "sede"),
        ("train.lerning_rate=1", "train.lerning_rate"),
        ("model.width=wide", "model.width"),
        ("train.epochs=0", "train.epochs"),
        ("objective.options.dropout=1", "dropout"),
        ("objective.options.image_dropout=2", "image_dropout"),
        ("select.metric=length", "select.metric"),
        ("select.decode={name: beam, options: {beans: 3}}", "beans"),
        ("decoding={name: beam, guidance: 11}", "decoding.guidance"),
        ("train.max_caption_tokens=64", "max_positions 64"),
        ("word_vectors=glove", "word_vectors"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(word: str, named: str) -> None:
    with pytest.raises(RequestError, match=named) as caught:
        config_of(word)
    assert caught.value.code == "invalid_request"


def test_names_that_do_not_exist_are_refused_before_any_work() -> None:
    with pytest.raises(UnknownNameError, match="'unlikelihood'"):
        config_of("objective.name=unlikelihood")


def test_the_resolved_recipe_is_a_recipe() -> None:
    config = config_of("seed=5")
    stored = yaml.safe_dump({"task": "captioner", **config.model_dump(mode="json")})
    assert build_task(yaml.safe_load(stored)).config == config  # type: ignore[attr-defined]


def test_settings_of_the_data_hold_for_the_recipes_before(elsewhere: Path) -> None:
    Path("first.yaml").write_text("id: a\ndata: {options: {path: here}}\n")
    Path("second.yaml").write_text("id: b\nafter: [first.yaml]\ndata: {options: {path: here}}\n")
    words = ["data.options.path=there", "data.agreeing=3", "train.epochs=2"]
    given = [word for word in words if word.startswith(_OF_DATA)]
    runs = _runs(read_recipe(Path("second.yaml"), words), Path("out"), given)
    assert runs == [
        ({"id": "a", "data": {"options": {"path": "there"}}}, Path("runs/first")),
        ({"id": "b", "data": {"options": {"path": "there"}, "agreeing": 3}, "train": {"epochs": 2}}, Path("out")),
    ]


def test_an_unknown_setting_is_told_what_its_group_has() -> None:
    with pytest.raises(RequestError, match="train.epoch: .*options of train: epochs, images_per_step"):
        config_of("train.epoch=3")
