"""Share of captions cut at the token limit."""

from __future__ import annotations

from training.metrics.interface import Definition, Metric, MetricInputs


class Cut(Metric):
    """Captions that the model did not end itself."""

    needs = frozenset({"finish_reasons"})

    def definitions(self) -> dict[str, Definition]:
        return {"cut": Definition("share of captions that were cut at max_tokens (finish_reason length); 0..1", 100.0)}

    def compute(self, inputs: MetricInputs) -> dict[str, float]:
        assert inputs.finish_reasons is not None
        return {"cut": inputs.finish_reasons.count("length") / len(inputs.finish_reasons)}
