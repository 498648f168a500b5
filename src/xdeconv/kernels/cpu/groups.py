"""Groups of rows, each with a few components of its own: the loop, compiled once for each number type."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numba import types

from ...rows.batch import Batch
from ...system.keeping import compiled_loop
from ..groups import Groups
from . import scratch
from .blocks import Blocked
from .kinds import Kind
from .lanes import VECTOR_BYTES
from .loops import _call
from .scratch import Places, Scratch, room_types
from .tiles import CONSTANT, CUT, LARGEST, NORM, SHARE, TILE, TOTAL, fingerprint

New = Callable[[int, np.dtype], np.ndarray]
"""Makes memory for so many numbers, with whatever is in it."""


@cache
def loop(bits: int) -> Callable[..., None]:
    """The compiled loop for a number type; see ``groups`` for what it takes."""
    size, W, mark = bits // 8, VECTOR_BYTES * 8 // bits, fingerprint()
    line_bytes = TILE * size

    # fmt: off
    def groups(  # type: ignore[no-untyped-def]
        steps, shape, at, memory, table_at, index_at, constants, index, weight, background, starts, m,
        first_group, last_group, sums, loglik,
    ):
        # fmt: on
        """Groups first to last: sums (g m, ...) and log-likelihoods (g,).

        ``table_at`` is the address of the batch's rows, one after the other; ``index`` (e,) names a group's rows.
        """
        state = memory.state
        for group in range(first_group, last_group + 0 * mark):
            components_at = at.components + group * m * shape.component_bytes
            for first in range(starts[group], starts[group + 1], shape.tile):
                rows = min(shape.tile, starts[group + 1] - first)
                blocks = -(-rows // W)
                _call(steps.groups_of_table, table_at, index_at + 4 * first, rows, at.rows, 0, at.work)
                for i in range(rows):
                    constant = constants[index[first + i]]
                    state[CONSTANT, i] = constant
                    state[SHARE, i] = weight[first + i]
                    state[CUT, i] = state[LARGEST, i] = background[first + i] + constant
                for i in range(rows, blocks * W):
                    state[SHARE, i] = 0
                    state[CUT, i] = state[LARGEST, i] = state[CUT, rows - 1]
                for j in range(m):
                    component = components_at + j * shape.component_bytes
                    _call(steps.joint_of_rows, at.rows, blocks, component, at.joint + j * line_bytes, 0, at.work)
                _call(steps.largest, at.joint, m, blocks, at.state, 0, 0)
                for i in range(blocks * W):
                    state[LARGEST, i] = 0 if state[LARGEST, i] == -np.inf else state[LARGEST, i]
                    state[TOTAL, i] = 0
                _call(steps.exponentials, at.state + CUT * line_bytes, 1, blocks, at.state, 0, 0)
                _call(steps.exponentials, at.joint, m, blocks, at.state, 0, 0)
                _call(steps.logarithms, blocks, at.state, 0, 0, 0, 0)
                total = 0.0
                for i in range(rows):
                    total += state[SHARE, i] * (np.float64(state[NORM, i]) - state[CONSTANT, i])
                loglik[group] += total
                for i in range(blocks * W):  # a row that has no density at all tells nothing of its components
                    state[SHARE, i] /= state[TOTAL, i] if state[TOTAL, i] > 0 else 1
                    state[CUT, i] = 0
                for j in range(m):
                    line, lanes = at.joint + j * line_bytes, at.lanes + j * shape.sums_bytes
                    _call(steps.responsible, line, blocks, at.state, at.index, at.count, 0)
                    component = components_at + j * shape.component_bytes
                    _call(steps.sums_of_rows, at.rows, blocks, component, line, lanes, at.work)
            for j in range(m):
                for s in range(sums.shape[1]):
                    for lane in range(memory.lanes.shape[2]):
                        sums[group * m + j, s] += memory.lanes[j, s, lane]
                        memory.lanes[j, s, lane] = 0

    groups.__qualname__ = f"groups_float{bits}"
    number = types.float32 if bits == 32 else types.float64
    return compiled_loop(groups, _signature(number), f"the loop over groups of rows, float{bits}")


def _signature(number: Any) -> Any:
    whole, real = types.int64, types.float64
    return types.void(
        *room_types(number), whole, whole, real[::1], types.int32[::1], real[::1], real[::1], types.int64[::1], whole,
        whole, whole, real[:, ::1], real[::1],
    )  # fmt: skip


Room = tuple[Scratch, Places]


@dataclass(frozen=True)
class GroupRows:
    """A batch's rows one after the other (n, numbers), and the constant of each row's observed count (n,).

    ``rooms`` is memory that threads worked in and left for the next pass, by how many components a group has.
    """

    batch: Batch
    kind: Kind
    table: np.ndarray
    constants: np.ndarray
    rooms: dict[int, list[Room]] = field(default_factory=lambda: defaultdict(list))

    def room(self, m: int, new: New, components: np.ndarray) -> Room:
        """Memory to work in, for a table of components."""
        try:
            memory, at = self.rooms[m].pop()
        except IndexError:
            memory = scratch.scratch(self.kind, m, new, components)
            at = scratch.places(memory, components)
        if isinstance(self.kind, Blocked):
            memory = memory._replace(bound=components)
        return memory, at._replace(components=components.ctypes.data)


def row_by_row(batch: Batch, kind: Kind, new: New) -> GroupRows:
    """A batch in the form that groups pick rows from."""
    n = batch.n
    table = new(n * kind.row_numbers, np.dtype(f"f{kind.bits // 8}")).reshape(n, kind.row_numbers)
    parts = [batch.x]
    if kind.noise != "shared":
        noise = batch.x.new_zeros(batch.p, 1) if batch.noise is None else batch.noise
        parts.append(noise.expand(-1, n))
    if batch.projection is not None:
        parts.append(batch.projection.reshape(-1, n))
    at = 0
    for part in parts:
        table[:, at : at + len(part)] = part.numpy().T
        at += len(part)
    table[:, at:] = 0
    unit = np.zeros(batch.p) if batch.scale is None else batch.scale.double().log().numpy()
    constants = (unit + 0.5 * math.log(2 * math.pi)) @ ~batch.x.isnan().numpy()
    return GroupRows(batch, kind, table, np.ascontiguousarray(constants))


SHARES = 64  # a thread takes at most 1/64 of all entries at a time
SHARE_WORK = 1 << 19  # multiplications, about, that a share is worth: 0.1 ms
ALONE = 4  # shares: to wake a thread for less takes longer


class Work:
    """One pass over all groups, a share of them at a time, by as many threads as come."""

    def __init__(
        self, rows: GroupRows, groups: Groups, components: np.ndarray, m: int, new: New, most: int = SHARES
    ) -> None:
        kind = rows.kind
        self.rows, self.groups, self.components, self.m, self.new = rows, groups, components, m, new
        self.how = scratch.steps(kind, scratch.SUMS, False, False), scratch.shape(kind, scratch.SUMS, False)
        self.index, self.starts = groups.index, groups.starts.numpy()
        self.cuts = _cuts(self.starts, m * max(kind.d, kind.p, 2) ** 3, most)
        self.sums, self.loglik = np.zeros((len(groups) * m, kind.sums)), np.zeros(len(groups))
        self.turn = itertools.count()

    @property
    def shares(self) -> int:
        """How many pieces of work there are."""
        return len(self.cuts) - 1

    @property
    def workers(self) -> int:
        """How many threads could find something to do."""
        return self.shares if self.shares > ALONE else 1

    def run(self, _: int) -> None:
        """Take shares until none is left."""
        rows, groups, loop_ = self.rows, self.groups, loop(self.rows.kind.bits)
        memory, at = rows.room(self.m, self.new, self.components)
        given = (*self.how, at, memory, rows.table.ctypes.data, self.index.ctypes.data, rows.constants, self.index,
                 groups.weight.numpy(), groups.background.numpy(), self.starts, self.m)  # fmt: skip
        while (c := next(self.turn)) < self.shares:
            loop_(*given, self.cuts[c], self.cuts[c + 1], self.sums, self.loglik)
        rows.rooms[self.m].append((memory, at))


def _cuts(starts: np.ndarray, each: int, most: int) -> np.ndarray:
    """Where shares of groups begin and end, at most so many; ``each`` is what an entry costs."""
    entries, groups = int(starts[-1]), len(starts) - 1
    shares = min(most, 1 + entries * each // SHARE_WORK)
    if shares == 1:
        return np.array([0, groups])
    cuts = np.searchsorted(starts, np.linspace(0, entries, shares + 1))
    return np.unique(np.append(cuts, groups).clip(max=groups))
