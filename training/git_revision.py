"""Which commit this code is from."""

import subprocess
from pathlib import Path


def git_revision() -> str | None:
    """The commit of the clone that holds this package, marked ``-dirty`` when it was changed since; None elsewhere."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
