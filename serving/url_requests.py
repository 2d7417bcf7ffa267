"""Between reading a request and answering it: its images that are given by URL are fetched, within its deadline."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from fastapi import Request

from models.errors import OverloadedError
from serving.image_inputs import GivenImage, ImageUrl
from serving.messages import Failure
from serving.services import Services

T = TypeVar("T")
Images = tuple[bytes | Failure, ...]


async def with_images(
    request: Request, services: Services, given: Sequence[GivenImage], ask: Callable[[Images], Awaitable[T]]
) -> T:
    """What ``ask`` makes of the images. The captioner hears of them only when all are there, so none waits in its queue
    meanwhile; the deadline of a request counts from its arrival here.

    Raises:
        OverloadedError: ``queue_full`` or ``deadline_exceeded``, and what ``ask`` raises.
    """
    urls = [image.url for image in given if isinstance(image, ImageUrl)]
    if not urls:
        return await ask(_images(given, {}))
    assert services.url_images is not None, "image_bytes refuses URLs where they are not allowed"
    deadline_s = services.args.limits.deadline_s
    clock = asyncio.timeout(deadline_s - (time.perf_counter() - request.state.started))
    try:
        async with clock:
            return await ask(_images(given, await services.url_images.fetched(urls)))
    except TimeoutError:
        if not clock.expired():
            raise
        detail = f"not answered within {deadline_s:g} s, fetching its images by url included"
        raise OverloadedError("deadline_exceeded", detail) from None


def _images(given: Sequence[GivenImage], fetched: dict[str, bytes | Failure]) -> Images:
    return tuple(fetched[image.url] if isinstance(image, ImageUrl) else image for image in given)
