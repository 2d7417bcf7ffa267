"""The application behind Ray's HTTP proxy, as on a cluster: ``python -m tests.serving.proxied PORT``."""

import os
import signal
import sys
import threading

from ray import serve
from ray.serve.config import HTTPOptions

from serving.app import build_app
from serving.args import AppArgs
from serving.local import local_ray
from serving.proxy import CALLBACK


def main() -> None:
    os.environ["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"] = CALLBACK
    ended = threading.Event()
    with local_ray():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        serve.start(http_options=HTTPOptions(host="127.0.0.1", port=int(sys.argv[1]), request_timeout_s=None))
        serve.run(build_app(AppArgs(models=("fake",), scorer=None, device="cpu")), name="limner", route_prefix="/")
        ended.wait()


if __name__ == "__main__":
    main()
