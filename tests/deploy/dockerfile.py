"""A Dockerfile as data: stages of instructions, and what variables come to in them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"

_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")


@dataclass(frozen=True)
class Instruction:
    """One instruction, continued lines joined."""

    word: str
    """In capitals, such as ``RUN``."""
    text: str
    """What follows it."""


@dataclass(frozen=True)
class Stage:
    """What lies between one ``FROM`` and the next."""

    base: str
    """An image or another stage, variables as they stand."""
    name: str
    instructions: tuple[Instruction, ...]

    def texts(self, word: str) -> list[str]:
        """What follows each instruction of that word."""
        return [each.text for each in self.instructions if each.word == word]


@dataclass(frozen=True)
class Dockerfile:
    """A parsed file."""

    arguments: Mapping[str, str]
    """Those before the first ``FROM``, with their defaults."""
    stages: tuple[Stage, ...]

    def chain(self, name: str, arguments: Mapping[str, str]) -> list[Stage]:
        """The stages that a stage is built upon, the first one first, and itself."""
        stage = next((each for each in self.stages if each.name == name), None)
        if stage is None:
            return []
        return [*self.chain(expanded(stage.base, arguments), arguments), stage]


def read_dockerfile(text: str) -> Dockerfile:
    """Parse a Dockerfile that has no here-documents and no parser directives."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    arguments: dict[str, str] = {}
    stages: list[tuple[str, str, list[Instruction]]] = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        word, rest = word.upper(), rest.strip()
        if word == "FROM":
            base, _, name = re.sub(r"\s+[Aa][Ss]\s+", "\0", rest).partition("\0")
            stages.append((base, name, []))
        elif stages:
            stages[-1][2].append(Instruction(word, rest))
        else:
            name, _, default = rest.partition("=")
            arguments[name] = default.strip('"')
    return Dockerfile(arguments, tuple(Stage(base, name, tuple(found)) for base, name, found in stages))


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """The text with ``$NAME`` and ``${NAME}`` replaced; unknown ones become empty, as in Docker."""
    return _VARIABLE.sub(lambda found: variables.get(found[1] or found[2], ""), text)
