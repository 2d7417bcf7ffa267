"""The YAML file of experiments."""

from pathlib import Path

import pytest

from models.errors import ExperimentError
from serving.experiments.definition import Experiment, read_experiments

GOOD = """
experiments:
  - name: tone
    score_share: 0.5
    arms:
      - label: short
        model: concise
      - label: long
        weight: 3
        model: dial
        descriptiveness: 0.8
        decode: {options: {beams: 5}, guidance: 1.5}
  - name: mixes
    arms:
      - {label: a, mix: {smile: 0.5, contrastive: 2}}
      - {label: b, weight: 0}
"""


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "experiments.yaml").write_text(GOOD, encoding="utf-8")
    tone, mixes = read_experiments(tmp_path / "experiments.yaml")
    assert (tone.name, tone.score_share, [arm.weight for arm in tone.arms]) == ("tone", 0.5, [1, 3])
    long = tone.arm("long")
    assert long is not None and long.decode is not None
    assert (long.model, long.descriptiveness, long.decode.options) == ("dial", 0.8, {"beams": 5})
    assert mixes.arms[0].mix == {"smile": 0.5, "contrastive": 2}
    assert mixes.arm("c") is None
    assert Experiment.model_validate_json(tone.model_dump_json()) == tone


ARMS = "[{label: a}, {label: b}]"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- 1", "must hold a list under the key 'experiments'"),
        ("experiments: [", "is no YAML"),
        ("experiment: []", "experiments: Field required"),
        ("experiments: [{name: 'a b', arms: ARMS}]", "experiments.0.name: String should match pattern"),
        ("experiments: [{name: x}]", "experiments.0.arms: Field required"),
        ("experiments: [{name: x, arms: [{label: a}]}]", "experiments.0.arms: Tuple should have at least 2 items"),
        ("experiments: [{name: x, arms: [{label: a}, {label: a}]}]", "label 'a' stands twice"),
        ("experiments: [{name: x, arms: ARMS}, {name: x, arms: ARMS}]", "name 'x' stands twice"),
        (
            "experiments: [{name: x, arms: [{label: a, weight: -1}, {label: b}]}]",
            "arms.0.weight: Input should be great",
        ),
        ("experiments: [{name: x, arms: [{label: a, weight: .inf}, {label: b}]}]", "arms.0.weight: Input should be a"),
        ("experiments: [{name: x, arms: [{label: a, weight: 0}, {label: b, weight: 0}]}]", "every arm has weight 0"),
        ("experiments: [{name: x, arms: [{label: a, weight: 1.e+308}, {label: b, weight: 1.e+308}]}]", "too large"),
        ("experiments: [{name: x, arms: [{label: a, mix: {smile: 9}}, {label: b}]}]", "arms.0.mix.smile: Input should"),
        ("experiments: [{name: x, arms: [{label: a, mix: {s: 1}, descriptiveness: 1}, {label: b}]}]", "not both"),
        ("experiments: [{name: x, arms: [{label: a, decode: {name: magic}}, {label: b}]}]", "magic"),
        ("experiments: [{name: x, arms: [{label: a, decode: {options: {beams: 0}}}, {label: b}]}]", "beams"),
        ("experiments: [{name: x, arms: ARMS, score_share: 2}]", "score_share: Input should be less"),
        ("experiments: [{name: x, arms: [{label: a, model: 2024-13-45}, {label: b}]}]", "is no YAML"),
        (f"experiments: [{{name: x, arms: ARMS, score_share: {'9' * 5000}}}]", "is no YAML"),
        ("[" * 5000, "is no YAML"),
        ("experiments: [{name: x, arms: ARMS, colour: red}]", "colour: there is no such field"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_field(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "experiments.yaml"
    path.write_text(text.replace("ARMS", ARMS), encoding="utf-8")
    with pytest.raises(ExperimentError) as caught:
        read_experiments(path)
    assert caught.value.code == "bad_experiments"
    assert str(path) in caught.value.detail and told in caught.value.detail
    assert "\n" not in caught.value.detail


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for name in ("absent.yaml", "."):
        with pytest.raises(ExperimentError, match="cannot be read"):
            read_experiments(tmp_path / name)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ExperimentError, match="is no YAML"):
        read_experiments(tmp_path / "binary.yaml")
