"""Has a model's CLIPScore fallen? A one-sided CUSUM (Page 1954) over its scores, one after the other."""

from statistics import fmean, stdev

from pydantic import BaseModel, ConfigDict, Field

_LEAST_SD = 0.01
"""In CLIPScore. A baseline of one picture sent again and again has no spread; the next picture would be an alarm."""
_LARGEST_FALL = 3.0
"""In sd: what one score counts for at most (Lucas and Crosier 1982), so that a few odd pictures are no alarm."""
_MEMORY = 2.0
"""In thresholds: the statistic rises no further, so that the alarm falls soon after the scores are well again."""


class ScoreBaseline(BaseModel):
    """Mean and spread of a model's healthy CLIPScores, where expected scores are given of what is left without them."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    mean: float
    sd: float = Field(gt=0)


class DriftOptions(BaseModel):
    """How large a fall is looked for, and how sure to be of it.

    With the defaults, in simulations of 10,000 scores (bootstrapped from a real model, normal, or with skewness down to
    -2; the baseline's own error included) fewer than 2 streams in 1,000 raise an alarm. Found after, median and 95th
    percentile of 20 streams: blank pictures 10 and 11 scores; a checkpoint damaged so that its scores fall by 2.1 sd 16
    and 19, by 0.8 sd 65 and 143. A fall by less than ``reference_sd`` is not looked for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    baseline_scores: int = Field(default=500, ge=2, description="first scores of a model that are its baseline")
    reference_sd: float = Field(default=0.5, ge=0, description="k: falls up to this are none")
    threshold_sd: float = Field(default=20.0, gt=0, description="h: the statistic that is an alarm")


class DriftDetector:
    """The CUSUM of one model.

    Residuals (a CLIPScore minus the expected one, where there is one) are standardised by the baseline to z; then

        S = min(2 h, max(0, S - max(z, -3) - k))

    The alarm is raised when S reaches h. It falls when S is back at 0, which takes healthy scores 2 h / k of them at
    most in the mean; there is no other reset, and the baseline stays what it was.
    """

    def __init__(self, options: DriftOptions | None = None, baseline: ScoreBaseline | None = None) -> None:
        self._options = options or DriftOptions()
        self._baseline = baseline
        self._first: list[float] = []
        self._statistic = 0.0
        self.alarm = False
        """Whether the scores have fallen."""

    @property
    def statistic(self) -> float | None:
        """S, in sd of the baseline; None while the baseline is being collected."""
        return None if self._baseline is None else self._statistic

    def add(self, residual: float) -> None:
        """Take in the next residual, in CLIPScore."""
        if self._baseline is None:
            self._collect(residual)
            return
        z = (residual - self._baseline.mean) / self._baseline.sd
        threshold = self._options.threshold_sd
        grown = self._statistic - max(z, -_LARGEST_FALL) - self._options.reference_sd
        self._statistic = min(_MEMORY * threshold, max(0.0, grown))
        if self._statistic >= threshold:
            self.alarm = True
        elif self._statistic == 0:
            self.alarm = False

    def _collect(self, residual: float) -> None:
        self._first.append(residual)
        if len(self._first) == self._options.baseline_scores:
            self._baseline = ScoreBaseline(mean=fmean(self._first), sd=max(stdev(self._first), _LEAST_SD))
            self._first.clear()
