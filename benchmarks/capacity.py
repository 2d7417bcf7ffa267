"""How many cores a rate of captions needs, by arithmetic on measured rates: ``python -m benchmarks.capacity --help``.

The rates are those of benchmarks/RESULTS.md, or yours: ``--rate "my model=12.5/4"`` is 12.5 images/s on 4 cores.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.report import markdown_table, say

_REQUEST_CORE_S = 2 / 170
"""Of a request beside its model: docs/LOG.md has 170 requests/s of ``fake`` on two cores."""


_LEAST, _MOST = 1e-6, 1e15
"""Numbers beyond these are slips."""


def _amount(text: str) -> float:
    """Of images, or images a second."""
    value = float(text)
    if not _LEAST <= value <= _MOST:
        raise argparse.ArgumentTypeError(f"{text} is not from {_LEAST:g} to {_MOST:g}")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0.001 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share from 0.001 to 1")
    return value


def _cores(text: str) -> int:
    value = int(text)
    if not 1 <= value <= _MOST:
        raise argparse.ArgumentTypeError(f"{text} is no number of cores")
    return value


@dataclass(frozen=True)
class Rate:
    """What was measured of one model."""

    name: str
    images_per_s: float
    cores: int

    @property
    def per_core(self) -> float:
        """Images per second and core."""
        return self.images_per_s / self.cores

    @classmethod
    def parse(cls, text: str) -> "Rate":
        """Of ``NAME=IMAGES/CORES``."""
        name, _, measured = text.rpartition("=")
        images, _, cores = measured.partition("/")
        try:
            rate = cls(name, float(images), int(cores))
        except ValueError:
            rate = cls(name, 0.0, 0)
        if not name or not 1 <= rate.cores <= _MOST or not _LEAST <= rate.images_per_s <= _MOST:
            raise argparse.ArgumentTypeError(f"{text!r} is not NAME=IMAGES_PER_S/CORES, such as 'my model=12.5/4'")
        return rate


SERVED = (Rate("`concise`, its own decoding, over HTTP", 38.9, 2), Rate("BLIP-base's size, bf16, over HTTP", 1.72, 2))
FOLDERS = (
    Rate("`dial`, `limner caption` over a folder", 40.1, 2),
    Rate("BLIP-base's size, bf16, batches of 4", 1.86, 2),
)


def core_hours_per_million(rate: Rate, use: float) -> float:
    """Hours of one core for a million captions, when its cores are busy for the share ``use`` of the time."""
    return 1e6 / (rate.per_core * use) / 3600


def cores_for(rate: Rate, images_per_s: float, use: float) -> int:
    """Cores of captioners for so many images a second, and of what carries them in and out, one image a request."""
    return math.ceil(images_per_s / (rate.per_core * use) + images_per_s * _REQUEST_CORE_S / use)


def hours_for(rate: Rate, images: float, cores: int) -> float:
    """Hours until so many pictures of a folder are captioned by so many cores, none of them idle."""
    return images / (rate.per_core * cores) / 3600


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    served = options.rate or SERVED
    columns = (
        "served",
        "images/s per core",
        f"core hours per million, {options.use:.0%} busy",
        *(f"cores for {rate:g}/s" for rate in options.images_per_s),
    )
    say("## Served\n")
    rows = [
        (
            rate.name,
            f"{rate.per_core:.2f}",
            f"{core_hours_per_million(rate, options.use):.0f}",
            *(f"{cores_for(rate, wanted, options.use):,}" for wanted in options.images_per_s),
        )
        for rate in served
    ]
    say(markdown_table(columns, rows) + "\n")
    say(f"## {options.images:,.0f} pictures of folders\n")
    wide = ("model", "core hours", *(f"hours on {cores:,} cores" for cores in options.cores))
    rows = [
        (
            rate.name,
            f"{hours_for(rate, options.images, 1):,.0f}",
            *(f"{hours_for(rate, options.images, n):,.0f}" for n in options.cores),
        )
        for rate in (options.rate or FOLDERS)
    ]
    say(markdown_table(wide, rows) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.capacity", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=Rate.parse, action="append", help="NAME=IMAGES_PER_S/CORES, in place of ours")
    parser.add_argument("--use", type=_share, default=0.6, help="share of the time that cores may be busy when serving")
    parser.add_argument("--images-per-s", type=_amount, nargs="+", default=[10, 100, 1000], help="wanted")
    parser.add_argument("--images", type=_amount, default=1e9, help="pictures in folders")
    parser.add_argument("--cores", type=_cores, nargs="+", default=[100, 1000], help="that caption folders")
    return parser


if __name__ == "__main__":
    main()
