import hashlib
import json
import shutil
from pathlib import Path

import pytest

from models.card import Card, MixCard, Reference, SharedPart, WeightsCard, dump_card, read_card
from models.catalog import CaptionerEntry, find_captioner
from models.errors import CheckpointError
from models.mixing.references import find_reference, fingerprint, reference_to, weights_of


def _model(root: Path, name: str, **changes: object) -> WeightsCard:
    (root / name).mkdir(parents=True, exist_ok=True)
    files = {"config.json": "c" * 64, "tokenizer.json": "d" * 64, "recipe.yaml": "e" * 64}
    parts = {"decoder": {"file": "decoder.safetensors", "sha256": "a" * 64}}
    facts = {"id": name, "family": "compact", "description": "", "licence": "", "files": files, "parts": parts}
    card = WeightsCard.model_validate(facts | changes)
    _write(root / name, card)
    return card


def _write(folder: Path, card: Card) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "card.json").write_text(dump_card(card), encoding="utf-8")


def test_the_fingerprint_can_be_worked_out_by_hand(tmp_path: Path) -> None:
    lines = f"config.json {'c' * 64}\npart/decoder {'a' * 64}\ntokenizer.json {'d' * 64}\n"
    assert fingerprint(tmp_path / "m", _model(tmp_path, "m")) == hashlib.sha256(lines.encode()).hexdigest()


def test_only_what_makes_captions_changes_it(tmp_path: Path) -> None:
    card = _model(tmp_path, "m")
    found = fingerprint(tmp_path / "m", card)
    files = card.files
    for same in ({"description": "other"}, {"files": files | {"recipe.yaml": "0" * 64}}, {"seed": 5}):
        assert fingerprint(tmp_path / "m", card.model_copy(update=same)) == found
    for other in ({"files": files | {"tokenizer.json": "0" * 64}}, {"parts": {}}):
        assert fingerprint(tmp_path / "m", card.model_copy(update=other)) != found


def test_a_shared_part_counts_as_its_owner_s_file(tmp_path: Path) -> None:
    owner = _model(tmp_path, "owner")
    shared = _model(tmp_path, "m", parts={"decoder": SharedPart(model="owner", part="decoder")})
    assert fingerprint(tmp_path / "m", shared) == fingerprint(tmp_path / "owner", owner)


def test_the_base_of_differences_counts(tmp_path: Path) -> None:
    found = set()
    for base in "12":
        pinned = {"model": "m", "part": "decoder", "sha256": base * 64}
        delta = {"decoder": {"file": "decoder.safetensors", "sha256": "a" * 64, "base": pinned}}
        found.add(fingerprint(tmp_path / "d", _model(tmp_path, "d", parts=delta)))
    assert len(found) == 2


def test_a_reference_leads_back(tmp_path: Path) -> None:
    _model(tmp_path, "m")
    entry = find_captioner("m", tmp_path)
    reference = reference_to(entry, tmp_path / "mix")
    assert find_reference(reference, tmp_path / "mix") == entry
    with pytest.raises(CheckpointError, match="missing_file: .*the id 'm' does not lead to .*write beside it"):
        reference_to(entry, tmp_path / "elsewhere/mix")
    assert reference_to(entry, tmp_path / "elsewhere/mix", tmp_path) == reference


def test_another_model_of_that_id_is_refused(tmp_path: Path) -> None:
    _model(tmp_path, "m")
    reference = reference_to(find_captioner("m", tmp_path), tmp_path / "mix")
    _model(tmp_path, "m", files={})
    with pytest.raises(
        CheckpointError, match="hash_mismatch: .*mix was mixed from another 'm' than .*restore that model"
    ):
        find_reference(reference, tmp_path / "mix")
    shutil.rmtree(tmp_path / "m")
    with pytest.raises(CheckpointError, match="missing_file: .*needs the captioner 'm'"):
        find_reference(reference, tmp_path / "mix")


@pytest.mark.parametrize("card", ["mix", "hub", "fake"])
def test_what_has_no_weights_of_its_own_is_refused(card: str, tmp_path: Path) -> None:
    reference = Reference(model="m", sha256="0" * 64)
    _write(
        tmp_path / "mix", MixCard(id="mix", family="compact", description="", licence="", base=reference, directions={})
    )
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub/config.json").write_text(json.dumps({"model_type": "blip"}))
    entry = find_captioner("fake" if card == "fake" else str(tmp_path / card), tmp_path)
    with pytest.raises(CheckpointError, match=f"bad_card: '{card}' is .*only checkpoints with weights and a card can"):
        weights_of(entry)


def test_a_scorer_is_no_base(tmp_path: Path) -> None:
    _write(tmp_path / "mix", _model(tmp_path, "m"))
    facts = {"kind": "scorer", "id": "s", "description": "", "licence": ""}
    (tmp_path / "s").mkdir()
    (tmp_path / "s/card.json").write_text(json.dumps(facts))
    assert read_card(tmp_path / "s").kind == "scorer"
    with pytest.raises(CheckpointError, match="missing_file: .*needs the captioner 's'"):
        find_reference(Reference(model="s", sha256="0" * 64), tmp_path / "mix")


def test_entries_are_compared_by_content(tmp_path: Path) -> None:
    card = _model(tmp_path, "m")
    assert weights_of(CaptionerEntry("m", tmp_path / "m", card)) == (tmp_path / "m", card)
