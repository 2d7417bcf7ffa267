import json
from pathlib import Path

import pytest

from models.card import ScorerCard, WeightsCard, dump_card
from models.catalog import (
    BUNDLED,
    FAKE_CARD,
    HUB_FAMILIES,
    CaptionerEntry,
    ScorerEntry,
    find_by_id,
    find_captioner,
    find_model,
    find_scorer,
    list_models,
    model_ids,
)
from models.errors import CheckpointError, UnknownNameError


def _model(root: Path, name: str, **changes: object) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    card = WeightsCard(id=name, family="compact", description="", licence="").model_copy(update=changes)
    (folder / "card.json").write_text(dump_card(card), encoding="utf-8")
    return folder


def _scorer(root: Path, name: str) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "card.json").write_text(dump_card(ScorerCard(id=name, description="", licence="")), encoding="utf-8")
    return folder


def _hub_folder(folder: Path, config: str) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(config, encoding="utf-8")
    return folder


def test_models_are_listed_by_id_from_both_places(tmp_path: Path) -> None:
    _model(tmp_path, "zebra")
    _scorer(tmp_path, "apple")
    (tmp_path / "no_model").mkdir()
    bundled = {path.parent.name for path in BUNDLED.glob("*/card.json")}
    assert model_ids(tmp_path) == sorted(bundled | {"apple", "zebra"})
    entries = {entry.id: entry for entry in list_models(tmp_path)}
    assert list(entries) == model_ids(tmp_path)
    assert isinstance(entries["apple"], ScorerEntry)
    assert isinstance(entries["zebra"], CaptionerEntry)


def test_the_draft_of_an_unfinished_write_is_no_model(tmp_path: Path) -> None:
    _model(tmp_path, ".concise.77.partial")
    assert ".concise.77.partial" not in model_ids(tmp_path)


def test_fake_needs_no_folder() -> None:
    assert find_model("fake") == CaptionerEntry("fake", None, FAKE_CARD)


def test_a_model_is_found_by_id_and_by_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _model(tmp_path, "mine")
    by_id = find_captioner("mine", tmp_path)
    assert (by_id.id, by_id.path, by_id.source) == ("mine", folder, str(folder))
    assert find_captioner(str(folder)).card == by_id.card
    monkeypatch.chdir(folder)
    assert find_captioner(".").id == "mine"


def test_the_models_folder_wins_over_bundled_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.catalog.BUNDLED", tmp_path / "bundled")
    _model(tmp_path / "bundled", "concise", description="theirs")
    assert find_model("concise").card.description == "theirs"
    _model(tmp_path / "own", "concise", description="mine")
    assert find_model("concise", tmp_path / "own").card.description == "mine"


@pytest.mark.parametrize("ref", ["nothing", "", "..", "a/b/c", "../x", "/no/such/folder", "bad name/x", "a\0b"])
def test_an_unknown_name_lists_those_there_are(ref: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(_model(tmp_path, "known").parent / "known")  # ".." is a folder here, but no model
    with pytest.raises((UnknownNameError, CheckpointError)) as caught:
        find_model(ref, tmp_path)
    if ref != "..":
        assert caught.value.code == "unknown_model"
        assert "fake" in caught.value.detail and "known" in caught.value.detail


def test_who_errs_in_a_captioner_is_told_captioners_only(tmp_path: Path) -> None:
    _model(tmp_path, "known")
    (_model(tmp_path, "broken") / "card.json").write_text("{", encoding="utf-8")
    with pytest.raises(UnknownNameError) as caught:
        find_captioner("conzise", tmp_path)
    told = caught.value.detail.partition("none of ")[2].split(", ")
    assert {"concise", "dial", "known"} <= set(told) and not {"fake", "scorer", "broken"} & set(told)
    with pytest.raises(UnknownNameError, match="none of scorer$"):
        find_scorer("skorer", tmp_path)


def test_a_broken_card_does_not_hide_the_other_names(tmp_path: Path) -> None:
    (_model(tmp_path, "broken") / "card.json").write_text("{", encoding="utf-8")
    with pytest.raises(UnknownNameError, match="broken"):
        find_model("nothing", tmp_path)


def test_a_hub_id_without_a_network_says_what_to_do() -> None:
    with pytest.raises(CheckpointError, match="missing_file: 'some/model' is no folder here and the hub gave nothing"):
        find_model("some/model")


def test_a_folder_in_hub_layout_gets_a_card(tmp_path: Path) -> None:
    entry = find_captioner(str(_hub_folder(tmp_path / "hub", json.dumps({"model_type": "blip"}))))
    assert (entry.id, entry.card.family, entry.card.parts) == ("hub", "blip", {})


@pytest.mark.parametrize("model_type", ["llava", "qwen2_vl", "of-next-year"])
def test_a_folder_of_a_multimodal_language_model_is_known_by_its_shape(model_type: str, tmp_path: Path) -> None:
    config = {"model_type": model_type, "architectures": ["AnyForConditionalGeneration"], "vision_config": {}}
    assert find_captioner(str(_hub_folder(tmp_path / "hub", json.dumps(config)))).card.family == "vlm"


@pytest.mark.parametrize(("model_type", "family"), HUB_FAMILIES.items())
def test_families_of_their_own_come_first(model_type: str, family: str, tmp_path: Path) -> None:
    config = {"model_type": model_type, "architectures": ["AnyForConditionalGeneration"], "vision_config": {}}
    assert find_captioner(str(_hub_folder(tmp_path / "hub", json.dumps(config)))).card.family == family


@pytest.mark.parametrize(
    "config",
    [
        "{",
        "[]",
        "null",
        '{"model_type": "llama"}',
        "{}",
        '{"model_type": "clip", "architectures": ["CLIPModel"], "vision_config": {}}',
        '{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}',
        '{"model_type": "odd", "architectures": "ForConditionalGeneration", "vision_config": {}}',
    ],
)
def test_a_folder_of_something_else_is_refused(config: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="bad_config"):
        find_model(str(_hub_folder(tmp_path / "other", config)))


def test_a_folder_without_any_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="missing_file: .* has neither card.json nor config.json"):
        find_model(str(tmp_path))


def test_captioners_and_scorers_are_not_mixed_up(tmp_path: Path) -> None:
    _model(tmp_path, "captioner")
    scorer = _scorer(tmp_path, "clip")
    assert find_scorer("clip", tmp_path).path == scorer
    with pytest.raises(UnknownNameError, match="'clip' is a scorer; a captioner is needed"):
        find_captioner("clip", tmp_path)
    with pytest.raises(UnknownNameError, match="'captioner' is a captioner; a scorer is needed"):
        find_scorer("captioner", tmp_path)


@pytest.mark.parametrize("name", ["", "..", "../mine", "sub/mine", "absent"])
def test_an_id_never_leaves_its_root(name: str, tmp_path: Path) -> None:
    _model(tmp_path, "mine")
    _model(tmp_path / "root" / "sub", "mine")
    assert find_by_id(name, (None, tmp_path / "root")) is None


def test_the_first_root_that_has_an_id_wins(tmp_path: Path) -> None:
    _model(tmp_path / "b", "m")
    folder = _model(tmp_path / "a", "m")
    entry = find_by_id("m", (None, tmp_path / "none", tmp_path / "a", tmp_path / "b"))
    assert entry is not None and entry.path == folder
