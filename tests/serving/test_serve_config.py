"""``deploy/serve.yaml`` is what Ray and limner take, and says of every limit what it is."""

import re
from collections.abc import Iterable
from typing import Any

import pytest
from pydantic import BaseModel
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy
from ray.serve.schema import (
    DeploymentSchema,
    HTTPOptionsSchema,
    LoggingConfig,
    RayActorOptionsSchema,
    ServeApplicationSchema,
    ServeDeploySchema,
)

from serving.api_keys import read_api_keys
from serving.app import build_app
from serving.args import AppArgs, KeyArgs, Limits
from serving.autoscaling import ImagesInHand
from serving.proxy import CALLBACK
from serving.served_models import ServedModels
from tests.serving.experiments.support import experiment
from tests.serving.rayservice import SERVE_CONFIG, serve_config
from tests.serving.test_app import deployments

TEXT = SERVE_CONFIG.read_text("utf-8")
[APPLICATION] = serve_config()["applications"]
OVERRIDES: dict[str, dict[str, Any]] = {each["name"]: each for each in APPLICATION["deployments"]}
ARGS = AppArgs.model_validate(APPLICATION["args"])


def parts() -> Iterable[tuple[dict[str, Any], type[BaseModel]]]:
    """Every mapping of the file with the schema that Ray has for it."""
    config = serve_config()
    yield config, ServeDeploySchema
    yield config["http_options"], HTTPOptionsSchema
    yield config["logging_config"], LoggingConfig
    yield APPLICATION, ServeApplicationSchema
    for options in OVERRIDES.values():
        yield options, DeploymentSchema
        yield options["ray_actor_options"], RayActorOptionsSchema
    yield OVERRIDES["Captioner"]["autoscaling_config"], AutoscalingConfig
    yield OVERRIDES["Captioner"]["autoscaling_config"]["policy"], AutoscalingPolicy


def test_ray_takes_it_and_knows_every_key() -> None:
    ServeDeploySchema.model_validate(serve_config())
    for given, schema in parts():  # Ray overlooks a key that it does not know
        assert given.keys() <= schema.model_fields.keys(), schema.__name__


def test_its_deployments_are_those_of_the_application() -> None:
    built = deployments(build_app(ARGS))
    assert set(OVERRIDES) == set(built)
    with_experiments = ARGS.model_copy(update={"experiments": (experiment(),)})
    assert set(deployments(build_app(with_experiments))) - set(OVERRIDES) == {"Ledger"}  # its own options are right


def test_the_models_are_there_without_the_folder() -> None:
    assert ARGS.models_dir is not None and not ARGS.models_dir.exists()
    ServedModels.from_args(ARGS)


def test_every_limit_stands_there_with_its_default_and_meaning() -> None:
    assert APPLICATION["args"]["limits"].keys() == Limits.model_fields.keys()
    assert ARGS.limits == Limits()
    for name, field in Limits.model_fields.items():
        [comment] = re.findall(rf"^ +{name}: \S+ # (.*)$", TEXT, re.MULTILINE)
        assert comment.startswith(str(field.description)), name


def test_replicas_follow_the_images() -> None:
    scaling = OVERRIDES["Captioner"]["autoscaling_config"]
    policy = scaling["policy"]
    assert policy["policy_function"] == f"{ImagesInHand.__module__}:{ImagesInHand.__name__}"
    ImagesInHand(**policy["policy_kwargs"])
    assert policy["policy_kwargs"]["target_images"] < ARGS.limits.max_queue_images  # else a full queue adds nobody


def test_nothing_is_cut_off_before_its_deadline() -> None:
    assert not any("graceful_shutdown_timeout_s" in options for options in OVERRIDES.values())  # the application knows
    assert serve_config()["http_options"]["request_timeout_s"] is None


def test_torch_has_the_threads_that_ray_counts() -> None:
    assert ARGS.threads == OVERRIDES["Captioner"]["ray_actor_options"]["num_cpus"]
    assert (ARGS.device, OVERRIDES["Captioner"]["ray_actor_options"]["num_gpus"]) == ("cpu", 0)


def test_it_holds_no_secret_and_names_where_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.fullmatch(r"postgresql://\w+@[\w.]+:5432/\w+", ARGS.ledger)  # a user, no password
    [suggested] = re.findall(r"api_keys: null # \{env: (\w+)\}", TEXT)
    monkeypatch.setenv(suggested, "a-client: a-key-that-is-long-enough")
    assert read_api_keys(KeyArgs(env=suggested))
    assert f"RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH={CALLBACK}" in TEXT
