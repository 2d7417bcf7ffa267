import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from transformers import AutoModelForImageTextToText, AutoProcessor

from models.decoding import parse_decode
from models.decoding.loop import decode
from models.errors import CheckpointError, RequestError
from models.families.vlm import VlmCaptioner
from models.interfaces import DecodeState
from models.pipeline import load_pipeline
from tests.models.families.generate import MAX_TOKENS, PLAIN, OptionSets, our_tokens
from tests.models.families.tiny_models import images
from tests.models.families.tiny_vlms import END, PAD, save_llava, save_paligemma, save_qwen2_vl

# PaliGemma's processor makes an array of a tensor in a way that numpy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

KINDS: dict[str, Callable[[Path], Path]] = {
    "llava": save_llava,
    "paligemma": save_paligemma,
    "qwen2_vl": save_qwen2_vl,
}
PROMPTS = {
    "llava": "user : <image> {} assistant :",
    "paligemma": "<image>{}",
    "qwen2_vl": "user : <begin> <image> <stop> {} assistant :",
}
"""What each chat template comes to, written out."""
GREEDY_AND_BEAM: OptionSets = [PLAIN[0], PLAIN[2]]
LENGTHS: OptionSets = [
    ({"name": "greedy", "options": {"min_tokens": 4}}, {"num_beams": 1, "min_new_tokens": 4}),
    ({"name": "beam", "options": {"length_penalty": 2.0}}, {"num_beams": 3, "length_penalty": 2.0}),
]
"""Not those against repetition: ``generate`` counts template and picture as text that must not come again."""
INSTRUCTIONS = ["what is near a dog", "Describe", "", "the old red cat sits near a man"]


class Tiny:
    """A tiny checkpoint, our captioner of it, and the library's own model and processor."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, KINDS[kind](folder)
        self.captioner = VlmCaptioner.load(str(self.folder))
        self.model = AutoModelForImageTextToText.from_pretrained(self.folder, dtype=torch.float32).eval()
        self.processor = AutoProcessor.from_pretrained(self.folder)

    def pixels(self, pictures: list[Image.Image]) -> Tensor:
        return torch.stack([self.captioner.preprocess(picture) for picture in pictures])

    def generate(self, pictures: list[Image.Image], instructions: list[str], **options: Any) -> list[list[int]]:
        """Each picture by itself: no padding, no other picture."""
        rows = []
        for picture, instruction in zip(pictures, instructions, strict=True):
            text = PROMPTS[self.kind].format(instruction or "Describe the following image.")
            inputs = self.processor(text=[text], images=[[picture]], return_tensors="pt")
            inputs.pop("labels", None)
            found = self.model.generate(**inputs, do_sample=False, max_new_tokens=MAX_TOKENS, **options)
            rows.append(found[0, inputs["input_ids"].shape[1] :].tolist())
        return rows


@pytest.fixture(scope="module", params=sorted(KINDS))
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return Tiny(request.param, tmp_path_factory.mktemp("vlm") / request.param)


def of_all_sizes() -> list[Image.Image]:
    """Four pictures of different sizes and shapes."""
    sizes = ((48, 40), (90, 60), (64, 128), (200, 56))
    return [picture.resize(size) for picture, size in zip(images(4), sizes, strict=True)]


@pytest.mark.parametrize(("raw", "options"), GREEDY_AND_BEAM)
def test_captions_of_a_batch_equal_generate(tiny: Tiny, raw: dict[str, Any], options: dict[str, Any]) -> None:
    pictures = of_all_sizes()
    assert our_tokens(tiny.captioner, tiny.pixels(pictures), raw) == tiny.generate(pictures, [""] * 4, **options)


@pytest.mark.parametrize(("raw", "options"), GREEDY_AND_BEAM)
def test_instructions_of_different_lengths_equal_generate(
    tiny: Tiny, raw: dict[str, Any], options: dict[str, Any]
) -> None:
    pictures = of_all_sizes()
    found = our_tokens(tiny.captioner, tiny.pixels(pictures), raw, INSTRUCTIONS)
    assert found == tiny.generate(pictures, INSTRUCTIONS, **options)


@pytest.mark.parametrize(("raw", "options"), LENGTHS)
def test_options_equal_generate(tiny: Tiny, raw: dict[str, Any], options: dict[str, Any]) -> None:
    pictures = of_all_sizes()
    assert our_tokens(tiny.captioner, tiny.pixels(pictures), raw) == tiny.generate(pictures, [""] * 4, **options)


def test_tiny_models_say_something(tiny: Tiny) -> None:
    found = our_tokens(tiny.captioner, tiny.pixels(images(12)), {"name": "sample", "options": {"seed": 1}})
    assert len({tuple(tokens) for tokens in found}) > 6
    assert any(tokens[-1] == tiny.captioner.end_id for tokens in found)
    assert any(len(set(tokens)) > 3 for tokens in found)


@torch.no_grad()
def test_the_teacher_equals_one_pass_without_a_cache(tiny: Tiny) -> None:
    """Two pictures of different sizes, two captions of each, of different lengths."""
    pictures = of_all_sizes()[:2]
    inputs = torch.tensor([[1, 8, 9, 10, 11], [1, 12, 13, PAD, PAD], [1, 14, END, PAD, PAD], [1, 9, 9, 9, 16]])
    mask = torch.tensor([[1] * 5, [1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [1] * 5])
    forced = tiny.captioner.forward_teacher(
        tiny.captioner.encode(tiny.pixels(pictures)), inputs, mask, output_hidden_states=True
    )
    assert forced.logits is not None and forced.hidden_states is not None and forced.states is not None
    for row in range(4):
        text = PROMPTS[tiny.kind].format("Describe the following image.")
        given = tiny.processor(text=[text], images=[[pictures[row // 2]]], return_tensors="pt")
        given.pop("labels", None)
        length, prompt = int(mask[row].sum()), given["input_ids"].shape[1]
        caption = inputs[row : row + 1, 1:length]
        given["input_ids"] = torch.cat((given["input_ids"], caption), dim=1)
        for name in ("attention_mask", "token_type_ids", "mm_token_type_ids"):
            if name in given:  # words of the caption: seen, and of the kind that looks back only
                kind = caption.new_full(caption.shape, int(name != "mm_token_type_ids"))
                given[name] = torch.cat((given[name], kind), dim=1)
        whole = tiny.model(**given, output_hidden_states=True, use_cache=False)
        torch.testing.assert_close(forced.logits[row, :length], whole.logits[0, prompt - 1 :], rtol=1e-4, atol=1e-4)
        for ours, theirs in zip(forced.hidden_states, whole.hidden_states[1:], strict=True):
            torch.testing.assert_close(ours[row, :length], theirs[0, prompt - 1 :], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(tiny.model.lm_head(forced.states[row]), forced.logits[row])


@torch.no_grad()
def test_two_states_do_not_disturb_each_other(tiny: Tiny) -> None:
    """Models such as Qwen2-VL remember the last batch's positions; what is decoded in turns must not see them."""
    first, second = (tiny.pixels([picture]) for picture in of_all_sizes()[2:])
    tokens = torch.tensor([9])

    def two_steps(state: DecodeState) -> Tensor:
        tiny.captioner.step(state, tokens)
        return tiny.captioner.step(state, tokens)

    alone = two_steps(tiny.captioner.start(first)[0])
    state, _ = tiny.captioner.start(first)
    tiny.captioner.start(second)
    torch.testing.assert_close(two_steps(state), alone)


def test_one_of_several_end_tokens_ends(tmp_path: Path) -> None:
    """The second end token is the word that the model is fondest of."""
    fond = Tiny("qwen2_vl", tmp_path / "one")
    words = [tokens[0] for tokens in our_tokens(fond.captioner, fond.pixels(images(6)), {"name": "greedy"})]
    save_qwen2_vl(tmp_path / "two", [END, other := max(words, key=words.count)])
    captioner = VlmCaptioner.load(str(tmp_path / "two"))
    found = our_tokens(captioner, fond.pixels(images(6)), {"name": "greedy"})
    expected = fond.generate(images(6), [""] * 6, eos_token_id=[END, other])
    assert found == [[END if token == other else token for token in row] for row in expected]
    assert [END] in found


def test_captions_are_one_line(tiny: Tiny) -> None:
    tokenizer = tiny.captioner.tokenizer
    ids = tokenizer.convert_tokens_to_ids(["a", "dog", "<image>", "</s>"])
    assert tiny.captioner.detokenize(ids) == "a dog"
    assert tiny.captioner.tokenize(["a big dog", "a"], 2) == [
        tokenizer.convert_tokens_to_ids(["a", "big"]),
        tokenizer.convert_tokens_to_ids(["a"]),
    ]
    assert tiny.captioner.tokenize([], 2) == []


def test_control_tokens_in_a_prompt_are_refused(tiny: Tiny) -> None:
    memory = tiny.captioner.encode(tiny.pixels(images(1)))
    with pytest.raises(RequestError, match=r"invalid_request: .*'<image>'"):
        decode(tiny.captioner, memory, parse_decode(None), batch=1, prompts=["what is <image>"])


def test_what_it_cannot_do_is_refused(tiny: Tiny) -> None:
    memory, ids = tiny.captioner.encode(tiny.pixels(images(1))), torch.ones(1, 3, dtype=torch.long)
    with pytest.raises(RequestError, match="unsupported_option: .*attention maps"):
        tiny.captioner.forward_teacher(memory, ids, ids, output_attentions=True)
    with pytest.raises(RequestError, match="unsupported_option: .*not trained"):
        tiny.captioner.train_encoder(True)


def test_a_folder_is_named_as_any_other_model(tiny: Tiny) -> None:
    pipeline = load_pipeline(str(tiny.folder), scorer=None, device="cpu")
    pictures = of_all_sizes()
    found = pipeline.caption(pictures, parse_decode({"name": "greedy", "options": {"max_tokens": MAX_TOKENS}}))
    decoded = [tiny.captioner.detokenize(tokens) for tokens in tiny.generate(pictures, [""] * 4)]
    assert [captions[0].text for captions in found.captions] == decoded
    assert pipeline.card.family == "vlm"


@pytest.mark.parametrize("size", [(1, 1), (1, 900), (3000, 2), (2000, 1500)])
def test_pictures_of_any_shape_get_a_caption(tiny: Tiny, size: tuple[int, int]) -> None:
    found = our_tokens(tiny.captioner, tiny.pixels([Image.new("RGB", size, "red"), *images(1)]), {"name": "greedy"})
    assert found[1:] == our_tokens(tiny.captioner, tiny.pixels(images(1)), {"name": "greedy"})


def test_half_precision(tiny: Tiny) -> None:
    captioner = VlmCaptioner.load(str(tiny.folder), dtype=torch.bfloat16)
    assert captioner.dtype == torch.bfloat16
    assert all(our_tokens(captioner, tiny.pixels(images(2)), {"name": "beam"}))


# --- folders that are refused ---


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return save_llava(tmp_path / "llava")


def refusal(folder: Path | str) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        VlmCaptioner.load(str(folder))
    return caught.value


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_missing_files_are_named(copied: Path, name: str) -> None:
    (copied / name).unlink()
    error = refusal(copied)
    assert error.code == "missing_file"
    assert str(copied) in error.detail


def test_a_missing_processor_is_refused(copied: Path) -> None:
    for file in copied.glob("*processor*"):
        file.unlink()
    assert "processor" in refusal(copied).detail


def test_a_processor_that_takes_no_instructions_is_refused(copied: Path, blip_folder: Path) -> None:
    for file in blip_folder.glob("*"):
        if file.name not in ("config.json", "model.safetensors"):
            shutil.copy(file, copied / file.name)
    for file in ("processor_config.json", "chat_template.jinja"):
        (copied / file).unlink()
    assert refusal(copied).code == "bad_config"


def test_a_template_that_fails_is_refused(copied: Path) -> None:
    (copied / "chat_template.jinja").write_text("{{ raise_exception('only the system may speak') }}")
    error = refusal(copied)
    assert (error.code, "only the system may speak" in error.detail) == ("bad_config", True)


def test_other_models_are_refused(vit_gpt2_folder: Path, blip_folder: Path, tmp_path: Path) -> None:
    assert refusal(vit_gpt2_folder).code == refusal(blip_folder).code == "bad_config"
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert "'bert'" in refusal(tmp_path).detail
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}, "vision_config": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own.py").write_text("raise SystemExit('code of a checkpoint ran')")
    assert refusal(tmp_path).code == "bad_config"
