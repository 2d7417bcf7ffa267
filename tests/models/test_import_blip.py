import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from models.card import WeightsCard, read_card
from models.errors import CheckpointError, MissingDependencyError
from models.families.blip import BlipCaptioner
from models.file_hashes import sha256_of, verify_files
from models.import_blip import import_blip
from models.pipeline import load_pipeline
from tests.models.families.generate import MAX_TOKENS, our_tokens
from tests.models.families.tiny_models import images
from tests.models.original_blip import (
    END,
    IMAGE_PX,
    PIECES,
    START,
    State,
    caption,
    random_state,
    save_vocabulary,
    say,
    see,
)

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def save(folder: Path, state: Any) -> Path:
    path = folder / "captioner.pth"
    torch.save({"model": state, "epoch": 4, "config": {"image_size": IMAGE_PX}, "optimizer": {"state": {}}}, path)
    return path


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    return save_vocabulary(tmp_path)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("import")
    import_blip(save(folder, random_state()), folder / "mine", vocabulary=save_vocabulary(folder))
    return folder / "mine"


def squashed(picture: Image.Image) -> Tensor:
    """Pixels (3, H, W) as the authors' evaluation makes them."""
    levels = np.asarray(picture.resize((IMAGE_PX, IMAGE_PX), Image.Resampling.BICUBIC), dtype=np.float32) / 255
    normed = (levels - np.array(CLIP_MEAN, dtype=np.float32)) / np.array(CLIP_STD, dtype=np.float32)
    return torch.from_numpy(normed).permute(2, 0, 1)


@torch.no_grad()
def test_memory_and_logits_are_those_of_the_original(imported: Path) -> None:
    state, captioner = random_state(), BlipCaptioner.load(str(imported))
    tokens = [START, 5, 9, 17, 6, 30, 11]
    for picture in images(3):
        pixels = captioner.preprocess(picture)
        torch.testing.assert_close(pixels, squashed(picture), rtol=1e-4, atol=1e-4)
        memory = captioner.encode(pixels[None])
        torch.testing.assert_close(memory[0], see(state, pixels), rtol=1e-4, atol=1e-4)
        inputs = torch.tensor([tokens])
        logits = captioner.forward_teacher(memory, inputs, torch.ones_like(inputs)).logits
        assert logits is not None
        torch.testing.assert_close(logits[0], say(state, memory[0], tokens), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_captions_are_those_of_the_original(imported: Path) -> None:
    state, captioner = random_state(), BlipCaptioner.load(str(imported))
    pixels = torch.stack([captioner.preprocess(picture) for picture in images(6)])
    expected = [caption(state, see(state, picture), MAX_TOKENS) for picture in pixels]
    assert our_tokens(captioner, pixels, {"name": "greedy"}) == expected
    assert len({tuple(tokens) for tokens in expected}) > 3
    assert any(tokens[-1] == END for tokens in expected)


def test_the_folder_is_a_checkpoint_with_a_card(imported: Path) -> None:
    card = read_card(imported)
    assert isinstance(card, WeightsCard)
    verify_files(imported, card)
    assert {"config.json", "model.safetensors", "preprocessor_config.json", "tokenizer.json"} <= set(card.files)
    assert (card.id, card.family, card.parts) == ("mine", "blip", {})
    assert card.origin == [f"captioner.pth, sha256 {sha256_of(imported.parent / 'captioner.pth')}"]
    pipeline = load_pipeline(str(imported), scorer=None, device="cpu")
    config = pipeline.captioner.model.config  # type: ignore[attr-defined]
    assert config.vision_config.image_size == IMAGE_PX
    assert (config.vision_config.num_attention_heads, config.text_config.num_attention_heads) == (2, 1)


def test_ids_of_the_added_tokens_follow_the_vocabulary(imported: Path) -> None:
    captioner = BlipCaptioner.load(str(imported))
    assert captioner.tokenizer.convert_tokens_to_ids(["[DEC]", "[ENC]"]) == [PIECES - 2, PIECES - 1]
    assert (captioner.start_id, captioner.end_id, captioner.vocab_size) == (START, END, PIECES)


@torch.no_grad()
def test_an_output_layer_of_its_own_is_kept(tmp_path: Path, vocabulary: Path) -> None:
    state = random_state()
    name = "text_decoder.cls.predictions.decoder.weight"
    state[name] = state[name].flip(1)
    import_blip(save(tmp_path, state), tmp_path / "untied", vocabulary=vocabulary)
    captioner = BlipCaptioner.load(str(tmp_path / "untied"))
    memory, inputs = captioner.encode(captioner.preprocess(images(1)[0])[None]), torch.tensor([[START, 7]])
    logits = captioner.forward_teacher(memory, inputs, torch.ones_like(inputs)).logits
    assert logits is not None
    torch.testing.assert_close(logits[0], say(state, memory[0], [START, 7]), rtol=1e-4, atol=1e-4)


def refusal(source: Path, **options: Any) -> CheckpointError:
    """The error; nothing is written."""
    out = source.parent / "out"
    with pytest.raises(CheckpointError) as caught:
        import_blip(source, out, **options)
    assert not out.exists()
    return caught.value


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state.pop("visual_encoder.blocks.1.attn.qkv.bias"), ["missing", "blocks.1.attn.qkv.bias"]),
        (lambda state: state.pop("visual_encoder.pos_embed"), ["visual_encoder.pos_embed"]),
        (lambda state: state.pop("text_decoder.cls.predictions.bias"), ["missing", "cls.predictions.bias"]),
        (lambda state: state.update({"text_encoder.x": torch.ones(1)}), ["unexpected", "text_encoder.x"]),
        (lambda state: state.update({"visual_encoder.norm.bias": torch.ones(2)}), ["visual_encoder.norm.bias", "(2,)"]),
        (lambda state: state.clear(), ["no BLIP captioner"]),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    tmp_path: Path, vocabulary: Path, change: Callable[[State], object], words: list[str]
) -> None:
    state = random_state()
    change(state)
    error = refusal(save(tmp_path, state), vocabulary=vocabulary)
    assert error.code == "wrong_keys"
    assert all(word in error.detail for word in words)


def test_files_that_are_no_checkpoint_are_refused(tmp_path: Path, vocabulary: Path) -> None:
    source = tmp_path / "captioner.pth"
    assert refusal(source, vocabulary=vocabulary).code == "missing_file"
    source.write_bytes(b"not torch's")
    assert refusal(source, vocabulary=vocabulary).code == "unsafe_file"
    for odd in ([1, 2], {"model": [1]}, {"model": {"name": "text"}}, {"state_dict": {}}):
        torch.save(odd, source)
        assert refusal(source, vocabulary=vocabulary).code == "wrong_keys"


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("went_off"),))


def test_a_pickle_is_not_executed(tmp_path: Path, vocabulary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "captioner.pth"
    torch.save({"model": random_state(), "extra": _Bomb()}, source)
    assert refusal(source, vocabulary=vocabulary).code == "unsafe_file"
    source.write_bytes(pickle.dumps({"model": _Bomb()}, protocol=2))
    assert refusal(source, vocabulary=vocabulary).code == "unsafe_file"
    assert not (tmp_path / "went_off").exists()


def test_another_size_or_vocabulary_is_refused(tmp_path: Path, vocabulary: Path) -> None:
    source = save(tmp_path, random_state())
    error = refusal(source, vocabulary=vocabulary, size="large")
    assert (error.code, "128" in error.detail, "1024" in error.detail) == ("bad_config", True, True)
    vocabulary.write_text(vocabulary.read_text() + "zebra\n")
    error = refusal(source, vocabulary=vocabulary)
    assert (error.code, str(PIECES + 1) in error.detail, str(PIECES) in error.detail) == ("bad_config", True, True)
    assert refusal(source, vocabulary=tmp_path / "none.txt").code == "missing_file"


def test_without_a_vocabulary_it_says_where_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.import_blip.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="--vocab"):
        import_blip(save(tmp_path, random_state()), tmp_path / "out")


def test_a_folder_with_something_else_in_it_is_not_replaced(tmp_path: Path, vocabulary: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/letter.txt").write_text("dear")
    with pytest.raises(CheckpointError, match="not replaced"):
        import_blip(save(tmp_path, random_state()), tmp_path / "out", vocabulary=vocabulary)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["letter.txt"]
