"""What a run tells while it goes on: lines on stderr."""

import logging


def log_to_stderr() -> None:
    """From now on what this process logs stands on stderr, with the time; nothing where it is shown already."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
