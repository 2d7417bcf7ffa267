"""Public weights inside installed packages."""

from importlib.machinery import ModuleSpec

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity

from models.errors import MissingDependencyError
from models.families.compact.vision import GridEncoder
from models.images import read_image
from tests.support import SHARED, needs_shared
from training import packages
from training.packages import bert_vocabulary, imagenet_network, load_imagenet, minilm_folder, word_piece_vectors

LITE0 = "tf_efficientnet_lite0"
IMAGENET_DOGS = range(151, 269)
PIXELS = torch.linspace(-1, 1, 3 * 64 * 64).reshape(1, 3, 64, 64).sin()


def test_the_encoder_gives_what_the_imagenet_network_gives() -> None:
    network = imagenet_network(LITE0)
    encoder = GridEncoder(LITE0)
    untrained = encoder(PIXELS)
    load_imagenet(encoder, LITE0)
    with torch.inference_mode():
        direct = network.forward_features(PIXELS).flatten(2).transpose(1, 2)
        torch.testing.assert_close(encoder(PIXELS), direct, atol=1e-3, rtol=1e-3)
    assert not torch.allclose(untrained, direct, atol=0.1)


@needs_shared
def test_the_network_knows_a_dog() -> None:
    image = read_image(SHARED / "flickr8k/images/1001773457_577c3a7d70.webp").image.resize((224, 224))
    pixels = torch.from_numpy(np.asarray(image, dtype=np.float32) / 127.5 - 1).permute(2, 0, 1)
    with torch.inference_mode():
        best = imagenet_network(LITE0)(pixels[None]).topk(5).indices[0].tolist()
    assert all(number in IMAGENET_DOGS for number in best)


def test_text_files_lie_where_they_are_looked_for() -> None:
    words = bert_vocabulary().read_text(encoding="utf-8").splitlines()
    assert len(words) == len(set(words)) == 30522
    assert words[0] == "[PAD]"
    assert (minilm_folder() / "model.safetensors").is_file()


def test_word_vectors_keep_meaning() -> None:
    pieces = ["dog", "puppy", "bicycle", "[PAD]", "no such piece", "##ing", *"abcdefghijklmnop"]
    vectors = word_piece_vectors(pieces, 16)
    assert vectors.shape == (len(pieces), 16)
    assert not vectors[4].any()
    known = torch.cat([vectors[:4], vectors[5:]])
    assert known.std() == pytest.approx(16**-0.5, rel=1e-4)
    assert cosine_similarity(vectors[0], vectors[1], dim=0) > cosine_similarity(vectors[0], vectors[2], dim=0)


def test_more_width_than_directions_is_filled_with_zeros() -> None:
    vectors = word_piece_vectors(["dog", "cat", "man", "red"], 16)
    assert vectors[:, :3].any()
    assert not vectors[:, 4:].any()


def test_an_architecture_without_a_package_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(MissingDependencyError, match=f"'resnet50'.*{LITE0}"):
        imagenet_network("resnet50")


@pytest.mark.parametrize("load", [bert_vocabulary, lambda: imagenet_network(LITE0)])
def test_an_absent_package_is_named_with_the_extra(load: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(packages, "find_spec", absent)
    with pytest.raises(MissingDependencyError, match=r"_model|minilm.*limner\[bundle\]"):
        load()  # type: ignore[operator]
