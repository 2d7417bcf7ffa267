"""The cache of frozen features."""

import os
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from models.errors import ImageError
from models.families.compact import CompactCaptioner
from models.images import read_image
from tests.training.conftest import SEED, VIEWS, TinyData
from training.augment import ViewOptions, make_view
from training.data import Example
from training.features import FeatureCache, build_cache


@pytest.fixture
def example(data: TinyData, tmp_path: Path) -> Example:
    """A picture of one's own, which a test may change."""
    path = tmp_path / "picture.png"
    shutil.copy(data.examples[0].path, path)
    return replace(data.examples[0], path=path)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def lively(captioner: CompactCaptioner) -> CompactCaptioner:
    """A copy whose encoder passes on what it sees, as a trained one does: torch's own first weights let it die out."""
    own = deepcopy(captioner)
    torch.manual_seed(1)
    for module in own.model.vision.modules():
        if isinstance(module, torch.nn.Conv2d):
            rows, columns = module.kernel_size
            torch.nn.init.normal_(
                module.weight, std=(2 * module.groups / (rows * columns * module.out_channels)) ** 0.5
            )
    return own


def test_cached_features_equal_computed_ones_within_bf16(
    captioner: CompactCaptioner, data: TinyData, tmp_path: Path
) -> None:
    captioner = lively(captioner)
    cache = build_cache(tmp_path, captioner, data.examples, VIEWS, SEED)
    assert (len(cache), cache.views) == (len(data.examples), VIEWS.count)
    for index, example in enumerate(data.examples):
        image = read_image(example.path).image
        pixels = [captioner.preprocess(make_view(image, n, VIEWS, SEED, example.image_id)) for n in range(VIEWS.count)]
        with torch.inference_mode():
            direct = captioner.encode_stem(torch.stack(pixels))
        cached = torch.stack([cache.get(index, view) for view in range(VIEWS.count)])
        assert cached.dtype == torch.float32
        error = (cached - direct).norm() / direct.norm()
        assert error < 0.05
        # Views differ by more than the cache is inexact.
        assert (direct[2] - direct[0]).norm() / direct.norm() > 3 * error


def test_a_batch_holds_plain_views(data: TinyData) -> None:
    batch = data.cache.batch(1, 3)
    assert torch.equal(batch, torch.stack([data.cache.get(1, 0), data.cache.get(2, 0)]))


def test_a_finished_file_is_taken_again(captioner: CompactCaptioner, example: Example, tmp_path: Path) -> None:
    folder = tmp_path / "features"
    build_cache(folder, captioner, [example], VIEWS, SEED)
    (name,) = files(folder)
    before = (folder / name).stat()
    build_cache(folder, captioner, [example], VIEWS, SEED)
    assert files(folder) == [name]
    assert (folder / name).stat().st_mtime_ns == before.st_mtime_ns


def test_an_unfinished_file_is_never_taken(captioner: CompactCaptioner, example: Example, tmp_path: Path) -> None:
    folder = tmp_path / "features"
    cache = build_cache(folder, captioner, [example], VIEWS, SEED)
    (name,) = files(folder)
    half = np.lib.format.open_memmap(folder / f"{name[:-4]}.1.partial", mode="w+", dtype=np.float16, shape=(1, 3, 320))
    half.flush()
    (folder / name).unlink()
    again = build_cache(folder, captioner, [example], VIEWS, SEED)
    assert name in files(folder)
    assert torch.equal(again.get(0, 2), cache.get(0, 2))


def test_a_bad_picture_leaves_no_file_behind(captioner: CompactCaptioner, example: Example, tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(example.path.read_bytes()[:300])
    examples = [replace(example, image_id=str(number)) for number in range(4)] + [replace(example, path=bad)]
    with pytest.raises(ImageError):
        build_cache(tmp_path / "features", captioner, examples, ViewOptions(count=1), SEED)
    assert files(tmp_path / "features") == []


def test_the_name_changes_with_all_that_the_features_depend_on(
    captioner: CompactCaptioner, example: Example, tmp_path: Path
) -> None:
    views = ViewOptions(count=1)
    folder = tmp_path / "features"

    def build(captioner: CompactCaptioner, example: Example, views: ViewOptions, seed: int) -> FeatureCache:
        return build_cache(folder, captioner, [example], views, seed)

    build(captioner, example, views, SEED)
    build(captioner, example, ViewOptions(count=2), SEED)
    build(captioner, example, ViewOptions(count=1, jitter=0.1), SEED)
    build(captioner, example, views, SEED + 1)
    build(captioner, replace(example, image_id="another"), views, SEED)
    other = deepcopy(captioner)
    with torch.no_grad():
        next(other.model.vision.stem.parameters()).add_(1)
    build(other, example, views, SEED)
    os.utime(example.path, ns=(0, 0))
    build(captioner, example, views, SEED)
    assert len(files(folder)) == 7


def test_the_name_does_not_change_with_what_they_do_not_depend_on(
    captioner: CompactCaptioner, example: Example, tmp_path: Path
) -> None:
    folder = tmp_path / "features"
    build_cache(folder, captioner, [example], ViewOptions(count=1), SEED)
    other = deepcopy(captioner)
    with torch.no_grad():
        other.model.token_embedding.weight.add_(1)
        next(other.model.vision.top.parameters()).add_(1)
    build_cache(folder, other, [replace(example, captions=("other words",))], ViewOptions(count=1), SEED)
    assert len(files(folder)) == 1
