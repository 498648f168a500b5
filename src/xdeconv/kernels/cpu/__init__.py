"""The CPU backend: fixed chunks of rows for any number of threads, their sums merged in order."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ...rows.batch import Batch
from ...system.threads import threads, together
from .. import reference
from ..groups import Groups, GroupSums
from ..options import DEFAULT, Options
from ..parameters import Factors
from ..stats import Stats
from .merge import InOrder
from .triangles import inverse, lower, unwhitened

if TYPE_CHECKING:
    from .groups import GroupRows
    from .kinds import Kind

MAX_DIMENSION = 128
CHUNK_PAIRS = 1 << 18
SMALL_PAIRS, EVENLY = 1 << 15, 8  # smaller chunks, where there would be few, so that threads share them evenly
MAX_CHUNKS = 256
BOUND_DIMENSION, BOUND_COMPONENTS = 5, 32  # with less, a pair costs little more than its bound
BOUND_DENSITIES = 512  # where there are few dimensions and no sums to save


def refuses(batch: Batch, k: int, d: int) -> str | None:
    """Why this backend cannot take a batch, or None."""
    if batch.device.type != "cpu":
        return f"the rows are on {batch.device}"
    if batch.dtype not in (torch.float32, torch.float64):
        return f"the rows are {batch.dtype}: use float32 or float64"
    if max(batch.p, d) > MAX_DIMENSION:
        return f"{max(batch.p, d)} dimensions are more than {MAX_DIMENSION}"
    return None


def accumulate(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> Stats:
    """The five sums over the rows of a batch; the same bits for any number of threads."""
    from .scratch import SUMS

    run = _Run(log_weights, means, covariances, batch, SUMS, options.skip)
    sums, totals = run.chunks()
    return _stats(totals, sums, run.whitening, run.kind)


def refuses_slopes(batch: Batch, d: int) -> str | None:
    """Why derivatives by errors cannot be summed here, or None."""
    from .blocks import Blocked

    if batch.projection is not None and isinstance(_kind(batch, d), Blocked):
        return f"fitted factors on errors have no fast kernel for projections of {max(batch.p, d)} dimensions"
    return None


def accumulate_slopes(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> tuple[Stats, Tensor]:
    """The five sums, and the derivatives (p,) by the logarithms of errors, for rows whose noise differs."""
    from .scratch import SUMS

    run = _Run(log_weights, means, covariances, batch, SUMS, options.skip, slopes=True)
    sums, totals = run.chunks()
    slopes = torch.from_numpy(run.kind.slopes_of(sums))
    return _stats(totals, sums, run.whitening, run.kind), slopes


def takes_factors(batch: Batch, rank: int) -> bool:
    """Whether sums for covariances of low rank have a way of their own."""
    from . import low_rank

    return low_rank.takes(batch, rank)


def accumulate_factors(
    log_weights: Tensor, means: Tensor, factors: Factors, batch: Batch, options: Options = DEFAULT
) -> Stats:
    """The same for covariances F F^T + D; G is right where they read it."""
    from . import low_rank

    return low_rank.accumulate(log_weights, means, factors, batch, options)


def for_groups(batch: Batch, d: int) -> GroupRows:
    """The batch as groups pick rows from it: one row after the other."""
    from .groups import row_by_row

    return row_by_row(batch, _kind(batch, d), _memory)


def accumulate_groups(
    log_weights: Tensor, means: Tensor, covariances: Tensor, rows: GroupRows, groups: Groups
) -> GroupSums:
    """The sums of every group of rows over its own components (g, m, ...); the same bits for any number of threads."""
    from .groups import SHARES, Work

    m, workers = means.shape[1], threads()
    log_weights, means, covariances = (t.detach().double().flatten(0, 1) for t in (log_weights, means, covariances))
    components, _, whitening = _components(log_weights, means, covariances, rows.batch, rows.kind, False)
    work = Work(rows, groups, components, m, _memory, SHARES if workers > 1 else 1)
    together("kernel", work.run, min(workers, work.workers))
    totals = np.array([groups.total, work.loglik.sum()])
    return GroupSums(_stats(totals, work.sums, whitening, rows.kind), torch.from_numpy(work.loglik), m)


def log_prob(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> Tensor:
    """Log-density of each row (n,); memory does not grow with n k."""
    from .scratch import LOG_PROB

    run = _Run(log_weights, means, covariances, batch, LOG_PROB, options.skip)
    run.chunks()
    return torch.from_numpy(run.log_prob)


def log_joint(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> Tensor:
    """log alpha_j + log N(x_i | R_i m_j, T_ij), (n, k)."""
    from .scratch import LOG_JOINT

    run = _Run(log_weights, means, covariances, batch, LOG_JOINT, False)
    run.chunks()
    return torch.from_numpy(run.log_joint)


def posterior_moments(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> tuple[Tensor, Tensor]:
    """Posterior means and covariances of each row; the same bits for any number of threads."""
    from . import posteriors

    k, d = means.shape
    if not posteriors.takes(batch, d):
        return reference.posterior_moments(log_weights, means, covariances, batch, options)
    kind = posteriors.kind_of(batch, d)
    log_weights, means, covariances = (t.detach().double() for t in (log_weights, means, covariances))
    table, _, _ = _components(log_weights, means, covariances, batch, kind, False)
    return posteriors.moments(table, k, batch, kind, _memory)


class _Run:
    """The arrays of one call, and the loop that computes a chunk of its rows."""

    def __init__(
        self, log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, want: int, skip: bool,
        slopes: bool = False,
    ) -> None:  # fmt: skip
        from . import blocks
        from . import loops as numba_rows
        from . import scratch as numba_memory

        k, d = means.shape
        log_weights, means, covariances = (t.detach().double() for t in (log_weights, means, covariances))
        n, p, projected = batch.n, batch.p, batch.projection is not None
        kind = replace(_kind(batch, d), slopes=slopes)
        cheap = not isinstance(kind, blocks.Blocked) and want == numba_memory.LOG_PROB
        worth = d >= BOUND_DIMENSION and k >= (BOUND_DENSITIES if cheap else BOUND_COMPONENTS)
        bounded = skip and worth and not projected and not batch.shared
        self.kind, self.k, self.n = kind, k, n
        self.components, pivots, self.whitening = _components(log_weights, means, covariances, batch, kind, bounded)
        self.how = numba_memory.steps(kind, want, skip, bounded), numba_memory.shape(kind, want, skip)
        empty = batch.x.new_empty(0)
        S = batch.x.new_empty(0, 1) if batch.shared else batch.x.new_zeros(p, 1) if batch.noise is None else batch.noise
        R = batch.x.new_empty(0, n) if batch.projection is None else batch.projection.reshape(-1, n)
        unit = np.zeros(p) if batch.scale is None else batch.scale.double().log().numpy()
        self.arguments = (
            self.components, pivots,
            batch.x.numpy(), S.expand(-1, n).numpy(), R.numpy(),
            (empty if batch.weight is None else batch.weight).numpy(),
            (empty[None] if batch.log_prior is None else batch.log_prior).numpy(),
            (empty if batch.label is None else batch.label).long().numpy(),
            unit + 0.5 * math.log(2 * math.pi),
            (1 / covariances.diagonal(dim1=1, dim2=2).mean(0)).numpy(),
            (torch.empty(0) if batch.background is None else batch.background).double().numpy(),
        )  # fmt: skip
        dtype = self.components.dtype
        self.log_prob = np.empty(n if want == numba_memory.LOG_PROB else 0, dtype)
        self.log_joint = np.empty((n, k) if want == numba_memory.LOG_JOINT else (0, k), dtype)
        self.loop = numba_rows.loop(kind.bits, bounded)

    def chunks(self) -> list[np.ndarray]:
        """Compute all rows; the sums (k, ...) and totals (rows, loglik), added up in the order of chunks."""
        from . import scratch as numba_memory

        pairs = min(CHUNK_PAIRS, max(SMALL_PAIRS, self.n * self.k / EVENLY))
        pairs = pairs / max(1.0, max(self.kind.d, self.kind.p) / 16) ** 3  # chunks of about as much work
        size = max(math.ceil(pairs / self.k), -(-self.n // MAX_CHUNKS))
        size = -(-size // self.kind.tile) * self.kind.tile
        starts = range(0, self.n, size)
        merged = InOrder([np.zeros((self.k, self.kind.sums)), np.zeros(2)])
        turn = itertools.count()

        def work(_: int) -> None:
            memory = numba_memory.scratch(self.kind, self.k, _memory, self.components)
            at = numba_memory.places(memory, self.components)
            while (c := next(turn)) < len(starts):
                sums, totals = np.zeros((self.k, self.kind.sums)), np.zeros(2)
                self.loop(*self.how, at, memory, *self.arguments, starts[c], min(starts[c] + size, self.n),
                          self.log_prob, self.log_joint, sums, totals)  # fmt: skip
                merged.add(c, (sums, totals))

        together("kernel", work, min(threads(), len(starts)))
        return merged.totals


def _memory(numbers: int, dtype: np.dtype) -> np.ndarray:
    """Memory that starts at a cache line, with whatever is in it."""
    memory = np.empty(numbers * dtype.itemsize + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + numbers * dtype.itemsize].view(dtype)


def _kind(batch: Batch, d: int) -> Kind:
    """What kernels are compiled for to take a batch."""
    from .blocks import Blocked, unrolled
    from .kinds import Unrolled

    noise = "shared" if batch.shared else "full" if batch.full else "diagonal"
    masked = not batch.shared and (batch.missing or batch.projection is not None)
    layout = Blocked if max(d, batch.p) > unrolled(noise) else Unrolled
    return layout(d, batch.p, noise, batch.projection is not None, masked, 32 if batch.dtype == torch.float32 else 64)


def _stats(totals: np.ndarray, sums: np.ndarray, whitening: np.ndarray | None, kind: Kind) -> Stats:
    """Sums as the loops leave them (k, ...) in the form that methods read; in NumPy, which never waits for threads."""
    k, d = len(sums), kind.d
    q, g, packed = kind.unpacked(sums)
    a, b = lower(d)
    G = np.zeros((k, d, d))
    G[:, a, b] = G[:, b, a] = packed
    if whitening is not None:
        g, G = unwhitened(whitening, g, G - q[..., None] * np.eye(d))
    return Stats(torch.from_numpy(np.concatenate([totals, q.ravel(), g.ravel(), G.ravel()])), k, d)


def _components(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, kind: Kind, bounded: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Tables of components (whole groups of W lines) and of half the log pivots of V (k, d), and the shared L^-1.

    The pivots are zeros where nothing reads them.
    """
    from .blocks import Blocked

    dtype, offset, matrix, whitening = np.dtype(f"f{kind.bits // 8}"), log_weights.numpy(), covariances.numpy(), None
    pivots = _half_logs(_cholesky(matrix)) if bounded or isinstance(kind, Blocked) else np.zeros(means.shape)
    if kind.noise == "shared":
        L = _cholesky(matrix + batch.covariance().double().numpy())
        matrix = whitening = inverse(L)
        offset = offset - _half_logs(L).sum(1)
    with np.errstate(over="ignore"):  # what is too narrow for float32 becomes infinite there, and its densities NaN
        return kind.table(means.numpy(), matrix, offset, pivots, dtype), pivots.astype(dtype), whitening


def _half_logs(L: np.ndarray) -> np.ndarray:
    """Half the logarithms of the pivots of L L^T."""
    return np.log(np.diagonal(L, axis1=1, axis2=2))


def _cholesky(V: np.ndarray) -> np.ndarray:
    """Lower factors, NaN where there is none; NumPy's first, which never waits for other threads."""
    try:
        return np.linalg.cholesky(V)
    except np.linalg.LinAlgError:
        L, failed = torch.linalg.cholesky_ex(torch.from_numpy(V))
    return torch.where((failed > 0)[:, None, None], torch.nan, L).numpy()
