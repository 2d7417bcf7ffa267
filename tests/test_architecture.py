"""The boundaries of the packages hold: who imports whom, what loads torch, and that every table entry exists."""

import ast
import subprocess
import sys
from importlib import import_module

import pytest

from tests.import_graph import PACKAGES, ROOT, Import, cycle, imports, source_files, tables

MAY_IMPORT = {"models": {"models"}, "serving": {"models", "serving"}, "training": {"models", "training"}}
SERVING_ONLY = ("ray", "fastapi", "starlette")
LAUNCHER = "training.launch"
"""The one module outside serving that may import Ray: it starts training on several machines."""

MOST_LINES = 400
WITHOUT_TORCH = [
    "models",
    "models.card",
    "models.catalog",
    "models.cli",
    "models.cli_models",
    "models.decoding",
    "models.errors",
    "models.families",
    "models.file_hashes",
    "models.images",
    "models.interfaces",
    "models.lookup",
    "models.text_stats",
    "serving.cli",
    "serving.cli_compare",
    "training.cli",
]
INGRESS = ["serving.app", "serving.ingress", "serving.openapi", "serving.errors", "serving.messages", "serving.routes"]

IMPORTS = imports()


def _listed(found: list[Import]) -> list[str]:
    return [f"{item.source} imports {item.target}" for item in found]


def test_packages_import_in_one_direction() -> None:
    wrong = [
        item
        for item in IMPORTS
        if (target := item.target.split(".")[0]) in (*PACKAGES, "tests")
        and target not in MAY_IMPORT[item.source.split(".")[0]]
    ]
    assert _listed(wrong) == []


def test_ray_and_the_web_framework_stay_in_serving() -> None:
    wrong = [
        item
        for item in IMPORTS
        if item.target.split(".")[0] in SERVING_ONLY
        and item.source.split(".")[0] != "serving"
        and item.source != LAUNCHER
    ]
    assert _listed(wrong) == []


def test_there_is_no_import_cycle() -> None:
    ours = source_files()
    edges = {(item.source, item.target) for item in IMPORTS if item.target in ours and not item.typing_only}
    assert len(edges) > 50
    assert cycle(edges) is None


def test_the_search_for_cycles_finds_one() -> None:
    edges = {("a", "b"), ("b", "c"), ("c", "d"), ("d", "b"), ("a", "e")}
    assert cycle(edges) == ["b", "c", "d"]
    assert cycle(edges - {("d", "b")}) is None


@pytest.mark.parametrize(("table", "name", "target"), sorted(tables()))
def test_every_table_entry_exists(table: str, name: str, target: str) -> None:
    module, _, attribute = target.partition(":")
    assert hasattr(import_module(module), attribute), f"{table}[{name!r}]"


def test_the_tables_are_found() -> None:
    found = {table for table, _, _ in tables()}
    assert {"models.cli.COMMANDS", "models.families.FAMILIES", "models.decoding.STRATEGIES"} <= found


def test_no_file_is_too_long() -> None:
    files = [*source_files().values(), *(ROOT / "tests").rglob("*.py")]
    long = {
        str(path.relative_to(ROOT)): n
        for path in files
        if (n := len(path.read_text("utf-8").splitlines())) > MOST_LINES
    }
    assert long == {}


def test_every_folder_of_tests_is_a_package() -> None:
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        name
        for name, path in source_files().items()
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def _loaded_by(modules: list[str], watched: set[str], blocked: tuple[str, ...] = ()) -> str:
    """What of ``watched`` a fresh interpreter has loaded after importing the modules; ``blocked`` ones do not exist."""
    script = (
        f"import importlib, sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(sorted({watched!r} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_promises_to_load_no_torch_loads_none() -> None:
    assert _loaded_by(WITHOUT_TORCH, {"torch", "ray", "fastapi", "transformers"}) == "[]"


def test_the_ingress_loads_no_torch() -> None:
    routes = [name for name in source_files() if name.startswith(("serving.routes.", "serving.middleware."))]
    assert _loaded_by(INGRESS + routes, {"torch", "transformers", "open_clip"}) == "[]"


def test_models_and_training_need_no_ray() -> None:
    modules = [name for name in source_files() if not name.startswith("serving") and name != LAUNCHER]
    assert _loaded_by(modules, {"never"}, blocked=SERVING_ONLY) == "[]"


LOADER = "models.image_formats"
READERS = ("torchvision.io", "cv2", "imageio", "skimage", "matplotlib.image", "turbojpeg", "pillow_heif", "webdataset")
"""Libraries that would open pictures by their own rules."""


def test_one_module_opens_pictures() -> None:
    """So that a limit, an orientation or a colour space that is right in one entrance is right in all."""
    openers = {
        name
        for name, path in source_files().items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("Image.open", "PIL.Image.open", "Image.frombytes")
    }
    assert openers == {LOADER}
    others = [item for item in IMPORTS if item.target.startswith(READERS) and item.source != LOADER]
    assert _listed(others) == []


def test_nothing_that_is_loaded_can_run_code() -> None:
    """Neither pickles, nor torch files beyond tensors, nor YAML with objects, nor code that a checkpoint brings."""
    found = []
    for name, path in source_files().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if called == "torch.load" and given.get("weights_only") != "True":
                found.append(f"{name}: torch.load")
            if called in ("eval", "exec", "compile", "__import__", "yaml.load", "yaml.unsafe_load"):
                found.append(f"{name}: {called}")
            if called.startswith(("pickle.", "cloudpickle.", "joblib.", "marshal.", "shelve.")):
                found.append(f"{name}: {called}")
            remote = called.startswith("Auto") and called.endswith(".from_pretrained")
            if remote or (
                called == "partial" and "from_pretrained" in ast.unparse(node) and "Auto" in ast.unparse(node)
            ):
                if "trust_remote_code" not in given:  # by default a terminal is asked
                    found.append(f"{name}: {called} without trust_remote_code")
            for option in ("trust_remote_code", "allow_pickle"):
                if given.get(option, "False") != "False":
                    found.append(f"{name}: {called} with {option}")
    assert found == []
