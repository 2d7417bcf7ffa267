"""The one process that decides which models are served, and how the others reach it. Only where they may change."""

from collections.abc import Sequence
from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle

from models.errors import LimnerError
from serving.model_registry import ModelRegistry, Seen, Wanted
from serving.replicas import call_replica

_TIMEOUT_S = 5.0
_CHANGE_TIMEOUT_S = 330.0  # beyond the registry's own, which should answer first


@serve.deployment(
    name="Registry",
    num_replicas=1,
    ray_actor_options={"num_cpus": 0},
    max_ongoing_requests=1000,
    graceful_shutdown_wait_loop_s=0.1,
)
class RegistryOwner:
    """Errors are returned, not raised: Ray would wrap them."""

    def __init__(self, models: Sequence[str]) -> None:
        self._registry = ModelRegistry(models)

    async def sync(self, seen: Seen) -> Wanted | None:
        """What this replica is to serve."""
        return self._registry.sync(seen)

    async def put(self, model: str) -> bool | LimnerError:
        """Serve this model, or its present files; whether it is new."""
        try:
            return await self._registry.put(model)
        except LimnerError as error:
            return error

    async def remove(self, model: str) -> LimnerError | None:
        """Serve this model no more."""
        try:
            await self._registry.remove(model)
        except LimnerError as error:
            return error
        return None


class RayRegistry:
    """The registry behind its Serve handle. Every method raises ``unavailable`` where it does not answer."""

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self._handle = handle

    async def sync(self, seen: Seen) -> Wanted | None:
        """What this replica is to serve; None: as before."""
        wanted: Wanted | None = await call_replica(self._handle, "sync", seen, timeout_s=_TIMEOUT_S)
        return wanted

    async def put(self, model: str) -> bool:
        """Serve this model, or its present files; whether it is new. Raises what ``ModelRegistry.put`` does."""
        new: bool = await self._ask("put", model)
        return new

    async def remove(self, model: str) -> None:
        """Serve this model no more. Raises what ``ModelRegistry.remove`` does."""
        await self._ask("remove", model)

    async def _ask(self, method: str, model: str) -> Any:
        reply = await call_replica(self._handle, method, model, timeout_s=_CHANGE_TIMEOUT_S)
        if isinstance(reply, LimnerError):
            raise reply
        return reply
