"""What ``deploy/`` says of a cluster; ``python -m tests.serving.rayservice`` copies serve.yaml into the RayService."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVE_CONFIG = DEPLOY / "serve.yaml"
RAYSERVICE = DEPLOY / "kuberay" / "rayservice.yaml"
_BEGINS = "  serveConfigV2: |\n"
_ENDS = "  rayClusterConfig:\n"


def serve_config() -> dict[str, Any]:
    """``deploy/serve.yaml``."""
    config: dict[str, Any] = yaml.safe_load(SERVE_CONFIG.read_text("utf-8"))
    return config


def manifests() -> list[dict[str, Any]]:
    """The objects of ``deploy/kuberay/rayservice.yaml``."""
    return list(yaml.safe_load_all(RAYSERVICE.read_text("utf-8")))


def rayservice() -> dict[str, Any]:
    """The RayService among them."""
    [found] = [each for each in manifests() if each["kind"] == "RayService"]
    return found


def groups() -> Iterator[tuple[str, dict[str, Any]]]:
    """The head and the worker groups by name."""
    cluster = rayservice()["spec"]["rayClusterConfig"]
    yield "head", cluster["headGroupSpec"]
    for group in cluster["workerGroupSpecs"]:
        yield group["groupName"], group


def container(group: dict[str, Any]) -> dict[str, Any]:
    """The one container of a group's pods."""
    [found] = group["template"]["spec"]["containers"]
    return dict(found)


def main() -> None:
    before, rest = RAYSERVICE.read_text("utf-8").split(_BEGINS)
    lines = SERVE_CONFIG.read_text("utf-8").splitlines(keepends=True)
    config = "".join(f"    {line}" if line.strip() else line for line in lines)
    after = rest.partition(_ENDS)[2]
    RAYSERVICE.write_text(before + _BEGINS + config + _ENDS + after, "utf-8")


if __name__ == "__main__":
    main()
