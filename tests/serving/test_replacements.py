"""What the ingress does while captioners are lost or replaced by those of another version."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

from models.errors import OverloadedError, UnknownNameError
from serving import ingress
from serving.ingress import RayBackend
from serving.messages import ScoreJob, ScoreReply
from tests.serving.test_ingress import JOB, backend

LOST = ActorDiedError()
AWAY = ActorUnavailableError("its node does not answer", None)
REPLY = ScoreReply(())
OTHER = UnknownNameError("unknown_model", "no model 'fake' here; there are: other")


class Captioner:
    """Answers jobs one after the other as told, and is ready for some models."""

    def __init__(self, answers: Iterable[object], models: Iterable[str] | None = ("fake",)) -> None:
        self._answers = iter(answers)
        self.models = models
        self.jobs = 0

    async def __call__(self, *arguments: object) -> Any:
        if not any(isinstance(argument, ScoreJob) for argument in arguments):
            if self.models is None:
                raise LOST
            return frozenset(self.models)
        self.jobs += 1
        answer = next(self._answers)
        if isinstance(answer, RayError):
            raise answer
        return answer


@pytest.mark.parametrize("error", [LOST, AWAY])
def test_a_job_that_is_lost_with_its_captioner_goes_to_another(error: RayError) -> None:
    captioner = Captioner([error, REPLY])
    assert asyncio.run(backend(captioner).score(JOB)) == REPLY
    assert captioner.jobs == 2


def test_only_once() -> None:
    captioner = Captioner([LOST, LOST, REPLY])
    with pytest.raises(OverloadedError) as caught:
        asyncio.run(backend(captioner).score(JOB))
    assert (caught.value.code, captioner.jobs) == ("unavailable", 2)


def test_without_another_it_is_refused() -> None:
    captioner = Captioner([LOST, REPLY])
    found = backend(captioner)

    async def scenario() -> None:
        assert await found.ready()
        captioner.models = None
        with pytest.raises(OverloadedError):
            await found.score(JOB)

    asyncio.run(scenario())
    assert captioner.jobs == 1


def test_what_fails_in_the_captioner_is_not_tried_again() -> None:
    captioner = Captioner([RayError("a bug"), REPLY])
    with pytest.raises(OverloadedError):
        asyncio.run(backend(captioner).score(JOB))
    assert captioner.jobs == 1


def test_captioners_of_another_version_are_passed_over() -> None:
    captioner = Captioner([OTHER, OTHER, REPLY])
    assert asyncio.run(backend(captioner).score(JOB)) == REPLY


def test_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress, "_PASSED_ON_S", 0.0)
    captioner = Captioner([OTHER] * 100)
    with pytest.raises(OverloadedError, match="'fake' now: it is being replaced") as caught:
        asyncio.run(backend(captioner).score(JOB))
    assert caught.value.code == "unavailable"
    assert captioner.jobs < 100


def test_a_new_ingress_waits_for_a_captioner_with_its_models() -> None:
    captioner = Captioner([], models=("before",))

    async def scenario() -> None:
        waiting = asyncio.create_task(backend(captioner).until_models_are_there())
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.3)
        captioner.models = None  # the last of the others is gone
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.3)
        captioner.models = ("fake", "another")
        await asyncio.wait_for(waiting, 10)

    asyncio.run(scenario())


def test_but_not_for_one_that_does_not_answer() -> None:
    silent: RayBackend = backend(Captioner([], models=None))
    asyncio.run(asyncio.wait_for(silent.until_models_are_there(), 10))
