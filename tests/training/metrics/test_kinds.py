"""What holds for every metric of the table: definitions, values per image, samples of the images."""

import statistics

import pytest

from tests.training.metrics.helpers import everything, write_language_model
from training.metrics import METRICS, build_metrics
from training.metrics.interface import Metric, MetricInputs
from training.metrics.spice import Spice

NEEDS_JAVA = {"meteor", "spice"}  # tested on their own
SAMPLE = [4, 0, 0, 2, 3]


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Metric]:
    options = {"perplexity": {"model": str(write_language_model(tmp_path_factory.mktemp("lm"))), "device": "cpu"}}
    names = [name for name in METRICS if name not in NEEDS_JAVA]
    return build_metrics([{"name": name, "options": options.get(name, {})} for name in names])


@pytest.fixture(scope="module")
def inputs() -> MetricInputs:
    return everything()


@pytest.mark.parametrize("name", sorted(METRICS.keys() - NEEDS_JAVA))
def test_contract(name: str, metrics: dict[str, Metric], inputs: MetricInputs) -> None:
    metric = metrics[name]
    assert metric.needs <= inputs.gives
    assert type(metric).Options.model_config["extra"] == "forbid"
    definitions, values, per_image = metric.definitions(), metric.compute(inputs), metric.per_image(inputs)
    assert list(values) == list(definitions)
    assert all(definition.text for definition in definitions.values())
    assert set(per_image) == {name for name, definition in definitions.items() if definition.over_images != "corpus"}
    summaries = {"mean": statistics.fmean, "median": statistics.median}
    for number, of in per_image.items():
        assert len(of) == len(inputs.captions)
        assert values[number] == pytest.approx(summaries[definitions[number].over_images](of))
    assert set(metric.caption_scores(inputs)) in ({*definitions}, {*per_image})


@pytest.mark.parametrize("name", sorted(METRICS.keys() - NEEDS_JAVA))
def test_samples_of_the_images(name: str, metrics: dict[str, Metric], inputs: MetricInputs) -> None:
    metric = metrics[name]
    sample = metric.resampler(inputs)
    assert sample(range(len(inputs.captions))) == pytest.approx(metric.compute(inputs))
    sampled, per_image = sample(SAMPLE), metric.per_image(inputs)
    for number, of in per_image.items():
        summary = statistics.median if metric.definitions()[number].over_images == "median" else statistics.fmean
        assert sampled[number] == pytest.approx(summary([of[index] for index in SAMPLE]))
    if not metric.needs & {"scorer", "logprobs"} and name not in ("cider", "self_cider", "oracle"):
        # Nothing about these depends on the other images, so computing on the images alone is the same.
        assert sampled == pytest.approx(metric.compute(inputs.take(SAMPLE)))


class Plain(Metric):
    """A metric without a kind."""

    def definitions(self) -> dict:  # type: ignore[type-arg]
        return {}

    def compute(self, inputs: MetricInputs) -> dict[str, float]:
        return {"images": float(len(inputs.captions)), "distinct": float(len(set(inputs.image_ids)))}


def test_a_metric_without_a_kind_is_computed_anew_on_every_sample(inputs: MetricInputs) -> None:
    assert Plain().resampler(inputs)(SAMPLE) == {"images": 5.0, "distinct": 4.0}
    assert Plain().per_image(inputs) == Plain().caption_scores(inputs) == {}


def test_java_metrics_say_so() -> None:
    assert Spice.uses_java
    assert not any(metric.uses_java for metric in build_metrics(["bleu", "cider", "rouge_l"]).values())
