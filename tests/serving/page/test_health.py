"""The strip at the foot, and how it reads /metrics."""

import pytest

from tests.serving.page.visitor import Page

pytestmark = pytest.mark.chromium


def test_the_strip_tells_rates_and_quantiles(page: Page) -> None:
    page.until(lambda: "captions/s" in page.text("#health"))
    told = page.text("#health")
    for part in ("50 ms", "3 of 256", "0.78", "has fallen"):
        assert part in told


def test_quantiles_are_those_of_prometheus(page: Page) -> None:
    text = 'a_bucket{le="1"} 2\na_bucket{le="2"} 6\na_bucket{le="+Inf"} 8\nb{x="q\\"\\n"} 4'
    found = page.driver.execute_async_script(
        """const [text, done] = arguments;
        import('/page/prometheus.js').then(({ parse, quantile, buckets, increase }) => {
          const all = parse(text), found = buckets(null, all, 'a', {});
          done([quantile(found, .5), quantile(found, .1), quantile(found, 1), quantile([], .5), all[3].labels.x,
                increase(parse('b 7'), parse('b 9'), 'b'), increase(parse('b 7'), parse('b 2'), 'b')]);
        });""",
        text,
    )
    assert found == [1.5, 0.4, 2, None, 'q"\n', 2, 2]
