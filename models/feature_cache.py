"""What vision encoders gave for pictures of a moment ago, so that another caption of one does not encode it again."""

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from models.families.base import TorchCaptioner
from models.interfaces import Captioner


@dataclass(frozen=True)
class KnownPicture:
    """A picture that was opened and encoded."""

    features: Tensor
    """(...), of ``TorchCaptioner.encode_stem``."""
    notes: tuple[str, ...] = ()
    """Those of ``models.images.LoadedImage``."""


class FeatureCache:
    """Keeps the pictures that were asked for last, for ``seconds`` after they came and within ``max_bytes`` in all.

    Keys name the picture's bytes and the encoder. For any number of threads.
    """

    def __init__(self, seconds: float, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._max_bytes, self._clock = seconds, max_bytes, clock
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, tuple[float, KnownPicture]] = OrderedDict()  # in the order in which they came
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """Of all features held."""
        return self._bytes

    def get(self, key: Hashable) -> KnownPicture | None:
        """The picture, where it came not long ago."""
        with self._lock:
            self._expire()
            held = self._held.get(key)
        return held[1] if held is not None else None

    def put(self, key: Hashable, picture: KnownPicture) -> None:
        """Keep a picture; the oldest make room for it."""
        size = picture.features.nbytes
        with self._lock:
            self._expire()
            if key in self._held or size > self._max_bytes or self._seconds <= 0:
                return
            while self._bytes + size > self._max_bytes:
                self._forget_oldest()
            self._held[key] = (self._clock() + self._seconds, picture)
            self._bytes += size

    def _expire(self) -> None:
        now = self._clock()
        while self._held and next(iter(self._held.values()))[0] <= now:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, (_, picture) = self._held.popitem(last=False)
        self._bytes -= picture.features.nbytes


def encoder_key(captioner: Captioner) -> str | None:
    """A name that encoders have in common where they give the same features for the same picture; None where features
    cannot be kept. Mixes of one base mostly share its encoder."""
    if not isinstance(captioner, TorchCaptioner) or captioner.encoder_is_trained:
        return None
    try:
        tensors, settings = captioner.frozen_encoder(), captioner.preprocessing()
    except NotImplementedError:
        return None
    digest = hashlib.sha256(json.dumps([captioner.family, str(captioner.device), settings], sort_keys=True).encode())
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
