"""``deploy/kuberay/rayservice.yaml`` is valid, holds the application of ``deploy/serve.yaml``, and has room for it."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest

from models import __version__
from serving.proxy import CALLBACK
from tests.serving.rayservice import (
    DEPLOY,
    SERVE_CONFIG,
    container,
    groups,
    manifests,
    rayservice,
    serve_config,
)
from tests.serving.rayservice_schema import SCHEMAS

GROUPS = dict(groups())
HEAD, CPU, GPU = GROUPS["head"], GROUPS["cpu"], GROUPS["gpu"]
[APPLICATION] = serve_config()["applications"]
OPTIONS: dict[str, dict[str, Any]] = {each["name"]: each for each in APPLICATION["deployments"]}


@pytest.mark.parametrize(
    "manifest", manifests(), ids=lambda manifest: f"{manifest['kind']} {manifest['metadata']['name']}"
)
def test_the_objects_are_what_kubernetes_takes(manifest: dict[str, Any]) -> None:
    jsonschema.validate(manifest, SCHEMAS[manifest["kind"]])


def test_the_schema_sees_what_is_misplaced() -> None:
    wrong = rayservice()
    wrong["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(jsonschema.ValidationError, match="readinesProbe"):
        jsonschema.validate(wrong, SCHEMAS["RayService"])


def test_its_application_is_that_of_the_serve_config() -> None:
    same = rayservice()["spec"]["serveConfigV2"] == SERVE_CONFIG.read_text("utf-8")
    assert same, "deploy/serve.yaml has changed: run python -m tests.serving.rayservice"


def test_versions_are_those_of_limner_and_ray() -> None:
    constraints = (DEPLOY.parent / "constraints.txt").read_text("utf-8")
    [ray] = re.findall(r"^ray==(.+)$", constraints, re.MULTILINE)
    assert rayservice()["spec"]["rayClusterConfig"]["rayVersion"] == ray
    images = {name: container(group)["image"] for name, group in GROUPS.items()}
    assert images == {
        "head": f"limner:{__version__}",
        "cpu": f"limner:{__version__}",
        "gpu": f"limner:{__version__}-cuda",
    }


@pytest.mark.parametrize("name", GROUPS)
def test_every_pod_has_what_limner_needs(name: str) -> None:
    pod, own = GROUPS[name]["template"]["spec"], container(GROUPS[name])
    env = {each["name"]: each for each in own["env"]}
    told = dict(re.findall(r"^#   (\w+)=(\S+)$", SERVE_CONFIG.read_text("utf-8"), re.MULTILINE))
    assert len(told) == 4 and told["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"] == CALLBACK
    assert {variable: env[variable]["value"] for variable in told} == told
    for secret in ("PGPASSWORD", "LIMNER_API_KEYS"):
        assert env[secret]["valueFrom"]["secretKeyRef"]["name"] == "limner"
    mounted = {each["name"]: each for each in own["volumeMounts"]}
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert mounted.keys() == volumes.keys()
    assert (
        mounted["shared-memory"]["mountPath"] == "/dev/shm"
        and volumes["shared-memory"]["emptyDir"]["medium"] == "Memory"
    )
    assert mounted["models"] == {"name": "models", "mountPath": APPLICATION["args"]["models_dir"], "readOnly": True}
    [claim] = [each["metadata"]["name"] for each in manifests() if each["kind"] == "PersistentVolumeClaim"]
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == claim


@pytest.mark.parametrize("name", GROUPS)
def test_no_pod_runs_as_root(name: str) -> None:
    pod, own = GROUPS[name]["template"]["spec"], container(GROUPS[name])
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert own["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize("name", GROUPS)
def test_memory_is_neither_shared_nor_lent(name: str) -> None:
    resources = container(GROUPS[name])["resources"]
    assert resources["requests"] == resources["limits"]  # Ray counts the limits as the node's resources
    store_gib = int(GROUPS[name]["rayStartParams"]["object-store-memory"]) / 2**30
    volumes = {each["name"]: each for each in GROUPS[name]["template"]["spec"]["volumes"]}
    shared_gib = gib(volumes["shared-memory"]["emptyDir"]["sizeLimit"])
    assert store_gib < shared_gib < gib(resources["limits"]["memory"]) / 2  # a smaller one, and Ray writes to the disk


def test_the_smallest_cluster_has_room_for_the_smallest_application() -> None:
    """Placed by hand, the largest first, onto what the pods have; nothing that computes is on the head."""
    assert HEAD["rayStartParams"]["num-cpus"] == "0"
    free = [cpus(CPU)] * CPU["minReplicas"]
    for wanted in sorted(smallest(), reverse=True):
        node = max(range(len(free)), key=free.__getitem__)
        free[node] -= wanted
        assert free[node] >= 0, (wanted, free)


def smallest() -> Iterator[float]:
    for options in OPTIONS.values():
        replicas = options.get("autoscaling_config", {}).get("min_replicas", options.get("num_replicas", 1))
        yield from [options["ray_actor_options"]["num_cpus"]] * replicas


def test_the_largest_application_can_be_updated() -> None:
    captioner = OPTIONS["Captioner"]
    most = captioner["autoscaling_config"]["max_replicas"]
    at_a_time = most + math.ceil(most * captioner["max_surge_percent"] / 100)
    in_a_pod = cpus(CPU) // captioner["ray_actor_options"]["num_cpus"]
    assert CPU["maxReplicas"] * in_a_pod >= at_a_time
    rest = (
        sum(smallest())
        + 1
        - captioner["autoscaling_config"]["min_replicas"] * captioner["ray_actor_options"]["num_cpus"]
    )
    assert CPU["maxReplicas"] * (cpus(CPU) - in_a_pod * captioner["ray_actor_options"]["num_cpus"]) >= rest


def test_a_gpu_pod_is_there_only_when_asked_for() -> None:
    assert (GPU["replicas"], GPU["minReplicas"]) == (0, 0) < (GPU["maxReplicas"],)
    assert container(GPU)["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert cpus(GPU) >= OPTIONS["Captioner"]["ray_actor_options"]["num_cpus"]


def test_disruptions_and_ports_concern_limners_own_pods() -> None:
    labels = {name: {**group["template"]["metadata"]["labels"], **by_kuberay(name)} for name, group in GROUPS.items()}
    budgets = {each["metadata"]["name"]: each["spec"] for each in manifests() if each["kind"] == "PodDisruptionBudget"}
    chosen = {name: chosen_by(spec["selector"]["matchLabels"], labels) for name, spec in budgets.items()}
    assert chosen == {"limner-workers": {"cpu", "gpu"}, "limner-head": {"head"}}
    assert budgets["limner-workers"]["minAvailable"] == CPU["minReplicas"] - 1 > 0
    [policy] = [each["spec"] for each in manifests() if each["kind"] == "NetworkPolicy"]
    assert chosen_by(policy["podSelector"]["matchLabels"], labels) == set(GROUPS)
    assert [rule.get("from") is None for rule in policy["ingress"]] == [True, False]
    assert policy["ingress"][0]["ports"] == [{"port": serve_config()["http_options"]["port"]}]
    for _, group in groups():
        for constraint in group["template"]["spec"].get("topologySpreadConstraints", ()):
            assert chosen_by(constraint["labelSelector"]["matchLabels"], labels) == {"cpu", "gpu"}


def by_kuberay(group: str) -> dict[str, str]:
    """Labels that the operator gives."""
    return {"ray.io/node-type": "head" if group == "head" else "worker"}


def chosen_by(wanted: Mapping[str, str], labels: Mapping[str, Mapping[str, str]]) -> set[str]:
    return {name for name, own in labels.items() if wanted.items() <= own.items()}


def test_workers_take_requests_when_rays_proxy_does() -> None:
    port = serve_config()["http_options"]["port"]
    for name in ("cpu", "gpu"):
        own = container(GROUPS[name])
        assert own["readinessProbe"]["httpGet"] == {"path": "/-/healthz", "port": port}
        assert {"containerPort": port, "name": "serve"} in own["ports"]


def cpus(group: dict[str, Any]) -> float:
    return float(container(group)["resources"]["limits"]["cpu"])


def gib(quantity: str) -> float:
    assert quantity.endswith("Gi"), quantity
    return float(quantity.removesuffix("Gi"))
