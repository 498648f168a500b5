"""Posterior means and covariances: the loop over the rows of a chunk, compiled once for each number type.

Of each component only the rows that it is responsible for are looked at. What they add to a row's mean and covariance
is merged at once (West 1979), so that nothing large cancels and no (n, k, d, d) is ever in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit, types
from torch import Tensor

from ...rows.batch import Batch
from ...system.keeping import inner, kept
from ...system.threads import threads, together
from . import scratch
from .blocks import unrolled
from .kinds import Kind, Unrolled
from .lanes import VECTOR_BYTES
from .loops import _add_prior, _call, _fill
from .posterior_pairs import numbers
from .scratch import Steps, array, compiled, room_types
from .tiles import BACK, CUT, LARGEST, SHARE, TILE, TOTAL, fingerprint

ALIVE = {64: 2.0**-48, 32: 2.0**-28}  # responsibility over a row's largest, from which on a pair counts
CHUNK_PAIRS = 1 << 18


@inner
def _lines(index, count, width, rows, lines):  # type: ignore[no-untyped-def]
    """The lines that an index names; what fills the last group, and rows after the last, get one that nobody reads."""
    for c in range(-(-count // width) * width):
        lines[c] = index[c] if c < count and index[c] < rows else TILE


@cache
def loop(bits: int) -> Callable[..., None]:
    """The compiled loop for a number type; see ``posteriors`` for what it takes."""
    size, W, mark, alive = bits // 8, VECTOR_BYTES * 8 // bits, fingerprint(), ALIVE[bits]
    line_bytes = TILE * size

    # fmt: off
    def posteriors(  # type: ignore[no-untyped-def]
        steps, shape, at, memory, found_at, found, lines_at, lines, x, noise, projection, none, prior, label, unit,
        start, stop, mean, covariance,
    ):
        # fmt: on
        """Rows start to stop: mean (n, d) and packed covariance (n, ...), NaN where there is none."""
        k, state, order, count = len(memory.joint) + 0 * mark, memory.state, memory.order, memory.count
        d = mean.shape[1]
        for i in range(shape.tile):
            order[i] = i
        for window in range(start, stop, shape.tile):
            rows = min(shape.tile, stop - window)
            groups = -(-rows // W)
            block = groups * W
            _fill(x, noise, projection, none, unit, unit[:0], window, 0, rows, block, order, memory.table, state)
            _call(steps.groups_of_table, at.table, at.every, block, at.rows, 0, at.work)
            for j in range(k):
                component = at.components + j * shape.component_bytes
                _call(steps.joint_of_rows, at.rows, groups, component, at.joint + j * line_bytes, 0, at.work)
            if prior.size:
                _add_prior(prior, label, window, 0, rows, order, memory.joint)
            for i in range(block):
                state[LARGEST, i] = state[BACK, i] = -np.inf
            _call(steps.largest, at.joint, k, groups, at.state, 0, 0)
            for i in range(block):
                state[LARGEST, i] = 0 if state[LARGEST, i] == -np.inf else state[LARGEST, i]
                state[TOTAL, i] = 0
            _call(steps.exponentials, at.joint, k, groups, at.state, 0, 0)
            for i in range(block):
                state[SHARE, i] = 1 / state[TOTAL, i]
                state[CUT, i] = alive if i < rows else np.inf
            found[:] = 0
            for j in range(k):
                line = at.joint + j * line_bytes
                _call(steps.responsible, line, groups, at.state, at.index, at.count, 0)
                if count[0]:
                    _call(steps.groups_of_table, at.table, at.index, count[0], at.some, 0, at.work)
                    _call(steps.gathered, line, at.index, count[0], at.values, 0, 0)
                    component = at.components + j * shape.component_bytes
                    _lines(memory.index, count[0], W, rows, lines)
                    _call(steps.sums_of_rows, at.some, -(-count[0] // W), component, at.values, lines_at, found_at)
            for i in range(rows):
                whole = found[i, 0] if found[i, 0] > 0 else np.nan
                for a in range(d):
                    mean[window + i, a] = found[i, 1 + a] + (whole - whole)
                for p in range(covariance.shape[1]):
                    covariance[window + i, p] = found[i, 1 + d + p] / whole

    posteriors.__qualname__ = f"posteriors_float{bits}"
    number = types.float32 if bits == 32 else types.float64
    return kept(lambda keep: njit(_signature(number), nogil=True, cache=keep, error_model="numpy")(posteriors))


def _signature(number: Any) -> Any:
    whole, real = types.int64, types.float64
    return types.void(
        *room_types(number), whole, array(number, 2), whole, array(types.int32, 1),
        array(number, 2, "A"), array(number, 2, "A"), array(number, 2, "A"),
        array(number, 1, "A"), array(number, 2, "A"), array(whole, 1, "A"), array(real, 1), whole, whole,
        array(number, 2), array(number, 2),
    )  # fmt: skip


def takes(batch: Batch, d: int) -> bool:
    """Whether a pair's numbers fit in registers, as the steps want it."""
    return max(d, batch.p) <= unrolled("full" if batch.full else "diagonal")


def kind_of(batch: Batch, d: int) -> Unrolled:
    """What kernels are compiled for; noise that all rows share is each row's own here."""
    masked = batch.missing or batch.projection is not None
    bits = 32 if batch.dtype == torch.float32 else 64
    return Unrolled(d, batch.p, "full" if batch.full else "diagonal", batch.projection is not None, masked, bits)


@cache
def _steps(kind: Kind) -> Steps:
    need = {name: compiled(kind.plain, name) for name in ("largest", "exponentials", "responsible", "gathered")}
    posterior = compiled(kind, "add_posteriors")
    return Steps(compiled(kind, "groups_of_table"), compiled(kind, "joint_of_rows"), sums_of_rows=posterior, **need)


@dataclass(frozen=True)
class Work:
    """The rows of one call, and where their posteriors go."""

    kind: Unrolled
    components: np.ndarray
    k: int
    rows: tuple[np.ndarray, ...]
    mean: np.ndarray
    covariance: np.ndarray
    new: Callable[[int, np.dtype], np.ndarray]

    def run(self) -> None:
        """All rows, by all threads, in chunks that do not depend on how many threads there are."""
        n = len(self.mean)
        size = -(-max(TILE, CHUNK_PAIRS // self.k) // TILE) * TILE
        starts, turn = range(0, n, size), itertools.count()
        how = _steps(self.kind), scratch.shape(self.kind, scratch.SUMS, True)

        def work(_: int) -> None:
            memory = scratch.scratch(self.kind, self.k, self.new, self.components)
            at = scratch.places(memory, self.components)
            found = self.new((TILE + 1) * numbers(self.kind), self.components.dtype).reshape(TILE + 1, -1)
            lines = np.empty(TILE + self.kind.width, np.int32)
            room = at, memory, found.ctypes.data, found, lines.ctypes.data, lines
            while (c := next(turn)) < len(starts):
                stop = min(starts[c] + size, n)
                loop(self.kind.bits)(*how, *room, *self.rows, starts[c], stop, self.mean, self.covariance)

        together("kernel", work, min(threads(), len(starts)))


def moments(
    components: np.ndarray, k: int, batch: Batch, kind: Unrolled, new: Callable[[int, np.dtype], np.ndarray]
) -> tuple[Tensor, Tensor]:
    """Distances of means (n, d) and packed covariances of the rows of a batch, for a table of components."""
    n, x = batch.n, batch.x
    empty = x.new_empty(0)
    S = x.new_zeros(batch.p, 1) if batch.noise is None else batch.noise
    R = x.new_empty(0, n) if batch.projection is None else batch.projection.reshape(-1, n)
    rows = (
        x.numpy(), S.expand(-1, n).numpy(), R.numpy(), empty.numpy(),
        (empty[None] if batch.log_prior is None else batch.log_prior).numpy(),
        (empty if batch.label is None else batch.label).long().numpy(), np.zeros(batch.p),
    )  # fmt: skip
    mean = np.empty((n, kind.d), components.dtype)
    covariance = np.empty((n, kind.offset - kind.d), components.dtype)
    Work(kind, components, k, rows, mean, covariance, new).run()
    return torch.from_numpy(mean), torch.from_numpy(covariance)
