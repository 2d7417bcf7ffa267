"""A systemd unit as data, and its command as systemd would start it."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "limner.service"


@dataclass(frozen=True)
class Unit:
    """Settings by name, each with all its values in their order; sections share no name here."""

    settings: Mapping[str, tuple[str, ...]]

    def one(self, name: str) -> str:
        """The value of a setting that is there once."""
        [value] = self.settings[name]
        return value

    def command(self, specifiers: Mapping[str, str], variables: Mapping[str, str]) -> list[str]:
        """The words of ``ExecStart``: ``%S`` and its kind replaced, and ``$NAME`` split into words, as systemd does."""
        words: list[str] = []
        for word in shlex.split(self.one("ExecStart")):
            if word.startswith("$"):
                words += variables.get(word[1:], "").split()
            else:
                words.append(with_specifiers(word, specifiers))
        return words

    def environment(self, specifiers: Mapping[str, str]) -> dict[str, str]:
        """What ``Environment`` sets."""
        given = shlex.split(" ".join(self.settings.get("Environment", ())))
        return {name: with_specifiers(value, specifiers) for name, _, value in (word.partition("=") for word in given)}


def read_unit(text: str) -> Unit:
    """Parse a unit without continued lines."""
    settings: dict[str, tuple[str, ...]] = {}
    for line in map(str.strip, text.splitlines()):
        if line and line[0] not in "#;[":
            name, _, value = line.partition("=")
            settings[name] = (*settings.get(name, ()), value)
    return Unit(settings)


def with_specifiers(text: str, specifiers: Mapping[str, str]) -> str:
    """The text with ``%S`` and its kind replaced; a specifier that is not given stays."""
    for letter, value in specifiers.items():
        text = text.replace(f"%{letter}", value)
    return text
