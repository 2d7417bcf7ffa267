"""What the processes load: the HTTP layer no torch, and Ray only where deployments are."""

import ast
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("serving.app", {"torch"}),
        ("serving.api", {"torch", "ray"}),
        ("serving.cli", {"torch", "ray", "fastapi"}),
    ],
)
def test_imports(module: str, absent: set[str]) -> None:
    check = f"import sys, {module}; sys.exit(bool({absent!r} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT).returncode == 0


def test_ray_is_imported_by_the_deployments_and_what_starts_them_alone() -> None:
    def imports_ray(path: Path) -> bool:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
        names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        return any(name.partition(".")[0] == "ray" for name in names)

    found = {path.stem for path in (ROOT / "serving").rglob("*.py") if imports_ray(path)}
    assert found == {"app", "captioner", "ingress", "local", "monitor"}


def test_of_the_running_application_only_the_captioner_has_loaded_torch(server: str) -> None:
    replicas = [
        process
        for process in psutil.Process().children(recursive=True)
        if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::ServeReplica")
    ]
    loaded = {
        process.cmdline()[0].rpartition(":")[2]: any("libtorch" in area.path for area in process.memory_maps())
        for process in replicas
    }
    assert loaded == {"Captioner": True, "Ingress": False, "Monitor": False}
