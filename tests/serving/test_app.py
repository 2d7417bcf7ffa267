"""The application as Ray Serve sees it: its arguments, and room so that every refusal is limner's own."""

import inspect

from ray.serve import Application

from serving.app import build_app
from serving.args import DEFAULT_LEDGER, AppArgs, MonitorArgs
from tests.serving.experiments.support import experiment


def deployments(application: Application) -> dict[str, object]:
    """Deployments by name, from the ingress down."""
    deployment = application._bound_deployment
    inner = [deployments(value) for value in deployment.init_args if isinstance(value, Application)]
    return {deployment.name: deployment, **{name: found for part in inner for name, found in part.items()}}


def test_a_config_file_can_name_it() -> None:
    [args] = inspect.signature(build_app).parameters.values()
    assert args.annotation is AppArgs  # Ray validates the file's ``args`` with the builder's annotation


def test_resources_and_room() -> None:
    args = AppArgs(models=("fake",), device="cpu")
    found = deployments(build_app(args))
    options = {name: deployment.ray_actor_options for name, deployment in found.items()}  # type: ignore[attr-defined]
    assert {name: option["num_cpus"] for name, option in options.items()} == {
        "Ingress": 0,
        "Captioner": 1,
        "Monitor": 0,
        "Scorer": 0,
    }
    assert options["Captioner"]["num_gpus"] == 0
    for name in ("Ingress", "Captioner"):
        assert found[name].max_ongoing_requests > args.limits.max_queue_images  # type: ignore[attr-defined]


def test_the_ledger_is_there_where_experiments_run() -> None:
    found = deployments(build_app(AppArgs(models=("fake",), experiments=(experiment(),))))
    ledger = found["Ledger"]
    assert (ledger.num_replicas, ledger.ray_actor_options["num_cpus"]) == (1, 0)  # type: ignore[attr-defined]
    assert ledger.init_args == (DEFAULT_LEDGER,)  # type: ignore[attr-defined]


def test_an_update_has_successors_first_and_lets_requests_finish() -> None:
    args = AppArgs(models=("fake",), experiments=(experiment(),), ledger="postgresql://limner@db/ledger")
    configs = {name: found._deployment_config for name, found in deployments(build_app(args)).items()}  # type: ignore[attr-defined]
    assert [name for name, config in configs.items() if config.max_surge_percent] == ["Ingress", "Monitor", "Ledger"]
    captioner_s, ingress_s = (configs[name].graceful_shutdown_timeout_s for name in ("Captioner", "Ingress"))
    assert args.limits.deadline_s < captioner_s < ingress_s


def test_a_ledger_in_a_file_never_has_two_owners() -> None:
    found = deployments(build_app(AppArgs(models=("fake",), experiments=(experiment(),))))
    assert found["Ledger"]._deployment_config.max_surge_percent == 0  # type: ignore[attr-defined]


def test_where_nothing_is_to_be_scored_there_is_no_process_for_it() -> None:
    nothing_to_score = MonitorArgs(sample_share=0)
    for args in (AppArgs(models=("fake",), scorer=None), AppArgs(models=("fake",), monitor=nothing_to_score)):
        assert "Scorer" not in deployments(build_app(args))


def test_a_gpu_is_asked_for_by_name() -> None:
    found = deployments(build_app(AppArgs(models=("fake",), device="cuda")))
    assert found["Captioner"].ray_actor_options["num_gpus"] == 1  # type: ignore[attr-defined]
