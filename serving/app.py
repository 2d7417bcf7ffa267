"""The Ray Serve application: ingress -> captioner -> scorer of a sample, all reporting to a monitor; an A/B ledger; a
registry where models may come and go."""

import math
import os

import ray
from ray.serve import Application

from serving.args import AppArgs
from serving.captioner import Captioner
from serving.ingress import Ingress
from serving.ledger_deployment import LedgerOwner
from serving.monitor import Monitor
from serving.registry_deployment import RegistryOwner
from serving.scorer import Scorer
from serving.served_models import ServedModels
from serving.tracing import with_tracing

_GRACE_S = 5.0
"""Beyond the deadline, for what comes after an answer; of the ingress more, since it waits for the captioner's."""


def build_app(args: AppArgs) -> Application:
    """The application for ``serve.run`` or a Serve config file (``import_path: serving.app:build_app``).

    On a small machine only the captioner asks for a CPU; with a GPU in the cluster it takes one, unless ``device`` says
    ``cpu`` or the config file names a share of one (``deploy/serve.yaml``). Ray's own queue limits stay above limner's,
    so that every refusal is limner's; and a replica that is replaced, or one too many, may finish what it has within
    limner's own deadline.
    """
    args = with_tracing(args, os.environ)
    last_answer_s = args.limits.deadline_s + _GRACE_S
    most_requests = args.limits.max_queue_images + 64  # one image each, and room for refusals and probes
    monitor = Monitor.bind(args)  # type: ignore[attr-defined]
    scorer = Scorer.bind(args, monitor) if args.scores_a_sample else None  # type: ignore[attr-defined]
    may_change = args.admin_keys is not None
    registry = RegistryOwner.bind(tuple(ServedModels.from_args(args).cards)) if may_change else None  # type: ignore[attr-defined]
    captioner = Captioner.options(  # type: ignore[attr-defined]
        num_replicas=args.captioners,
        max_ongoing_requests=most_requests,
        graceful_shutdown_timeout_s=last_answer_s,
        ray_actor_options={"num_cpus": 1, "num_gpus": _gpus(args)},
    ).bind(args, monitor, scorer, registry)
    ledger = None
    if args.experiments:
        surge = 0 if args.ledger.startswith("sqlite") else 100  # a file has one owner
        ledger = LedgerOwner.options(max_surge_percent=surge).bind(args.ledger)  # type: ignore[attr-defined]
    app: Application = Ingress.options(  # type: ignore[attr-defined]
        max_ongoing_requests=2 * most_requests, graceful_shutdown_timeout_s=last_answer_s + _GRACE_S
    ).bind(args, captioner, monitor, ledger, registry)
    return app


def _gpus(args: AppArgs) -> float:
    """Of one captioner: a GPU where there are enough for all, else an equal share of one."""
    cards = int(ray.cluster_resources().get("GPU", 0)) if ray.is_initialized() else 0  # type: ignore[no-untyped-call]
    if not args.device.startswith("cuda") and not (args.device == "auto" and cards):
        return 0
    sharers = math.ceil(args.captioners / cards) if cards else 1
    return 1 if sharers == 1 else math.floor(1e4 / sharers) / 1e4  # Ray counts in ten-thousandths
