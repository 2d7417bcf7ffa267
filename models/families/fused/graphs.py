"""Steps of one token over tensors of few fixed shapes, which CUDA repeats as one graph, not as hundreds of launches.

A step of a decoder of BLIP's size takes a GPU far less time than Python and the driver need to ask for its kernels one
by one. A graph is asked for once, but always works on the same addresses: states lie in its buffers while they use it.
"""

import logging
import math
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from models.families.fused.rows import Rows
from models.interfaces import DecodeState

logger = logging.getLogger(__name__)

COLUMNS = 32
"""Columns that a shape has more than the next smaller one; those that no token stands in yet are masked."""
_MOST_SHAPES = 32
_SHARE = 0.25
"""Of the memory that is free, what a new shape may take."""
_WORTH_STEPS = 8
"""Steps of a shape before it gets a graph, which takes about as long to make as so many."""

Run = Callable[[], Tensor]
Capture = Callable[[Run], Run]
"""Gives what does a run again, on the same tensors."""
Step = Callable[[Tensor, list[Tensor], Tensor, Tensor, Tensor], Tensor]
"""``FusedDecoder.step_at``."""


@dataclass(frozen=True)
class Shape:
    """What a graph is made for; states with fewer images or columns use it too."""

    images: int
    each: int
    """Rows of an image."""
    positions: int
    """Of an image's memory."""
    columns: int

    @classmethod
    def of(cls, state: DecodeState) -> "Shape":
        """The smallest that takes one column more than ``state`` has."""
        rows: Rows = state.cache
        images, positions = state.memory[0].shape[1], state.memory[0].shape[3]
        columns = -(-(rows.columns + 1) // COLUMNS) * COLUMNS
        return cls(1 << (images - 1).bit_length(), rows.count // images, positions, columns)


class StaticSteps:
    """The steps of one decoder. A few of its shapes are kept, those used last. Not for several threads.

    Whatever fails while a shape is made or captured, memory that runs out among it, is logged once; steps are taken one
    kernel at a time from then on.
    """

    def __init__(
        self,
        step: Step,
        capture: Capture,
        worth_steps: int = _WORTH_STEPS,
        free_bytes: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """``free_bytes``: of the device's memory; a shape that wants too much of it is left to others."""
        self._step, self._capture, self._worth_steps, self._free_bytes = step, capture, worth_steps, free_bytes
        self._uses: Counter[Shape] = Counter()
        self._memories: weakref.WeakValueDictionary[tuple[int, int], _Memory] = weakref.WeakValueDictionary()
        self._shapes: OrderedDict[Shape, _Buffers] = OrderedDict()
        self.failed = False

    def __call__(self, state: DecodeState, ids: Tensor) -> Tensor | None:
        """Logits (R, V) after ``ids`` (R, 1), which are appended to the rows of ``state``; None where that is left to
        others."""
        shape = Shape.of(state)
        self._uses[shape] += 1
        if self.failed or self._uses[shape] <= self._worth_steps:
            return None
        try:
            buffers = self._buffers(shape, state)
            return None if buffers is None else buffers.append(state, ids)
        except RuntimeError:
            self.failed = True
            logger.warning("no CUDA graph for %s: steps are taken without from now on", shape, exc_info=True)
            self._shapes.clear()
            return None

    def _buffers(self, shape: Shape, state: DecodeState) -> "_Buffers | None":
        """Those of the shape; None where there is no room for them."""
        found = self._shapes.get(shape)
        if found is None:
            while len(self._shapes) >= _MOST_SHAPES:
                self._shapes.popitem(last=False)
            place = (shape.images, shape.positions)
            memory = self._memories.get(place)
            if _bytes(shape, state, memory is None) > _SHARE * self._free_bytes():
                return None
            if memory is None:
                self._memories[place] = memory = _Memory(state.memory, shape.images)
            self._shapes[shape] = found = _Buffers(self._step, self._capture, shape, memory, state.cache)
        self._shapes.move_to_end(shape)
        return found


def _bytes(shape: Shape, state: DecodeState, with_memory: bool) -> float:
    """What buffers of the shape take."""
    memory, own = state.memory, state.cache.keys_values
    layers, _, _, *rest = own.shape
    rows_bytes: float = layers * shape.images * shape.each * shape.columns * math.prod(rest) * own.element_size()
    memory_bytes: float = sum(one.nbytes for one in memory) / memory[0].shape[1] * shape.images
    return memory_bytes + rows_bytes if with_memory else rows_bytes


class _Memory:
    """Room for the memory of so many images, (2, B, H, S, D/H) of each layer: one state at a time has its own there."""

    def __init__(self, like: list[Tensor], images: int) -> None:
        with torch.inference_mode(False):  # else nobody could write to it outside of that mode
            self.whole = [one.new_zeros(2, images, *one.shape[2:]) for one in like]
        self._user: Callable[[], DecodeState | None] = lambda: None

    def take_in(self, state: DecodeState) -> None:
        """Let the memory of ``state`` lie here; it is copied where it does not already."""
        if self._holds(state):
            return
        before = self._user()
        if before is not None and self._holds(before):
            before.memory = [one.clone() for one in before.memory]
        lent = [one[:, : own.shape[1]] for one, own in zip(self.whole, state.memory, strict=True)]
        for place, own in zip(lent, state.memory, strict=True):
            place.copy_(own)
        state.memory, self._user = lent, weakref.ref(state)

    def _holds(self, state: DecodeState) -> bool:
        return _begins_with(self.whole[0], state.memory[0])


class _Buffers:
    """What the steps of one shape work on; one state at a time has its rows there, before rows that nobody uses."""

    def __init__(self, step: Step, capture: Capture, shape: Shape, memory: _Memory, rows: Rows) -> None:
        layers, _, _, *rest = rows.keys_values.shape
        count, device = shape.images * shape.each, rows.keys_values.device
        with torch.inference_mode(False):
            self._keys_values = rows.keys_values.new_zeros(layers, count, shape.columns, *rest)
            self._ids = torch.zeros(count, 1, dtype=torch.long, device=device)
            self._begins = torch.zeros(count, dtype=torch.long, device=device)
            self._column = torch.zeros(1, dtype=torch.long, device=device)
        self._memory = memory
        self._padding: list[int] = []
        """What ``_begins`` says of the images."""
        self._user: Callable[[], Rows | None] = lambda: None
        self._capture = capture
        self._run: Run = partial(step, self._ids, memory.whole, self._keys_values, self._begins, self._column)
        self._repeat: Run | None = None

    @torch.no_grad()
    def append(self, state: DecodeState, ids: Tensor) -> Tensor:
        """Logits (R, V) after ``ids`` (R, 1) of a state that this shape takes."""
        rows: Rows = state.cache
        self._memory.take_in(state)
        self._take_in(rows)
        self._ids[: rows.count].copy_(ids)
        self._column.fill_(rows.columns)
        if self._repeat is None:
            self._repeat = self._capture(self._run)  # may run it, which changes nothing: the column is a given
        logits = self._repeat()[: rows.count].clone()  # the next step overwrites them
        rows.columns += 1
        return logits

    def _take_in(self, rows: Rows) -> None:
        """Let the keys and values of ``rows`` lie here, as ``_Memory.take_in`` does."""
        if self._padding != rows.padding:
            self._begins[: rows.count].copy_(rows.begins())
            self._padding = list(rows.padding)
        if _begins_with(self._keys_values, rows.keys_values):
            return
        before = self._user()
        if before is not None and _begins_with(self._keys_values, before.keys_values):
            before.keys_values = before.keys_values.clone()
        lent, columns = self._keys_values[:, : rows.count], rows.columns
        lent[:, :, :columns].copy_(rows.keys_values[:, :, :columns])
        lent[:, :, columns:].zero_()  # what is masked is multiplied by 0: it must be finite
        rows.keys_values, self._user = lent, weakref.ref(rows)


def _begins_with(whole: Tensor, part: Tensor) -> bool:
    """Whether ``part`` is the front of ``whole``, of which nothing else lies at that address."""
    return part.data_ptr() == whole.data_ptr()


class CudaGraphs:
    """Makes CUDA graphs, which share the memory of what lies between inputs and logits: none runs beside others."""

    _one_at_a_time = threading.Lock()
    """CUDA captures for one thread of a process only."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = None
        self._aside: Any = None

    def free_bytes(self) -> float:
        """What nobody holds of the device's memory."""
        return torch.cuda.mem_get_info(self._device)[0]

    def __call__(self, run: Run) -> Run:
        """A ``Capture``."""
        with self._one_at_a_time, torch.cuda.device(self._device):
            if self._pool is None:  # torch's own stream for captures is of the device that had the first
                self._pool = torch.cuda.graph_pool_handle()
                self._aside = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            self._aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._aside):  # libraries choose their kernels and get their workspaces before
                for _ in range(2):
                    run()
            torch.cuda.current_stream().wait_stream(self._aside)
            graph = torch.cuda.CUDAGraph()
            # Other threads, which prepare pictures, may allocate meanwhile.
            mode = "thread_local"
            with torch.cuda.graph(graph, pool=self._pool, stream=self._aside, capture_error_mode=mode):
                logits = run()

        def repeat() -> Tensor:
            graph.replay()
            return logits

        return repeat
