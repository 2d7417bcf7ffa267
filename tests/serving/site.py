"""The application on several nodes, and what its clients were promised."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from models.catalog import BUNDLED
from tests.postgres import postgres
from tests.serving.conftest import free_port
from tests.serving.nodes import Nodes, Replica, cluster, settled
from tests.serving.patient import Patient
from tests.serving.test_ledger_faults import kept

EXPERIMENT = "load"
VISITORS = 4
FEW_S, MANY_S = 0.3, 0.03
"""What each waits after an answer, for little and for much load."""
INNER, EDGE = "inner", "edge"
"""Resources of the nodes where monitor and ledger may be, and of the one with the ingress."""
_SENT_WITHIN_S = 10.0


@dataclass
class Site:
    """The application on its nodes."""

    nodes: Nodes
    args: dict[str, Any]
    ledger: str
    captioned: set[str] = field(default_factory=set)
    """The outcomes of all captions that were answered."""
    votes: dict[str, int] = field(default_factory=dict)
    """All that were answered, by outcome."""
    counts: dict[str, int] = field(default_factory=dict)
    """How many replicas each deployment shall have."""

    def add_node(self) -> str:
        """One more for a captioner; its id."""
        return self.nodes.add(**{INNER: 2.0})

    def deploy(self, *, captioners: int = 2, ingresses_inside: int = 0, **changes: Any) -> None:
        """Ask for the application with changed arguments: one ingress on the head, or several on the other nodes."""
        self.args |= changes
        self.counts = {"Captioner": captioners, "Ingress": ingresses_inside or 1, "Monitor": 1, "Ledger": 1}
        inner, edge = ({"num_cpus": 0, "resources": {where: 0.1}} for where in (INNER, EDGE))
        ingress = {"num_replicas": self.counts["Ingress"], "ray_actor_options": inner if ingresses_inside else edge}
        if ingresses_inside:
            ingress["max_replicas_per_node"] = 1
        deployments = [
            {"name": "Captioner", "num_replicas": captioners, "max_replicas_per_node": 1},
            {"name": "Ingress", **ingress},
            *({"name": name, "ray_actor_options": inner} for name in ("Monitor", "Ledger")),
        ]
        self.nodes.deploy(self.args, deployments)

    def whole(self, found: list[Replica]) -> bool:
        """Whether everything that shall run takes requests, and nothing else is left."""
        return settled(**self.counts)(found)

    @contextmanager
    def visited(self, pause_s: float = FEW_S) -> Iterator[Patient]:
        """Clients while the block runs, all served once before. Afterwards all have their answers, none of which was an
        error that is not to be asked again."""
        clients = Patient(self.nodes.url, EXPERIMENT, VISITORS, pause_s)
        with clients.visiting():
            clients.until_served_since(0)
            yield clients
        self.captioned |= clients.captioned
        self.votes |= clients.votes
        assert not clients.given_up

    def lost(self) -> tuple[int, int]:
        """Answered captions without an outcome and answered votes that the database lacks, once outcomes are sent."""
        give_up = time.monotonic() + _SENT_WITHIN_S
        while True:
            outcomes, votes = kept(self.ledger)
            found = len(self.captioned - outcomes), len(self.votes.items() - votes.items())
            if found == (0, 0) or time.monotonic() > give_up:
                return found
            time.sleep(0.1)

    def results(self) -> list[dict[str, Any]]:
        """Of the arms, as they are told over HTTP."""
        answer = httpx.get(f"{self.nodes.url}/v1/experiments/{EXPERIMENT}", timeout=60, trust_env=False)
        assert answer.status_code == 200, answer.text
        arms: list[dict[str, Any]] = answer.json()["results"]["arms"]
        return arms


@contextmanager
def site(models: Path) -> Iterator[Site]:
    """Captioners on two nodes, monitor and ledger on the first of them, ingress and proxy on a third, the head."""
    with postgres() as database, cluster(free_port(), **{EDGE: 1.0}) as nodes:
        ledger = database.url.format("postgres")
        args = {
            "models": [version_of(models, "concise")],
            "scorer": None,
            "device": "cpu",
            "threads": 1,
            "experiments": [{"name": EXPERIMENT, "arms": [{"label": "a"}, {"label": "b"}]}],
            "ledger": ledger,
        }
        found = Site(nodes, args, ledger)
        found.add_node()
        found.deploy()
        nodes.until(lambda seen: None not in where(seen, "Monitor", "Ledger") and len(where(seen, "Ledger")) == 1)
        found.add_node()  # only now, so that both are on one node
        nodes.until(found.whole)
        yield found


def version_of(folder: Path, bundled: str, model: str = "house") -> str:
    """A folder with a bundled model's weights under an id that is the same in every version."""
    return str(shutil.copytree(BUNDLED / bundled, folder / bundled / model))


def where(found: list[Replica], *deployments: str) -> set[str | None]:
    """The nodes of their replicas; None for one that has none yet, or where there is no replica."""
    return {each.node_id for name in deployments for each in found if each.deployment == name} | {
        None for name in deployments if not any(each.deployment == name for each in found)
    }
