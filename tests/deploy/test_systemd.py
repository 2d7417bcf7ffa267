"""deploy/systemd/limner.service: a unit that systemd takes, and whose command serves, keeps and ends as it says."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import httpx
import psutil
import pytest

from serving import local
from serving.experiments.ledger import open_ledger
from tests.deploy.commands import serve_options
from tests.deploy.operations import OPERATIONS, run_block
from tests.deploy.unit import UNIT, read_unit, with_specifiers
from tests.serving.conftest import free_port
from tests.serving.support import png
from tests.support import needs_systemd

ROOT = Path(__file__).parents[2]
TEXT = UNIT.read_text("utf-8")
SERVICE = read_unit(TEXT)
REAL = {"S": "/var/lib", "L": "/var/log", "d": "/run/credentials/limner.service"}
KEY = "a-key-of-this-test-1"


def verify(text: str, folder: Path) -> str:
    """What ``systemd-analyze`` has against a unit whose program is installed."""
    unit = folder / "limner.service"
    unit.write_text(text.replace("/opt/limner/bin/limner", shutil.which("true") or "/bin/true"), "utf-8")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
    return done.stdout + done.stderr


@needs_systemd
def test_systemd_takes_it(tmp_path: Path) -> None:
    assert verify(TEXT, tmp_path) == ""
    assert "Protect" in verify(TEXT.replace("ProtectSystem=", "ProtectSystems="), tmp_path)


@needs_systemd
def test_systemd_takes_what_the_guide_adds(tmp_path: Path) -> None:
    lines = re.findall(r"^\| [^|]+ \| `(\w+=[^`]+)`", OPERATIONS.read_text("utf-8"), re.MULTILINE)
    assert len(lines) >= 4
    added = "\n".join(["[Service]", *lines, "[Install]"])
    assert verify(TEXT.replace("[Install]", added), tmp_path) == ""


def test_it_is_hardened() -> None:
    for name in ("NoNewPrivileges", "PrivateDevices", "PrivateTmp", "ProtectHome", "RestrictNamespaces"):
        assert SERVICE.one(name) == "yes", name
    assert SERVICE.one("ProtectSystem") == "strict"
    assert SERVICE.one("CapabilityBoundingSet") == ""
    assert SERVICE.one("User") not in ("", "root")
    assert int(SERVICE.one("LimitNOFILE")) >= 65536


def test_it_ends_in_good_order_and_comes_back_after_bad() -> None:
    longest_s = local._DRAIN_S + 2 * local._LAST_ANSWERS_S + 3 * 5
    assert int(SERVICE.one("TimeoutStopSec")) > longest_s
    assert f"(up to {longest_s:g} s)" in TEXT
    assert (SERVICE.one("KillSignal"), SERVICE.one("KillMode")) == ("SIGTERM", "mixed")
    assert SERVICE.one("Restart") == "on-failure"


def test_its_command_is_one_of_limner_and_writes_where_it_may() -> None:
    program, serve, *words = SERVICE.command(REAL, {"LIMNER_OPTIONS": "--model concise --threads 2"})
    assert (program, serve) == ("/opt/limner/bin/limner", "serve")
    options = serve_options(words)
    assert (options["model"], options["threads"], options["host"]) == (["concise"], 2, "127.0.0.1")
    state, logs = f"/var/lib/{SERVICE.one('StateDirectory')}", f"/var/log/{SERVICE.one('LogsDirectory')}"
    assert options["ledger"] == f"sqlite:///{state}/experiments.db"
    assert str(options["log_dir"]) == logs
    assert SERVICE.environment(REAL)["HOME"] == with_specifiers(SERVICE.one("WorkingDirectory"), REAL) == state
    name, _, source = SERVICE.one("LoadCredential").partition(":")
    assert str(options["api_keys"]) == f"{REAL['d']}/{name}" and source.startswith("/etc/limner/")


@dataclass(frozen=True)
class Service:
    """The unit's command, running, and where its folders lie."""

    process: "subprocess.Popen[str]"
    url: str
    folder: Path


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Started as systemd starts it: its folders made, its credential there, nothing else of the environment."""
    specifiers = {"S": str(tmp_path / "state"), "L": str(tmp_path / "logs"), "d": str(tmp_path / "credentials")}
    for place in ("state/limner", "logs/limner", "credentials"):
        (tmp_path / place).mkdir(parents=True)
    name = SERVICE.one("LoadCredential").partition(":")[0]
    (tmp_path / "credentials" / name).write_text(f"tester: {KEY}\n")
    (tmp_path / "tone.yaml").write_text("experiments: [{name: tone, arms: [{label: a}, {label: b}]}]")
    port = str(free_port())
    options = f"--model fake --no-scorer --device cpu --port {port} --experiments {tmp_path / 'tone.yaml'}"
    _, *words = SERVICE.command(specifiers, {"LIMNER_OPTIONS": options})
    process = subprocess.Popen(
        [sys.executable, "-m", "models.cli", *words],
        cwd=with_specifiers(SERVICE.one("WorkingDirectory"), specifiers),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **SERVICE.environment(specifiers)},
        text=True,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(f"limner is ready on http://127.0.0.1:{port} ")
        yield Service(process, f"http://127.0.0.1:{port}", tmp_path)
    finally:
        process.kill()
        process.communicate()


def vote(client: httpx.Client, request_id: str) -> None:
    """A caption in the experiment, and a vote on it, which is in the ledger when this returns."""
    answer = client.post(
        "/v1/captions",
        params={"experiment": "tone", "unit": request_id},
        content=png(),
        headers={"content-type": "image/png", "x-request-id": request_id},
    )
    body = {"request_id": request_id, "index": 0, "arm": answer.json()["results"][0]["experiment"]["arm"], "value": 1}
    assert client.post("/v1/experiments/tone/votes", json=body).status_code == 200


def votes(ledger: Path) -> int:
    with open_ledger(f"sqlite:///{ledger}") as opened:
        return sum(arm.votes_up for arm in opened.arm_data("tone", ["a", "b"]))


def strangers(processes: Sequence[psutil.Process]) -> set[str]:
    """Addresses beyond 127.0.0.1 at the other end of any connection: the unit lets no packet of theirs through."""
    assert (SERVICE.one("IPAddressDeny"), SERVICE.one("IPAddressAllow")) == ("any", "localhost")
    ends = [each.raddr.ip for process in processes for each in process.net_connections("inet") if each.raddr]
    assert len(ends) > 10
    return {end for end in ends if not ip_address(end.removeprefix("::ffff:")).is_loopback}


def test_it_serves_is_backed_up_and_stops(service: Service) -> None:
    """The commands for the ledger are those of docs/OPERATIONS.md."""
    state, backups = service.folder / "state" / "limner", service.folder / "backups"
    places = {"/var/lib/limner": str(state), "/var/backups/limner": str(backups)}
    backups.mkdir()
    with httpx.Client(base_url=service.url, timeout=60, trust_env=False) as client:
        assert client.get("/metrics").status_code == 401
        client.headers["x-api-key"] = KEY
        vote(client, "first")
        run_block("backup-sqlite", places)
        vote(client, "second")
    children = psutil.Process(service.process.pid).children(recursive=True)
    assert strangers(children) == set()
    service.process.send_signal(signal.Signals[SERVICE.one("KillSignal")])
    assert service.process.wait(60) == 0
    _, left = psutil.wait_procs(children, timeout=20)
    assert left == []
    assert list((service.folder / "logs" / "limner").glob("limner_ingress_*.jsonl"))
    assert votes(state / "experiments.db") == 2
    run_block("restore-sqlite", places)
    assert votes(state / "experiments.db") == 1
