"""Captioners made of an image encoder and a GPT-2 or BERT decoder, such as the ViT-GPT2 checkpoints."""

from typing import Any, ClassVar

from torch import Tensor, nn
from transformers import VisionEncoderDecoderModel

from models.errors import CheckpointError
from models.families.transformers_captioner import TransformersCaptioner

_DECODERS = {"gpt2": False, "bert": True}
"""Supported decoders: they take explicit positions, which prompts of different lengths need. Value: word pieces?"""


class VisionEncoderDecoderCaptioner(TransformersCaptioner):
    """``VisionEncoderDecoderModel`` as a captioner; start, end and padding as its (generation) config says."""

    family: ClassVar[str] = "vision_encoder_decoder"
    model_class = VisionEncoderDecoderModel
    model_type = "vision-encoder-decoder"

    def __init__(self, model: Any, image_processor: Any, tokenizer: Any) -> None:
        model.decoder.set_attn_implementation("eager")  # the only one that gives attention weights
        super().__init__(model, image_processor, tokenizer)
        decoder = model.config.decoder
        self.cleans_up_spaces = _DECODERS[decoder.model_type]
        self.vocab_size, self.max_positions = decoder.vocab_size, decoder.max_position_embeddings
        self.start_id = self._special_id("decoder_start_token_id", "bos_token_id")
        self.end_id = self._special_id("eos_token_id")
        self.pad_id = self._special_id("pad_token_id", "eos_token_id")

    @classmethod
    def check_config(cls, config: Any, source: str) -> None:
        found = config.decoder.model_type
        if found not in _DECODERS:
            known = " or ".join(sorted(_DECODERS))
            raise CheckpointError("bad_config", f"{source} has a decoder of type {found!r}; supported: {known}")

    @property
    def decoder(self) -> Any:
        return self.model.decoder

    @property
    def image_size_px(self) -> tuple[int, int]:
        size = self.model.config.encoder.image_size
        return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))

    @property
    def encoder_modules(self) -> list[nn.Module]:
        projection = getattr(self.model, "enc_to_dec_proj", None)
        return [self.model.encoder] if projection is None else [self.model.encoder, projection]

    def output_states(self, hidden: Tensor) -> Tensor:
        if self.model.config.decoder.model_type == "gpt2":
            return hidden
        states: Tensor = self.decoder.cls.predictions.transform(hidden)
        return states

    def encode(self, pixels: Tensor) -> Tensor:
        """Memory (B, S, D), projected to the decoder's width where the checkpoint has a projection."""
        memory: Tensor = self.model.encoder(pixel_values=self.upload(pixels)).last_hidden_state
        if hasattr(self.model, "enc_to_dec_proj"):
            memory = self.model.enc_to_dec_proj(memory)
        return memory

    def _special_id(self, *names: str) -> int:
        """The first of the ids that the generation config, the config or the decoder's config gives."""
        for name in names:
            for config in (self.model.generation_config, self.model.config, self.model.config.decoder):
                value = getattr(config, name, None)
                if isinstance(value, int):
                    return value
        raise CheckpointError("bad_config", f"the config gives no {names[0]}, and only single ids are supported")
