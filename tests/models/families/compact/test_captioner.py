import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from models.card import ScorerCard, dump_card
from models.decoding import parse_decode
from models.decoding.loop import decode
from models.errors import CheckpointError, RequestError
from models.families.compact import CompactCaptioner
from tests.models.families.compact.tiny import IMAGE_PX, save_compact, tiny_captioner

BEAM = parse_decode({"name": "beam", "options": {"max_tokens": 10}})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_compact(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def memory(captioner: CompactCaptioner) -> torch.Tensor:
    with torch.no_grad():
        return captioner.encode(torch.randn(2, 3, IMAGE_PX, IMAGE_PX))


def test_pictures_are_squashed_to_a_square_in_minus_one_to_one(captioner: CompactCaptioner) -> None:
    pixels = captioner.preprocess(Image.new("RGB", (90, 31), (255, 0, 127)))
    assert pixels.shape == (3, IMAGE_PX, IMAGE_PX)
    assert pixels.dtype == torch.float32
    assert [round(float(channel.mean()), 2) for channel in pixels] == [1.0, -1.0, 0.0]


@torch.no_grad()
def test_widening_and_reordering_keep_one_memory_per_image(captioner: CompactCaptioner, memory: torch.Tensor) -> None:
    state, first = captioner.start(memory)
    assert first.shape == (2, captioner.vocab_size)
    captioner.reorder(state, torch.tensor([0, 0, 0, 1, 1, 1]))
    captioner.step(state, torch.tensor([4, 5, 6, 7, 8, 9]))
    captioner.reorder(state, torch.tensor([2, 2, 0, 4, 3, 3]))
    logits = captioner.step(state, torch.tensor([10, 11, 12, 13, 14, 15]))

    assert {part.shape[0] for key_value in state.memory for part in key_value} == {2}  # B, not R
    assert (state.cache.pools, state.cache.rows) == (2, 3)  # nor is what an image's rows have read copied per row
    rows = [[2, 6, 10], [2, 6, 11], [2, 4, 12], [2, 8, 13], [2, 7, 14], [2, 7, 15]]
    forced = captioner.forward_teacher(memory, torch.tensor(rows), torch.ones(6, 3)).logits
    torch.testing.assert_close(logits, forced[:, -1], atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_null_memory_decodes_without_a_picture(captioner: CompactCaptioner, memory: torch.Tensor) -> None:
    assert "null_memory" in captioner.capabilities
    null = captioner.null_memory(2)
    assert null.shape == memory.shape
    logits = captioner.start(null)[1]
    torch.testing.assert_close(logits[0], logits[1])
    assert (logits - captioner.start(memory)[1]).abs().max() > 1e-3


def test_a_prompt_is_refused(captioner: CompactCaptioner, memory: torch.Tensor) -> None:
    with pytest.raises(RequestError, match="unsupported_option"):
        captioner.start(memory, ["a photo of", ""])


def test_text_goes_to_pieces_and_back(captioner: CompactCaptioner) -> None:
    ids = captioner.tokenize(["A dog's T-shirt running", "the zebra"], 40)
    assert captioner.detokenize(ids[0]) == "a dog's t-shirt running"
    assert captioner.detokenize([2, *ids[1], 3, 0]) == "the"  # special tokens, the unknown word's too, are left out
    assert captioner.tokenize(["a dog runs on grass"], 3) == [ids[0][:2] + captioner.tokenize(["run"], 1)[0]]


def test_a_checkpoint_holds_what_it_should_in_half_precision(folder: Path) -> None:
    files = {"card.json", "config.json", "tokenizer.json", "vision.safetensors", "decoder.safetensors"}
    assert {path.name for path in folder.iterdir()} == files
    loaded = CompactCaptioner.load(str(folder))
    assert not loaded.training
    for name, tensor in tiny_captioner().model.state_dict().items():
        torch.testing.assert_close(loaded.model.state_dict()[name], tensor.half().float(), atol=0, rtol=0)


def test_a_second_round_trip_changes_nothing(folder: Path, tmp_path: Path) -> None:
    CompactCaptioner.load(str(folder)).save(tmp_path / "tiny")
    assert (tmp_path / "tiny/card.json").read_bytes() == (folder / "card.json").read_bytes()  # with every file's hash
    picture = Image.effect_mandelbrot((80, 60), (-2, -1, 1, 1), 50).convert("RGB")
    captions = []
    for source in (folder, tmp_path / "tiny"):
        captioner = CompactCaptioner.load(str(source))
        memory = captioner.encode(captioner.preprocess(picture)[None])
        captions.append(decode(captioner, memory, BEAM, batch=1, num_captions=3))
    assert captions[0] == captions[1]
    assert len(captions[0][0]) == 3


def test_weights_are_converted_to_the_dtype_asked_for(folder: Path) -> None:
    captioner = CompactCaptioner.load(str(folder), dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in captioner.parameters()} == {torch.bfloat16}
    with torch.no_grad():
        assert captioner.start(captioner.encode(torch.zeros(1, 3, IMAGE_PX, IMAGE_PX)))[1].isfinite().all()


def _copy(folder: Path, target: Path) -> Path:
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def test_one_damaged_byte_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    damaged = _copy(folder, tmp_path / "damaged")
    weights = bytearray((damaged / "decoder.safetensors").read_bytes())
    weights[-100] ^= 1
    (damaged / "decoder.safetensors").write_bytes(weights)
    with pytest.raises(CheckpointError, match=r"hash_mismatch: .*decoder\.safetensors is damaged") as caught:
        CompactCaptioner.load(str(damaged))
    assert caught.value.code == "hash_mismatch"


@pytest.mark.parametrize(
    ("file", "content", "code"),
    [
        ("config.json", '{"vocab_size": 24, "depth": 3}', "bad_config"),
        ("config.json", "[1, 2", "bad_config"),
        ("config.json", '{"vocab_size": 9}', "bad_config"),  # fewer than the tokenizer has
        ("config.json", '{"vocab_size": 24}', "wrong_keys"),  # other sizes than the tensors have
        ("tokenizer.json", '{"model": 1}', "bad_config"),
    ],
)
def test_files_that_do_not_fit_are_refused(folder: Path, tmp_path: Path, file: str, content: str, code: str) -> None:
    changed = _copy(folder, tmp_path / "changed")
    (changed / file).write_text(content, encoding="utf-8")
    card = json.loads((changed / "card.json").read_bytes())
    card["files"] = {}  # the hashes are right
    (changed / "card.json").write_text(json.dumps(card), encoding="utf-8")
    with pytest.raises(CheckpointError) as caught:
        CompactCaptioner.load(str(changed))
    assert caught.value.code == code
    assert "changed" in caught.value.detail


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json"])
def test_a_file_that_the_card_forgot_is_still_missed(folder: Path, tmp_path: Path, file: str) -> None:
    changed = _copy(folder, tmp_path / "changed")
    (changed / file).unlink()
    card = json.loads((changed / "card.json").read_bytes())
    del card["files"][file]
    (changed / "card.json").write_text(json.dumps(card), encoding="utf-8")
    with pytest.raises(CheckpointError, match=f"missing_file: .*{file}"):
        CompactCaptioner.load(str(changed))


def test_a_scorer_is_no_captioner(tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text(dump_card(ScorerCard(id="s", description="", licence="")), encoding="utf-8")
    with pytest.raises(CheckpointError, match="bad_card: .* holds a scorer"):
        CompactCaptioner.load(str(tmp_path))
