"""The density's own p-value of a row: how often the mixture makes a row that is less likely.

A row x with its own noise, gaps and projection has the density f = sum_j w_j N(m_j, T_j), with m_j and T_j the mean and
covariance of what the row shows of component j. Its p-value is

    P(f(X) <= c),  c = f(x),  X drawn from f,

which is uniform between 0 and 1 for rows of the mixture, whatever their noise, by construction. With X = m_j + r A_j u,
A_j A_j^T = T_j, a direction u with all directions alike and r^2 of a chi-square distribution of p degrees of freedom,

    p = sum_j w_j E_u P(f(m_j + r A_j u) <= c).

*A bound.* f is nowhere below w_j N_j, so that f <= c needs r^2 >= t_j = 2 log(w_j N_j(m_j) / c), or 0 where that is
negative. Therefore p <= B = sum_j B_j with B_j = w_j P(chi-square > t_j), which is exact where components lie apart.

*Draws of a row's own.* What remains is the share of the bound that is real: p = B s, s = P(f(X) <= c) for X drawn from
the tails beyond the t_j. Components are drawn systematically in proportion to B_j, the tail's probability and the
direction from even (Sobol) points that each row turns and shifts at random, and each draw has its opposite. So every
p-value is unbiased, and its error is its row's own: errors of many rows add up to nothing. A first 128 draws, which are
not counted, say how many it takes for a standard error of 5 % of p and of 0.01 (some hundred for most rows), and where
few of them have f <= c, how much of the tails should be drawn evenly; the rest of the tails then has fewer draws, which
count more. Where the bound says less than the draws do, p is the row's rank among them, as if it were one of them:
likely rows would else pile up at 1. p = 1e-100 is as accurate as p = 0.1.

A row that shows one value needs no draws: :mod:`xdeconv.mixture.outliers.one_value` is exact.

*Rows of the same view.* Where many rows have the same noise (or none) and the same gaps, f is one function, and its
distribution is sampled once: from q, a mixture of f and of copies of it with wider covariances, so that the tail is
full of even draws, with importance weights f / q of at most 2. Rows beyond the last THIN draws get draws of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from ... import kernels
from ...kernels.parameters import Parameters
from ...rows.batch import Batch
from ...system.threads import threads, together
from .even import sobol

Array = np.ndarray
CHUNK_ROWS = 256
NUMBERS = 1 << 22  # in the largest array of a few chunks
MANY = 2048  # rows of one view: with fewer, draws of their own cost less than a table
FEWEST, MOST = 18, 20  # log2 of the draws of a table: as many as rows
WIDER = (1.0, 1.8, 3.2)  # covariances of the copies, relative to f's
SHARES = (0.5, 0.25, 0.25)  # of the draws
THIN = 2000  # draws: with fewer, a probability is not known to a few per cent


def p_values(parameters: Parameters, rows: Batch) -> Array:
    """P(f(X) <= f(x)) (n,) of each row under its own noise, gaps and projection; 1 where nothing is observed.

    Parameters
    ----------
    parameters : Parameters
        Of the mixture, float64 on the CPU.
    rows : Batch
        The rows, float64 on the CPU; priors of rows count as weights of components.

    Returns
    -------
    numpy.ndarray
        (n,) between 0 and 1, to within 5 % of the value and 0.01 (one standard error).
    """
    p = np.full(rows.n, np.nan)
    for part in _views(rows):
        p[part] = _from_table(parameters, rows.rows(torch.from_numpy(part)))
    rest = np.flatnonzero(np.isnan(p))
    if len(rest):
        p[rest] = _by_own_draws(parameters, rows if len(rest) == rows.n else rows.rows(torch.from_numpy(rest)))
    bad = np.flatnonzero(np.isnan(p))
    if len(bad):
        why = "its noise and a covariance are both singular, or its values overflow"
        raise ValueError(f"row {bad[0]} has no density ({len(bad)} such rows): {why}")
    return p


def _views(rows: Batch) -> Iterator[Array]:
    """Sets of many rows with the same noise and gaps; none of rows that each have their own."""
    if _own_noise(rows) or rows.projection is not None or rows.log_prior is not None:
        return
    seen = ~rows.x.isnan().numpy()
    _, which, count = np.unique(seen, axis=1, return_inverse=True, return_counts=True)
    for view in np.flatnonzero(count >= MANY):
        part = np.flatnonzero(which.ravel() == view)
        if seen[:, part[0]].any():
            yield part


def _own_noise(rows: Batch) -> bool:
    return rows.noise is not None and rows.noise.shape[1] > 1


def _from_table(parameters: Parameters, rows: Batch) -> Array:
    """p-values of rows of one view; NaN where the table is too thin."""
    seen = torch.from_numpy(np.flatnonzero(~rows.x[:, 0].isnan().numpy()))
    S = rows.covariance()[0][seen][:, seen]
    V = parameters.covariances[:, seen][:, :, seen] + S
    factors, failed = torch.linalg.cholesky_ex(V)
    if bool(failed.any()):
        return np.full(rows.n, np.nan)
    weights = torch.log_softmax(parameters.log_weights, 0)
    view = Parameters(weights, parameters.means[:, seen].contiguous(), V.contiguous())
    levels, tail = _table(view, factors, min(max(FEWEST, rows.n.bit_length()), MOST))
    own = kernels.log_prob(*view, Batch(rows.x[seen].contiguous())).numpy()
    place = np.searchsorted(levels, own, side="right")
    return np.where(place < THIN, np.nan, tail[np.maximum(place, 1) - 1])


def _table(view: Parameters, factors: Tensor, log_draws: int) -> tuple[Array, Array]:
    """Sorted log-densities of even draws, and P(f(X) <= each)."""
    p = view.means.shape[1]
    even = sobol(p + 2, log_draws)
    component = torch.from_numpy(_chosen(view.log_weights.exp().numpy(), even[:, 0]))
    wide = np.sqrt(WIDER)[_chosen(np.array(SHARES), even[:, 1])]
    z = torch.from_numpy(wide[:, None] * ndtri(np.clip(even[:, 2:], 1e-15, 1 - 1e-15)))
    draws = Batch((view.means[component] + torch.einsum("nab,nb->na", factors[component], z)).T.contiguous())
    each = [kernels.log_prob(*view._replace(covariances=s * view.covariances), draws).numpy() for s in WIDER]
    log_q = np.logaddexp.reduce([np.log(share) + log_f for share, log_f in zip(SHARES, each, strict=True)])
    order = np.argsort(each[0])
    share = np.cumsum(np.exp(each[0] - log_q)[order])
    return each[0][order], share / share[-1]


def _chosen(shares: Array, place: Array) -> Array:
    """Which share (n,) places in (0, 1) fall into."""
    edges = np.cumsum(shares)
    return np.minimum(np.searchsorted(edges, place * edges[-1], side="right"), len(shares) - 1)


def _by_own_draws(parameters: Parameters, rows: Batch) -> Array:
    """p-values by draws made for each row, side by side; NaN where a row has no density."""
    p = np.ones(rows.n)
    shown = (~rows.x.isnan()).sum(0).numpy()
    for number in np.unique(shown[shown > 0]):
        part = np.flatnonzero(shown == number)
        p[part] = _of_so_many(int(number), parameters, rows.rows(torch.from_numpy(part)))
    return p


def _of_so_many(number: int, parameters: Parameters, rows: Batch) -> Array:
    """p-values of rows that show so many values each."""
    from . import chi_square, draws, even, heights  # compiles loops: seconds that other questions need not wait for

    log_w = _log_weights(parameters, rows)
    means, V = parameters.means.numpy(), parameters.covariances.numpy()
    above = heights.heights(number)
    points = (*even.points(number), chi_square.radii(number))
    p = np.empty(rows.n)
    starts = range(0, rows.n, _chunk_rows(rows))
    workers = min(threads(), max(1, len(starts)))

    def chunks(turn: int) -> None:
        for start in starts[turn::workers]:
            part = slice(start, start + starts.step)
            some = rows.rows(part)
            R = np.empty((0, 0, 0))
            if some.projection is not None:
                R = some.projection.permute(2, 0, 1).contiguous().numpy()
            lines = log_w if len(log_w) == 1 else log_w[part]
            S = np.ascontiguousarray(some.covariance().numpy())
            draws.p_values(above, lines, means, V, some.x.T.contiguous().numpy(), S, R, *points, p[part])

    together("tail", chunks, workers)
    return p


def _chunk_rows(rows: Batch) -> int:
    return max(1, min(CHUNK_ROWS, NUMBERS // (rows.p * max(rows.p, rows.d))))


def _log_weights(parameters: Parameters, rows: Batch) -> Array:
    """Logarithms (n or 1, k) of weights that sum to 1 in every line."""
    prior = rows.log_prior
    if prior is None:
        return torch.log_softmax(parameters.log_weights, 0)[None].numpy()
    each = prior if rows.label is None else prior[rows.label]
    return torch.log_softmax(parameters.log_weights + each, 1).numpy()
