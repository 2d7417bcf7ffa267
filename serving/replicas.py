"""Calls of a replica's methods that end: in time, or when nobody waits for them any more."""

import asyncio
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from models.errors import OverloadedError


async def call_replica(handle: DeploymentHandle[Any], method: str, *arguments: object, timeout_s: float) -> Any:
    """The result of a replica's method; a missing, dying or silent replica is ``unavailable``.

    A call that nobody waits for any more is cancelled on the replica too: Ray goes on with it otherwise.
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
