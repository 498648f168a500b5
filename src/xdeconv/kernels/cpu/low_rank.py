"""Sums for covariances V = F F^T + D and noise S that is diagonal: d r^2 operations for a row and a component, not d^3.

With e = 1 / (D + S), zero where a value is missing, and A = I + F^T e F (r, r), Woodbury's identity gives

    T^-1 = e - e F A^-1 F^T e        T^-1 F = e F A^-1        log|T| = log|A| - sum of log e,

so that w = e (x - m - F y) with y = A^-1 F^T e (x - m) = F^T w. Of the sums of M = T^-1, those of M F = e F A^-1 and of
the diagonal e - e^2 F A^-1 F^T need only the sums of e A^-1 and e^2 A^-1: d r^2 operations. That is all of
G = sum r (w w^T - M) that a low-rank covariance reads: H = G F and diag(G). The G returned is a symmetric matrix that
has just these, and is not known as a whole.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit, types
from torch import Tensor

from ...rows.batch import Batch
from ...system.keeping import compiled_loop
from ...system.threads import threads, together
from ..options import Options
from ..parameters import Factors
from ..stats import Stats
from .merge import InOrder

CHUNK_NUMBERS = 1 << 22  # operations of a chunk of rows
MAX_CHUNKS = 256
LEAST = 2.0**-24  # of a row's density: what pairs that are skipped may hold together
FAST = {"reassoc", "contract", "arcp", "nsz"}  # never nnan or ninf: NaN is how failure is seen
LOGS = 8  # variances whose product has one logarithm: each may be as small as 1e-38 or as large as 1e38
WORTH = {torch.float64: 4, torch.float32: 6}  # dimensions for each factor and two more, measured at d = 20 and 64
RIDGE = 1e-11
ROWS = 128  # of a block, whose numbers stay in the caches


def takes(batch: Batch, rank: int) -> bool:
    """Whether rows are of the kind that this is for, and factors so few that it is the faster way.

    Noise must be diagonal and of each row's own, without projections. These loops are float64, the others twice as fast
    in float32.
    """
    if batch.full or batch.shared or batch.projection is not None:
        return False
    return batch.p >= WORTH[batch.dtype] * (rank + 2)


def accumulate(log_weights: Tensor, means: Tensor, factors: Factors, batch: Batch, options: Options) -> Stats:
    """The sums over the rows of a batch, G as far as the factors read it; the same bits for any number of threads."""
    k, d = means.shape
    log_weights, means, F, D = (t.detach().double().contiguous() for t in (log_weights, means, *factors))
    rank = F.shape[-1]
    p, q = torch.tril_indices(rank, rank)
    loadings = F.mT.contiguous()
    squares = (loadings[:, p] * loadings[:, q]).contiguous()
    least = LEAST / k if options.skip else 0.0
    arguments = (*(t.numpy() for t in (log_weights, means, loadings, squares, D)), *_rows(batch), least)
    size = max(CHUNK_NUMBERS // (k * d * (rank + 1) ** 2), -(-batch.n // MAX_CHUNKS))
    size = -(-size // ROWS) * ROWS
    starts, turn = range(0, batch.n, size), itertools.count()
    shape = (k, 1 + d * (2 + rank + 2 * len(p)))
    merged, run = InOrder([np.zeros(shape), np.zeros(2)]), loop(batch.dtype == torch.float32)

    def work(_: int) -> None:
        while (c := next(turn)) < len(starts):
            sums, totals = np.zeros(shape), np.zeros(2)
            run(*arguments, starts[c], min(starts[c] + size, batch.n), sums, totals)
            merged.add(c, (sums, totals))

    together("kernel", work, min(threads(), max(1, len(starts))))
    sums, totals = (torch.from_numpy(total) for total in merged.totals)
    rows, g, diagonal, rest = sums.split([1, d, d, sums.shape[1] - 1 - 2 * d], dim=1)
    wy, first, second = rest.view(k, d, -1).split([rank, len(p), len(p)], dim=2)
    inside, inner = (_unpacked(t, rank) for t in (first, second))
    H = wy - torch.einsum("kdp,kdpq->kdq", F, inside)  # sum r (w y^T - e F A^-1)
    diagonal = diagonal + torch.einsum("kdp,kdpq,kdq->kd", F, inner, F)
    return Stats(torch.cat([totals, *(t.reshape(-1) for t in (rows, g, as_read(H, diagonal, F)))]), k, d, whole=False)


def _unpacked(packed: Tensor, rank: int) -> Tensor:
    """Symmetric matrices (k, d, r, r) from their lower triangles (k, d, r (r + 1) / 2)."""
    p, q = torch.tril_indices(rank, rank)
    full = packed.new_zeros(*packed.shape[:2], rank, rank)
    full[..., p, q] = full[..., q, p] = packed
    return full


def as_read(H: Tensor, diagonal: Tensor, F: Tensor) -> Tensor:
    """Symmetric matrices G (k, d, d) with G F = H (k, d, r) and a given diagonal (k, d).

    On the columns of F it is H; on what is orthogonal to them P diag(s) P, with s that makes the diagonal right.
    """
    inverse = torch.from_numpy(np.linalg.pinv(F.numpy()))  # NumPy never waits for other threads
    along = H @ inverse
    G = along + along.mT - inverse.mT @ (F.mT @ H) @ inverse
    P = torch.eye(F.shape[1], dtype=F.dtype) - F @ inverse
    ridge = np.eye(F.shape[1]) * RIDGE  # with many factors there may be more than one solution
    for _ in range(2):  # once more for what the ridge has left
        left = (diagonal - G.diagonal(dim1=1, dim2=2))[..., None]
        s = torch.from_numpy(np.linalg.solve((P * P.mT).numpy() + ridge, left.numpy()))
        G = G + P @ (s * P)
    return (G + G.mT) / 2


def _rows(batch: Batch) -> tuple[np.ndarray, ...]:
    """Values and variances (d, n), weights, log-priors, labels, what each value adds to a log-density, background."""
    empty = batch.x.new_empty(0)
    noise = batch.x.new_zeros(batch.p, 1) if batch.noise is None else batch.noise
    unit = np.zeros(batch.p) if batch.scale is None else batch.scale.double().log().numpy()
    return (
        batch.x.numpy(), noise.expand(-1, batch.n).numpy(),
        (empty if batch.weight is None else batch.weight).double().numpy(),
        (empty[None] if batch.log_prior is None else batch.log_prior).double().numpy(),
        (empty if batch.label is None else batch.label).long().numpy(),
        unit + 0.5 * math.log(2 * math.pi),
        (empty if batch.background is None else batch.background).double().numpy(),
    )  # fmt: skip


def chunk(  # type: ignore[no-untyped-def]
    log_weights, means, loadings, squares, own, x, noise, weight, prior, label, unit, background, least,
    start, stop, sums, totals,
):  # fmt: skip
    """Add the sums of rows start to stop, block by block: q, g, diag G, w y^T, and e and e^2 times A^-1."""
    k, d = means.shape
    rank, pairs = loadings.shape[1], squares.shape[1]
    value, variance, seen = np.empty((d, ROWS)), np.empty((d, ROWS)), np.empty((d, ROWS))
    e, u = np.empty((d, ROWS)), np.empty((d, ROWS))
    A, y = np.empty((pairs, ROWS)), np.empty((rank, ROWS))
    joint, found, constant, share = np.empty((k, ROWS)), np.empty(ROWS), np.empty(ROWS), np.empty(ROWS)
    largest, total = np.empty(ROWS), np.empty(ROWS)
    for first in range(start, stop, ROWS):
        n = min(ROWS, stop - first)
        _load(x, noise, unit, first, n, value, variance, seen, constant)
        for i in range(ROWS):
            largest[i] = background[first + i] if len(background) and i < n else -np.inf
        for j in range(k):
            _distance(value, variance, seen, means[j], loadings[j], squares[j], own[j], e, u, A, y, found)
            for i in range(ROWS):
                joint[j, i] = log_weights[j] - constant[i] - 0.5 * found[i]
            if prior.shape[1]:
                for i in range(n):
                    before = prior[label[first + i] if len(label) else first + i, j]
                    joint[j, i] = -np.inf if before == -np.inf else joint[j, i] + before
            for i in range(ROWS):
                if joint[j, i] > largest[i] or joint[j, i] != joint[j, i]:
                    largest[i] = joint[j, i]
        for i in range(n):
            total[i] = math.exp(background[first + i] - largest[i]) if len(background) else 0.0
            for j in range(k):
                joint[j, i] = math.exp(joint[j, i] - largest[i])
                total[i] += joint[j, i]
            mine = weight[first + i] if len(weight) else 1.0
            totals[0] += mine
            totals[1] += mine * (largest[i] + math.log(total[i]))
        for j in range(k):
            alive = False
            for i in range(ROWS):
                r = joint[j, i] / total[i] if i < n else 0.0
                r = 0.0 if r < least else r
                alive = alive or r != 0.0
                share[i] = r * weight[first + i] if i < n and len(weight) else r
            if alive:
                _distance(value, variance, seen, means[j], loadings[j], squares[j], own[j], e, u, A, y, found)
                _summed(share, e, u, loadings[j], A, y, sums[j])


def load(x, noise, unit, first, n, value, variance, seen, constant):  # type: ignore[no-untyped-def]
    """A block of rows (d, ROWS): values and variances, where they are seen, and what seen values add to a density."""
    for i in range(ROWS):
        constant[i] = 0.0
    for a in range(len(value)):
        for i in range(ROWS):
            at = first + min(i, n - 1)
            there = x[a, at] == x[a, at]
            value[a, i] = x[a, at] if there else 0.0
            variance[a, i] = noise[a, at] if there else 0.0
            seen[a, i] = 1.0 if there else 0.0
            constant[i] += unit[a] if there else 0.0


def distance(value, variance, seen, mean, loadings, squares, own, e, u, A, y, found):  # type: ignore[no-untyped-def]
    """(x - m)^T T^-1 (x - m) + log|T| of a block of rows.

    Left behind are e, u = e (x - m), A^-1 (packed) and y = A^-1 F^T u.
    """
    d, rank = len(value), len(y)
    product = np.ones(ROWS)
    for i in range(ROWS):
        found[i] = 0.0
    for a in range(d):
        V, m = own[a], mean[a]
        for i in range(ROWS):
            whole = seen[a, i] * (V + variance[a, i] - 1.0) + 1.0
            e[a, i] = seen[a, i] / whole
            away = value[a, i] - m
            u[a, i] = e[a, i] * away
            found[i] += u[a, i] * away
            product[i] *= whole
        if a % LOGS == LOGS - 1 or a == d - 1:
            for i in range(ROWS):
                found[i] += math.log(product[i])
                product[i] = 1.0
    at = 0
    for p in range(rank):
        _products(loadings[p], u, y[p], 0.0)
        for q in range(p + 1):
            _products(squares[at], e, A[at], 1.0 if p == q else 0.0)
            at += 1
    for p in range(rank):  # Cholesky's factor in place of A, and y -> L^-1 y
        for q in range(p + 1):
            pq = p * (p + 1) // 2 + q
            for s in range(q):
                one, other = A[p * (p + 1) // 2 + s], A[q * (q + 1) // 2 + s]
                for i in range(ROWS):
                    A[pq, i] -= one[i] * other[i]
            pivot = A[q * (q + 1) // 2 + q]
            for i in range(ROWS):
                A[pq, i] = math.sqrt(A[pq, i]) if p == q else A[pq, i] / pivot[i]
        pivot = A[p * (p + 3) // 2]
        for q in range(p):
            for i in range(ROWS):
                y[p, i] -= A[p * (p + 1) // 2 + q, i] * y[q, i]
        for i in range(ROWS):
            y[p, i] /= pivot[i]
            found[i] -= y[p, i] * y[p, i]
            product[i] *= pivot[i] * pivot[i]
        if p % LOGS == LOGS - 1 or p == rank - 1:
            for i in range(ROWS):
                found[i] += math.log(product[i])
                product[i] = 1.0
    for p in range(rank - 1, -1, -1):
        for q in range(p + 1, rank):
            for i in range(ROWS):
                y[p, i] -= A[q * (q + 1) // 2 + p, i] * y[q, i]
        for i in range(ROWS):
            y[p, i] /= A[p * (p + 3) // 2, i]


def products(factors, rows, out, start):  # type: ignore[no-untyped-def]
    """start + sum over a of factors (d,) times rows (d, ROWS)."""
    d = len(factors)
    for i in range(ROWS):
        out[i] = start
    whole = d - d % 4
    for a in range(0, whole, 4):
        f, g, h, k = factors[a], factors[a + 1], factors[a + 2], factors[a + 3]
        for i in range(ROWS):
            out[i] += (f * rows[a, i] + g * rows[a + 1, i]) + (h * rows[a + 2, i] + k * rows[a + 3, i])
    for a in range(whole, d):
        f = factors[a]
        for i in range(ROWS):
            out[i] += f * rows[a, i]


def inverted(A, rank):  # type: ignore[no-untyped-def]
    """A^-1 (packed) in place of its Cholesky factor, for a block of rows."""
    for p in range(rank):  # L^-1
        pivot = A[p * (p + 3) // 2]
        for i in range(ROWS):
            pivot[i] = 1.0 / pivot[i]
        for q in range(p):
            pq = A[p * (p + 1) // 2 + q]
            total = np.zeros(ROWS)
            for s in range(q, p):
                one, other = A[p * (p + 1) // 2 + s], A[s * (s + 1) // 2 + q]
                for i in range(ROWS):
                    total[i] -= one[i] * other[i]
            for i in range(ROWS):
                pq[i] = total[i] * pivot[i]
    for p in range(rank):  # L^-T L^-1, whose entries (p, q <= p) need rows p and below
        for q in range(p + 1):
            pq = A[p * (p + 1) // 2 + q]
            total = np.zeros(ROWS)
            for s in range(p, rank):
                one, other = A[s * (s + 1) // 2 + p], A[s * (s + 1) // 2 + q]
                for i in range(ROWS):
                    total[i] += one[i] * other[i]
            for i in range(ROWS):
                pq[i] = total[i]


def summed(share, e, u, loadings, A, y, sums):  # type: ignore[no-untyped-def]
    """Add a block's rows, with their shares, to the sums of a component."""
    d, rank, pairs = len(e), len(y), len(A)
    _inverted(A, rank)
    w, weighted, squared = np.empty(ROWS), np.empty(ROWS), np.empty(ROWS)
    for i in range(ROWS):
        sums[0] += share[i]
    for a in range(d):
        for i in range(ROWS):
            w[i] = 0.0
        for p in range(rank):
            f = loadings[p, a]
            for i in range(ROWS):
                w[i] += f * y[p, i]
        first, second = 0.0, 0.0
        for i in range(ROWS):
            w[i] = u[a, i] - e[a, i] * w[i]
            weighted[i] = share[i] * e[a, i]
            squared[i] = weighted[i] * e[a, i]
            second += share[i] * w[i] * w[i] - weighted[i]
            w[i] *= share[i]
            first += w[i]
        sums[1 + a] += first
        sums[1 + d + a] += second
        at = 1 + 2 * d + a * (rank + 2 * pairs)
        for p in range(rank):
            total = 0.0
            for i in range(ROWS):
                total += w[i] * y[p, i]
            sums[at + p] += total
        for pq in range(pairs):
            first, second = 0.0, 0.0
            for i in range(ROWS):
                first += weighted[i] * A[pq, i]
                second += squared[i] * A[pq, i]
            sums[at + rank + pq] += first
            sums[at + rank + pairs + pq] += second


def _compiled(function: Callable[..., Any]) -> Any:
    return njit(nogil=True, error_model="numpy", fastmath=FAST)(function)


_load, _products, _inverted = _compiled(load), _compiled(products), _compiled(inverted)
_distance, _summed = _compiled(distance), _compiled(summed)


@cache
def loop(single: bool) -> Callable[..., None]:
    """The loop over a chunk of rows, compiled for a number type of rows."""
    row = types.float32 if single else types.float64
    flat, matrix = types.Array(types.float64, 1, "A"), types.Array(types.float64, 2, "C")
    signature = types.void(
        flat, matrix, types.Array(types.float64, 3, "C"),
        types.Array(types.float64, 3, "C"), matrix,
        types.Array(row, 2, "A"), types.Array(row, 2, "A"), flat, types.Array(types.float64, 2, "A"),
        types.Array(types.int64, 1, "A"), flat, flat, types.float64, types.int64, types.int64,
        types.Array(types.float64, 2, "C"), types.Array(types.float64, 1, "C"),
    )  # fmt: skip
    return compiled_loop(chunk, signature, f"covariances of low rank, float{32 if single else 64}")
