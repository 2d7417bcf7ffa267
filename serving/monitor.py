"""The one process that holds the metrics: replicas report to it, ``/metrics`` asks it."""

from collections.abc import Awaitable, Callable
from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle

from serving.args import AppArgs
from serving.metrics import Metrics
from serving.quality import Quality
from serving.reports import Report


@serve.deployment(
    num_replicas=1,
    ray_actor_options={"num_cpus": 0},
    max_ongoing_requests=1000,
    max_surge_percent=100,  # an update has the next one before this one goes
    graceful_shutdown_timeout_s=1,
    graceful_shutdown_wait_loop_s=0.1,
)
class Monitor:
    """A private registry behind two methods; counters begin at 0 after a restart."""

    def __init__(self, args: AppArgs) -> None:
        quality = Quality(args.monitor.drift, args.monitor.baselines)
        self._metrics = Metrics(quality=quality, scorer=args.scores_a_sample)

    async def report(self, report: Report) -> None:
        """Take in what one process measured."""
        self._metrics.apply(report)

    async def render(self) -> bytes:
        """The exposition text of ``/metrics``."""
        return self._metrics.render()


def sender(monitor: DeploymentHandle[Any]) -> Callable[[Report], Awaitable[None]]:
    """What a Reporter sends with."""

    async def send(report: Report) -> None:
        await monitor.report.remote(report)

    return send
