"""Ray and the application on this machine alone: start, wait, stop."""

import errno
import logging
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.schema import LoggingConfig

from models.errors import OverloadedError, RequestError
from serving.app import build_app
from serving.args import AppArgs, ListenArgs

_APP = "limner"
_CLASS = re.compile(r"^models\.errors\.\w+: ")
_OBJECT_STORE_BYTES = 512 << 20  # holds the bodies of requests under way; the default would be 30 % of the memory
_DRAIN_S = 20.0
_LAST_ANSWERS_S = 2.0  # on their way to clients once the captioner is done
_READY_WITHIN_S = 60.0  # beyond the loading of the models


@contextmanager
def local_ray(*, verbose: bool = False) -> Iterator[Path]:
    """The folder of the log files of a Ray of our own, which ends with the block; ``verbose`` shows them as well.

    Ray sets signal handlers when it starts; a caller that wants its own sets them within the block.
    """
    _prepare_environment()
    level = logging.INFO if verbose else logging.ERROR
    context = ray.init(
        address="local",
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        log_to_driver=verbose,
        logging_level=level,
    )
    logging.getLogger("ray.serve").setLevel(level)
    try:
        yield Path(context.address_info["session_dir"], "logs", "serve")  # type: ignore[attr-defined]
    finally:
        ray.shutdown()  # takes Serve with it; Serve's own shutdown would only wait for what was drained


@contextmanager
def deployed(args: AppArgs, host: str, port: int) -> Iterator[str]:
    """The address where the application answers while the block runs, ready for requests; drained afterwards.

    Raises:
        OverloadedError: ``unavailable`` when a part of it does not start, with the reason.
    """
    _deploy(args, host, port)
    try:
        yield _wait_until_ready(host, port)
    finally:
        with suppress(RayError, RayServeException, TimeoutError):  # a captioner that is gone has nothing to finish
            _drain("Captioner", _DRAIN_S)
            _drain("Ingress", _LAST_ANSWERS_S)
            if args.experiments:
                _drain("Ledger", _LAST_ANSWERS_S)


def _drain(deployment: str, timeout_s: float) -> None:
    """Tell every replica; one that is gone keeps the others from nothing."""
    handle = serve.get_deployment_handle(deployment, _APP)
    try:
        handle.broadcast("drain", timeout_s).results(timeout_s=timeout_s + 5, return_exceptions=True)
    finally:
        # Its thread would start a Ray of its own when it finds this one gone.
        handle.shutdown()  # type: ignore[no-untyped-call]


def check_address(host: str, port: int) -> None:
    """Raise ``invalid_request`` where no server could listen now, with the reason."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                detail = f"port {port} of {host} is in use; choose another with --port"
            else:
                detail = f"--host {host} --port {port}: {error.strerror or error}"
            raise RequestError("invalid_request", detail) from None


def _prepare_environment() -> None:
    """What Ray's processes read when they start: no phoning home, as much of the processor as any other program (Ray's
    workers give way to all: ``nice`` 15), and this very package, wherever it was found."""
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    here = str(Path(__file__).resolve().parents[1])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, paths)])


def _deploy(args: AppArgs, host: str, port: int) -> None:
    quiet = LoggingConfig(log_level="WARNING", enable_access_log=False)
    listen = ListenArgs(host=host, port=port)
    serve.start(proxy_location="Disabled", logging_config=quiet)
    try:
        serve.run(
            build_app(args.model_copy(update={"listen": listen})), name=_APP, route_prefix="/", logging_config=quiet
        )
    except RuntimeError as error:
        raise OverloadedError("unavailable", f"the server did not start: {_reason() or error}") from error


def _wait_until_ready(host: str, port: int) -> str:
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    url = f"http://{name}:{port}"
    give_up = time.monotonic() + _READY_WITHIN_S
    with httpx.Client(base_url=url, trust_env=False) as client:
        while time.monotonic() < give_up:
            with suppress(httpx.TransportError):
                if client.get("/readyz").is_success:
                    return url
            time.sleep(0.2)
    raise OverloadedError("unavailable", f"{url}/readyz did not turn 200 within {_READY_WITHIN_S:g} s")


def _reason() -> str:
    """The last line of the first traceback among the deployments' messages."""
    app = serve.status().applications.get(_APP)
    messages = (deployment.message for deployment in app.deployments.values()) if app else ()
    lines = [line.strip() for message in messages for line in message.splitlines() if "Error" in line]
    return _CLASS.sub("", lines[-1]) if lines else ""
