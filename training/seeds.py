"""Seeds from coordinates, so that no random draw depends on what was drawn before."""

import hashlib


def seed_of(*coordinates: int | str) -> int:
    """A 63-bit seed for coordinates such as (run seed, "view", image id, view): equal ones give equal draws."""
    text = "\x1f".join(str(value) for value in coordinates)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
