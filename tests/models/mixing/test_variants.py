from pathlib import Path

import pytest
import torch
from PIL import Image

from models.catalog import find_captioner
from models.decoding import parse_decode
from models.decoding.loop import decode
from models.errors import UnknownNameError
from models.families.base import TorchCaptioner
from models.mixing.variants import Variants, load_variants
from models.pipeline import load_captioner
from tests.models.mixing.tiny_space import write_space, write_tiny_spectrum

MIX = {"smile": 0.5, "contrastive": 2.0}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_space(tmp_path_factory.mktemp("space"))
    write_tiny_spectrum(root)
    return root


@pytest.fixture(scope="module")
def variants(root: Path) -> Variants:
    entry = find_captioner("tiny-dial", root)
    base = load_captioner(entry, models_dir=root, device="cpu", coefficients={})
    assert isinstance(base, TorchCaptioner)
    return load_variants(base, entry, root)


def test_a_variant_is_what_would_be_loaded(root: Path, variants: Variants) -> None:
    loaded = load_captioner(find_captioner("tiny-dial", root), models_dir=root, device="cpu", coefficients=MIX)
    expected = loaded.model.state_dict()  # type: ignore[attr-defined]
    found = variants.at(MIX).model.state_dict()
    assert list(found) == list(expected)
    assert all(torch.equal(found[key], tensor) for key, tensor in expected.items())


def test_its_captions_are_those_of_the_loaded_model(root: Path, variants: Variants) -> None:
    loaded = load_captioner(find_captioner("tiny-dial", root), models_dir=root, device="cpu", coefficients=MIX)
    pixels = torch.stack([loaded.preprocess(Image.radial_gradient("L").convert("RGB").resize((64, 64)))])
    found = [decode(model, model.encode(pixels), parse_decode(None), batch=1) for model in (loaded, variants.at(MIX))]
    assert found[0] == found[1]


def test_at_zero_it_is_the_base_itself(variants: Variants) -> None:
    assert variants.at({}) is variants.base
    assert variants.at({"smile": 0.0}) is variants.base


def test_the_base_stays_as_it_was(variants: Variants) -> None:
    before = {key: tensor.clone() for key, tensor in variants.base.model.state_dict().items()}
    for parameter in variants.at(MIX).model.decoder.parameters():
        parameter.data.add_(1)
    assert all(torch.equal(before[key], tensor) for key, tensor in variants.base.model.state_dict().items())


def test_what_no_direction_changes_is_shared(variants: Variants) -> None:
    twin = variants.at(MIX)
    assert twin.model.vision is variants.base.model.vision
    assert twin.model.decoder is not variants.base.model.decoder
    assert twin.tokenizer is variants.base.tokenizer  # type: ignore[attr-defined]
    shared = {tensor.data_ptr() for tensor in variants.base.model.state_dict().values()}
    own = [tensor for tensor in twin.model.state_dict().values() if tensor.data_ptr() not in shared]
    assert sum(tensor.numel() * tensor.element_size() for tensor in own) == variants.bytes_of_one > 0


def test_nothing_of_it_is_trained_by_accident(variants: Variants) -> None:
    assert not any(parameter.requires_grad for parameter in variants.at(MIX).parameters())


def test_an_unknown_direction_is_refused(variants: Variants) -> None:
    with pytest.raises(UnknownNameError, match="there are: contrastive, smile"):
        variants.at({"glow": 1.0})
