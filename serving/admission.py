"""The one step between a request that is understood and its work: it is charged, and its log line learns what it is."""

from fastapi import Request

from serving import metrics
from serving.services import services_of


def admit(request: Request, model: str, images: int) -> None:
    """Let a request of a model with this many images to caption or score begin its work.

    Raises:
        OverloadedError: ``rate_limited``.
    """
    services = services_of(request)
    request.state.model, request.state.images = model, images
    client = getattr(request.state, "client", None)
    if services.keys is not None and client is not None:
        services.keys.charge(client, images)
        services.reporter.count(metrics.CLIENT_IMAGES, client, amount=images)
