from models.card import Decoding
from models.decoding import parse_decode


def test_a_cards_decoding_stands_for_what_a_request_leaves_out() -> None:
    own = Decoding(name="beam", options={"beams": 2, "length_penalty": 0.6})
    assert parse_decode(None, own) == parse_decode(own.model_dump())
    assert parse_decode({"name": "greedy"}, own).name == "greedy"
    assert parse_decode(None).options.beams == 3  # type: ignore[attr-defined]


def test_a_cards_guidance_counts_until_a_request_says_otherwise() -> None:
    own = Decoding(name="greedy", options={"max_tokens": 9}, guidance=1.5)
    assert parse_decode(None, own) == parse_decode(own.model_dump())
    assert parse_decode(None, own).guidance == 1.5
    assert parse_decode({"guidance": 1}, own) == parse_decode({"name": "greedy", "options": {"max_tokens": 9}})
    assert parse_decode({"name": "greedy"}, own).guidance == 1.0  # a strategy named takes nothing from the card


def test_guidance_alone_keeps_the_rest_of_the_default() -> None:
    assert parse_decode({"guidance": 2}) == parse_decode({"name": "beam", "guidance": 2.0})
