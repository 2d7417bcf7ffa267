"""Calls of a replica's methods that end: in time, or when nobody waits for them any more."""

import asyncio
from typing import Any

from ray.exceptions import RayActorError, RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from models.errors import OverloadedError


def replica_was_lost(error: OverloadedError) -> bool:
    """Whether the replica went, or could not be reached, while it had the call: another one may answer."""
    return isinstance(error.__cause__, RayActorError)


async def call_replica(handle: DeploymentHandle[Any], method: str, *arguments: object, timeout_s: float) -> Any:
    """The result of a replica's method.

    A call that nobody waits for any more is cancelled on the replica too: Ray goes on with it otherwise.

    Raises:
        OverloadedError: ``unavailable``, a replica that is missing or silent, or gone (see ``replica_was_lost``).
    """
    try:
        async with asyncio.timeout(timeout_s):
            response = getattr(handle, method).remote(*arguments)
            try:
                return await response
            except asyncio.CancelledError:
                response.cancel()
                raise
    except (TimeoutError, RayError, RayServeException) as error:
        detail = f"a part of the server does not answer ({type(error).__name__})"
        raise OverloadedError("unavailable", detail) from error
