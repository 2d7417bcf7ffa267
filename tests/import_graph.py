"""The imports of our own packages, read from the source without running it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("models", "serving", "training")


@dataclass(frozen=True)
class Import:
    """One import of a module by another."""

    source: str
    target: str
    typing_only: bool
    """Under ``if TYPE_CHECKING``: never happens at run time."""


def source_files() -> dict[str, Path]:
    """Every module of the three packages, by its dotted name."""
    files = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def imports() -> list[Import]:
    """Every import of every module, deferred ones included."""
    files = source_files()
    found = []
    for source, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        typing_only = {id(node) for block in _typing_blocks(tree) for node in ast.walk(block)}
        for node in ast.walk(tree):
            for target in _targets(node, files, source):
                found.append(Import(source, target, id(node) in typing_only))
    return found


def _typing_blocks(tree: ast.Module) -> Iterator[ast.If]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield node


def _targets(node: ast.AST, files: dict[str, Path], source: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0 and node.module, f"{source} uses a relative import"
        for alias in node.names:  # what is imported may be a module itself
            module = f"{node.module}.{alias.name}"
            yield module if module in files else node.module


def tables() -> Iterator[tuple[str, str, str]]:
    """(table, name, "module:attribute") of every entry of every table of data."""
    for module, path in source_files().items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                yield from _entries(f"{module}.{ast.unparse(target)}", node.value)


def _entries(table: str, literal: ast.Dict) -> Iterator[tuple[str, str, str]]:
    for key, value in zip(literal.keys, literal.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(value, ast.Constant) and isinstance(value.value, str):
            module, colon, attribute = value.value.partition(":")
            if colon and module.split(".")[0] in PACKAGES and attribute.isidentifier():
                yield table, str(key.value), value.value


def cycle(edges: set[tuple[str, str]]) -> list[str] | None:
    """The modules of one import cycle, or None."""
    following: dict[str, list[str]] = {}
    for source, target in sorted(edges):
        following.setdefault(source, []).append(target)
    finished: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str] | None:
        if module in path:
            return path[path.index(module) :]
        if module not in finished:
            for target in following.get(module, ()):
                if found := visit(target, [*path, module]):
                    return found
            finished.add(module)
        return None

    return next((found for module in list(following) if (found := visit(module, []))), None)
