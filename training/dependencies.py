"""Optional packages, asked for where they are used."""

from importlib import import_module
from types import ModuleType

from models.errors import MissingDependencyError


def require(module: str, extra: str) -> ModuleType:
    """The module, imported now.

    Raises:
        MissingDependencyError: ``missing_dependency``; the message names the extra of limner that brings it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        detail = f"{module} cannot be imported ({error}); install it with: pip install 'limner[{extra}]'"
        raise MissingDependencyError("missing_dependency", detail) from error
