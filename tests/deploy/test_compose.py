"""deploy/compose.yaml: its parts fit each other, and what is in the image, the dashboard and the command line."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from models import __version__
from serving import local
from serving.api_keys import read_api_keys
from serving.args import KeyArgs
from tests.deploy.commands import serve_options
from tests.deploy.dockerfile import DOCKERFILE, read_dockerfile
from tests.support import needs_prometheus

DEPLOY = DOCKERFILE.parent
TEXT = (DEPLOY / "compose.yaml").read_text("utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus" / "compose.yml").read_text("utf-8"))
IMAGE = read_dockerfile(DOCKERFILE.read_text("utf-8")).stages[-1]


def mounts(service: str) -> dict[str, str]:
    """What lies in the container, by path: a named volume, or a file or folder of this one."""
    parts = [volume.split(":") for volume in SERVICES[service]["volumes"]]
    return {target: source for source, target, *_ in parts}


def test_every_image_is_pinned() -> None:
    for name, service in SERVICES.items():
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", service["image"]), name
    assert SERVICES["limner"]["image"] == f"limner:{__version__}"


def test_it_builds_the_image_of_the_dockerfile() -> None:
    build = SERVICES["limner"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DOCKERFILE
    arguments = read_dockerfile(DOCKERFILE.read_text("utf-8")).arguments
    assert all(value.endswith(f":-{arguments[name]}}}") for name, value in build["args"].items())


@pytest.mark.parametrize("service", SERVICES)
def test_only_this_machine_reaches_what_is_published(service: str) -> None:
    assert "network_mode" not in SERVICES[service]
    ports = SERVICES[service].get("ports", [])
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert bool(ports) == (service != "prometheus")


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_is_held_down_and_comes_back(service: str) -> None:
    given = SERVICES[service]
    assert given["cap_drop"] == ["ALL"] and given["security_opt"] == ["no-new-privileges:true"]
    assert given["restart"] == "unless-stopped"
    assert not given.get("privileged") and given.get("user") not in ("root", "0")
    assert given["logging"]["options"]["max-size"]


def test_every_service_has_a_health_check() -> None:
    assert {name for name, service in SERVICES.items() if "healthcheck" not in service} == {"limner"}
    assert IMAGE.texts("HEALTHCHECK")


@pytest.mark.parametrize("service", SERVICES)
def test_what_is_mounted_is_there(service: str) -> None:
    for target, source in mounts(service).items():
        if source.startswith("."):
            assert (DEPLOY / source).exists(), source
            assert f"- {source}:{target}:ro" in TEXT
        else:
            assert source in COMPOSE["volumes"]


def test_every_volume_and_secret_is_used() -> None:
    assert {source for name in SERVICES for source in mounts(name).values() if source[0] != "."} == {
        *COMPOSE["volumes"]
    }
    assert {secret for service in SERVICES.values() for secret in service.get("secrets", ())} == {*COMPOSE["secrets"]}


def test_nobody_is_waited_for_that_is_not_there() -> None:
    for service in SERVICES.values():
        assert {*service.get("depends_on", ())} <= {*SERVICES}


def test_its_command_is_one_of_limner() -> None:
    serve, *words = SERVICES["limner"]["command"]
    assert serve == "serve"
    options = serve_options(words)
    assert options["host"] == "0.0.0.0"
    assert SERVICES["limner"]["ports"] == [f"127.0.0.1:8000:{options['port']}"]
    places = {*mounts("limner")}
    assert options["ledger"].removeprefix("sqlite:///").rpartition("/")[0] in places
    assert str(options["log_dir"]) in places
    made = {text.partition("=")[2] for text in IMAGE.texts("ARG")}
    assert places <= made  # a named volume takes its owner from the folder in the image


def test_it_may_write_where_it_must_and_has_time_to_end() -> None:
    limner = SERVICES["limner"]
    assert limner["read_only"] is True
    assert limner["tmpfs"][0].startswith("/tmp:")
    assert limner["shm_size"] == "1g" and local._OBJECT_STORE_BYTES <= 1 << 30
    longest_s = local._DRAIN_S + 2 * local._LAST_ANSWERS_S + 3 * 5
    assert int(limner["stop_grace_period"].removesuffix("s")) > longest_s


def test_nothing_secret_has_a_default() -> None:
    secrets = re.findall(r"\$\{(\w*(?:PASSWORD|KEY)\w*)(.*?)\}", TEXT)
    assert {name for name, _ in secrets} == {"GRAFANA_PASSWORD", "LIMNER_METRICS_KEY", "LIMNER_API_KEYS"}
    assert all(rest.startswith(":?") for _, rest in secrets)
    example = (DEPLOY / ".env.example").read_text("utf-8")
    assert {name for name, _ in secrets} == set(re.findall(r"^(\w+)=$", example, re.MULTILINE))
    assert set(re.findall(r"\$\{(\w+)", TEXT)) == set(re.findall(r"^(?:# )?(\w+)=", example, re.MULTILINE))
    assert subprocess.run(["git", "check-ignore", "-q", "deploy/.env"], cwd=DEPLOY.parent).returncode in (0, 128)


def test_its_keys_are_ones_that_limner_reads() -> None:
    given = SERVICES["limner"]["environment"]["LIMNER_API_KEYS"]
    filled = re.sub(r"\$\{(\w+).*?\}", lambda found: "me: " + "a" * 20 if "API" in found[1] else "b" * 20, given)
    assert "$" not in filled
    clients = read_api_keys(KeyArgs(env="KEYS"), {"KEYS": filled})
    assert [client.name for client in clients] == ["prometheus", "me"]


def test_prometheus_scrapes_limner_with_its_key() -> None:
    [job] = PROMETHEUS["scrape_configs"]
    [[target]] = [config["targets"] for config in job["static_configs"]]
    port = serve_options(SERVICES["limner"]["command"][1:])["port"]
    assert target == f"limner:{port}" and "limner" in SERVICES
    [secret] = SERVICES["prometheus"]["secrets"]
    assert job["authorization"] == {"credentials_file": f"/run/secrets/{secret}"}
    assert COMPOSE["secrets"][secret] == {"environment": "LIMNER_METRICS_KEY"}
    assert not SERVICES["prometheus"].get("read_only")  # Compose writes such a secret into the container


def test_it_differs_from_the_other_prometheus_where_it_must_only() -> None:
    both = []
    for name in ("prometheus.yml", "compose.yml"):
        config = yaml.safe_load((DEPLOY / "prometheus" / name).read_text("utf-8"))
        for job in config["scrape_configs"]:
            del job["static_configs"]
            job.pop("authorization", None)
        both.append(config)
    assert both[0] == both[1]


@needs_prometheus
def test_promtool_and_prometheus_take_what_they_are_given(tmp_path: Path) -> None:
    folder = tmp_path / "etc" / "prometheus"
    folder.mkdir(parents=True)
    for target, source in mounts("prometheus").items():
        if source.startswith("."):
            shutil.copy(DEPLOY / source, tmp_path / target.lstrip("/"))
    config = folder / "prometheus.yml"
    (tmp_path / "key").write_text("a" * 20)
    config.write_text(config.read_text("utf-8").replace("/run/secrets/metrics_key", str(tmp_path / "key")), "utf-8")
    for words in (["config", str(config)], ["rules", str(folder / "rules.yml")]):
        done = subprocess.run(["promtool", "check", *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    known = subprocess.run(["prometheus", "--help"], capture_output=True, text=True)
    flags = {word.partition("=")[0] for word in SERVICES["prometheus"]["command"]}
    assert all(f"{flag}=" in known.stdout + known.stderr for flag in flags)


def test_grafana_finds_its_provisioning() -> None:
    """Grafana reads ``datasources`` and ``dashboards`` below its provisioning folder, and no other names."""
    places = mounts("grafana")
    folder = DEPLOY / places["/etc/grafana/provisioning"]
    assert {path.parent.name for path in folder.rglob("*.yaml")} == {"datasources", "dashboards"}
    [provider] = yaml.safe_load((folder / "dashboards" / "limner.yaml").read_text("utf-8"))["providers"]
    shown = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert Path(shown).parent == Path(provider["options"]["path"])
    assert (DEPLOY / places[shown]).resolve() == DEPLOY / "grafana" / "limner.json"


def test_grafana_asks_the_prometheus_that_the_dashboard_means() -> None:
    folder = DEPLOY / "grafana"
    [source] = yaml.safe_load((folder / "provisioning" / "datasources" / "prometheus.yaml").read_text("utf-8"))[
        "datasources"
    ]
    dashboard = json.loads((folder / "limner.json").read_text("utf-8"))
    asked = {panel["datasource"]["uid"] for panel in dashboard["panels"] if panel["type"] != "row"}
    [variable] = [each for each in dashboard["templating"]["list"] if each["type"] == "datasource"]
    assert asked == {f"${{{variable['name']}}}"}  # whatever datasource of its type is chosen; the default one at first
    assert variable["query"] == source["type"] and source["isDefault"] and source["uid"] == "prometheus"
    address = SERVICES["prometheus"]["healthcheck"]["test"][-1].removesuffix("/-/ready")
    assert source["url"] == address.replace("127.0.0.1", "prometheus") and "prometheus" in SERVICES
    assert source["jsonData"]["timeInterval"] == PROMETHEUS["global"]["scrape_interval"]
