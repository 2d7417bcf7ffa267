"""Training curves from the folders of runs."""

import json
from pathlib import Path

import pytest

from models.errors import DataError, RequestError
from training.curves import draw_curves, read_curves


def write_run(folder: Path, values: dict[str, list[float]]) -> Path:
    """Two checkpoints, of which the second knows every validation."""
    length = len(next(iter(values.values())))
    for until in (1, length):
        history: list[dict[str, float]] = [{"step": 1, "loss": 2.0}]
        for at in range(until):
            history.append({"step": 10 * (at + 1), **{f"eval_{name}": of[at] for name, of in values.items()}})
        checkpoint = folder / f"checkpoint-{10 * until}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": history}), encoding="utf-8")
    return folder


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    values = [float(n) for n in range(12)]
    return write_run(tmp_path / "run", {"mean_words": values, "r_at_1": values, "nll": values})


def test_the_last_checkpoint_tells_all_validations(run_folder: Path) -> None:
    curves = read_curves(run_folder)
    assert curves.keys() == {"mean_words", "r_at_1", "nll"}
    assert curves["nll"] == [(10 * (n + 1), float(n)) for n in range(12)]  # checkpoint-120 comes after checkpoint-10


def test_the_numbers_of_smiles_figure_are_drawn(run_folder: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other" / "run", {"mean_words": [3.0, 4.0]})
    draw_curves([run_folder, other], tmp_path / "curves.png")
    data = json.loads((tmp_path / "curves.json").read_text(encoding="utf-8"))
    assert data.keys() == {str(run_folder), str(other)}
    assert data[str(run_folder)].keys() == {"mean_words", "r_at_1"}
    draw_curves([run_folder], tmp_path / "curves.png", ["nll"])
    assert json.loads((tmp_path / "curves.json").read_text(encoding="utf-8"))["run"].keys() == {"nll"}


def test_what_cannot_be_drawn_is_named(run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no folder of a training run"):
        read_curves(tmp_path)
    with pytest.raises(DataError, match="measured cider; there are: mean_words, r_at_1, nll"):
        draw_curves([run_folder], tmp_path / "x.png", ["cider"])
    bare = write_run(tmp_path / "bare", {"nll": [1.0, 2.0]})
    with pytest.raises(DataError, match="measured mean_words, "):
        draw_curves([bare], tmp_path / "x.png")
    with pytest.raises(RequestError, match="no folder"):
        draw_curves([run_folder], tmp_path / "absent" / "x.png")
