"""What is read of the arms, alike on both databases."""

import numpy as np
import pytest

from serving.experiments import arm_queries
from serving.experiments.ledger import open_ledger
from tests.serving.experiments.support import outcome


def test_the_unit_is_counted_not_the_image(database_url: str) -> None:
    with open_ledger(database_url) as ledger:
        ledger.record(
            [
                outcome(request_id="1", unit="u1", clip_score=0.5, words=4, latency_ms=10.0),
                outcome(request_id="2", unit="u1", clip_score=0.7, words=6, latency_ms=20.0),
                outcome(request_id="3", unit="u2", clip_score=0.9, words=8, latency_ms=30.0),
                outcome(request_id="4", unit="u3", clip_score=None, scorer=None, sampled=False, latency_ms=None),
                outcome(request_id="5", unit="u3", clip_score=None, scorer=None),
                outcome(request_id="6", unit="u4", clip_score=0.1, scorer="another"),
                outcome(request_id="7", unit="u5", clip_score=None, words=None, error="truncated", caption=""),
                outcome(request_id="8", unit="u5", clip_score=None, words=None, error="too_large", caption=""),
                outcome(request_id="9", unit="u5", clip_score=None, words=None, error="truncated", caption=""),
                outcome(request_id="1", arm="b", index=1),
                outcome(request_id="1", experiment="other", index=1),
            ]
        )
        a, b, c = ledger.arm_data("tone", ["a", "b", "c"])
    assert (a.label, a.images, a.units, a.missing, a.other_scorer) == ("a", 9, 5, 1, 1)
    assert sorted(a.unit_scores.tolist()) == pytest.approx([0.6, 0.9])
    assert a.mean_words == pytest.approx((4 + 6 + 8 + 5 + 5 + 5) / 6)
    assert sorted(a.latencies_ms.tolist()) == [10, 20, 20, 20, 30]
    assert (len(a.captions), a.errors) == (6, {"too_large": 1, "truncated": 2})
    assert (b.images, b.units, b.captions) == (1, 1, ("A dog runs on grass.",))
    assert (c.images, c.units, c.mean_words, c.captions, c.unit_scores.size) == (0, 0, None, (), 0)


def test_the_sample_of_captions_is_random_bounded_and_always_the_same(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arm_queries, "SAMPLE_IMAGES", 50)
    made = [outcome(request_id=f"r{number}", caption=str(number)) for number in range(1000)]
    with open_ledger(database_url) as ledger:
        ledger.record(made)
        [arm] = ledger.arm_data("tone", ["a"])
        [again] = ledger.arm_data("tone", ["a"])
    numbers = np.array([int(caption) for caption in arm.captions])
    assert arm.captions == again.captions
    assert len(numbers) == 50
    assert 400 < numbers.mean() < 600
    assert sorted(arm.captions, key=int) != list(arm.captions)
