"""BLIP captioners: the base and large checkpoints of its authors, SMILE's, and anything fine-tuned from them."""

from typing import Any, ClassVar

from torch import Tensor, nn
from transformers import BlipForConditionalGeneration

from models.families.fused.build import fuse_vision
from models.families.transformers_captioner import TransformersCaptioner


class BlipCaptioner(TransformersCaptioner):
    """``BlipForConditionalGeneration`` as a captioner.

    Text starts with [DEC] (``bos_token_id``) at position 0 and ends with [SEP]. There is no default prompt.
    """

    family: ClassVar[str] = "blip"
    model_class = BlipForConditionalGeneration
    model_type = "blip"
    cleans_up_spaces = True

    def __init__(self, model: Any, image_processor: Any, tokenizer: Any) -> None:
        super().__init__(model, image_processor, tokenizer)
        text = model.config.text_config
        self.vocab_size, self.max_positions = text.vocab_size, text.max_position_embeddings
        self.start_id, self.end_id, self.pad_id = text.bos_token_id, text.sep_token_id, text.pad_token_id

    @property
    def decoder(self) -> Any:
        return self.model.text_decoder

    @property
    def image_size_px(self) -> tuple[int, int]:
        size = self.model.config.vision_config.image_size
        return (size, size)

    decoder_arguments: ClassVar[dict[str, Any]] = {"is_decoder": True}

    @property
    def encoder_modules(self) -> list[nn.Module]:
        return [self.model.vision_model]

    def output_states(self, hidden: Tensor) -> Tensor:
        states: Tensor = self.decoder.cls.predictions.transform(hidden)
        return states

    def encode(self, pixels: Tensor) -> Tensor:
        """Memory (B, S, D): the class token and the patches."""
        pixels = self.upload(pixels)
        if self._runs_fused():
            return self._prepare("vision", self.model.vision_model, fuse_vision)(pixels)
        memory: Tensor = self.model.vision_model(pixel_values=pixels).last_hidden_state
        return memory
