"""Several Ray nodes on this machine, and the application on them as a cluster has it: declared in a Serve config,
behind Ray's HTTP proxy on the head."""

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psutil
import ray
from ray import serve
from ray.cluster_utils import Cluster
from ray.serve.config import HTTPOptions
from ray.serve.context import _get_global_client
from ray.serve.schema import LoggingConfig, ServeDeploySchema

from serving.proxy import CALLBACK
from tests.serving.conftest import ROOT

APP = "limner"
STORE_BYTES = 100 << 20

ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "OMP_NUM_THREADS": "1",
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": CALLBACK,
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "2",
    "RAY_worker_niceness": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""What every node's ``ray start`` has. A node that is silent is given up after five periods."""


@dataclass(frozen=True)
class Replica:
    """One process of a deployment, as Serve's controller knows it."""

    deployment: str
    replica_id: str
    state: str
    node_id: str | None


class Nodes:
    """The cluster: nodes come and are killed; the application is deployed from a process that is no part of it."""

    def __init__(self, cluster: Cluster, port: int, driver: ProcessPoolExecutor) -> None:
        self._cluster = cluster
        self._driver = driver
        self._nodes: dict[str, Any] = {}
        self.url = f"http://127.0.0.1:{port}"

    @property
    def alive(self) -> frozenset[str]:
        """The ids of the nodes, but for the head."""
        return frozenset(self._nodes)

    def add(self, **resources: float) -> str:
        """Start a node of one core; its id."""
        node = self._cluster.add_node(num_cpus=1, resources=resources, object_store_memory=STORE_BYTES)
        self._nodes[node.node_id] = node
        return str(node.node_id)

    def kill(self, node_id: str) -> None:
        """SIGKILL to all its processes at once, as if its machine had lost its power."""
        _kill(self._cluster, self._nodes.pop(node_id))

    def deploy(self, args: Mapping[str, Any], deployments: Sequence[Mapping[str, Any]]) -> None:
        """Ask for the application; does not wait for it."""
        self._driver.submit(_deploy, dict(args), list(deployments)).result()

    def replicas(self) -> list[Replica]:
        """All there are now."""
        return self._driver.submit(_replicas).result()

    def status(self) -> tuple[str, str]:
        """Of the application, and the messages of its deployments."""
        return self._driver.submit(_status).result()

    def until_status(self, wanted: str, within_s: float = 90) -> None:
        """Wait until the application's status is that."""
        give_up = time.monotonic() + within_s
        while (found := self.status())[0] != wanted:
            assert time.monotonic() < give_up, found
            time.sleep(0.1)

    def until(self, fits: Callable[[list[Replica]], bool], within_s: float = 90) -> list[Replica]:
        """The replicas, once they are as wanted."""
        give_up = time.monotonic() + within_s
        while not fits(found := self.replicas()):
            assert time.monotonic() < give_up, (found, self.status())
            time.sleep(0.1)
        return found


def settled(**wanted: int) -> Callable[[list[Replica]], bool]:
    """Whether there are exactly so many replicas of each deployment, all of which take requests."""

    def fits(found: list[Replica]) -> bool:
        running = Counter(each.deployment for each in found if each.state == "RUNNING")
        return len(found) == running.total() and all(running[name] == number for name, number in wanted.items())

    return fits


@contextmanager
def cluster(port: int, **head_resources: float) -> Iterator[Nodes]:
    """A cluster with a head that computes nothing, where Ray's proxy listens."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    head = {
        "num_cpus": 0,
        "resources": head_resources,
        "object_store_memory": STORE_BYTES,
        "include_dashboard": False,
    }
    driver = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    driver.submit(_load)  # it imports Ray while the head starts
    try:
        found = Cluster(initialize_head=True, head_node_args=head)
        try:
            driver.submit(_start, found.address, port).result()
            yield Nodes(found, port, driver)
            driver.submit(ray.shutdown).result()
        finally:
            driver.shutdown(cancel_futures=True)
            for node in [*found.worker_nodes, found.head_node]:
                _kill(found, node)  # nobody needs what they hold
            found.shutdown()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _kill(cluster: Cluster, node: Any) -> None:
    roots = [psutil.Process(each.process.pid) for found in node.all_processes.values() for each in found]
    everyone = [*roots, *(child for root in roots for child in root.children(recursive=True))]
    for process in everyone:
        with suppress(psutil.NoSuchProcess):  # it may have gone with its parent
            process.kill()
    cluster.remove_node(node, allow_graceful=False)


def _load() -> None:
    """Its import is all that is wanted."""


def _start(address: str, port: int) -> None:
    ray.init(address, namespace="serve", log_to_driver=False, logging_level="ERROR")
    http = HTTPOptions(host="127.0.0.1", port=port, request_timeout_s=None)
    quiet = LoggingConfig(log_level="WARNING", enable_access_log=False)
    serve.start(proxy_location="HeadOnly", http_options=http, logging_config=quiet)


def _deploy(args: dict[str, Any], deployments: list[Mapping[str, Any]]) -> None:
    application = {
        "name": APP,
        "route_prefix": "/",
        "import_path": "serving.app:build_app",
        "args": args,
        "deployments": deployments,
    }
    _get_global_client().deploy_apps(ServeDeploySchema.model_validate({"applications": [application]}))


def _replicas() -> list[Replica]:
    details = _get_global_client().get_serve_details()
    return [
        Replica(name, each["replica_id"], _text(each["state"]), each.get("node_id"))
        for name, deployment in details["applications"].get(APP, {"deployments": {}})["deployments"].items()
        for each in deployment["replicas"]
    ]


def _status() -> tuple[str, str]:
    found = serve.status().applications[APP]
    return _text(found.status), repr(found)


def _text(state: Any) -> str:
    return str(getattr(state, "value", state))
