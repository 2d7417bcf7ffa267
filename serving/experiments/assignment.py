"""Which arm a unit gets, and which requests are scored: pure functions of stable hashes, equal in every process."""

import math
from collections.abc import Sequence
from hashlib import blake2b

from models.errors import RequestError, UnknownNameError
from serving.experiments.definition import Arm, Experiment

MAX_UNIT_CHARS = 256


def assign(experiments: Sequence[Experiment], name: str, unit: str | None) -> Arm:
    """The arm of experiment ``name`` that ``unit`` gets, always the same one.

    Raises:
        UnknownNameError: ``unknown_experiment``; the message lists what runs here.
        RequestError: ``invalid_request`` without a usable unit.
    """
    experiment = find_experiment(experiments, name)
    if not unit or len(unit) > MAX_UNIT_CHARS or not unit.isprintable():
        detail = (
            f"unit: experiment {name!r} needs one of 1 to {MAX_UNIT_CHARS} printable characters that stands for "
            "whoever sees the captions, such as a user id"
        )
        raise RequestError("invalid_request", detail)
    return arm_of(experiment, unit)


def find_experiment(experiments: Sequence[Experiment], name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        UnknownNameError: ``unknown_experiment``.
    """
    for experiment in experiments:
        if experiment.name == name:
            return experiment
    running = ", ".join(experiment.name for experiment in experiments) or "none"
    raise UnknownNameError("unknown_experiment", f"no experiment {name!r} runs here; there are: {running}")


def arm_of(experiment: Experiment, unit: str) -> Arm:
    """The arm that ``unit`` gets, in proportion to the weights.

    Weighted rendezvous hashing (Schindelhauer and Schomaker, 2005, "Weighted distributed hash tables"): the arm with
    the highest -w / ln u, where u is a uniform hash of (experiment, arm, unit). A weight that grows draws units to its
    arm only, one that falls lets them go from its arm only: no more of them move than must.
    """
    open_arms = [arm for arm in experiment.arms if arm.weight > 0]
    return max(open_arms, key=lambda arm: -arm.weight / math.log(uniform("arm", experiment.name, arm.label, unit)))


def is_scored(request_id: str, score_share: float) -> bool:
    """Whether a request is in the scored share: by its id alone, so alike in all arms."""
    return uniform("score", request_id) < score_share


def uniform(*parts: str) -> float:
    """A hash of the parts in (0, 1), never 0 and never 1; parts are told apart, ("ab", "c") from ("a", "bc")."""
    digest = blake2b(digest_size=8, person=b"limner-ab")
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4, "big") + data)
    return ((int.from_bytes(digest.digest(), "big") >> 12) + 0.5) / 2**52
