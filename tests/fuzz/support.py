"""How the fuzz tests draw examples: the same ones on every run of the suite, ever new ones by ``make fuzz``."""

import atexit
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EXAMPLES: Counter[str] = Counter()
"""Examples run in this process, by test."""
EXAMPLE_S = 5.0
"""CPU time that no example may take, on however slow a machine."""

REPORT = "LIMNER_FUZZ_REPORT"
TIMES = "LIMNER_FUZZ_TIMES"


def fuzz(examples: int, **strategies: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that runs a test on ``examples`` draws; ``make fuzz`` on many times as many, drawn anew.

    No draw is kept between runs: a fault that is found becomes a test of its own.
    """
    times = int(os.environ.get(TIMES, "0"))
    chosen = settings(
        max_examples=examples * max(1, times),
        derandomize=not times,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def counted(*args: Any, **kwargs: Any) -> None:
            EXAMPLES[test.__name__] += 1
            started = time.process_time()
            test(*args, **kwargs)
            assert time.process_time() - started < EXAMPLE_S

        fuzzed: Callable[..., None] = chosen(given(**strategies)(counted))
        return fuzzed

    return decorate


@atexit.register
def _write_report() -> None:
    """Leave the counts where ``tests.fuzz.run`` asks for them."""
    if (path := os.environ.get(REPORT)) is not None and EXAMPLES:
        Path(path).write_text(json.dumps(EXAMPLES), encoding="utf-8")


def json_values() -> st.SearchStrategy[Any]:
    """Anything that JSON can say, and what Python's reader takes for it: lone surrogates, NaN, endless integers."""
    scalars = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.sampled_from([0, -1, 2**31, 2**63, 10**30, 1e308, 0.0, -0.0])
        | st.floats()
        | st.text(max_size=30)
        | st.text(st.characters(categories=["Cs", "Cc", "Lo"]), max_size=5)
    )
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=10,
    )
