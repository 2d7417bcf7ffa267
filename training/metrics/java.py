"""Java programs that come inside pycocoevalcap."""

from __future__ import annotations

import subprocess
from pathlib import Path

from models.errors import MissingDependencyError
from training.dependencies import require

_TIMEOUT_S = 3600


def check_java(what: str, files: list[Path]) -> None:
    """Makes sure that a Java program can start: that there is a working Java, and that its files are there.

    Raises:
        MissingDependencyError: the message says what is absent and what ``what`` needs it for.
    """
    absent = [str(path) for path in files if not path.is_file()]
    if absent:
        raise MissingDependencyError("missing_dependency", f"{what} needs {', '.join(absent)}: put it there")
    try:
        subprocess.run(["java", "-version"], capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingDependencyError(
            "missing_dependency", f"{what} needs Java, which does not work: {error}"
        ) from error


def run_java(what: str, arguments: list[str], text: str = "") -> str:
    """What a Java program prints when it reads ``text``.

    Raises:
        MissingDependencyError: it fails; the message has its last words.
    """
    # Java takes the encoding of its streams from the locale, which is ASCII in most containers.
    command = ["java", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", *arguments]
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, check=True, timeout=_TIMEOUT_S, encoding="utf-8"
        )
    except subprocess.CalledProcessError as error:
        said = " ".join(str(error.stderr).split())[-300:]
        raise MissingDependencyError("missing_dependency", f"{what} failed in Java: {said}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingDependencyError("missing_dependency", f"{what} failed in Java: {error}") from error
    return done.stdout


def package_folder(module: str) -> Path:
    """The folder of an installed module, where its jars lie.

    Raises:
        MissingDependencyError: pycocoevalcap is not installed.
    """
    return Path(str(require(module, "train").__file__)).parent
