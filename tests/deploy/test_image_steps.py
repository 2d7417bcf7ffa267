"""The steps are the Dockerfile's own, in its order, with its arguments; see ``make image-steps`` for the real ones."""

import sys
from pathlib import Path

import pytest

from tests.deploy.dockerfile import read_dockerfile
from tests.deploy.image_steps import Sandbox, build

FILE = """
ARG KIND=plain
FROM python AS base
ARG PREFIX=/opt/limner
ARG SOURCE=/src
ENV GREETING="good day" PATH=${PREFIX}/bin:${PATH}
WORKDIR ${SOURCE}
COPY pyproject.toml ./
FROM base AS fancy
RUN echo fancy > kind
FROM base AS plain
ARG WORD=none
RUN echo "${WORD}, ${GREETING}" \\
    > kind
FROM ${KIND} AS build
RUN cp kind pyproject.toml "${PREFIX}" && python -c "import os; print(os.environ['PATH'])" > "${PREFIX}/path"
"""


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [({}, "none, good day"), ({"WORD": "hello"}, "hello, good day"), ({"KIND": "fancy"}, "fancy")],
)
def test_it_does_what_the_dockerfile_says(tmp_path: Path, arguments: dict[str, str], kind: str) -> None:
    sandbox = Sandbox(tmp_path, None, sys.executable, arguments)
    build(read_dockerfile(FILE), sandbox)
    prefix = tmp_path / "prefix"
    assert (prefix / "kind").read_text() == f"{kind}\n"
    assert (prefix / "pyproject.toml").is_file()
    assert (prefix / "path").read_text().startswith(f"{prefix}/bin:{tmp_path}/bin:")


def test_what_it_does_not_know_is_an_error(tmp_path: Path) -> None:
    file = read_dockerfile("FROM python AS build\nONBUILD RUN true\n")
    with pytest.raises(ValueError, match="stage build: ONBUILD is not carried out"):
        build(file, Sandbox(tmp_path, None, sys.executable, {}))
