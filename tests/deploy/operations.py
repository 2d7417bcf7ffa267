"""The commands of docs/OPERATIONS.md, so that tests can carry them out."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

OPERATIONS = Path(__file__).parents[2] / "docs" / "OPERATIONS.md"

_OTHERS = re.compile(r"sudo (-u \w+ )?")
_LEFT_OUT = ("systemctl ", "install ")
"""What needs the service itself, or root."""


def block(name: str) -> str:
    """The shell block behind the comment ``<!-- name -->``."""
    text = OPERATIONS.read_text("utf-8")
    [found] = re.findall(rf"<!-- {re.escape(name)} -->\n+```sh\n(.*?)```", text, re.DOTALL)
    return str(found)


def run_block(name: str, places: Mapping[str, str], path: Path | None = None) -> None:
    """Carry out a block as this user, with other places (folders, addresses) in place of those of the document."""
    lines = (_OTHERS.sub("", line) for line in block(name).splitlines())
    script = "\n".join(line for line in lines if not line.startswith(_LEFT_OUT))
    for place, other in {"/opt/limner/bin/python": sys.executable, **places}.items():
        assert place in script or place == "/opt/limner/bin/python", f"block {name!r} does not name {place}"
        script = script.replace(place, other)
    search = os.pathsep.join(filter(None, (str(path or ""), os.environ["PATH"])))
    done = subprocess.run(
        ["bash", "-euc", script], env={**os.environ, "PATH": search}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, script + done.stdout + done.stderr
