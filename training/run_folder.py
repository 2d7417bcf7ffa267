"""The folder of a training run belongs to one set of settings."""

from pathlib import Path

from models.errors import DataError

_RECIPE = "recipe.yaml"


def claim(out: Path, resolved: str) -> None:
    """Make ``out`` the folder of the run with these settings (``recipe.yaml``), or find that it already is.

    Raises:
        DataError: ``bad_recipe``, it holds a run with other settings: continuing it would give neither of the two.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError("bad_recipe", f"{out} cannot be the folder of a run: {error.strerror}") from error
    path = out / _RECIPE
    begun = any(entry.name != _RECIPE for entry in out.iterdir())  # else the run failed before its first checkpoint
    if begun and path.exists() and path.read_text(encoding="utf-8") != resolved:
        raise DataError(
            "bad_recipe", f"{out} holds a run with other settings (see {path}): choose another --out, or remove it"
        )
    path.write_text(resolved, encoding="utf-8")
