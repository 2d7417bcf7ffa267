"""The one process that has the ledger's database open, and how the ingress reaches it."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle

from models.errors import LimnerError
from serving.experiments.records import Outcome, Vote
from serving.experiments.statistics import Results, results
from serving.replicas import call_replica

_TIMEOUT_S = 10.0
_RESULTS_TIMEOUT_S = 60.0  # they take a second or so for every 100,000 images


@serve.deployment(
    name="Ledger",
    num_replicas=1,
    ray_actor_options={"num_cpus": 0},
    max_ongoing_requests=1000,
    max_constructor_retry_count=3,
    graceful_shutdown_wait_loop_s=0.1,
)
class LedgerOwner:
    """Writes in threads, so that a slow disk stops nobody. Errors are returned, not raised: Ray would wrap them."""

    def __init__(self, url: str) -> None:
        from serving.experiments.ledger import open_ledger  # deferred: loads SQLAlchemy, which only this process needs

        self._closing = ExitStack()
        self._ledger = self._closing.enter_context(open_ledger(url))

    async def record(self, outcomes: Sequence[Outcome]) -> frozenset[str] | LimnerError:
        """The ids of what is committed."""
        try:
            return await asyncio.to_thread(self._ledger.record, outcomes)
        except LimnerError as error:
            return error

    async def vote(self, vote: Vote) -> LimnerError | None:
        """Keep a vote."""
        try:
            await asyncio.to_thread(self._ledger.vote, vote)
        except LimnerError as error:
            return error
        return None

    async def results(self, experiment: str, labels: Sequence[str]) -> Results | LimnerError:
        """What can be said about the arms with these labels."""
        try:
            return await asyncio.to_thread(lambda: results(self._ledger.arm_data(experiment, labels)))
        except LimnerError as error:
            return error

    async def drain(self, timeout_s: float) -> bool:
        """Close the database, so that its file alone holds everything; the last thing that is asked."""
        await asyncio.wait_for(asyncio.to_thread(self._closing.close), timeout_s)
        return True

    def __del__(self) -> None:
        if hasattr(self, "_closing"):
            self._closing.close()


class RayLedger:
    """The ledger behind its Serve handle. Every method raises ``unavailable`` where it does not answer."""

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self._handle = handle

    async def record(self, outcomes: Sequence[Outcome]) -> Collection[str]:
        """The ids of what is committed."""
        confirmed: Collection[str] = await self._ask("record", outcomes, timeout_s=_TIMEOUT_S)
        return confirmed

    async def vote(self, vote: Vote) -> None:
        """Keep a vote."""
        await self._ask("vote", vote, timeout_s=_TIMEOUT_S)

    async def results(self, experiment: str, labels: Sequence[str]) -> Results:
        """What can be said about the arms with these labels."""
        found: Results = await self._ask("results", experiment, labels, timeout_s=_RESULTS_TIMEOUT_S)
        return found

    async def _ask(self, method: str, *arguments: object, timeout_s: float) -> Any:
        reply = await call_replica(self._handle, method, *arguments, timeout_s=timeout_s)
        if isinstance(reply, LimnerError):
            raise reply
        return reply
