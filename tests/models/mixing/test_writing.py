from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.card import DeltaPart, FilePart, MixCard, Named, PinnedPart, SharedPart, WeightsCard, read_card
from models.catalog import find_captioner
from models.checkpoints import read_parts
from models.errors import CheckpointError, RequestError
from models.families.compact import CompactCaptioner
from models.mixing.loading import read_weights
from models.mixing.mix import Mix
from models.mixing.writing import write_differences, write_mix_card, write_weights
from tests.models.mixing.tiny_space import DECODING, write_space


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_space(tmp_path_factory.mktemp("space"))


def _mix(space: Path, **coefficients: float) -> Mix:
    directions = {name: find_captioner(name, space) for name in coefficients}
    return Mix("m", find_captioner("base", space), directions, coefficients, models_dir=space)


def test_a_served_mix_and_a_written_one_are_equal_bit_for_bit(space: Path) -> None:
    mix = _mix(space, smile=0.3, contrastive=1.7)
    write_mix_card(space / "served", mix)
    write_weights(space / "written", mix)
    _, served = read_weights(space / "served")
    _, written = read_weights(space / "written")
    assert served.keys() == written.keys()
    assert all(torch.equal(served[key], written[key]) and served[key].dtype == torch.float16 for key in served)
    loaded = [CompactCaptioner.load(str(space / name)).model.state_dict() for name in ("served", "written")]
    assert all(torch.equal(loaded[0][key], loaded[1][key]) for key in loaded[0])


def test_the_card_of_a_mix(space: Path) -> None:
    written = write_mix_card(space / "card", _mix(space, smile=0.3, contrastive=0))
    assert [path.name for path in (space / "card").iterdir()] == ["card.json"]
    card = read_card(space / "card")
    assert isinstance(card, MixCard)
    assert card == written
    assert card.coefficients == {"smile": 0.3, "contrastive": 0}
    assert (card.base.model, card.directions["smile"].model) == ("base", "smile")
    assert (card.description, card.licence, card.decoding) == ("base + 0.3 smile", "research", DECODING)


def test_an_untouched_part_names_the_base(space: Path) -> None:
    card = write_weights(space / "own_decoder", _mix(space, smile=0.5))
    base = find_captioner("base", space).card
    assert isinstance(base, WeightsCard)
    vision = base.parts["vision"]
    assert isinstance(vision, FilePart)
    assert card.parts["vision"] == PinnedPart(model="base", part="vision", sha256=vision.sha256)
    assert {path.name for path in (space / "own_decoder").iterdir()} == {
        "card.json",
        "config.json",
        "decoder.safetensors",
        "tokenizer.json",
    }
    assert card.objective == Named(name="mix", options={"smile": 0.5})


def test_the_mean_of_runs_alike_has_their_objective(space: Path) -> None:
    smile = find_captioner("smile", space)
    mean = Mix("m", find_captioner("base", space), {"seed 0": smile, "seed 1": smile}, {"seed 0": 0.5, "seed 1": 0.5})
    card, _ = write_differences(space / "mean", mean, bits=4)
    assert (card.objective, card.seed) == (Named(name="smile"), None)
    less, _ = write_differences(space / "less", replace(mean, coefficients={"seed 0": 0.5, "seed 1": 0.4}))
    assert less.objective == Named(name="mix", options={"seed 0": 0.5, "seed 1": 0.4})


def test_a_part_is_copied_where_the_base_s_name_leads_nowhere(space: Path, tmp_path: Path) -> None:
    card = write_weights(tmp_path / "far", _mix(space, smile=0.5))
    assert {type(part) for part in card.parts.values()} == {FilePart}
    assert read_parts(tmp_path / "far", card).keys() == read_weights(space / "base")[1].keys()


def test_a_part_that_the_base_shares_is_named_as_its_owner_s(space: Path) -> None:
    write_weights(space / "second", _mix(space, smile=0.5))
    base = find_captioner("second", space)
    card = write_weights(space / "third", Mix("m", base, {"s": find_captioner("smile", space)}, {"s": -1}))
    assert isinstance(part := card.parts["vision"], SharedPart)
    assert (part.model, part.part) == ("base", "vision")
    CompactCaptioner.load(str(space / "third"))


def test_a_mix_of_nothing_is_the_base(space: Path) -> None:
    card = write_weights(space / "nothing", _mix(space, smile=0))
    assert {name: part.model for name, part in card.parts.items() if isinstance(part, SharedPart)} == {
        "vision": "base",
        "decoder": "base",
    }
    assert card.objective == Named(name="mle")


def test_int8_differences_restore_the_model(space: Path) -> None:
    card, error = write_differences(space / "int8", _mix(space, smile=1))
    assert isinstance(part := card.parts["decoder"], DeltaPart)
    assert (part.base.model, part.base.part) == ("base", "decoder")
    assert 0 < error < 0.02
    assert (card.objective, card.seed) == (Named(name="smile"), 7)
    full, tensors = (read_weights(space / name)[1] for name in ("smile", "int8"))
    assert tensors.keys() == full.keys()
    for key, tensor in tensors.items():
        assert tensor.dtype == full[key].dtype
        torch.testing.assert_close(tensor, full[key], atol=2e-3, rtol=1e-3)
    CompactCaptioner.load(str(space / "int8"))


def test_int8_models_are_directions_like_others(space: Path) -> None:
    write_differences(space / "small", _mix(space, smile=1))
    mix = Mix("m", find_captioner("base", space), {"s": find_captioner("small", space)}, {"s": 0.5})
    write_mix_card(space / "half_card", mix)
    write_weights(space / "half", mix)
    served, written = (read_weights(space / name)[1] for name in ("half_card", "half"))
    assert all(torch.equal(served[key], written[key]) for key in served)


def test_int8_needs_a_base_that_is_stored_whole_and_found_by_its_id(space: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="missing_file: differences name the base by id.*write beside the base"):
        write_differences(tmp_path / "far", _mix(space, smile=1))
    write_differences(space / "first", _mix(space, smile=1))
    on_differences = Mix("m", find_captioner("first", space), {"c": find_captioner("contrastive", space)}, {"c": 1})
    with pytest.raises(CheckpointError, match="'first' does not lead to a part 'decoder' that is stored whole"):
        write_differences(space / "never", on_differences)
    assert not (space / "never").exists()


def test_differences_to_another_base_are_refused(space: Path) -> None:
    write_differences(space / "moved", _mix(space, smile=1))
    card = read_card(space / "moved")
    assert isinstance(card, WeightsCard) and isinstance(part := card.parts["decoder"], DeltaPart)
    for base in (
        part.base.model_copy(update={"model": "contrastive"}),
        part.base.model_copy(update={"part": "vision"}),
    ):
        changed = card.model_copy(update={"parts": card.parts | {"decoder": part.model_copy(update={"base": base})}})
        with pytest.raises(CheckpointError, match="hash_mismatch"):
            read_parts(space / "moved", changed)
    chained = part.model_copy(update={"base": part.base.model_copy(update={"model": "moved"})})
    with pytest.raises(CheckpointError, match="bad_card: .* difference to model 'moved', itself a difference"):
        read_parts(space / "moved", card.model_copy(update={"parts": {"decoder": chained}}))


@pytest.mark.parametrize("write", [write_mix_card, write_weights, write_differences])
def test_a_model_of_the_mix_is_never_replaced(write: object, space: Path) -> None:
    for name in ("base", "smile"):
        with pytest.raises(RequestError, match=f"invalid_request: .* is the model '{name}' of the mix"):
            write(space / name, _mix(space, smile=0.5))  # type: ignore[operator]
    CompactCaptioner.load(str(space / "base"))


def test_a_card_needs_models_that_its_ids_lead_to(space: Path, tmp_path: Path) -> None:
    mix = Mix("m", find_captioner("base", space), {"s": find_captioner("smile", space)}, {"s": 0.5})
    with pytest.raises(CheckpointError, match="missing_file: a card names models by id"):
        write_mix_card(tmp_path / "far", mix)
    assert not (tmp_path / "far").exists()
