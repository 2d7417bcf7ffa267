"""One Ray Serve application for all tests of this folder that speak HTTP."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from models.catalog import DEFAULT_MODEL, DEFAULT_SCORER, list_models
from serving.args import AppArgs, KeyArgs, Limits
from serving.experiments.definition import Experiment, read_experiments
from serving.local import deployed, local_ray
from tests.serving.experiments.support import experiment
from tests.tiny_scorer import write_tiny_scorer

ROOT = Path(__file__).parents[2]
BODY_TIMEOUT_S = 2.0
MAX_QUEUE_IMAGES = 96
ADMIN_KEY = "an-admin-key-of-the-tests"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def served_models() -> tuple[str, ...]:
    """``fake``, and the bundled models that README names; ``LIMNER_TEST_MODEL`` names another."""
    if (wanted := os.environ.get("LIMNER_TEST_MODEL")) is not None:
        return ("fake", wanted)
    bundled = {entry.id for entry in list_models()}
    return ("fake", *(model for model in (DEFAULT_MODEL, "concise") if model in bundled))


def readme_experiments() -> tuple[Experiment, ...]:
    """Those of README, where the model of their arms is served."""
    return read_experiments(ROOT / "examples" / "style.yaml") if DEFAULT_MODEL in served_models() else ()


@pytest.fixture(scope="session")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The bundled scorer, or a tiny one where it is not there."""
    if DEFAULT_SCORER in {entry.id for entry in list_models()}:
        return DEFAULT_SCORER
    return f"local-dir:{write_tiny_scorer(tmp_path_factory.mktemp('scorer') / 'tiny')}"


@pytest.fixture(scope="session")
def ledger_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of the application's ledger."""
    return tmp_path_factory.mktemp("ledger") / "ledger.db"


@pytest.fixture(scope="session")
def served_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The application's folder of more models, empty at first."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def server(scorer: str, ledger_file: Path, served_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the application: ``fake`` is the default model, small bounds on queue and body time."""
    admin_keys = tmp_path_factory.mktemp("keys") / "admin"
    admin_keys.write_text(f"tests: {ADMIN_KEY}\n", "utf-8")
    args = AppArgs(
        models=served_models(),
        models_dir=served_dir,
        admin_keys=KeyArgs(file=admin_keys),
        scorer=scorer,
        device="cpu",
        limits=Limits(body_timeout_s=BODY_TIMEOUT_S, max_queue_images=MAX_QUEUE_IMAGES),
        experiments=(*(experiment(name=name) for name in ("tone", "kept", "load")), *readme_experiments()),
        ledger=f"sqlite:///{ledger_file}",
    )
    with local_ray(), deployed(args, "127.0.0.1", free_port()) as url:
        yield url


@pytest.fixture
def client(server: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture
def case_images() -> Path:
    return Path(__file__).parents[1] / "cases" / "images"
