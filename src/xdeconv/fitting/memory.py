"""Memory: what a fit needs is known before it starts, and what there is, whoever limits it."""

from __future__ import annotations

import logging

from ..methods import Accelerated
from ..methods.accelerated import MEMORY
from ..rows.batch import packed_size
from ..rows.data import Source
from ..system.memory import free
from ..system.threads import threads
from .plan import Plan

log = logging.getLogger("xdeconv")
GIB = 1 << 30
STREAM_ROWS = 5 << 17  # rows of a stream that are under way at a time, from the file to the kernel
THREAD_ROWS = 1 << 17  # and for each thread that makes batches of its own
POOL_MATRICES = 4  # (rows, components) matrices of a search
PARAMETERS = 12  # copies of the covariances that algebra holds at a time
BASE = 1 << 27  # compiled kernels, tables of components and scratch


def needed(plan: Plan, source: Source, held_out: Source | None = None) -> int:
    """At most so many bytes of host memory are taken by a fit besides the rows as they were given."""
    rows = _rows_bytes(source, plan, plan.batch_rows)
    rows += 0 if held_out is None else _rows_bytes(held_out, plan, None)
    pool = 0
    if plan.moves is not None and plan.device.type == "cpu":
        pool = POOL_MATRICES * 8 * plan.components * min(source.rows, max(plan.moves.pool_rows, 8 * plan.components))
    return BASE + rows + pool + _mixture_bytes(plan, source.dim)


def _mixture_bytes(plan: Plan, d: int) -> int:
    """Covariances, their sums in every thread, and the steps that an accelerated method remembers."""
    k, of_one = plan.components, plan.method.covariance.of_one(d)
    steps = 2 * MEMORY * k * (1 + d + of_one) if isinstance(plan.method_for(plan.dtype), Accelerated) else 0
    return 8 * (k * d * d * (PARAMETERS + threads()) + steps)


def _rows_bytes(source: Source, plan: Plan, batch_rows: int | None) -> int:
    """Copies of rows held in memory: one that stays and one that is under way; a bounded number of a stream."""
    rows = source.resident_bytes
    if rows:
        return rows + (0 if plan.device.type == "cuda" else rows * plan.dtype.itemsize // 8)
    numbers = source.dim + packed_size(source.dim)
    under_way = min(source.rows, max(STREAM_ROWS, threads() * THREAD_ROWS, batch_rows or 0))
    return source.pool_bytes(batch_rows) + under_way * 8 * numbers * 2


def refuse_too_little(plan: Plan, source: Source, held_out: Source | None) -> None:
    """Refuse a fit that this machine cannot hold, with the figure and what helps."""
    wanted, room = needed(plan, source, held_out), free()
    log.info("this fit takes up to %.2f GiB of memory, %.2f GiB are free", wanted / GIB, room / GIB)
    if wanted <= room:
        return
    helps = "stream the rows from a file (xd.open(path, memory=False), or --stream)"
    if not source.resident_bytes:
        helps = "use a smaller batch_rows"
    if plan.moves is not None and plan.components * plan.moves.pool_rows * 32 > wanted / 4:
        helps += ", or a smaller pool of moves (moves=xd.Moves(pool_rows=...))"
    mixture = _mixture_bytes(plan, source.dim)
    if mixture > wanted / 2:
        what = f"a mixture of {plan.components} components in {source.dim} dimensions"
        helps = f"{what} takes {mixture / GIB:.2f} GiB of it; use fewer components or fewer dimensions"
    raise MemoryError(f"this fit needs {wanted / GIB:.2f} GiB of memory and {room / GIB:.2f} GiB are free: {helps}")
