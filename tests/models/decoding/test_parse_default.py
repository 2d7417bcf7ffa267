from models.card import Named
from models.decoding import parse_decode


def test_a_cards_decoding_stands_for_what_a_request_leaves_out() -> None:
    own = Named(name="beam", options={"beams": 2, "length_penalty": 0.6})
    assert parse_decode(None, own) == parse_decode(own.model_dump())
    assert parse_decode({"name": "greedy"}, own).name == "greedy"
    assert parse_decode(None).options.beams == 3  # type: ignore[attr-defined]
