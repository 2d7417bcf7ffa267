import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from models import __version__, cli
from models.errors import ImageError
from models.lookup import resolve

ROOT = Path(__file__).resolve().parents[2]


def _python(*arguments: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)


@pytest.fixture
def add_command(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[..., object]], None]:
    """Puts a function into the table of commands."""

    def add(name: str, function: Callable[..., object]) -> None:
        monkeypatch.setattr(
            cli, "resolve", lambda kind, table, key: function if key == name else resolve(kind, table, key)
        )
        monkeypatch.setitem(cli.COMMANDS, name, "tests:function")

    return add


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == 0
    text = capsys.readouterr().out
    for name in ("serve", "caption", "train", "evaluate", "models"):
        assert f"\n  {name} " in text


def test_a_group_lists_its_own_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["models"]) == 0
    text = capsys.readouterr().out
    assert "\n  list " in text and "\n  show " in text and "serve" not in text


@pytest.mark.parametrize("group", ["", *cli.GROUPS])
def test_no_line_of_the_list_is_cut(
    group: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run([*group.split(), "--help"]) == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


@pytest.mark.parametrize("key", sorted(cli.COMMANDS))
def test_every_command_has_help(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*key.split(), "--help"]) == 0
    assert f"Usage: limner {key}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"limner {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bogus"], "No such command 'bogus'. (see limner --help)"),
        (["models", "bogus"], "No such command 'bogus'. (see limner models --help)"),
        (["--bogus"], "No such option: --bogus"),
        (["caption"], "Missing argument"),
        (["models", "show", "fake", "--bogus"], "(see limner models show --help)"),
    ],
)
def test_wrong_usage_is_one_line_on_stderr(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: usage: ") and message in err and err.count("\n") == 1


def test_an_error_of_ours_is_one_line_without_a_traceback(
    add_command: Callable[[str, Callable[..., object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ImageError("truncated", "a.jpg ends\nearly")

    add_command("fail", fail)
    assert cli.run(["fail"]) == 2
    assert capsys.readouterr().err == "error: truncated: a.jpg ends early\n"


def test_a_disk_that_fails_is_one_line_without_a_traceback(
    add_command: Callable[[str, Callable[..., object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def write() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out.jsonl")

    add_command("write", write)
    assert cli.run(["write"]) == 1
    assert capsys.readouterr().err == "error: out.jsonl: No space left on device\n"


def test_a_command_says_itself_that_some_items_failed(
    add_command: Callable[[str, Callable[..., object]], None],
) -> None:
    def partly() -> None:
        raise typer.Exit(1)

    add_command("partly", partly)
    assert cli.run(["partly"]) == 1


def test_an_interrupt_is_quiet(
    add_command: Callable[[str, Callable[..., object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    add_command("interrupt", interrupt)
    assert cli.run(["interrupt"]) == 130
    assert capsys.readouterr().err == ""


def test_a_programming_error_keeps_its_traceback(add_command: Callable[[str, Callable[..., object]], None]) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    add_command("broken", broken)
    with pytest.raises(ZeroDivisionError):
        cli.run(["broken"])


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = _python("-m", "models.cli", "models", "show", "fake", stdout=write)
    os.close(write)
    assert done.stderr == ""


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """What libraries and other processes print would stand in it."""
    script = (
        "import os, subprocess, sys; from models import cli\n"
        "def command(arguments):\n"
        "    with open(arguments[0], 'w') as file:\n"
        "        os.write(2, b'lost'); print('lost', file=sys.stderr)\n"
        "        subprocess.run('echo lost >&1; echo lost >&2', shell=True, check=True)\n"
        "        file.write('kept')\n"
        "    return 7\n"
        "cli.run = command; cli.main()\n"
    )
    closing = ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', sys.executable, "-c", script, tmp_path / "file"]
    done = subprocess.run(closing, capture_output=True, cwd=ROOT, check=False)
    assert (done.returncode, (tmp_path / "file").read_text()) == (7, "kept")


@pytest.mark.parametrize("arguments", [["--help"], ["models", "list"], ["models", "show", "fake"]])
def test_quick_commands_load_neither_torch_nor_ray(arguments: list[str]) -> None:
    script = (
        "import sys; from models.cli import run; code = run(sys.argv[1:]); "
        "print(sorted({'torch', 'ray', 'fastapi', 'transformers'} & sys.modules.keys()), file=sys.stderr); "
        "sys.exit(code)"
    )
    done = _python("-c", script, *arguments)
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_the_module_runs_as_a_program() -> None:
    done = _python("-m", "models.cli", "models", "show", "nothing")
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown_model: no model 'nothing'")
