"""The arithmetic of sizing, by hand."""

import argparse

import pytest

from benchmarks.capacity import Rate, core_hours_per_million, cores_for, hours_for, main

TEN = Rate("ten", 20.0, 2)


def test_the_numbers_by_hand() -> None:
    assert TEN.per_core == 10
    assert core_hours_per_million(TEN, 1.0) == pytest.approx(27.78, abs=0.01)  # 100,000 s
    assert core_hours_per_million(TEN, 0.5) == pytest.approx(55.56, abs=0.01)
    assert hours_for(TEN, 3.6e7, 10) == 100
    assert cores_for(TEN, 1000, 0.5) == 200 + 24  # 11.8 ms beside the model for each, half of the time


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name",
        "name=1",
        "name=1/0",
        "=1/2",
        "name=-1/2",
        "name=nan/2",
        "name=inf/2",
        "name=1e-320/2",
        f"name=1/{10**400}",
    ],
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not NAME=IMAGES_PER_S/CORES"):
        Rate.parse(text)


def test_your_own_rates_take_the_place_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--rate", "mine=20/2", "--use", "1", "--images-per-s", "10"])
    out = capsys.readouterr().out
    assert "| mine | 10.00 | 28 | 2 |" in out and "concise" not in out


@pytest.mark.parametrize(
    "words",
    [
        *(("--use", share) for share in ("0", "-1", "2", "nan", "1e-320")),
        *(("--images-per-s", rate) for rate in ("0", "-5", "nan", "inf")),
        *(("--images", count) for count in ("-1", "nan", "inf", "1e400")),
        *(("--cores", count) for count in ("0", "-3", "1e3")),
    ],
)
def test_other_amounts_are_refused_in_one_line(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([f"{words[0]}={words[1]}"])
    assert caught.value.code == 2 and f"argument {words[0]}: " in capsys.readouterr().err
