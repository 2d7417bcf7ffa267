"""``make image-steps``: the steps of deploy/Dockerfile on this machine, without Docker and without root.

The commands are read from the Dockerfile itself, so they cannot be others. Folders come from its arguments and lie in a
temporary folder here. What only root may do (the user and its folders) is left out, and said. Then the image's own
command serves, its own health check has to pass, a photograph is captioned, and its stop signal ends it with status 0.
"""

import argparse
import json
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.deploy.dockerfile import DOCKERFILE, ROOT, Dockerfile, Stage, expanded, read_dockerfile

_READY_WITHIN_S = 180
_STOPPED_WITHIN_S = 60
_PASSED_ON = ("LANG", "SSL_CERT_FILE")
"""Of the caller's environment, beside what pip reads: a machine may reach a mirror only."""


class Sandbox:
    """The folders that stand for an image's, and who works in them."""

    def __init__(self, folder: Path, user: str | None, python: str, arguments: Mapping[str, str]) -> None:
        self.folder = folder
        self.places = {name: str(folder / name.lower()) for name in ("PREFIX", "SOURCE", "STATE", "LOGS")}
        self.given = {**arguments, **self.places}
        self.who: dict[str, Any] = {}
        if user is not None:
            account = pwd.getpwnam(user)
            self.who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        for place in (folder, *map(Path, self.places.values()), folder / "home", folder / "bin"):
            place.mkdir(exist_ok=True)
            self.hand_over(place)
        found = shutil.which(python)
        assert found is not None, f"there is no {python}"
        (folder / "bin" / "python").symlink_to(found)  # the base image calls its interpreter so
        self.path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"

    def hand_over(self, path: Path) -> None:
        """Make it the user's, with all that is in it."""
        for each in (path, *path.rglob("*")) if self.who else ():
            os.chown(each, self.who["user"], self.who["group"])

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """What a process sees: that of the stage, and of the caller only what pip needs."""
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name in _PASSED_ON}
        return {**kept, "HOME": str(self.folder / "home"), **variables}


def build(file: Dockerfile, sandbox: Sandbox) -> None:
    """Carry out the stages that the stage ``build`` is made of."""
    arguments = {**file.arguments, **sandbox.given}
    variables = {"PATH": sandbox.path}
    for stage in file.chain("build", arguments):
        variables = _carry_out(stage, variables, sandbox)


def _carry_out(stage: Stage, variables: Mapping[str, str], sandbox: Sandbox) -> dict[str, str]:
    known = dict(variables)
    source = Path(sandbox.places["SOURCE"])
    for step in stage.instructions:
        match step.word:
            case "ARG":
                name, _, default = step.text.partition("=")
                known[name] = sandbox.given.get(name, default.strip('"'))
            case "ENV":
                words = shlex.split(expanded(step.text, known))
                known |= dict(word.split("=", 1) for word in words)
            case "COPY":
                *names, _ = step.text.split()
                _say(f"COPY {step.text}")
                for name in names:
                    _copy(ROOT / name, source / name)
                sandbox.hand_over(source)
            case "RUN":
                _say(f"RUN {step.text}")
                started = time.monotonic()
                command = ["/bin/sh", "-c", step.text]
                subprocess.run(command, cwd=source, env=sandbox.environment(known), check=True, **sandbox.who)
                _say(f"    {time.monotonic() - started:.0f} s")
            case "WORKDIR":
                assert expanded(step.text, known) == str(source)
            case word:
                raise ValueError(f"stage {stage.name}: {word} is not carried out here; add it to {__file__}")
    return known


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def serve(stage: Stage, sandbox: Sandbox) -> None:
    """Run the command of the last stage until its health check passes, ask for a caption, and stop it by its signal."""
    variables = {"PATH": sandbox.path}
    for step in stage.instructions:
        if step.word == "ARG":
            name, _, default = step.text.partition("=")
            variables[name] = sandbox.given.get(name, default)
        elif step.word == "ENV":
            variables |= dict(word.split("=", 1) for word in shlex.split(expanded(step.text, variables)))
        elif step.word == "RUN":
            _say(f"left out, for root: RUN {step.text}")
    [entry], [command], [check], [stop] = map(stage.texts, ("ENTRYPOINT", "CMD", "HEALTHCHECK", "STOPSIGNAL"))
    environment = sandbox.environment(
        {**variables, "RAY_TMPDIR": str(sandbox.folder)}
    )  # an image has a /tmp of its own
    port = _free_port()
    words = [
        word.replace("8000", port).replace("0.0.0.0", "127.0.0.1") for word in json.loads(entry) + json.loads(command)
    ]
    probe = [word.replace("8000", port) for word in json.loads(check[check.index("[") :])]
    state = sandbox.places["STATE"]
    started = time.monotonic()
    server = subprocess.Popen(
        _found(words, environment), cwd=state, env=environment, start_new_session=True, **sandbox.who
    )
    try:
        while subprocess.run(
            _found(probe, environment), env=environment, stderr=subprocess.DEVNULL, check=False, **sandbox.who
        ).returncode:
            assert server.poll() is None, f"the server ended with status {server.returncode}"
            assert time.monotonic() - started < _READY_WITHIN_S, "the health check did not pass"
            time.sleep(0.5)
        _say(f"healthy after {time.monotonic() - started:.0f} s: {shlex.join(words)}")
        _say(f"a caption: {_caption(port)}")
        server.send_signal(signal.Signals[stop])
        status = server.wait(_STOPPED_WITHIN_S)
        _say(f"{stop}: exit status {status}")
        assert status == 0
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _found(words: list[str], environment: Mapping[str, str]) -> list[str]:
    """The command with its program looked up on the PATH of the environment, not on ours."""
    program = shutil.which(words[0], path=environment["PATH"])
    assert program is not None, f"{words[0]} is not installed"
    return [program, *words[1:]]


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _caption(port: str) -> str:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/captions",
        (ROOT / "examples" / "camera.jpg").read_bytes(),
        {"content-type": "image/jpeg"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        text: str = json.load(answer)["results"][0]["captions"][0]["text"]
        return text


def _sizes(prefix: Path) -> None:
    """What was installed, and the largest packages."""
    found: dict[str, int] = {}
    for path in prefix.rglob("*"):
        if path.is_file() and not path.is_symlink():
            parts = path.relative_to(prefix).parts
            place = parts[parts.index("site-packages") + 1] if "site-packages" in parts else parts[0]
            found[place] = found.get(place, 0) + path.stat().st_size
    _say(f"installed: {sum(found.values()) / 1e6:,.0f} MB")
    for place, size in sorted(found.items(), key=lambda each: -each[1])[:12]:
        _say(f"{size / 1e6:>9,.0f} MB  {place}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Build, measure, serve; raises where a step fails."""
    parser = argparse.ArgumentParser(description="The steps of deploy/Dockerfile without Docker.")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--user", default="nobody", help="who carries them out where root starts this")
    parser.add_argument("--python", default="python3", help="in place of the base image's; that user may run it")
    options = parser.parse_args()
    arguments = dict(word.split("=", 1) for word in options.build_arg)
    file = read_dockerfile(DOCKERFILE.read_text("utf-8"))
    with tempfile.TemporaryDirectory(prefix="limner-image-") as folder:
        sandbox = Sandbox(Path(folder), options.user if os.geteuid() == 0 else None, options.python, arguments)
        build(file, sandbox)
        _sizes(Path(sandbox.places["PREFIX"]))
        serve(file.stages[-1], sandbox)


if __name__ == "__main__":
    main()
