"""The application as Ray Serve sees it: its arguments, and room so that every refusal is limner's own."""

import inspect

import pytest
from ray.serve import Application

from serving.app import build_app
from serving.args import DEFAULT_LEDGER, AppArgs, MonitorArgs
from serving.captioner import threads_of
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


@pytest.mark.parametrize(
    ("captioners", "cards", "share"), [(1, 1, 1), (4, 4, 1), (2, 1, 0.5), (3, 2, 0.5), (3, 1, 0.3333), (2, 8, 1)]
)
def test_captioners_have_a_gpu_each_or_share_them(
    monkeypatch: pytest.MonkeyPatch, captioners: int, cards: int, share: float
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    monkeypatch.setattr("ray.cluster_resources", lambda: {"GPU": float(cards)})
    found = deployments(build_app(AppArgs(models=("fake",), captioners=captioners)))["Captioner"]
    assert found.num_replicas == captioners  # type: ignore[attr-defined]
    assert found.ray_actor_options["num_gpus"] == share  # type: ignore[attr-defined]
    on_one = int(1 / share)
    assert on_one * cards >= captioners, "there is no place for all"


@pytest.mark.parametrize(
    ("captioners", "threads", "cores", "wanted"), [(1, None, 8, 8), (3, None, 8, 2), (8, None, 8, 1), (3, 5, 8, 5)]
)
def test_captioners_share_the_cores(
    monkeypatch: pytest.MonkeyPatch, captioners: int, threads: int | None, cores: int, wanted: int
) -> None:
    monkeypatch.setattr("serving.captioner.usable_cores", lambda: cores)
    assert threads_of(AppArgs(captioners=captioners, threads=threads)) == wanted
