"""The Ray Serve application: ingress -> captioner -> scorer of a sample, all reporting to a monitor; an A/B ledger."""

import os

import ray
from ray.serve import Application

from serving.args import AppArgs
from serving.captioner import Captioner
from serving.ingress import Ingress
from serving.ledger_deployment import LedgerOwner
from serving.monitor import Monitor
from serving.scorer import Scorer
from serving.tracing import with_tracing


def build_app(args: AppArgs) -> Application:
    """The application for ``serve.run`` or a Serve config file (``import_path: serving.app:build_app``).

    On a small machine only the captioner asks for a CPU; with a GPU in the cluster it takes one, unless ``device`` says
    ``cpu``. Ray's own queue limits stay above limner's, so that every refusal is limner's.
    """
    args = with_tracing(args, os.environ)
    most_requests = args.limits.max_queue_images + 64  # one image each, and room for refusals and probes
    monitor = Monitor.bind(args)  # type: ignore[attr-defined]
    scorer = Scorer.bind(args, monitor) if args.scores_a_sample else None  # type: ignore[attr-defined]
    captioner = Captioner.options(  # type: ignore[attr-defined]
        max_ongoing_requests=most_requests,
        ray_actor_options={"num_cpus": 1, "num_gpus": _gpus(args.device)},
    ).bind(args, monitor, scorer)
    ledger = LedgerOwner.bind(args.ledger) if args.experiments else None  # type: ignore[attr-defined]
    app: Application = Ingress.options(  # type: ignore[attr-defined]
        max_ongoing_requests=2 * most_requests
    ).bind(args, captioner, monitor, ledger)
    return app


def _gpus(device: str) -> int:
    if device.startswith("cuda"):
        return 1
    return int(device == "auto" and ray.is_initialized() and ray.cluster_resources().get("GPU", 0) >= 1)  # type: ignore[no-untyped-call]
