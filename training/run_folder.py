"""The folder of a training run belongs to one set of settings."""

from pathlib import Path

from models.errors import DataError


def claim(out: Path, resolved: str) -> None:
    """Make ``out`` the folder of the run with these settings (``recipe.yaml``), or find that it already is.

    Raises:
        DataError: ``bad_recipe``, it holds a run with other settings: continuing it would give neither of the two.
    """
    out.mkdir(parents=True, exist_ok=True)
    path = out / "recipe.yaml"
    if path.exists() and path.read_text(encoding="utf-8") != resolved:
        raise DataError("bad_recipe", f"{out} holds a run with other settings (see {path}): choose another --out")
    path.write_text(resolved, encoding="utf-8")
