"""What README tells a newcomer to type works as printed, and its file tree is the real one."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from models.catalog import BUNDLED

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.removeprefix("$ ").partition("  # ")[0].strip()
    for block in re.findall(r"```(?:sh|console)\n(.*?)```", README, re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
]
EXPERIMENT = [command for command in COMMANDS if command.startswith("curl ") and "experiment" in command]
CURLS = [command for command in COMMANDS if command.startswith("curl ") and command not in EXPERIMENT]
OFFLINE = [
    command for command in COMMANDS if re.match(r"\.venv/bin/limner (caption|compare|models (list|show)) ", command)
]


def at(server: str, command: str) -> str:
    """The command for the server of the tests, where `fake` is first; README's has the bundled model."""
    command = command.replace("http://127.0.0.1:8000", server)
    return command if "model" in command or "experiment" in command else command.replace("?", "?model=dial&")


def shell(command: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=120, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


@pytest.mark.parametrize("command", CURLS)
def test_the_curl_lines(server: str, command: str) -> None:
    answer = json.loads(shell(at(server, command)))
    compared = [result for arm in answer.get("arms", ()) for result in arm["results"]]
    captions = [caption for result in answer.get("results", compared) for caption in result["captions"]]
    assert captions and all(caption["text"] and caption["clip_score"] is not None for caption in captions)


def test_the_experiment_line_by_line(server: str) -> None:
    captioned, voted, results = (json.loads(shell(at(server, command))) for command in EXPERIMENT)
    assert captioned["results"][0]["experiment"] == {"name": "style", "arm": "descriptive"}
    assert voted == {"status": "recorded"}
    arm = next(arm for arm in results["results"]["arms"] if arm["label"] == "descriptive")
    assert (arm["units"], arm["images"], arm["votes_up"]) == (1, 1, 1)
    assert results["results"]["pairs"][0]["verdict"] == "undecided"


@pytest.mark.parametrize("command", OFFLINE)
def test_the_limner_lines(command: str) -> None:
    assert shell(command.replace(".venv/bin/limner", "limner")).strip()


def test_the_commands_were_found() -> None:
    assert len(CURLS) >= 5 and len(OFFLINE) >= 5 and len(EXPERIMENT) == 3
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:`|^\$ |^)make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_tree_lists_every_source_file() -> None:
    listed = set(re.findall(r"^- `([^`]+)`", README, re.MULTILINE))
    packages = ("models", "training", "serving", "benchmarks")
    real = {str(path.relative_to(ROOT)) for package in packages for path in (ROOT / package).rglob("*.py")}
    real |= {str(path.relative_to(ROOT)) for path in (ROOT / "training" / "recipes").glob("*.yaml")}
    assert listed >= real, f"not in README: {sorted(real - listed)}"
    assert all((ROOT / name).exists() for name in listed), sorted(n for n in listed if not (ROOT / n).exists())


def test_its_figures_are_those_of_the_cards() -> None:
    """Every number of the model table stands in a card, measured on test."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([\d.]+) \|", README, re.MULTILINE)
    assert rows
    for model, measure, value in rows:
        card = json.loads((BUNDLED / model / "card.json").read_text(encoding="utf-8"))
        name = measure.split()[-1].strip("`()")
        found = [m["values"][name] for m in card["measurements"] if m["split"] == "test" and name in m["values"]]
        near = [number for number in found if min(abs(100 * number - float(value)), abs(number - float(value))) < 0.051]
        assert near, (model, measure, value, found)
