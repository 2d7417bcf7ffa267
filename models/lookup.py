"""Tables of data, ``name -> "module:Class"``, loaded on first use: how every kind of variant is found."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from models.errors import UnknownNameError


def resolve(kind: str, table: Mapping[str, str], name: str) -> Any:
    """The object that ``table[name]`` names, imported now.

    Raises:
        UnknownNameError: ``unknown_name``; the message lists the valid names.
    """
    if name not in table:
        raise UnknownNameError("unknown_name", f"no {kind} named {name!r}; there are: {', '.join(sorted(table))}")
    module, _, attribute = table[name].partition(":")
    return getattr(import_module(module), attribute)
