"""``deploy/serve.yaml`` deployed, smaller, on a node that has the environment of ``deploy/kuberay``."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import psutil
import pytest

from tests.figures import Figures
from tests.serving.conftest import free_port
from tests.serving.ray_node import RayNode, ray_node
from tests.serving.rayservice import container, groups, serve_config
from tests.serving.support import b64, pictures

FASTER = {"RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.5"}
GPUS = 2
PREFIX = "/pictures"


@pytest.fixture(scope="module")
def node() -> Iterator[RayNode]:
    """With two GPUs that are declared and not there."""
    env = {each["name"]: each["value"] for each in container(dict(groups())["head"])["env"] if "value" in each}
    with ray_node({**env, **FASTER}, "--num-cpus=8", f"--num-gpus={GPUS}", "--object-store-memory=200000000") as node:
        yield node


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """That of the file, with one replica of each kind that starts at once, on half a GPU, and scales out soon."""
    config = serve_config()
    config["http_options"].update(host="127.0.0.1", port=free_port())
    [application] = config["applications"]
    application["route_prefix"] = PREFIX
    application["args"].update(models=["fake"], scorer=None, device="auto", threads=1)
    application["args"]["logs"]["folder"] = str(tmp_path_factory.mktemp("logs"))
    options = {each["name"]: each for each in application["deployments"]}
    del options["Scorer"]
    options["Ingress"]["num_replicas"] = 1
    options["Captioner"]["ray_actor_options"] = {"num_cpus": 1, "num_gpus": 0.5}
    scaling = options["Captioner"]["autoscaling_config"]
    scaling.update(min_replicas=1, max_replicas=2, look_back_period_s=1, upscale_delay_s=0)
    scaling["policy"]["policy_kwargs"]["target_images"] = 4
    application["deployments"] = list(options.values())
    return config


def replicas(node: RayNode, *states: str) -> list[dict[str, Any]]:
    """Those of the captioner in these states, or that run."""
    found = node.application("limner")["deployments"]["Captioner"]["replicas"]
    return [each for each in found if each["state"] in (states or ("RUNNING",))]


def probed(node: RayNode, client: httpx.Client) -> None:
    """The paths that the probes of ``deploy/kuberay`` ask answer as they should."""
    head, worker = (container(dict(groups())[name]) for name in ("head", "cpu"))
    for address, probe in (
        (node.dashboard, head["readinessProbe"]),
        (node.agent, head["livenessProbe"]),
        (node.agent, worker["livenessProbe"]),
        (str(client.base_url), worker["readinessProbe"]),
    ):
        answer = client.get(address.rstrip("/") + probe["httpGet"]["path"])
        assert answer.status_code == 200, (probe, answer.text)


@contextmanager
def under_load(client: httpx.Client) -> Iterator[None]:
    """Two clients send 32 pictures at a time while the block runs; all of them are answered."""
    ended = Event()
    request = {"images": [{"base64": b64(picture)} for picture in pictures(32)]}

    def ask() -> set[int]:
        statuses = set()
        while not ended.is_set():
            statuses.add(client.post(f"{PREFIX}/v1/captions", json=request).status_code)
        return statuses

    with ThreadPoolExecutor(2) as clients:
        asking = [clients.submit(ask) for _ in range(2)]
        try:
            yield
        finally:
            ended.set()
        assert [each.result(60) for each in asking] == [{200}] * 2


def gpu_warnings(config: dict[str, Any]) -> list[str]:
    """What captioner replicas logged of GPUs."""
    folder = Path(config["applications"][0]["args"]["logs"]["folder"])
    lines = [line for file in folder.glob("limner_captioner_*") for line in file.read_text("utf-8").splitlines()]
    return [message for line in lines if "GPU" in (message := json.loads(line)["message"])]


def test_it_is_deployed_and_scales_with_the_images(node: RayNode, config: dict[str, Any], figure: Figures) -> None:
    began = time.monotonic()
    node.serve_deploy(config)
    node.eventually(lambda: node.application("limner").get("status") == "RUNNING")
    figure("serve deploy, until the application runs", f"{time.monotonic() - began:.1f} s")
    port = config["http_options"]["port"]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
        node.eventually(lambda: client.get(f"{PREFIX}/readyz").is_success)
        probed(node, client)
        answer = client.post(
            f"{PREFIX}/v1/captions", json={"images": [{"base64": b64(pictures(1)[0])}]}, headers={"x-request-id": "<b>"}
        )
        assert answer.status_code == 200 and answer.json()["results"][0]["captions"][0]["text"]
        assert len(answer.headers["x-request-id"]) == 36  # the proxy's hook has replaced it
        [before] = replicas(node)
        began = time.monotonic()
        with under_load(client):
            node.eventually(lambda: len(replicas(node, "STARTING", "RUNNING")) == 2)
        node.eventually(lambda: len(replicas(node)) == 2)  # it stays wanted for downscale_delay_s
        figure("from the load to a second replica", f"{time.monotonic() - began:.1f} s")
    assert before["replica_id"] in {each["replica_id"] for each in replicas(node)}
    assert {psutil.Process(each["pid"]).nice() for each in replicas(node)} == {0}
    warned = gpu_warnings(config)
    assert len(warned) == 2  # half a GPU each, and no card in this machine
    for message in warned:
        assert message.startswith(
            tuple(f"Ray gave this replica GPU {gpu} (CUDA_VISIBLE_DEVICES={gpu})" for gpu in "01")
        )
        assert "captions are made on the CPU" in message


def test_device_cuda_is_refused_where_there_is_no_card_and_the_old_replicas_go_on(
    node: RayNode, config: dict[str, Any]
) -> None:
    [application] = config["applications"]
    application["args"]["device"] = "cuda"
    [captioner] = [each for each in application["deployments"] if each["name"] == "Captioner"]
    captioner["ray_actor_options"]["num_gpus"] = 1
    node.put(config)
    node.eventually(lambda: node.application("limner").get("status") in ("DEPLOY_FAILED", "UNHEALTHY"))
    message = node.application("limner")["deployments"]["Captioner"]["message"]
    assert "this machine has 0 cuda device(s), so no 'cuda'; try auto" in message
    url = f"http://127.0.0.1:{config['http_options']['port']}{PREFIX}/v1/captions"
    picture = {"content": pictures(1)[0], "headers": {"content-type": "image/png"}}
    node.eventually(lambda: httpx.post(url, **picture, timeout=60, trust_env=False).status_code == 200)
    assert len(replicas(node)) == 2
