"""What a multimodal language model reads before its answer: its chat template around a picture and an instruction."""

from collections.abc import Sequence
from typing import Any

from PIL import Image
from torch import Tensor

from models.errors import CheckpointError, RequestError

DEFAULT_INSTRUCTION = "Describe the following image."


class InstructionPrompt:
    """Model inputs from a processor of ``transformers``, padded on the left so that all rows go on in one column.

    Checkpoints without a chat template, such as PaliGemma's, read the picture's token and then the instruction.
    """

    def __init__(self, processor: Any, source: str) -> None:
        if not hasattr(processor, "tokenizer"):  # AutoProcessor may find a tokenizer or an image processor alone
            detail = f"{source} lacks processor_config.json: nothing says how its tokens and pictures go together"
            raise CheckpointError("bad_config", detail)
        self.processor, self.tokenizer = processor, processor.tokenizer
        self._picture_token = getattr(processor, "image_token", None)
        self._template = getattr(processor, "chat_template", None) or self.tokenizer.chat_template
        if not self._template and not self._picture_token:
            detail = f"the processor of {source} has neither a chat template nor a token that stands for a picture"
            raise CheckpointError("bad_config", f"{detail}: it takes no instructions")
        if isinstance(self._template, dict):  # several, by name
            self._template = self._template.get("default")
        if self.tokenizer.pad_token is None:  # what stands in the padding is masked
            self.tokenizer.pad_token = self.tokenizer.eos_token
        added = self.tokenizer.added_tokens_decoder.values()
        self._control_tokens = {token.content for token in added if token.special}

    def inputs(self, pictures: Sequence[Image.Image], instructions: Sequence[str]) -> dict[str, Tensor]:
        """``input_ids`` and ``attention_mask`` (B, P), and whatever else the model takes for B pictures.

        Raises:
            RequestError: ``invalid_request`` for an instruction with a control token, such as one for a picture.
        """
        for instruction in instructions:
            self._check(instruction)
        padding = {"padding": True, "padding_side": "left"}
        pairs = list(zip(pictures, instructions, strict=True))
        if self._template:
            chats = [_chat(picture, instruction) for picture, instruction in pairs]
            options = {"chat_template": self._template, "add_generation_prompt": True, "tokenize": True}
            made = self.processor.apply_chat_template(
                chats, **options, return_dict=True, return_tensors="pt", processor_kwargs=padding
            )
        else:
            texts = [f"{self._picture_token}{instruction}" for instruction in instructions]
            made = self.processor(
                text=texts, images=[[picture] for picture in pictures], return_tensors="pt", **padding
            )
        return {name: value for name, value in made.items() if isinstance(value, Tensor) and name != "labels"}

    def _check(self, instruction: str) -> None:
        for token in self._control_tokens:
            if token in instruction:
                raise RequestError("invalid_request", f"the prompt may not contain this model's token {token!r}")


def _chat(picture: Image.Image, instruction: str) -> list[dict[str, Any]]:
    content = [{"type": "image", "image": picture}, {"type": "text", "text": instruction}]
    return [{"role": "user", "content": content}]
