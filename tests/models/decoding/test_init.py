import math
import subprocess
import sys

import pytest

from models.decoding import STRATEGIES, parse_decode
from models.decoding.beam import Beam
from models.errors import RequestError
from models.lookup import resolve


def test_default_is_beam_3() -> None:
    strategy = parse_decode(None)
    assert isinstance(strategy, Beam)
    assert (strategy.options.beams, strategy.options.max_tokens) == (3, 40)


def test_parsing_loads_no_torch() -> None:
    code = """
import sys
from models.decoding import STRATEGIES, parse_decode
for name in STRATEGIES:
    parse_decode({"name": name}).rows(1)
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_options_round_trip(name: str) -> None:
    strategy = parse_decode({"name": name, "options": {"max_tokens": 7}})
    again = parse_decode({"name": name, "options": strategy.options.model_dump()})
    assert again == strategy
    assert hash(again) == hash(strategy)
    assert strategy.name == name
    assert type(strategy) is resolve("decoding strategy", STRATEGIES, name)
    assert strategy != parse_decode({"name": name, "options": {"max_tokens": 8}})


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_guidance_is_a_part_of_every_strategy(name: str) -> None:
    plain = parse_decode({"name": name})
    guided = parse_decode({"name": name, "guidance": 2})
    assert (plain.guidance, guided.guidance) == (1.0, 2.0)
    assert plain == parse_decode({"name": name, "guidance": 1})
    assert plain != guided
    assert len({plain, guided}) == len({plain.group_key(), guided.group_key()}) == 2
    assert "guidance" not in plain.to_plain()
    assert guided.to_plain()["guidance"] == 2.0
    for strategy in (plain, guided):
        assert parse_decode(strategy.to_plain()) == strategy
    assert "guidance=2.0" in repr(guided)


def test_strategies_group_by_everything_but_the_seed() -> None:
    one, two, three = (parse_decode({"name": "sample", "options": {"seed": seed}}) for seed in (1, 2, None))
    assert one != two
    assert one.group_key() == two.group_key() == three.group_key()
    assert one.seed == 1
    hotter = parse_decode({"name": "sample", "options": {"seed": 1, "temperature": 2}})
    assert hotter.group_key() != one.group_key()
    assert len({parse_decode({"name": name}).group_key() for name in STRATEGIES}) == len(STRATEGIES)


def test_an_int_may_stand_for_a_float() -> None:
    assert parse_decode({"name": "beam", "options": {"length_penalty": 2}}).options.length_penalty == 2.0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"name": "bean"}, ["'bean'", "beam, diverse_beam, greedy, sample"]),
        ({"name": "beam", "beams": 3}, ["'beams'", "name, options"]),
        ({"options": {}}, ["decode.name", "None"]),
        ({"name": "beam", "guidance": -0.1}, ["decode.guidance", "-0.1", "0 to 10"]),
        ({"name": "beam", "guidance": 10.5}, ["decode.guidance", "10.5", "0 to 10"]),
        ({"name": "beam", "guidance": math.nan}, ["decode.guidance", "nan"]),
        ({"name": "beam", "guidance": math.inf}, ["decode.guidance", "inf"]),
        ({"name": "beam", "guidance": "2"}, ["decode.guidance", "'2'", "a number"]),
        ({"name": "beam", "guidance": True}, ["decode.guidance", "True"]),
        ({"name": "beam", "guidance": None}, ["decode.guidance", "None"]),
        ({"guidance": 11}, ["decode.guidance", "11"]),
        ({"guidance": 2, "options": {}}, ["decode.name", "None"]),
        ([], ["object", "list"]),
        ({"name": "beam", "options": [1]}, ["options", "list"]),
        ({"name": "beam", "options": {"bems": 3}}, ["'bems'", "beams, early_stopping", "'beam'"]),
        ({"name": "greedy", "options": {"beams": 3}}, ["'beams'", "'greedy'"]),
        ({"name": "beam", "options": {"beams": 65}}, ["'beams'", "65", "1 to 64"]),
        ({"name": "beam", "options": {"beams": 0}}, ["'beams'", "is 0", "1 to 64"]),
        ({"name": "beam", "options": {"beams": "twenty"}}, ["'twenty'", "an integer"]),
        ({"name": "beam", "options": {"beams": True}}, ["True", "an integer"]),
        ({"name": "beam", "options": {"beams": 3.0}}, ["3.0", "an integer"]),
        ({"name": "beam", "options": {"early_stopping": 1}}, ["'early_stopping'", "true or false"]),
        ({"name": "beam", "options": {"length_penalty": math.nan}}, ["nan", "a number"]),
        ({"name": "beam", "options": {"length_penalty": False}}, ["False", "a number"]),
        ({"name": "beam", "options": {"max_tokens": 513}}, ["'max_tokens'", "513", "1 to 512"]),
        ({"name": "beam", "options": {"min_tokens": 50}}, ["min_tokens 50", "max_tokens 40"]),
        ({"name": "diverse_beam", "options": {"beams": 7}}, ["groups 3", "beams 7"]),
        ({"name": "sample", "options": {"temperature": 0}}, ["'temperature'", "is 0", "greedy"]),
        ({"name": "sample", "options": {"temperature": math.inf}}, ["inf", "0.01"]),
        ({"name": "sample", "options": {"top_p": 0.0}}, ["'top_p'", "above 0.0"]),
        ({"name": "sample", "options": {"top_k": -1}}, ["'top_k'", "-1"]),
        ({"name": "sample", "options": {"seed": 2**63}}, ["'seed'", str(2**63), "null"]),
        ({"name": "sample", "options": {"seed": "x" * 500}}, ["'seed'", "..."]),
    ],
)
def test_refusals_name_option_value_and_what_is_allowed(raw: object, words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        parse_decode(raw)  # type: ignore[arg-type]
    assert caught.value.code == "invalid_request"
    for word in words:
        assert word in caught.value.detail
    assert len(caught.value.detail) < 300
