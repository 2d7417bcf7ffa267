"""How many captioner replicas there should be, by the images that they have in hand: a policy for Ray's autoscaler.

Ray counts requests, of which one may hold one image or 32. A Serve config file names the policy: ``deploy/serve.yaml``.
Ray pickles this module whole for its controller, so it stays free of limner's other modules.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.serve.config import AutoscalingContext

IMAGES_IN_HAND = "images_in_hand"
"""The name under which a replica tells Ray how many images it was given and has not answered."""
_FEWEST, _MOST = 0.01, 1_000_000


class InHand:
    """Counts the images that one replica has accepted and not answered yet. For the coroutines of one event loop."""

    def __init__(self) -> None:
        self.images = 0

    @contextmanager
    def holding(self, images: int) -> Iterator[None]:
        """Count them while the block runs."""
        self.images += images
        try:
            yield
        finally:
            self.images -= images


class ImagesInHand:
    """As many replicas as make ``target_images`` in the hands of each, on average over ``look_back_period_s``.

    Images under way count beside those that wait: else replicas that are busy, but keep their queues short, would look
    idle and be taken away. Bounds, factors and delays are those of the deployment's ``autoscaling_config``; Ray applies
    them to what this returns.
    """

    def __init__(self, target_images: float = 16.0) -> None:
        a_number = isinstance(target_images, int | float) and not isinstance(target_images, bool)
        if not (a_number and _FEWEST <= target_images <= _MOST):
            raise ValueError(
                f"target_images is {target_images!r}; give a number of images above 0, {_FEWEST:g} to {_MOST:,}"
            )
        self._target_images = target_images

    def __call__(self, context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
        """The wanted number of replicas, not rounded, and nothing to remember."""
        told = (context.aggregated_metrics or {}).get(IMAGES_IN_HAND, {})
        wanted = sum(told.values()) / self._target_images
        if len(told) < len(context.running_replicas) or not context.running_replicas:
            wanted = max(wanted, context.target_num_replicas)  # what is not known yet is no reason to take one away
        return wanted, {}
