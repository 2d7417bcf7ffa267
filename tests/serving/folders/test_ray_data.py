"""``limner caption --ray`` on a cluster of several nodes, one of which goes down."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from models.cli import run
from serving.folders import ray_data
from serving.folders.job import FolderJob
from serving.folders.pictures import Picture
from serving.local_models import Wish
from tests.serving.folders.test_kill import write_pictures

ROOT = Path(__file__).parents[3]
MAIN = [sys.executable, "-m", "models.cli", "caption"]
PICTURES = 128


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that computes nothing, and two nodes of one core."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT)  # for the processes of the nodes
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        yield found
    finally:
        found.shutdown()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def rows(path: Path) -> list[dict[str, Any]]:
    return sorted(map(json.loads, path.read_text().splitlines()), key=lambda row: str(row["file_name"]))


def test_a_node_goes_down_and_nothing_is_lost_or_doubled(cluster: Any, tmp_path: Path) -> None:
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    cluster.wait_for_nodes()
    folder = tmp_path / "pictures"
    write_pictures(folder, PICTURES)
    (folder / "notes").write_text("no picture")
    alone, spread = tmp_path / "alone.jsonl", tmp_path / "spread.jsonl"
    words = ["-r", "--model", "concise", "--device", "cpu", "--batch-size", "4"]
    here = {**os.environ, "RAY_ADDRESS": cluster.address}
    process = subprocess.Popen(
        [*MAIN, "pictures", *words, "--ray", "--actors", "2", "--out", str(spread)],
        cwd=tmp_path,  # another than that of the nodes
        env=here,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not (spread.exists() and spread.stat().st_size):
        time.sleep(0.05)
    assert process.poll() is None
    cluster.remove_node(nodes[0], allow_graceful=False)
    cluster.add_node(num_cpus=1)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 1, errors  # some pictures are damaged
    state = json.loads((tmp_path / "run.json").read_text())
    assert state["state"] == "finished" and state["counts"]["left_out"] == {"not a picture": 1}

    assert run(["caption", str(folder), *words, "--out", str(alone)]) == 1
    found, wanted = rows(spread), rows(alone)
    assert len(found) == PICTURES
    for each in (*found, *wanted):
        for caption in each["captions"]:
            caption["logprob"] = round(caption["logprob"], 4)  # other batches, other rounding
    assert found == wanted


def test_members_of_archives_go_to_the_cluster_in_windows_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_data, "_WINDOW_BYTES", 10)
    found = [Picture(str(number), "a.tar", in_archive=True, data=bytes(4)) for number in range(7)]
    assert [len(window) for window in ray_data._windows(found)] == [3, 3, 1]


def test_folders_of_a_job_are_known_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    job = FolderJob(Wish("mine"), arms=(("a", Wish("dial")),), scorer="local-dir:mine", models_dir=Path("mine"))
    found = ray_data._with_places(job)
    assert (found.wish.model, found.arms[0][1].model) == (str(tmp_path / "mine"), "dial")
    assert (found.scorer, found.models_dir) == (f"local-dir:{tmp_path}/mine", tmp_path / "mine")


def test_what_is_done_is_not_done_again(cluster: Any, tmp_path: Path) -> None:
    cluster.add_node(num_cpus=1)
    write_pictures(tmp_path / "pictures", 12)
    out = tmp_path / "captions.parquet"
    words = [str(tmp_path / "pictures"), "-r", "--model", "fake", "--device", "cpu", "--out", str(out)]
    here = {**os.environ, "RAY_ADDRESS": cluster.address}
    assert run(["caption", *words]) == 1
    again = subprocess.run([*MAIN, *words, "--ray"], env=here, capture_output=True, text=True)
    assert "0 captioned; 1 failed; 11 done before" in again.stderr
