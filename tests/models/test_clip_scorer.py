import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from models.card import FilePart, ScorerCard, WeightsCard, dump_card
from models.checkpoints import sha256_of
from models.clip_scorer import ClipScorer, load_scorer
from models.errors import CheckpointError, UnknownNameError
from tests.tiny_scorer import CONTEXT, write_tiny_scorer

CASES = {
    case["name"]: case
    for case in json.loads((Path(__file__).parents[1] / "cases" / "metrics.json").read_text(encoding="utf-8"))["cases"]
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_scorer(tmp_path_factory.mktemp("scorers") / "tiny")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def scorer(folder: Path) -> ClipScorer:
    return load_scorer(f"local-dir:{folder}", device="cpu")


@pytest.fixture(scope="module")
def images() -> list[Image.Image]:
    noise = np.random.default_rng(0).integers(0, 256, (3, 40, 56, 3), dtype=np.uint8)
    return [Image.fromarray(pixels) for pixels in noise]


def test_pictures_are_seen_at_the_size_that_is_told(scorer: ClipScorer, images: list[Image.Image]) -> None:
    assert scorer.input_side_px == max(scorer._preprocess(images[0]).shape[1:]) == 32


def test_scores_equal_a_slow_twin_on_open_clip_alone(
    folder: Path, scorer: ClipScorer, images: list[Image.Image]
) -> None:
    captions = [["a dog", "a cat"], [], ["x", "dog dog", "a photo"]]
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
    model.eval()
    want = []
    for image, texts in zip(images, captions, strict=True):
        row = []
        for text in texts:
            with torch.no_grad():
                picture = model.encode_image(preprocess(image)[None])[0]
                sentence = model.encode_text(tokenizer(["A photo depicts " + text]))[0]
            row.append(2.5 * max(float(picture @ sentence / picture.norm() / sentence.norm()), 0.0))
        want.append(row)
    got = scorer.score(images, captions)
    assert [len(row) for row in got] == [2, 0, 3]
    for row, want_row in zip(got, want, strict=True):
        assert row == pytest.approx(want_row, abs=1e-5)
    assert any(value > 0 for row in got for value in row)


def test_image_features_are_reused(scorer: ClipScorer, images: list[Image.Image]) -> None:
    captions = [["a dog"]] * 3
    features = scorer.encode_images(images)
    assert scorer.score(None, captions, image_features=features) == scorer.score(images, captions)
    with pytest.raises(ValueError, match="3 images but 1"):
        scorer.score(None, [["a dog"]], image_features=features)


def test_features_are_fp32_with_unit_norm(scorer: ClipScorer, images: list[Image.Image]) -> None:
    for features in (scorer.encode_images(images), scorer.encode_texts(["a dog", "", "x" * 400])):
        assert features.dtype == torch.float32
        assert features.norm(dim=-1) == pytest.approx(1, abs=1e-5)


def test_half_precision_features_still_get_unit_norm(
    folder: Path, scorer: ClipScorer, images: list[Image.Image]
) -> None:  # clip_fp16_norm
    class Half(torch.nn.Module):
        encode_text = staticmethod(scorer.model.encode_text)

        def encode_image(self, pixels: torch.Tensor) -> torch.Tensor:
            return (scorer.model.encode_image(pixels) * 200).half()

    half = ClipScorer(
        Half(),
        open_clip.create_model_and_transforms(f"local-dir:{folder}")[2],
        open_clip.get_tokenizer(f"local-dir:{folder}"),
        scorer_id="half",
    )
    assert half.input_side_px is None  # it has no tower that tells
    assert half.encode_images(images).norm(dim=-1) == pytest.approx(1, abs=1e-3)
    assert torch.allclose(half.encode_images(images), scorer.encode_images(images), atol=2e-3)


def test_no_images_and_no_captions_are_fine(scorer: ClipScorer) -> None:
    assert scorer.score([], []) == []
    assert scorer.encode_images([]).shape == scorer.encode_texts([]).shape == (0, scorer.dim)
    assert scorer.count_truncated([]) == 0


def test_truncation_keeps_the_end_token(scorer: ClipScorer) -> None:
    captions = CASES["clip_77"]["captions"]
    features = scorer.encode_texts(captions, prefix=False)
    assert torch.equal(features[1], features[2]) and torch.equal(features[1], features[3])
    assert not torch.equal(features[0], features[1])
    words = [len(caption.split()) for caption in captions]
    assert scorer.count_truncated(captions, prefix=False) == sum(count + 2 > CONTEXT for count in words) == 2
    assert scorer.count_truncated(captions) == sum(count + 5 > CONTEXT for count in words) == 4


def test_open_clips_own_tokenizer_keeps_the_end_token_too() -> None:
    tokenizer = open_clip.get_tokenizer("ViT-B-32")
    model = torch.nn.Module()
    model.encode_text = lambda ids: torch.nn.functional.one_hot(ids.argmax(dim=-1), CONTEXT)  # type: ignore[assignment]
    scorer = ClipScorer(model, lambda image: torch.zeros(3, 1, 1), tokenizer, scorer_id="positions")
    captions = CASES["clip_77"]["captions"]
    end = scorer.encode_texts(captions, prefix=False).argmax(dim=-1)
    assert end.tolist() == [75, 76, 76, 76]
    assert scorer.count_truncated(captions, prefix=False) == 2


def test_negative_cosine_is_clamped(scorer: ClipScorer) -> None:
    up, aslant = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.8, 0.6], [0.8, -0.6]])
    assert scorer.clip_scores(up, aslant).tolist() == pytest.approx([1.5, 0.0])


def test_empty_caption_has_a_score(scorer: ClipScorer, images: list[Image.Image]) -> None:
    [[score]] = scorer.score(images[:1], [CASES["clip_empty_caption"]["captions"]])
    assert 0 <= score <= 2.5


def test_prefix_is_an_option(folder: Path, scorer: ClipScorer) -> None:
    bare = load_scorer(f"local-dir:{folder}", device="cpu", prefix="")
    assert scorer.prefix == "A photo depicts "
    assert torch.equal(bare.encode_texts(["a dog"]), scorer.encode_texts(["a dog"], prefix=False))
    assert torch.equal(bare.encode_texts(["A photo depicts a dog"]), scorer.encode_texts(["a dog"]))


def test_threads_get_what_single_calls_get(scorer: ClipScorer) -> None:
    texts = [["a dog"], ["a cat", "x"], ["a photo depicts a dog and a cat"]] * 8
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(scorer.encode_texts, texts))
    for got, part in zip(together, texts, strict=True):
        assert torch.allclose(got, scorer.encode_texts(part), atol=1e-6)


def test_scorer_id_names_no_folder_of_this_machine(folder: Path, scorer: ClipScorer) -> None:
    assert scorer.scorer_id == folder.name


def test_architecture_with_unknown_tag_lists_the_tags() -> None:
    with pytest.raises(UnknownNameError, match="openai") as caught:
        load_scorer("ViT-B-32/nobody")
    assert caught.value.code == "unknown_name"


def test_unknown_id_is_an_unknown_model() -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_scorer("no-such-scorer")
    assert caught.value.code == "unknown_model"


def test_card_gives_prefix_weight_and_hashes(tmp_path: Path) -> None:
    folder = write_tiny_scorer(tmp_path / "carded")
    weights = folder / "open_clip_model.safetensors"
    parts = {"open_clip_model": FilePart(file=weights.name, sha256=sha256_of(weights))}
    card = ScorerCard(id="carded", description="tiny", licence="CC0-1.0", parts=parts, prefix="x ", weight=1.0)
    (folder / "card.json").write_text(dump_card(card), encoding="utf-8")
    for ref in ("carded", f"local-dir:{folder}"):
        scorer = load_scorer(ref, models_dir=tmp_path, device="cpu")
        assert (scorer.scorer_id, scorer.prefix, scorer.weight) == ("carded", "x ", 1.0)
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(CheckpointError) as caught:
        load_scorer("carded", models_dir=tmp_path)
    assert caught.value.code == "hash_mismatch"


def test_a_captioner_is_no_scorer(tmp_path: Path) -> None:
    folder = write_tiny_scorer(tmp_path / "captioner")
    card = WeightsCard(id="captioner", description="tiny", licence="CC0-1.0", family="compact")
    (folder / "card.json").write_text(dump_card(card), encoding="utf-8")
    for ref in ("captioner", "fake"):
        with pytest.raises(UnknownNameError, match="captioner"):
            load_scorer(ref, models_dir=tmp_path)


@pytest.mark.parametrize("ref", ["hf-hub:limner-tests/no-such-repo", "ViT-B-32/laion2b_s34b_b79k"])
def test_offline_is_a_clear_refusal(ref: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CheckpointError, match=ref) as caught:
        load_scorer(ref)
    assert caught.value.code == "missing_file"


def test_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="open_clip_config.json") as caught:
        load_scorer(f"local-dir:{tmp_path}")
    assert caught.value.code == "missing_file"


def test_folder_without_weights_is_refused(tmp_path: Path) -> None:
    folder = write_tiny_scorer(tmp_path / "empty")
    (folder / "open_clip_model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="could not be loaded") as caught:
        load_scorer(f"local-dir:{folder}")
    assert caught.value.code == "missing_file"


def test_weights_of_another_architecture_are_refused(tmp_path: Path) -> None:
    folder = write_tiny_scorer(tmp_path / "other")
    path = folder / "open_clip_config.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"layers": 1', '"layers": 2'), encoding="utf-8")
    with pytest.raises(CheckpointError) as caught:
        load_scorer(f"local-dir:{folder}")
    assert caught.value.code == "wrong_keys"


@pytest.mark.parametrize("damage", ["config", "weights"])
def test_damaged_files_are_refused(tmp_path: Path, damage: str) -> None:
    folder = write_tiny_scorer(tmp_path / "damaged")
    name = "open_clip_config.json" if damage == "config" else "open_clip_model.safetensors"
    (folder / name).write_bytes((folder / name).read_bytes()[:50])
    with pytest.raises(CheckpointError, match="damaged") as caught:
        load_scorer(f"local-dir:{folder}")
    assert caught.value.code == "bad_config"
