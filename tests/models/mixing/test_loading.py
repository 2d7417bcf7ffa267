import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from models.card import Decoding, MixCard, dump_card, read_card
from models.catalog import find_captioner, list_models
from models.decoding import parse_decode
from models.errors import CheckpointError
from models.families.compact import CompactCaptioner
from models.mixing.loading import load_weight_space, read_weights
from models.mixing.mix import Mix
from models.mixing.writing import write_mix_card
from models.pipeline import load_pipeline
from tests.models.families.compact.tiny import tiny_captioner
from tests.models.mixing.tiny_space import DECODING, save_tuned, write_space

PICTURES = [Image.radial_gradient("L").convert("RGB").resize((64, 64)), Image.new("RGB", (64, 64), "red")]
COEFFICIENTS = {"smile": 0.25, "contrastive": 2.0}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models folder with a base, two directions and the card of a mix."""
    root = write_space(tmp_path_factory.mktemp("space"))
    directions = {name: find_captioner(name, root) for name in COEFFICIENTS}
    write_mix_card(root / "both", Mix("both", find_captioner("base", root), directions, COEFFICIENTS))
    return root


@pytest.fixture
def root(written: Path, tmp_path: Path) -> Path:
    """A copy of the models folder, to damage."""
    return Path(shutil.copytree(written, tmp_path / "root"))


def _set(root: Path, **changes: object) -> None:
    card = read_card(root / "both").model_copy(update=changes)
    (root / "both/card.json").write_text(dump_card(card), encoding="utf-8")


def test_a_mix_captions_like_any_model(root: Path) -> None:
    entry = find_captioner("both", root)
    assert isinstance(entry.card, MixCard)
    assert entry in list_models(root)
    pipeline = load_pipeline("both", models_dir=root, scorer=None, device="cpu")
    assert pipeline.model_id == "both"
    texts = [captions[0].text for captions in pipeline.caption(PICTURES, parse_decode(None)).captions]
    base = load_pipeline("base", models_dir=root, scorer=None, device="cpu")
    assert texts != [captions[0].text for captions in base.caption(PICTURES, parse_decode(None)).captions]


def test_its_weights_are_the_sum(root: Path) -> None:
    models = {name: CompactCaptioner.load(str(root / name)).model.state_dict() for name in ("base", *COEFFICIENTS)}
    mixed = CompactCaptioner.load(str(root / "both")).model.state_dict()
    base = models["base"]
    for key, tensor in mixed.items():
        expected = base[key] + sum(value * (models[name][key] - base[key]) for name, value in COEFFICIENTS.items())
        torch.testing.assert_close(tensor, expected.half().float(), atol=1e-6, rtol=1e-3)


def test_the_base_s_decoding_is_inherited(root: Path) -> None:
    assert find_captioner("both", root).card.decoding == DECODING
    _set(root, decoding=None)
    assert find_captioner("both", root).card.decoding == DECODING
    assert find_captioner(str(root / "both")).card.decoding == DECODING
    _set(root, decoding=Decoding(name="greedy"))
    assert find_captioner("both", root).card.decoding == Decoding(name="greedy")


def test_the_models_may_lie_in_the_models_folder(root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (root / "both").rename(tmp_path / "elsewhere/both")
    folder, tensors = read_weights(tmp_path / "elsewhere/both", root)
    assert (folder, len(tensors) > 0) == (root / "base", True)
    with pytest.raises(
        CheckpointError, match="hash_mismatch: .* was mixed from another 'smile' than"
    ):  # the bundled one
        read_weights(tmp_path / "elsewhere/both")
    _set(tmp_path / "elsewhere", directions={})
    with pytest.raises(CheckpointError, match="missing_file: .* needs the captioner 'base'"):
        read_weights(tmp_path / "elsewhere/both")


@pytest.mark.parametrize("name", ["base", "smile"])
def test_a_damaged_model_is_refused(name: str, root: Path) -> None:
    path = root / name / "decoder.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(CheckpointError, match=f"hash_mismatch: .*{name}/decoder.safetensors is damaged or was changed"):
        load_pipeline("both", models_dir=root, scorer=None)


@pytest.mark.parametrize("name", ["base", "contrastive"])
def test_a_model_that_was_trained_again_is_refused(name: str, root: Path) -> None:
    save_tuned(root / name, tiny_captioner(seed=9), "mle")  # sound in itself
    with pytest.raises(CheckpointError, match=f"hash_mismatch: .*both was mixed from another '{name}'"):
        load_pipeline("both", models_dir=root, scorer=None)


def test_a_model_that_was_measured_again_is_the_same(root: Path) -> None:
    card = json.loads((root / "smile/card.json").read_bytes())
    (root / "smile/card.json").write_text(json.dumps(card | {"description": "measured"}))
    read_weights(root / "both")


def test_a_mix_of_a_mix_is_refused(root: Path) -> None:
    mix = read_card(root / "both")
    assert isinstance(mix, MixCard)
    _set(root, base=mix.base.model_copy(update={"model": "both"}))
    with pytest.raises(CheckpointError, match="bad_card: 'both' is a mix itself"):
        read_weights(root / "both")


def test_the_family_must_be_the_base_s(root: Path) -> None:
    _set(root, family="blip")
    with pytest.raises(CheckpointError, match="bad_card: .*both says family 'blip', its base is 'compact'"):
        read_weights(root / "both")


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"max_positions": 20}, "their config.json differ"), ({"feed_forward": 64}, "their config.json differ")],
)
def test_another_architecture_is_no_direction(changes: dict[str, object], message: str, root: Path) -> None:
    save_tuned(root / "other", tiny_captioner(**changes), "mle")
    with pytest.raises(CheckpointError, match=f"direction 'x' \\(other\\) does not fit the base base: {message}"):
        load_weight_space(find_captioner("base", root), {"x": find_captioner("other", root)})


def test_another_vocabulary_is_no_direction(root: Path) -> None:
    captioner = tiny_captioner()
    captioner.tokenizer.add_tokens(["zebra"])
    save_tuned(root / "other", captioner, "mle")
    with pytest.raises(CheckpointError, match="bad_config: .*their tokenizer.json differ; only models fine-tuned from"):
        load_weight_space(find_captioner("base", root), {"x": find_captioner("other", root)})
