import pytest
from pydantic import ValidationError

from models.families.compact.config import CompactConfig


def test_a_config_survives_its_file() -> None:
    config = CompactConfig(vocab_size=3000, encoder_layers=2)
    assert CompactConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"vocab_size": 100, "width": 100, "heads": 3}, "width 100 is not a multiple of heads 3"),
        ({"vocab_size": 100, "layers": 4}, "layers"),
        ({}, "vocab_size"),
        ({"vocab_size": 100, "end_id": 100}, "must be below 100"),
        ({"vocab_size": 100, "end_id": 2}, "start and end differ"),
        ({"vocab_size": 100, "pad_id": -1}, "pad_id"),
        ({"vocab_size": 100, "stem_blocks": 8}, "stem_blocks"),
        ({"vocab_size": 100, "vision": "resnet50"}, "'resnet50' is none of tf_efficientnet_lite0"),
    ],
)
def test_what_fits_no_network_is_refused(facts: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CompactConfig.model_validate(facts)
