"""Three Ray nodes: captioners spread, a node killed under load, another that joins, updates that no client notices.

The tests share one cluster and leave it whole."""

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.figures import Figures
from tests.serving.nodes import Replica
from tests.serving.patient import CAPTION, METRICS, NO_ANSWER, VOTE, Patient
from tests.serving.site import FEW_S, MANY_S, VISITORS, Site, site, version_of, where
from tests.support import needs_postgres

KINDS = (CAPTION, VOTE, METRICS)
MOST_FAILED = VISITORS
"""Captions that a killed node may cost: what each client has under way."""
FEW_LOST = 20 * VISITORS
"""Outcomes of the last second of an ingress."""


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    needs_postgres.check()
    with site(tmp_path_factory.mktemp("models")) as found:
        yield found


BUSY = pytest.mark.parametrize(
    "pause_s", [FEW_S, *(pytest.param(MANY_S, id=id, marks=pytest.mark.slow) for id in ("busy", "busy again"))]
)
"""Once in every run, three times in the long one."""


def check_told(clients: Patient, since: float, figure: Figures) -> None:
    """Refusals tell when to ask again."""
    for kind in KINDS:
        figure(kind, clients.told(kind, since))
    for each in clients.failed(CAPTION, since) + clients.failed(VOTE, since):
        assert each.status != 503 or "retry-after 5:" in each.text


def check_none_failed(clients: Patient, since: float, figure: Figures) -> None:
    for kind in KINDS:
        figure(kind, clients.told(kind, since))
        assert clients.since(kind, since) and not clients.failed(kind, 0)


def kill_and_join(site: Site, victim: str, pause_s: float, figure: Figures) -> tuple[Patient, float]:
    """A node killed under load, and a new one in its place."""
    with site.visited(pause_s) as clients:
        site.nodes.kill(victim)
        killed = time.monotonic()
        joined = site.add_node()

        def came_back(found: list[Replica]) -> bool:
            return where(found, "Monitor", "Ledger").isdisjoint({victim, None})

        site.nodes.until(came_back)
        figure("monitor and ledger on living nodes", f"after {time.monotonic() - killed:.1f} s")
        found = site.nodes.until(site.whole)
        figure("a captioner on the node that joined", f"after {time.monotonic() - killed:.1f} s")
        assert joined in where(found, "Captioner") == site.nodes.alive
        clients.until_served_since(time.monotonic())
        check_told(clients, killed, figure)
    return clients, killed


@needs_postgres
@BUSY
def test_a_node_is_killed_and_another_joins(site: Site, figure: Figures, pause_s: float) -> None:
    found = site.nodes.replicas()
    assert where(found, "Captioner") == site.nodes.alive  # one on each
    victim = max(filter(None, where(found, "Monitor", "Ledger")))
    clients, killed = kill_and_join(site, victim, pause_s, figure)
    for kind in KINDS:
        assert {each.status for each in clients.failed(kind, killed)} <= {503}
    assert len(clients.failed(CAPTION, killed)) <= MOST_FAILED
    assert site.lost() == (0, 0)
    figure("lost", f"0 of {len(clients.captioned)} outcomes, 0 of {len(clients.votes)} votes")
    arms = site.results()
    assert sum(arm["images"] for arm in arms) == len(site.captioned)
    assert sum(arm["votes_up"] + arm["votes_down"] for arm in arms) == len(site.votes)


@needs_postgres
@BUSY
def test_an_update_of_the_weights_fails_no_request(
    site: Site, figure: Figures, tmp_path_factory: pytest.TempPathFactory, pause_s: float
) -> None:
    old = {each.replica_id for each in site.nodes.replicas()}
    weights = "concise" if "smile" in Path(site.args["models"][0]).parts else "smile"
    with site.visited(pause_s) as clients:
        began = time.monotonic()
        site.deploy(models=[version_of(tmp_path_factory.mktemp("models"), weights)])
        site.nodes.until(lambda found: site.whole(found) and old.isdisjoint(each.replica_id for each in found))
        done = time.monotonic()
        clients.until_served_since(done)
    figure("update", f"took {done - began:.1f} s")
    check_none_failed(clients, began, figure)
    check_versions(clients, began, done, figure)
    assert site.lost() == (0, 0)


def check_versions(clients: Patient, began: float, done: float, figure: Figures) -> None:
    """Captions are those of the old weights before, of the new ones afterwards, and in between of either."""
    before, between, after = (defaultdict[int, set[str]](set) for _ in range(3))
    captions = clients.since(CAPTION, 0)
    for each in captions:
        phase = before if each.at < began else after if each.at - each.took_s > done else between
        phase[each.picture].add(each.text)
    for picture in range(VISITORS):
        assert before[picture] and after[picture] and before[picture].isdisjoint(after[picture])
        assert between[picture] <= before[picture] | after[picture]
    first_s = min(each.at for each in captions if each.text in after[each.picture]) - began
    last_s = max(each.at for each in captions if each.text in before[each.picture]) - began
    figure(
        "versions", f"the first caption of the new one after {first_s:.1f} s, the last of the old after {last_s:.1f} s"
    )


@needs_postgres
@pytest.mark.slow
def test_an_update_that_cannot_be_loaded_leaves_the_version_before(
    site: Site, figure: Figures, tmp_path_factory: pytest.TempPathFactory
) -> None:
    good, [broken] = site.args["models"], [version_of(tmp_path_factory.mktemp("models"), "smile")]
    Path(broken, "decoder.safetensors").write_bytes(b"")
    with site.visited(MANY_S) as clients:
        began = time.monotonic()
        site.deploy(models=[broken])
        site.nodes.until_status("DEPLOY_FAILED")
        clients.until_served_since(time.monotonic())
        figure("update", f"failed after {time.monotonic() - began:.1f} s")
        site.deploy(models=good)
        site.nodes.until(site.whole)
        site.nodes.until_status("RUNNING")
        figure("taken back", f"after {time.monotonic() - began:.1f} s")
    check_none_failed(clients, began, figure)
    assert site.lost() == (0, 0)


@needs_postgres
def test_fewer_captioners_fail_no_request(site: Site, figure: Figures) -> None:
    with site.visited() as clients:
        began = time.monotonic()
        site.deploy(captioners=1)
        site.nodes.until(site.whole)
        figure("scale-down", f"took {time.monotonic() - began:.1f} s")
        clients.until_served_since(time.monotonic())
    check_none_failed(clients, began, figure)
    assert site.lost() == (0, 0)


@needs_postgres
@pytest.mark.slow
def test_an_update_of_the_only_captioner_makes_requests_wait(
    site: Site, figure: Figures, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site.deploy(captioners=1)
    old = {each.replica_id for each in site.nodes.until(site.whole)}
    with site.visited() as clients:
        began = time.monotonic()
        site.deploy(captioners=1, models=[version_of(tmp_path_factory.mktemp("models"), "smile")])
        site.nodes.until(lambda found: site.whole(found) and old.isdisjoint(each.replica_id for each in found))
        figure("update", f"took {time.monotonic() - began:.1f} s")
        clients.until_served_since(time.monotonic())
    check_none_failed(clients, began, figure)
    assert site.lost() == (0, 0)


@needs_postgres
@pytest.mark.slow
def test_an_update_to_a_model_of_another_name_fails_no_request_with_three_captioners(
    site: Site, figure: Figures, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site.add_node()
    site.deploy(captioners=3)
    old = {each.replica_id for each in site.nodes.until(site.whole)}
    with site.visited(MANY_S) as clients:
        began = time.monotonic()
        site.deploy(captioners=3, models=[version_of(tmp_path_factory.mktemp("models"), "smile", "another")])
        site.nodes.until(lambda found: site.whole(found) and old.isdisjoint(each.replica_id for each in found))
        figure("update", f"took {time.monotonic() - began:.1f} s")
        clients.until_served_since(time.monotonic())
    check_none_failed(clients, began, figure)
    assert site.lost() == (0, 0)


@needs_postgres
@pytest.mark.slow
def test_a_node_with_an_ingress_is_killed(site: Site, figure: Figures) -> None:
    """Ray's proxy answers for the ingress that is gone, in its own words; the last second's outcomes go with it."""
    site.deploy(captioners=3, ingresses_inside=3)
    victim = max(filter(None, where(site.nodes.until(site.whole), "Ingress")))
    clients, killed = kill_and_join(site, victim, MANY_S, figure)
    for kind in KINDS:
        assert {each.status for each in clients.failed(kind, killed)} <= {NO_ANSWER, 500, 503}
    outcomes, votes = site.lost()
    figure("lost", f"{outcomes} of {len(clients.captioned)} outcomes, {votes} of {len(clients.votes)} votes")
    assert outcomes <= FEW_LOST and votes == 0
