"""Seeds from coordinates."""

from training.seeds import seed_of

SEED_OF_FIRST_STEP = 6082216080131344904


def test_equal_coordinates_give_equal_seeds_in_every_process() -> None:
    # Stored runs depend on these very numbers: they must never change.
    assert seed_of(0, "step", 0) == SEED_OF_FIRST_STEP
    assert seed_of("0", "step", "0") == SEED_OF_FIRST_STEP


def test_coordinates_do_not_run_into_each_other() -> None:
    assert len({seed_of(1, 23), seed_of(12, 3), seed_of(123), seed_of(3, 12), seed_of("1 23")}) == 5


def test_seeds_fit_every_generator() -> None:
    seeds = [seed_of("any", number) for number in range(1000)]
    assert len(set(seeds)) == 1000
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert 400 < sum(seed % 2 for seed in seeds) < 600
