"""The number of captioner replicas follows the images that they have in hand."""

import asyncio
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve._private.autoscaling_state import _apply_autoscaling_config, _resolve_policy_callable
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from serving.app import build_app
from serving.args import AppArgs
from serving.autoscaling import IMAGES_IN_HAND, ImagesInHand, InHand
from serving.captioner import Captioner
from serving.messages import Failure
from tests.serving.test_app import deployments

POLICY = "serving.autoscaling:ImagesInHand"


def context(told: Mapping[str, float], running: int, target: int | None = None, **config: Any) -> AutoscalingContext:
    """What Ray tells a policy: images by replica, and how many replicas there are and should be."""
    return AutoscalingContext(
        deployment_id=None,  # type: ignore[arg-type]
        deployment_name="Captioner",
        app_name="limner",
        current_num_replicas=running,
        target_num_replicas=running if target is None else target,
        running_replicas=list(range(running)),  # type: ignore[arg-type]
        total_num_requests=0.0,
        total_queued_requests=0.0,
        aggregated_metrics={IMAGES_IN_HAND: told} if told else {},  # type: ignore[dict-item]
        raw_metrics={},
        capacity_adjusted_min_replicas=1,
        capacity_adjusted_max_replicas=8,
        policy_state={},
        last_scale_up_time=None,
        last_scale_down_time=None,
        current_time=time.time(),
        config=AutoscalingConfig(min_replicas=1, max_replicas=8, **config),
    )


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ({"a": 0}, 0),
        ({"a": 16}, 1),
        ({"a": 40}, 2.5),
        ({"a": 8, "b": 8, "c": 0}, 1),
        ({"a": 96, "b": 0}, 6),
    ],
)
def test_it_shares_the_images_out(told: dict[str, float], wanted: float) -> None:
    assert ImagesInHand(target_images=16)(context(told, running=len(told))) == (wanted, {})


def test_none_is_taken_away_while_one_has_not_told_yet() -> None:
    policy = ImagesInHand(target_images=16)
    assert policy(context({"a": 0}, running=3)) == (3, {})
    assert policy(context({"a": 96}, running=3)) == (6, {})  # what is known may still ask for more
    assert policy(context({}, running=2, target=4)) == (4, {})  # after a restart of the controller
    assert policy(context({}, running=0, target=1)) == (1, {})


@pytest.mark.parametrize("target", [0, -1, float("nan"), float("inf"), 1e-320, 10**400, "16", None, True])
def test_a_target_that_is_none_is_refused(target: Any) -> None:
    with pytest.raises(ValueError, match=f"target_images is {target!r}; give a number of images above 0"):
        ImagesInHand(target)


def test_ray_takes_it_by_its_name_with_factors_and_delays() -> None:
    policy = AutoscalingPolicy(policy_function=POLICY, policy_kwargs={"target_images": 10})
    decide = _apply_autoscaling_config(_resolve_policy_callable(policy))  # as Ray's controller does
    assert decide(context({"a": 45}, running=1, upscale_delay_s=0))[0] == 5
    assert decide(context({"a": 45}, running=1, upscale_delay_s=30))[0] == 1
    assert decide(context({"a": 45}, running=1, upscale_delay_s=0, upscaling_factor=0.5))[0] == 3
    assert decide(context({"a": 5, "b": 4, "c": 0}, running=3, downscale_delay_s=0))[0] == 1
    assert decide(context({"a": 5, "b": 4, "c": 0}, running=3, downscale_delay_s=300))[0] == 3


def test_replicas_tell_the_images_that_they_have_not_answered() -> None:
    methods = Captioner.func_or_class  # type: ignore[attr-defined]
    seen = []

    async def answer(_job: object, _times: None) -> None:
        seen.append(methods.record_autoscaling_stats(replica))
        raise RuntimeError("counted out all the same")

    replica = SimpleNamespace(_spans=None, _in_hand=InHand(), _engine=SimpleNamespace(caption=answer, score=answer))
    job = SimpleNamespace(images=(b"one", Failure("bad_base64", "never came"), b"two"))
    for method in (methods.caption, methods.score):
        with pytest.raises(RuntimeError):
            asyncio.run(method(replica, job))
    assert seen == [{IMAGES_IN_HAND: 2}] * 2
    assert methods.record_autoscaling_stats(replica) == {IMAGES_IN_HAND: 0}


def test_without_a_config_file_one_replica_is_what_there_is() -> None:
    captioner: Any = deployments(build_app(AppArgs(models=("fake",))))["Captioner"]
    assert captioner._deployment_config.autoscaling_config is None
    assert captioner.num_replicas == 1
