"""Sessions of a toy captioner: whoever joins or leaves when, an image's captions are those that it gets alone."""

import random
from typing import Any

import pytest
import torch

from models.decoding import parse_decode
from models.decoding.loop import decode
from models.decoding.session import DecodeSession
from models.errors import RequestError
from tests.models.decoding.joining import decode_alone, decode_at_random, decode_side_by_side
from tests.models.decoding.toy import ToyCaptioner, random_model, table

IMAGES = 9
PROMPTS = ["ab", "", "c", "abcde", "a", "", "ff", "d", "abc"]
CASES: list[tuple[dict[str, Any], int]] = [
    ({"name": "greedy"}, 1),
    ({"name": "greedy", "options": {"repetition_penalty": 1.5, "min_tokens": 4}}, 1),
    ({"name": "beam"}, 1),
    ({"name": "beam", "options": {"beams": 4, "no_repeat_ngram": 2, "length_penalty": 0.3}}, 4),
    ({"name": "beam", "options": {"beams": 2, "early_stopping": True, "min_tokens": 3, "repetition_penalty": 1.2}}, 2),
    ({"name": "diverse_beam", "options": {"beams": 4, "groups": 2, "no_repeat_ngram": 1}}, 3),
    ({"name": "diverse_beam", "guidance": 2.0}, 6),
    ({"name": "sample", "options": {"top_k": 4, "temperature": 1.5, "no_repeat_ngram": 1}}, 3),
    ({"name": "sample", "guidance": 0.5}, 2),
]


def toy(images: int = IMAGES) -> ToyCaptioner:
    models = [random_model(seed + 40) for seed in range(images)]
    return ToyCaptioner(*models, max_positions=15, null=random_model(99))


def strategy_of(raw: dict[str, Any]) -> Any:
    return parse_decode({**raw, "options": {"max_tokens": 12, **raw.get("options", {})}})


@pytest.mark.parametrize(("raw", "count"), CASES)
@pytest.mark.parametrize("prompts", [None, PROMPTS], ids=["plain", "prompts"])
def test_captions_do_not_depend_on_who_joins_when(raw: dict[str, Any], count: int, prompts: list[str] | None) -> None:
    captioner, strategy = toy(), strategy_of(raw)
    case: dict[str, Any] = {"images": IMAGES, "prompts": prompts, "num_captions": count}
    alone = decode_alone(captioner, torch.tensor, strategy, **case)
    for seed in range(8):
        rng = random.Random(seed)
        assert decode_at_random(rng, captioner, torch.tensor, strategy, **case) == alone
        kept = decode_at_random(rng, captioner, torch.tensor, strategy, drops=0.2, **case)
        assert kept == {image: alone[image] for image in kept}


class Sharing(ToyCaptioner):
    """Takes the steps of several states together; ``together`` are their numbers."""

    capabilities = ToyCaptioner.capabilities | {"shared_steps"}

    def __init__(self) -> None:
        super().__init__(*[random_model(seed + 40) for seed in range(IMAGES)], max_positions=15, null=random_model(99))
        self.together: list[int] = []

    def step_together(self, states: Any, tokens: Any) -> list[torch.Tensor]:
        self.together.append(len(states))
        return [self.step(state, own) for state, own in zip(states, tokens, strict=True)]


@pytest.mark.parametrize("shares", [True, False])
def test_sessions_of_any_strategy_take_their_steps_together(shares: bool) -> None:
    captioner: Any = Sharing()
    if not shares:
        captioner.capabilities -= {"shared_steps"}
    strategies, counts = [strategy_of(raw) for raw, _ in CASES], [count for _, count in CASES]
    alone = [
        decode_alone(captioner, torch.tensor, strategy, images=IMAGES, num_captions=count)
        for strategy, count in zip(strategies, counts, strict=True)
    ]
    captioner.together.clear()
    for seed in range(5):
        case: dict[str, Any] = {"images": IMAGES, "num_captions": counts}
        found = decode_side_by_side(random.Random(seed), captioner, torch.tensor, strategies, **case)
        assert found == alone
    # two of the nine are guided, with a state for pictures and one without
    assert max(captioner.together, default=0) == (11 if shares else 0)


def test_images_leave_as_soon_as_they_are_done() -> None:
    captioner = ToyCaptioner(table({"": {"a": 1.0}}), table({"": {"a": 1.0}, "a": {"b": 1.0}, "ab": {"c": 1.0}}))
    session = DecodeSession(captioner, parse_decode({"name": "greedy"}))  # type: ignore[arg-type]
    assert list(session.add(captioner.memory, batch=2)) == [0, 1]
    assert session.step() == {}
    assert [captioner.detokenize(done.tokens) for done in session.step()[0]] == ["a"]
    assert session.images == (1,)
    assert list(session.add(captioner.memory[:1], batch=1)) == [2]
    assert session.step() == {}
    assert sorted(session.step()) == [1, 2]
    assert session.images == ()
    assert captioner.steps == 3  # nothing is decoded for images that are done


def test_a_session_that_ran_empty_goes_on() -> None:
    captioner = toy(2)
    session = DecodeSession(captioner, strategy_of({"name": "beam"}))  # type: ignore[arg-type]
    found = {}
    for image in range(2):
        session.add(torch.tensor([image]), batch=1)
        session.add(torch.tensor([1 - image]), batch=1)
        session.drop({session.images[-1]})
        while session.images:
            found.update(session.step())
    assert found == {0: decode_alone(captioner, torch.tensor, strategy_of({"name": "beam"}), images=2)[0]} | {
        2: decode_alone(captioner, torch.tensor, strategy_of({"name": "beam"}), images=2)[1]
    }


def test_who_cannot_merge_takes_more_when_nobody_is_under_way() -> None:
    captioner = toy(2)
    captioner.capabilities -= {"joining"}
    session = DecodeSession(captioner, strategy_of({"name": "greedy"}))  # type: ignore[arg-type]
    assert session.takes_more
    session.add(captioner.memory[:2], batch=2)
    assert not session.takes_more
    found = {}
    while session.images:
        found.update(session.step())  # they may still leave one by one
    assert [found[0], found[1]] == decode(captioner, captioner.memory[:2], strategy_of({"name": "greedy"}), batch=2)  # type: ignore[arg-type]
    assert session.takes_more


def test_what_cannot_be_had_is_refused_before_anything_runs() -> None:
    captioner = toy(1)
    with pytest.raises(RequestError, match="num_captions 4 is more than the 3"):
        DecodeSession(captioner, strategy_of({"name": "beam"}), 4)  # type: ignore[arg-type]
    session = DecodeSession(captioner, strategy_of({"name": "beam"}))  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="more than the 13 tokens"):
        session.add(captioner.memory[:1], batch=1, prompts=["abcdef" * 3])
    assert session.images == ()
