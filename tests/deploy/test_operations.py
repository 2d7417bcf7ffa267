"""docs/OPERATIONS.md: every alert has its section, what it names is there, and its commands do what it says."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from models import __version__
from serving.api_keys import read_api_keys
from serving.args import KeyArgs
from serving.experiments.ledger import open_ledger
from serving.experiments.records import Vote
from tests.deploy.commands import serve_options
from tests.deploy.operations import OPERATIONS, block, run_block
from tests.postgres import postgres_server, programs
from tests.serving.experiments.support import outcome
from tests.support import needs_postgres

ROOT = OPERATIONS.parents[1]
TEXT = OPERATIONS.read_text("utf-8")


def sections(text: str) -> dict[str, str]:
    """The text below each heading of the third level."""
    _, *parts = re.split(r"^### ", text, flags=re.MULTILINE)
    return {part.partition("\n")[0]: re.split(r"^## ", part, flags=re.MULTILINE)[0] for part in parts}


def test_every_alert_has_a_section_and_every_section_an_alert() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text("utf-8"))
    alerts = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    told = {name: text for name, text in sections(TEXT).items() if name.startswith("Limner")}
    assert [*told] == alerts
    for name, text in told.items():
        assert re.search(r"\*\*Means\*\*: .+\*\*Do\*\*: .+", text, re.DOTALL), name


def test_its_links_lead_somewhere() -> None:
    headings = re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif not target.startswith("https://"):
            assert (OPERATIONS.parent / target).exists(), target


def test_it_names_panels_that_the_dashboard_has() -> None:
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "limner.json").read_text("utf-8"))
    titles = {panel["title"] for panel in dashboard["panels"]}
    named = re.findall(r"(?<!\*)\*([A-Z][^*]+)\*(?!\*)", TEXT[TEXT.index("## Watching") :])
    assert len(named) > 10 and {*named} <= titles


def test_it_names_options_that_limner_has() -> None:
    of_others = ("--shm-size", "--rate", "--server")
    spans = [span for span in re.findall(r"`(--[^`]+)`", TEXT) if not span.startswith(of_others)]
    spans += re.findall(r"LIMNER_OPTIONS=(--[^'`]+)", TEXT)
    assert len(spans) > 8
    for span in spans:
        words = re.sub(r"=?\b(NAME|N|DIR)\b", lambda found: found[0].replace(found[1], "1"), span).split()
        serve_options(
            [*words, "1"]
            if words in (["--threads"], ["--images-per-minute"], ["--models-dir"], ["--trace-share"])
            else words
        )


def test_files_that_only_root_sees_are_found_by_root() -> None:
    """The shell of a user who types sudo cannot look into the folder of the log: a pattern would stay as it is."""
    commands = re.findall(r"sudo [^`\n]*/var/log/limner[^`\n]*", TEXT)
    assert len(commands) >= 3
    for command in commands:
        unquoted = re.sub(r"'[^']*'", "", command)
        assert "*" not in unquoted, command


def test_it_installs_this_version() -> None:
    installed = TEXT[: TEXT.index("## Upgrade")]
    assert set(re.findall(r"/opt/limner-([\d.]+\d)", installed)) == {__version__}
    assert set(re.findall(r"limner:([\d.]+\d)", installed)) == {__version__}


def test_its_lines_for_containers_make_the_keys(tmp_path: Path) -> None:
    lines = [line for line in block("compose").splitlines() if not line.startswith(("cd ", "docker "))]
    [asked] = re.findall(r"\$\((sed -n [^\n]+? \.env)\)", TEXT)
    done = subprocess.run(
        ["bash", "-euc", "\n".join([*lines, asked])], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    made = dict(line.split("=", 1) for line in (tmp_path / ".env").read_text().splitlines())
    example = (ROOT / "deploy" / ".env.example").read_text("utf-8")
    assert {*made} == set(re.findall(r"^(\w+)=$", example, re.MULTILINE))
    assert made["LIMNER_API_KEYS"] == f'"me: {done.stdout.strip()}"'
    keys = f"prometheus: {made['LIMNER_METRICS_KEY']}, me: {done.stdout.strip()}"
    assert len(read_api_keys(KeyArgs(env="KEYS"), {"KEYS": keys})) == 2
    assert (tmp_path / ".env").stat().st_mode & 0o077 == 0


def test_its_lines_for_the_service_make_the_keys(tmp_path: Path) -> None:
    [made] = re.findall(r"^ *(printf 'prometheus: .+) \| sudo install .+$", TEXT, re.MULTILINE)
    [key] = {line.strip() for line in TEXT.splitlines() if line.strip().startswith("key() ")}
    script = f"{key}\n{made} >keys"
    subprocess.run(["bash", "-euc", script], cwd=tmp_path, check=True)
    assert [client.name for client in read_api_keys(KeyArgs(file=tmp_path / "keys"))] == ["prometheus", "me"]


@needs_postgres
def test_a_ledger_in_postgresql_is_restored_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with postgres_server() as server:
        url = server.format("postgres")
        places = {"postgresql://limner@db.example.org/limner": f"'{url}'"}
        with open_ledger(url) as ledger:
            ledger.record([outcome(request_id=f"r{number}") for number in range(3)])
            ledger.vote(Vote("tone", "a", "r1", 0, 1, 0.0))
            kept = ledger.arm_data("tone", ["a"])
            run_block("backup-postgresql", places, programs())  # while it is open
            ledger.vote(Vote("tone", "a", "r2", 0, -1, 0.0))
            assert [arm.votes_down for arm in ledger.arm_data("tone", ["a"])] == [1]
        run_block("restore-postgresql", places, programs())
        with open_ledger(url) as ledger:
            assert str(ledger.arm_data("tone", ["a"])) == str(kept)
            ledger.vote(Vote("tone", "a", "r2", 0, 1, 0.0))
