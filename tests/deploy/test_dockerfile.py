"""deploy/Dockerfile by the rules that image linters have, and its build context."""

import json
import re
from pathlib import Path

import pytest

from tests.deploy.dockerfile import DOCKERFILE, ROOT, Dockerfile, Stage, expanded, read_dockerfile

TEXT = DOCKERFILE.read_text("utf-8")
FILE = read_dockerfile(TEXT)


def problems(file: Dockerfile) -> list[str]:
    """Every rule that the file breaks, by a word for each."""
    names = {stage.name for stage in file.stages}
    last = file.stages[-1]
    found = [
        "unpinned base"
        for stage in file.stages
        if not (_is_stage(stage.base, file, names) or _pinned(expanded(stage.base, file.arguments)))
    ]
    for stage in file.stages:
        found += _stage_problems(stage)
    if not (users := last.texts("USER")) or users[-1].split(":")[0] in ("0", "root"):
        found.append("root")
    if [word for word in ("ENTRYPOINT", "CMD") if not all(map(_exec_form, last.texts(word))) or not last.texts(word)]:
        found.append("shell form")
    if not last.texts("HEALTHCHECK"):
        found.append("no health check")
    return found


def _is_stage(base: str, file: Dockerfile, names: set[str]) -> bool:
    return expanded(base, file.arguments) in names


def _pinned(image: str) -> bool:
    name, _, digest = image.partition("@sha256:")
    tag = name.rpartition("/")[2].partition(":")[2]
    return bool(re.fullmatch(r"[0-9a-f]{64}", digest)) and bool(re.match(r"\d+\.\d+\.\d+", tag))


def _stage_problems(stage: Stage) -> list[str]:
    found = []
    if stage.texts("ADD"):
        found.append("ADD")
    for run in stage.texts("RUN"):
        installs = re.findall(r"\bpip install ([^&;|]*)", run)
        if any("--no-cache-dir" not in words for words in installs):
            found.append("pip cache")
        if any("-c constraints.txt" not in words and "--no-deps" not in words for words in installs):
            found.append("unconstrained pip")
        if "apt-get install" in run and (
            "rm -rf /var/lib/apt/lists" not in run or "--no-install-recommends" not in run
        ):
            found.append("apt cache")
        if re.search(r"\bsudo\b|\bcd /|(curl|wget)\b", run):
            found.append("command")
        if "|" in run and "pipefail" not in run:
            found.append("pipe")
    if any(not Path(where).is_absolute() and "$" not in where for where in stage.texts("WORKDIR")):
        found.append("relative workdir")
    if any(re.search(r"(KEY|PASSWORD|TOKEN|SECRET)\w*=", text) for text in stage.texts("ENV") + stage.texts("ARG")):
        found.append("secret")
    return found


def _exec_form(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list)
    except ValueError:
        return False


def test_it_breaks_no_rule() -> None:
    assert problems(FILE) == []


PINNED = f"python:3.11.14-slim@sha256:{'0' * 64}"
GOOD = f"""FROM {PINNED} AS build
RUN pip install --no-cache-dir -c constraints.txt torch
FROM {PINNED}
COPY --from=build /opt /opt
USER 1000
HEALTHCHECK CMD ["true"]
ENTRYPOINT ["limner"]
CMD ["serve"]
"""


@pytest.mark.parametrize(
    ("line", "other", "problem"),
    [
        (f"FROM {PINNED} AS", "FROM python:latest AS", "unpinned base"),
        (f"FROM {PINNED} AS", "FROM python:3.11.14-slim AS", "unpinned base"),
        ("--no-cache-dir ", "", "pip cache"),
        ("-c constraints.txt ", "", "unconstrained pip"),
        ("RUN pip", "RUN apt-get update && apt-get install -y gcc && pip", "apt cache"),
        ("RUN pip", "RUN wget example.org && pip", "command"),
        ("RUN pip", "RUN cat list | sort && pip", "pipe"),
        ("COPY --from=build", "ADD", "ADD"),
        ("USER 1000\n", "", "root"),
        ("USER 1000", "USER 1000\nUSER root", "root"),
        ('CMD ["serve"]', "CMD serve", "shell form"),
        ('ENTRYPOINT ["limner"]\n', "", "shell form"),
        ('HEALTHCHECK CMD ["true"]\n', "", "no health check"),
        ("USER", "WORKDIR srv\nUSER", "relative workdir"),
        ("USER", "ENV API_KEY=abc\nUSER", "secret"),
    ],
)
def test_every_rule_can_be_broken(line: str, other: str, problem: str) -> None:
    assert problems(read_dockerfile(GOOD)) == []
    assert line in GOOD
    assert problems(read_dockerfile(GOOD.replace(line, other, 1))) == [problem]


@pytest.mark.parametrize("torch", ["cpu", "cuda"])
@pytest.mark.parametrize("weights", ["baked", "mounted"])
def test_the_arguments_choose_the_stages(torch: str, weights: str) -> None:
    chain = FILE.chain("build", {**FILE.arguments, "TORCH": torch, "WEIGHTS": weights})
    assert [stage.name for stage in chain] == ["base", f"torch-{torch}", "libraries", f"weights-{weights}", "build"]
    [index] = [text for text in chain[1].texts("ARG") if text.startswith("TORCH_INDEX=")]
    assert index.endswith("/cpu") == (torch == "cpu")
    assert any("bundled" in run for run in chain[3].texts("RUN")) == (weights == "mounted")


def test_both_parts_of_the_image_have_the_same_folders() -> None:
    """A virtual environment works at the place only where it was made."""
    [made] = [text for text in FILE.stages[0].texts("ARG") if text.startswith("PREFIX=")]
    assert made in FILE.stages[-1].texts("ARG")


def copied() -> set[str]:
    return {
        name
        for stage in FILE.stages
        for text in stage.texts("COPY")
        if not text.startswith("--from")
        for name in text.split()[:-1]
    }


def test_the_context_is_what_is_copied_and_no_more() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == copied()
    assert all((ROOT / name).exists() for name in copied())
    assert "**/__pycache__" in rules[rules.index("!models") :]  # later rules win
