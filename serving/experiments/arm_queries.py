"""What the ledger's tables say about the arms of one experiment."""

from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection, and_, case, distinct, func, select

from serving.experiments.statistics import ArmData
from serving.experiments.tables import OUTCOMES, VOTES

SAMPLE_IMAGES = 10_000
"""Captions and latencies of an arm are looked at one by one, so only in a random sample of this many."""

_T = OUTCOMES.c


def read_arms(connection: Connection, experiment: str, labels: Sequence[str]) -> tuple[ArmData, ...]:
    """The data of the arms with these labels, in their order. All in one transaction: of one moment."""
    scorer = _scorer(connection, experiment)
    return tuple(_read_arm(connection, experiment, label, scorer) for label in labels)


def _scorer(connection: Connection, experiment: str) -> str | None:
    """The scorer that measured most: scores of different ones cannot be compared."""
    found = (
        select(_T.scorer)
        .where(_T.experiment == experiment, _T.clip_score.is_not(None))
        .group_by(_T.scorer)
        .order_by(func.count().desc(), _T.scorer)
        .limit(1)
    )
    return connection.execute(found).scalar()


def _read_arm(connection: Connection, experiment: str, label: str, scorer: str | None) -> ArmData:
    ours = and_(_T.experiment == experiment, _T.arm == label)
    scored = and_(_T.clip_score.is_not(None), _T.scorer.is_not_distinct_from(scorer))
    other = and_(_T.clip_score.is_not(None), _T.scorer.is_distinct_from(scorer))
    missing = and_(_T.sampled, _T.error.is_(None), _T.clip_score.is_(None))
    totals = connection.execute(
        select(
            func.count().label("images"),
            func.count(distinct(_T.unit)).label("units"),
            func.avg(case((_T.error.is_(None), _T.words))).label("words"),
            func.count(case((missing, 1))).label("missing"),
            func.count(case((other, 1))).label("other"),
        ).where(ours)
    ).one()
    means = select(func.avg(_T.clip_score)).where(ours, scored).group_by(_T.unit)
    sample = select(_T.caption, _T.latency_ms).where(ours, _T.error.is_(None)).order_by(_T.draw).limit(SAMPLE_IMAGES)
    errors = select(_T.error, func.count()).where(ours, _T.error.is_not(None)).group_by(_T.error).order_by(_T.error)
    votes = select(VOTES.c.value, func.count()).join(OUTCOMES).where(ours).group_by(VOTES.c.value)
    rows = connection.execute(sample).all()
    counted = {value: count for value, count in connection.execute(votes)}
    return ArmData(
        label=label,
        images=totals.images,
        units=totals.units,
        unit_scores=np.array(connection.execute(means).scalars().all(), dtype=np.float64),
        latencies_ms=np.array([row.latency_ms for row in rows if row.latency_ms is not None], dtype=np.float64),
        mean_words=None if totals.words is None else float(totals.words),
        captions=tuple(row.caption for row in rows),
        votes_up=counted.get(1, 0),
        votes_down=counted.get(-1, 0),
        missing=totals.missing,
        other_scorer=totals.other,
        errors={code: count for code, count in connection.execute(errors)},
    )
