"""A caption request that takes part in an experiment: what the arm makes of it, and what it leaves in the ledger."""

import time
from dataclasses import dataclass, replace

from models.errors import RequestError
from models.text_stats import word_count
from serving.experiments.assignment import assign, find_experiment, is_scored
from serving.experiments.definition import Arm, Experiment
from serving.experiments.records import Outcome
from serving.messages import CaptionedImage, CaptionJob, CaptionReply
from serving.schemas import CaptionOptions

_POINT = ("descriptiveness", "mix", "target_words")


@dataclass(frozen=True)
class Participation:
    """A unit, the arm that it got, and the request it made."""

    experiment: Experiment
    arm: Arm
    unit: str
    request_id: str

    @property
    def sampled(self) -> bool:
        """Whether the CLIPScores of the request count."""
        return is_scored(self.request_id, self.experiment.score_share)

    def outcomes(self, job: CaptionJob, reply: CaptionReply, total_s: float) -> list[Outcome]:
        """One for each image of an answer that took ``total_s``."""
        return [
            self._outcome(job.model, index, image, 1000 * total_s if image.error is None else None)
            for index, image in enumerate(reply.results)
        ]

    def failures(self, model: str, images: int, code: str) -> list[Outcome]:
        """One for each image of a request that failed as a whole: a slow arm must not lose its slowest cases."""
        return [replace(self._outcome(model, index, CaptionedImage(), None), error=code) for index in range(images)]

    def _outcome(self, model: str, index: int, image: CaptionedImage, latency_ms: float | None) -> Outcome:
        best = image.captions[0] if image.captions else None
        return Outcome(
            experiment=self.experiment.name,
            arm=self.arm.label,
            unit=self.unit,
            request_id=self.request_id,
            index=index,
            model=model,
            created_at_s=time.time(),
            sampled=self.sampled,
            clip_score=best.clip_score if best and self.sampled else None,
            scorer=best.scorer if best and self.sampled else None,
            words=word_count(best.text) if best else None,
            latency_ms=latency_ms,
            caption=best.text if best else "",
            error=image.error.code if image.error else None,
        )


def take_part(
    experiments: tuple[Experiment, ...], asked: CaptionOptions, request_id: str
) -> tuple[Participation | None, CaptionOptions]:
    """The participation that a request asks for, if it does, and the request as its arm has it.

    What any arm of the experiment decides, no request of it may ask for: it would be so in some arms only.

    Raises:
        UnknownNameError: ``unknown_experiment``.
        RequestError: ``invalid_request`` without a usable unit, or for a field that the experiment decides.
    """
    if asked.experiment is None:
        return None, asked
    experiment = find_experiment(experiments, asked.experiment)
    arm = assign(experiments, asked.experiment, asked.unit)
    if asked.min_clip_score is not None:
        raise RequestError(
            "invalid_request", "min_clip_score: not in an experiment, where each arm shows its own captions"
        )
    decided = _decided(experiment)
    for name in decided:
        if getattr(asked, name) is not None:
            raise RequestError("invalid_request", f"{name}: experiment {experiment.name!r} decides it; leave it out")
    changes = {name: getattr(arm, name, None) for name in decided}
    participation = Participation(experiment, arm, asked.unit or "", request_id)
    reranks = any(each.decode is not None and each.decode.rerank is not None for each in experiment.arms)
    if asked.score is False and (participation.sampled or reranks):
        changes["score"] = None  # as the server can: the experiment needs it
    return participation, asked.model_copy(update=changes)


def _decided(experiment: Experiment) -> tuple[str, ...]:
    """The fields of a request that some arm sets."""
    set_by_some = {
        name
        for arm in experiment.arms
        for name in ("model", "descriptiveness", "mix", "decode")
        if getattr(arm, name) is not None
    }
    if set_by_some & set(_POINT):
        set_by_some |= set(_POINT)  # at most one of them can be given
    return tuple(sorted(set_by_some))
