"""Optional packages."""

import sys

import pytest

from models.errors import MissingDependencyError
from training.dependencies import require
from training.metrics import build_metrics


def test_a_package_that_is_there() -> None:
    assert require("json", "train").loads("1") == 1


@pytest.mark.parametrize(("metric", "module"), [("bleu", "bleu.bleu_scorer"), ("cider", "cider.cider_scorer")])
def test_an_absent_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch, metric: str, module: str) -> None:
    monkeypatch.setitem(sys.modules, f"pycocoevalcap.{module}", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'limner\[train\]'"):
        build_metrics([metric])
