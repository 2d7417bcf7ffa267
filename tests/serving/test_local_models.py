"""From what was typed to a captioner at a point of its weight space."""

from pathlib import Path

import pytest
import torch

from models.errors import RequestError, UnknownNameError
from models.families.base import TorchCaptioner
from serving.local_models import Wish, choose
from tests.models.mixing.tiny_dial import write_dial


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dial(tmp_path_factory.mktemp("models"))


def weights(model: str, wish: Wish, models_dir: Path) -> dict[str, torch.Tensor]:
    captioner = choose(wish, None, models_dir).load(device="cpu").captioner
    assert isinstance(captioner, TorchCaptioner), model
    return captioner.model.state_dict()


@pytest.mark.parametrize(
    ("wish", "model"),
    [
        (Wish("dial", descriptiveness=0.0), "base"),
        (Wish("dial", descriptiveness=0.5), "smile"),
        (Wish("dial", mix={"contrastive": 1.0}), "contrastive"),
        (Wish("dial", target_words=12), "smile"),
    ],
)
def test_the_weights_are_those_of_the_point(models_dir: Path, wish: Wish, model: str) -> None:
    found, wanted = weights("dial", wish, models_dir), weights(model, Wish(model), models_dir)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in found)


def test_a_spectrum_has_a_default_and_a_plain_model_no_place(models_dir: Path) -> None:
    choice = choose(Wish("dial"), None, models_dir)
    assert (choice.point.descriptiveness, choice.point.expected_words) == (0.25, 11.0)
    assert choice.strategy.to_plain()["options"]["beams"] == 2  # the base's own decoding
    plain = choose(Wish("fake"), {"name": "greedy"})
    assert plain.point.coefficients is None and plain.strategy.name == "greedy"
    assert plain.load(device="cpu").scorer is None


@pytest.mark.parametrize(
    ("wish", "error", "why"),
    [
        (Wish("nope"), UnknownNameError, "no model 'nope'"),
        (Wish("dial", mix={"up": 1.0}), UnknownNameError, "no direction 'up'"),
        (Wish("dial", 0.5, {"smile": 1.0}), RequestError, "descriptiveness and mix: at most one"),
        (Wish("dial", 1.5), RequestError, "descriptiveness 1.5 of model 'dial' is not from 0 to 1"),
        (Wish("dial", float("nan")), RequestError, "descriptiveness nan"),
        (Wish("smile", 0.5), RequestError, "model 'smile' has no spectrum"),
        (Wish("smile", mix={"smile": 1.0}), RequestError, "model 'smile' has no directions"),
    ],
)
def test_what_cannot_be_had(models_dir: Path, wish: Wish, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        choose(wish, None, models_dir)
