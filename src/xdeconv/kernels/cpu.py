"""The CPU backend: fixed chunks of rows for any number of threads, their sums merged in order."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..batch import Batch
from ..stats import Stats
from .options import DEFAULT, Options

if TYPE_CHECKING:
    from .numba_pairs import Kind

MAX_DIMENSION = 16
CHUNK_PAIRS = 1 << 18
MAX_CHUNKS = 256


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
    from .numba_rows import SUMS

    k, d = means.shape
    run = _Run(log_weights, means, covariances, batch, SUMS)
    sums, totals = np.zeros((k, run.kind.sums)), np.zeros(2)
    for part, total in run.chunks():
        sums += part
        totals += total
    q, g, packed = (torch.from_numpy(part) for part in np.split(sums, [1, 1 + d], axis=1))
    a, b = torch.tril_indices(d, d)
    G = torch.zeros(k, d, d, dtype=torch.float64)
    G[:, a, b] = G[:, b, a] = packed
    if run.whitening is not None:
        g = (run.whitening.mT @ g[..., None])[..., 0]
        G = run.whitening.mT @ (G - torch.diag_embed(q.expand(k, d))) @ run.whitening
    return Stats(torch.cat([torch.from_numpy(totals), q.reshape(-1), g.reshape(-1), G.reshape(-1)]), k, d)


def log_prob(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> Tensor:
    """Log-density of each row (n,); memory does not grow with n k."""
    from .numba_rows import LOG_PROB

    run = _Run(log_weights, means, covariances, batch, LOG_PROB)
    run.chunks()
    return torch.from_numpy(run.log_prob)


def log_joint(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> Tensor:
    """log alpha_j + log N(x_i | R_i m_j, T_ij), (n, k)."""
    from .numba_rows import LOG_JOINT

    run = _Run(log_weights, means, covariances, batch, LOG_JOINT)
    run.chunks()
    return torch.from_numpy(run.log_joint)


class _Run:
    """The arrays of one call, and the function that computes a chunk of its rows."""

    def __init__(self, log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, want: int) -> None:
        from .numba_pairs import Kind
        from .numba_rows import LOG_JOINT, LOG_PROB

        k, d = means.shape
        n, p, projected = batch.n, batch.p, batch.projection is not None
        noise = "shared" if batch.shared else "full" if batch.full else "diagonal"
        self.kind = Kind(d, p, noise, projected, not batch.shared and (batch.missing or projected), _bits(batch))
        self.k, self.n, self.want = k, n, want
        self.components, self.whitening = _components(log_weights, means, covariances, batch, self.kind)
        empty = batch.x.new_empty(0)
        S = empty[None] if batch.shared else batch.x.new_zeros(p, 1) if batch.noise is None else batch.noise
        R = empty[None][:0] if batch.projection is None else batch.projection.reshape(-1, n)
        unit = np.zeros(p) if batch.scale is None else batch.scale.double().log().numpy()
        self.data = (
            batch.x.numpy(),
            S.expand(-1, n).numpy() if not batch.shared else S.numpy(),
            R.numpy(),
            (empty if batch.weight is None else batch.weight).numpy(),
            (empty[None] if batch.log_prior is None else batch.log_prior).numpy(),
            (empty if batch.label is None else batch.label).long().numpy(),
            unit + 0.5 * math.log(2 * math.pi),
        )
        dtype = self.components.dtype
        self.log_prob = np.empty(n if want == LOG_PROB else 0, dtype)
        self.log_joint = np.empty((n, k) if want == LOG_JOINT else (0, k), dtype)

    def chunks(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Compute all rows; the sums (k, ...) and totals (rows, loglik) of each chunk, in order."""
        from . import numba_rows

        size = max(-(-CHUNK_PAIRS // self.k), -(-self.n // MAX_CHUNKS))
        size = -(-size // numba_rows.FLUSH) * numba_rows.FLUSH
        starts = range(0, self.n, size)
        results = [(np.zeros((0, self.kind.sums)), np.zeros(2))] * len(starts)
        compiled = numba_rows.kernel(self.kind)
        turn = itertools.count()

        def work(_: int) -> None:
            scratch = _scratch(numba_rows.scratch_numbers(self.kind, self.k), self.components.dtype)
            while (c := next(turn)) < len(starts):
                sums, totals = np.zeros((self.k, self.kind.sums)), np.zeros(2)
                compiled(self.components, *self.data, self.want, starts[c], min(starts[c] + size, self.n),
                         scratch, self.log_prob, self.log_joint, sums, totals)  # fmt: skip
                results[c] = sums, totals

        _spread(work, min(_threads(), len(starts)))
        return results


def _spread(work: Callable[[int], None], threads: int) -> None:
    """Call work in some threads that live only as long as the call: safe after a fork and in concurrent callers."""
    if threads <= 1:
        work(0)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))


def _threads() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, torch.get_num_threads())


def _scratch(numbers: int, dtype: np.dtype) -> np.ndarray:
    return np.empty(numbers, dtype)


def _bits(batch: Batch) -> int:
    return 32 if batch.dtype == torch.float32 else 64


def _components(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, kind: Kind
) -> tuple[np.ndarray, Tensor | None]:
    """The table of components that the compiled function reads, and L^-1 (k, d, d) where all rows share T = L L^T."""
    k, d = means.shape
    offset, matrix, whitening = log_weights.double(), covariances.double(), None
    if kind.noise == "shared":
        L, failed = torch.linalg.cholesky_ex(matrix + batch.covariance().double())
        L = torch.where((failed > 0)[:, None, None], torch.nan, L)
        matrix = whitening = torch.linalg.solve_triangular(L, torch.eye(d, dtype=torch.float64), upper=False)
        offset = offset - L.diagonal(dim1=1, dim2=2).log().sum(1)
    a, b = torch.tril_indices(d, d)
    table = torch.zeros(k, kind.component_numbers, dtype=batch.dtype)
    table[:, : kind.sums] = torch.cat([means.double(), matrix[:, a, b], offset[:, None]], dim=1)
    return table.numpy(), whitening
