"""Captioner families: adapters that make a kind of model a ``models.interfaces.Captioner``. Loads no torch."""

FAMILIES: dict[str, str] = {
    "blip": "models.families.blip:BlipCaptioner",
    "compact": "models.families.compact:CompactCaptioner",
    "fake": "models.families.fake:FakeCaptioner",
    "vision_encoder_decoder": "models.families.vision_encoder_decoder:VisionEncoderDecoderCaptioner",
    "vlm": "models.families.vlm:VlmCaptioner",
}
