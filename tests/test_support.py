import pytest

from tests.support import Requirement

_ABSENT = Requirement("shared", lambda: False, "the thing is absent", required_in_ci=True)
_PRESENT = Requirement("shared", lambda: True, "", required_in_ci=True)


def _test(number: int) -> int:
    return number


def test_what_is_there_only_marks() -> None:
    guarded = _PRESENT(_test)
    assert [mark.name for mark in guarded.pytestmark] == ["shared"]  # type: ignore[attr-defined]
    assert guarded(3) == 3
    _PRESENT.check()


def test_absence_skips_outside_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)

    def test() -> None: ...

    marks = _ABSENT(test).pytestmark  # type: ignore[attr-defined]
    assert {mark.name for mark in marks} == {"shared", "skip"}
    with pytest.raises(pytest.skip.Exception, match="the thing is absent"):
        _ABSENT.check()


def test_absence_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="the thing is absent"):
        _ABSENT(_test)(3)
    with pytest.raises(pytest.fail.Exception, match="the thing is absent"):
        _ABSENT.check()


def test_absence_of_what_ci_may_lack_skips_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.skip.Exception):
        Requirement("gpu", lambda: False, "no device", required_in_ci=False).check()
