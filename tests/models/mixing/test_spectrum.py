from pathlib import Path

import pytest

from models.card import SpectrumCard, SpectrumPoint, dump_card, read_card
from models.catalog import find_captioner, spectrum_point
from models.errors import CheckpointError, RequestError
from models.mixing.mix import Mix
from models.mixing.spectrum import path_through, write_spectrum
from models.pipeline import load_captioner
from tests.models.mixing.tiny_space import DECODING, save_tuned, write_space, write_tiny_spectrum


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_space(tmp_path_factory.mktemp("space"))
    write_tiny_spectrum(root)
    return root


def test_the_path_is_straight_between_anchors() -> None:
    path = path_through([(0.5, {"a": 1.0}), (1, {"a": 0.5, "b": 2.0})], ["a", "b"])
    found = {point.descriptiveness: dict(point.coefficients) for point in path}
    assert len(path) == 21 and [point.descriptiveness for point in path] == [n / 20 for n in range(21)]
    assert found[0.0] == {}
    assert found[0.05] == {"a": 0.1}
    assert found[0.25] == {"a": 0.5}
    assert found[0.5] == {"a": 1.0}
    assert found[0.75] == {"a": 0.75, "b": 1.0}
    assert found[1.0] == {"a": 0.5, "b": 2.0}


def test_the_concise_end_may_be_a_mix_too() -> None:
    path = path_through([(0, {"a": -0.5}), (1, {"a": 0.5})], ["a"])
    assert path[0].coefficients == {"a": -0.5} and path[10].coefficients == {}


@pytest.mark.parametrize(
    ("anchors", "words"),
    [
        ([(0.5, {"a": 1.0})], "one of them at 1"),
        ([(1.0, {"a": 1.0}), (1.0, {"a": 2.0})], "two anchors"),
        ([(0.33, {"a": 1.0}), (1.0, {"a": 2.0})], "0.33 is off the grid"),
        ([(-0.5, {"a": 1.0}), (1.0, {"a": 2.0})], "from 0 to 1"),
    ],
)
def test_anchors_that_make_no_path(anchors: list[tuple[float, dict[str, float]]], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        path_through(anchors, ["a"])


def test_its_card_names_what_is_mixed(root: Path) -> None:
    card = read_card(root / "tiny-dial")
    assert isinstance(card, SpectrumCard)
    assert card.base.model == "base" and list(card.directions) == ["smile", "contrastive"]
    assert card.decoding == DECODING
    assert [source.name for source in card.data] == ["Flickr8k"]
    assert read_card(root / "tiny-dial") == SpectrumCard.model_validate_json(dump_card(card))


def test_a_point_is_the_nearest_of_the_grid(root: Path) -> None:
    entry = find_captioner("tiny-dial", root)
    assert spectrum_point(entry, 0.34).descriptiveness == 0.35
    assert spectrum_point(entry, 0).coefficients == {}
    with pytest.raises(RequestError, match=r"1\.5 is not from 0 to 1"):
        spectrum_point(entry, 1.5)
    with pytest.raises(RequestError, match="model 'base' has no spectrum"):
        spectrum_point(find_captioner("base", root), 0.5)


def test_it_is_loaded_at_its_default_or_where_it_is_asked_for(root: Path) -> None:
    entry = find_captioner("tiny-dial", root)
    assert isinstance(entry.card, SpectrumCard)
    base, half = find_captioner("base", root), entry.card.nearest(entry.card.default)
    at_default = load_captioner(entry, models_dir=root, device="cpu").model.state_dict()  # type: ignore[attr-defined]
    there = load_captioner(entry, models_dir=root, device="cpu", coefficients=half.coefficients)
    assert all((at_default[key] == tensor).all() for key, tensor in there.model.state_dict().items())  # type: ignore[attr-defined]
    concise = load_captioner(entry, models_dir=root, device="cpu", coefficients={})
    own = load_captioner(base, device="cpu").model.state_dict()  # type: ignore[attr-defined]
    assert all((own[key] == tensor).all() for key, tensor in concise.model.state_dict().items())  # type: ignore[attr-defined]
    with pytest.raises(RequestError, match="model 'base' has no directions"):
        load_captioner(base, device="cpu", coefficients={"smile": 1.0})


def test_a_card_with_an_impossible_grid_is_refused(root: Path) -> None:
    card = read_card(root / "tiny-dial")
    assert isinstance(card, SpectrumCard)
    middle = SpectrumPoint(descriptiveness=0.5)
    for grid, words in (
        ([middle, card.grid[0]], "must rise"),
        ([card.grid[0], middle], "must rise"),
        ([card.grid[0], SpectrumPoint(descriptiveness=1, coefficients={"x": 1.0})], "direction 'x'"),
        ([card.grid[0], SpectrumPoint(descriptiveness=1, coefficients={"smile": 9.0})], "beyond 4"),
    ):
        with pytest.raises(ValueError, match=words):
            SpectrumCard.model_validate(card.model_dump() | {"grid": [point.model_dump() for point in grid]})


def test_a_direction_that_changed_is_found_out(tmp_path: Path) -> None:
    root = write_space(tmp_path)
    write_tiny_spectrum(root)
    save_tuned(root / "smile", load_captioner(find_captioner("base", root), device="cpu"), "smile")  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="mixed from another 'smile'"):
        load_captioner(find_captioner("tiny-dial", root), models_dir=root, device="cpu")


def test_what_cannot_be_loaded_is_not_written(root: Path, tmp_path: Path) -> None:
    base = find_captioner("base", root)
    mix = Mix("far", base, {"s": find_captioner("smile", root)}, {"s": 0.0})
    with pytest.raises(CheckpointError, match="does not lead to"):
        write_spectrum(tmp_path / "far", mix, path_through([(1, {"s": 1.0})], ["s"]), 0.0)
    with pytest.raises(RequestError, match="coefficient 5"):
        path_through([(1, {"s": 5.0})], ["s"])
