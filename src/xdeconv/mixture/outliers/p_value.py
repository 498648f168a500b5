"""The density's own p-value of a row: how often the mixture makes a row that is less likely.

A row x with its own noise, gaps and projection has the density f = sum_j w_j N(m_j, T_j), with m_j and T_j the mean and
covariance of what the row shows of component j. Its p-value is

    P(f(X) <= c),  c = f(x),  X drawn from f,

which is uniform between 0 and 1 for rows of the mixture, whatever their noise, by construction. With X = m_j + r A_j u,
A_j A_j^T = T_j, a direction u with all directions alike and r^2 of a chi-square distribution of p degrees of freedom,

    p = sum_j w_j E_u P(f(m_j + r A_j u) <= c).

*A bound.* f is nowhere below w_j N_j, so that f <= c needs r^2 >= t_j = 2 log(w_j N_j(m_j) / c), or 0 where that is
negative. Therefore p <= sum_j B_j with B_j = w_j P(chi-square > t_j), which is exact where components lie apart.

*Rays.* What remains is the share of the bound that is real: p = sum_j B_j E_u s_j(u), with
s_j(u) = P(f <= c | r^2 >= t_j) along the ray from m_j in direction u. Along a ray every log(w_l N_l) is a quadratic of
r, so that f costs k exponentials wherever it is needed, and it is needed only near the crossings of f = c: where the
highest of the k terms is above c, or k times it is below, no exponential decides. Between crossings the probability is
a difference of chi-square tails, exactly. So nothing is sampled in r, and p = 1e-100 is as accurate as p = 0.1.
Crossings are looked for between NODES places whose offset is random, and refined by false position.

A row that shows one value needs no rays: :mod:`xdeconv.mixture.outliers.one_value` is exact.

*Sampling.* Components are drawn systematically in proportion to B_j, directions in opposite pairs and at right angles,
in batches until the standard error of p is below 4 % of it. The random numbers are made of the row's own values: the
same row has the same p-value, wherever it stands.

*Rows of the same view.* Where many rows have the same noise (or none) and the same gaps, f is one function, and its
distribution is sampled once: from q, a mixture of f and of copies of it with wider covariances, so that the tail is
full of draws, with importance weights f / q of at most 2. What lies beyond the last THIN draws is left to rays. Many
rows that each have their own noise share draws as well, see :mod:`xdeconv.mixture.outliers.like_noise`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ... import kernels
from ...kernels.parameters import Parameters
from ...rows.batch import Batch
from ...system.threads import threads, together
from . import like_noise

Array = np.ndarray
CHUNK_ROWS = 256
NUMBERS = 1 << 22  # in the largest array of a few chunks
MANY = 256  # rows of one view: with fewer, rays cost less than a table
DRAWS = 1 << 18
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
        (n,) between 0 and 1, to within about 4 % of the value (one standard error).
    """
    p = np.full(rows.n, np.nan)
    for part in _views(rows):
        p[part] = _from_table(parameters, rows.rows(torch.from_numpy(part)))
    if _own_noise(rows) and rows.n >= like_noise.MANY and rows.projection is None and rows.log_prior is None:
        p = like_noise.p_values(parameters, rows)
    rest = np.flatnonzero(np.isnan(p))
    if len(rest):
        p[rest] = _from_rays(parameters, rows if len(rest) == rows.n else rows.rows(torch.from_numpy(rest)))
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
    levels, tail = _table(view, factors)
    own = kernels.log_prob(*view, Batch(rows.x[seen].contiguous())).numpy()
    place = np.searchsorted(levels, own, side="right")
    return np.where(place < THIN, np.nan, tail[np.maximum(place, 1) - 1])


def _table(view: Parameters, factors: Tensor) -> tuple[Array, Array]:
    """Sorted log-densities of draws, and P(f(X) <= each)."""
    rng = np.random.default_rng(0)
    k, p = view.means.shape
    wide = rng.choice(np.sqrt(WIDER), size=DRAWS, p=SHARES)
    component = torch.from_numpy(rng.choice(k, size=DRAWS, p=view.log_weights.exp().numpy()))
    z = torch.from_numpy(wide[:, None] * rng.standard_normal((DRAWS, p)))
    draws = Batch((view.means[component] + torch.einsum("nab,nb->na", factors[component], z)).T.contiguous())
    each = [kernels.log_prob(*view._replace(covariances=s * view.covariances), draws).numpy() for s in WIDER]
    log_q = np.logaddexp.reduce([np.log(share) + log_f for share, log_f in zip(SHARES, each, strict=True)])
    order = np.argsort(each[0])
    share = np.cumsum(np.exp(each[0] - log_q)[order])
    return each[0][order], share / share[-1]


def _from_rays(parameters: Parameters, rows: Batch) -> Array:
    """p-values by rays, row by row, side by side; NaN where a row has no density."""
    from . import rays  # compiles loops: a second that other questions need not wait for

    log_w = _log_weights(parameters, rows)
    means, V = parameters.means.numpy(), parameters.covariances.numpy()
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
            rays.p_values(lines, means, V, some.x.T.contiguous().numpy(), S, R, p[part])

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
