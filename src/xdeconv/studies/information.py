"""What rows tell of a mixture's parameters: the curvature H of their log-likelihood, and the scatter J of their scores.

Coordinates are those of :class:`xdeconv.methods.chart.Chart` at its origin: logits of weights, shifts u = L^-1 (m -
m_j) of means, and entries c of the log-Cholesky factor of V = L C C^T L^T, each times the square root of the
information that complete data would hold. With w, M in whitened coordinates (w -> L^T w, M -> L^T M L) and
E = C C^T - I, a pair has

    log N = w.u + tr((w w^T - M) E) / 2 - u^T M u / 2 - u^T M E w + tr(M E M E) / 4 - w^T E M E w / 2 + ...

Its gradient is t = (1, w, lower triangle of w w^T - M), the score of row i is s_i = (r_ij t_ij)_j, and by Louis (1982)

    -H = sum_i sum_j r_ij (t_ij t_ij^T + second derivatives of log N) - sum_i s_i s_i^T,

whose first sum is block-diagonal, one block per component. So one pass gives H and J = sum_i s_i s_i^T exactly. Row
weights multiply H's terms, and their squares multiply J's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from .. import kernels
from ..fitting.full_pass import summed
from ..kernels.parameters import Parameters
from ..kernels.reference import pairs
from ..kernels.stats import Stats
from ..methods.chart import Chart
from ..methods.fixed import Fixed
from ..methods.prior import Prior
from ..rows.batch import Batch
from ..rows.data import Source

STEP = 1e-4  # of a log-width: for second derivatives of the prior


@dataclass(frozen=True)
class Information:
    """In the coordinates of a chart: the gradient (P,), H and J (P, P), and which coordinates are free (P,).

    H includes the prior. A shift of all logits, which changes nothing, and coordinates that are held have H = 1.
    """

    chart: Chart
    gradient: Tensor
    H: Tensor
    J: Tensor
    free: Tensor


def information(
    source: Source, parameters: Parameters, factors: Tensor, prior: Prior | None, fixed: Fixed
) -> Information:
    """One pass over rows, on all ranks; ``factors`` (k, d, d) are Cholesky factors of the covariances."""
    k, d = parameters.means.shape
    device = parameters.means.device
    sizes = _sizes(k, d)
    work = partial(pair_sums, parameters=parameters, factors=factors)
    parts = summed(source, work, sum(sizes), device).split(sizes)
    size = k * _each(d)
    gradient, weighted, J = parts[0], parts[1].view(size, size), parts[2].view(size, size)
    blocks = parts[3].view(k, _each(d), _each(d))
    q = gradient.view(k, -1)[:, 0].clone()
    H = weighted - _spread(blocks)
    if prior is not None:
        q, gradient = _with_prior(q, gradient, factors, prior)
        H = H + _spread(_prior_curvature(factors, prior))
    return _in_chart(gradient, H, J, q, parameters, factors, prior, fixed)


def pair_sums(batch: Batch, parameters: Parameters, factors: Tensor) -> Tensor:
    """Gradient, sums of s s^T with weights and with their squares, and blocks per component, in one flat tensor.

    Here weights count by their logarithms, free of each other, and coordinates lie component by component.
    """
    k, d = parameters.means.shape
    a, b = torch.tril_indices(d, d, device=batch.device)
    size, each = k * _each(d), _each(d)
    total = torch.zeros(sum(_sizes(k, d)), dtype=torch.float64, device=batch.device)
    gradient, weighted, J, blocks = total.split(_sizes(k, d))
    L = factors.to(batch.device, batch.dtype)
    for chunk, r, w, M in pairs(parameters, batch):
        w, M = torch.einsum("kab,nka->nkb", L, w), L.mT @ M @ L
        outer = w[..., :, None] * w[..., None, :]
        t = torch.cat([torch.ones_like(r)[..., None], w, (outer - M)[..., a, b]], dim=-1)
        weight = torch.ones_like(r[:, 0]) if chunk.weight is None else chunk.weight
        s = (r[..., None] * t).reshape(chunk.n, size)
        gradient += (weight @ s).double()
        squares = ((weight * weight)[:, None] * s).T @ s
        J += squares.double().reshape(-1)
        weighted += (squares if chunk.weight is None else (weight[:, None] * s).T @ s).double().reshape(-1)
        curved = _second_derivatives(weight[:, None] * r, w, M, outer)
        blocks += (torch.einsum("nk,nke,nkf->kef", weight[:, None] * r, t, t) + curved).double().reshape(k * each**2)
    return total


def scores_of(batch: Batch, parameters: Parameters, factors: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
    """Log-densities (n,) of rows and their gradients (n, P) by logits, shifts and entries, in the order of a chart."""
    d = parameters.d
    a, b = torch.tril_indices(d, d)
    alpha = torch.where(free, parameters.log_weights.exp(), 0.0)
    share = alpha / alpha.sum().clamp(min=1e-300)
    scores = []
    for _, r, w, M in pairs(parameters, batch):
        w, M = torch.einsum("kab,nka->nkb", factors, w), factors.mT @ M @ factors
        on_logits = torch.where(free, r - torch.where(free, r, 0.0).sum(1, keepdim=True) * share, 0.0)
        entries = (w[..., :, None] * w[..., None, :] - M)[..., a, b]
        scores.append(torch.cat([on_logits, (r[..., None] * w).flatten(1), (r[..., None] * entries).flatten(1)], 1))
    return kernels.log_prob(*parameters, batch), torch.cat(scores)


def _second_derivatives(r: Tensor, w: Tensor, M: Tensor, outer: Tensor) -> Tensor:
    """sum_i r_ij times the second derivatives of log N (k, D, D), in whitened coordinates."""
    k, d = w.shape[1:]
    B = _symmetric_units(d, w)
    first = torch.einsum("nk,nkab->kab", r, M)
    flat = (r[..., None] * M.flatten(2)).transpose(0, 1)
    X = (flat.mT @ M.flatten(2).transpose(0, 1)).view(k, d, d, d, d)
    Y = (flat.mT @ outer.flatten(2).transpose(0, 1)).view(k, d, d, d, d)
    on_shifts = -torch.einsum("nk,nkab,nkc,ebc->kae", r, M, w, B)
    both = torch.einsum("kabcd,eda,fbc->kef", Y, B, B)
    on_entries = torch.einsum("kabcd,ebc,fda->kef", X, B, B) / 2 - (both + both.mT) / 2
    on_entries = on_entries + _of_factor(torch.einsum("nk,nkab->kab", r, outer) - first)
    derivatives = w.new_zeros(k, _each(d), _each(d))
    derivatives[:, 1 : 1 + d, 1 : 1 + d] = -first
    derivatives[:, 1 : 1 + d, 1 + d :] = on_shifts
    derivatives[:, 1 + d :, 1 : 1 + d] = on_shifts.mT
    derivatives[:, 1 + d :, 1 + d :] = on_entries
    return derivatives


def _of_factor(G: Tensor) -> Tensor:
    """What the second order of E = C C^T - I in the entries of C adds (k, T, T), given sums of w w^T - M (k, d, d)."""
    d = G.shape[-1]
    a, b = torch.tril_indices(d, d, device=G.device)
    same = (b[:, None] == b[None]) * G[:, a[:, None], a[None]]
    return same + torch.diag_embed((a == b) * G[:, a, a])


def _symmetric_units(d: int, like: Tensor) -> Tensor:
    """The derivatives of E (T, d, d) by each entry of C at the identity."""
    a, b = torch.tril_indices(d, d, device=like.device)
    units = like.new_zeros(len(a), d, d)
    units[torch.arange(len(a)), a, b] = 1.0
    return units + units.mT


def _prior_gradient(factors: Tensor, entries: Tensor, prior: Prior) -> Tensor:
    """The gradient (k, T) of the log-prior by the entries of C, at some of them (k, T)."""
    k, d = factors.shape[:2]
    chart = Chart(factors.new_zeros(k), factors.new_zeros(k, d), factors, factors.new_ones(k))
    a, b = torch.tril_indices(d, d, device=factors.device)
    x = torch.cat([factors.new_zeros(k * (1 + d)), (entries * torch.where(a == b, 2.0**0.5, 1.0)).reshape(-1)])
    none = Stats.zeros(k, d, factors.device)
    gradient = chart.gradient(x, factors.new_full((k,), 1 / k), none, prior, Fixed(weights=True, means=True))
    return gradient[k * (1 + d) :].view(k, -1) * torch.where(a == b, 2.0**0.5, 1.0)


def _prior_curvature(factors: Tensor, prior: Prior) -> Tensor:
    """Minus the second derivatives of the log-prior on covariances (k, D, D), by differences of its gradient."""
    k, d = factors.shape[:2]
    curvature = factors.new_zeros(k, _each(d), _each(d))
    for e in range(d * (d + 1) // 2):
        step = factors.new_zeros(k, d * (d + 1) // 2)
        step[:, e] = STEP
        change = _prior_gradient(factors, -step, prior) - _prior_gradient(factors, step, prior)
        curvature[:, 1 + d :, 1 + d + e] = change / (2 * STEP)
    return (curvature + curvature.mT) / 2


def _with_prior(q: Tensor, gradient: Tensor, factors: Tensor, prior: Prior) -> tuple[Tensor, Tensor]:
    """Rows per component and the gradient, with what the prior counts for."""
    k, d = factors.shape[:2]
    added = gradient.view(k, -1).clone()
    added[:, 0] += prior.concentration - 1
    added[:, 1 + d :] += _prior_gradient(factors, factors.new_zeros(k, d * (d + 1) // 2), prior)
    return q + (prior.concentration - 1), added.reshape(-1)


def _in_chart(
    gradient: Tensor, H: Tensor, J: Tensor, q: Tensor, parameters: Parameters, factors: Tensor, prior: Prior | None,
    fixed: Fixed,
) -> Information:  # fmt: skip
    """The same in the coordinates of a chart."""
    k, d = parameters.means.shape
    order = _by_kind(k, d, gradient.device)
    gradient, H, J = gradient[order], H[order][:, order], J[order][:, order]
    own = q if prior is None else q - (prior.concentration - 1)
    known = own.clamp(min=1e-3 * float(own.mean())) + (0.0 if prior is None else prior.c)
    chart = Chart(parameters.log_weights, parameters.means, factors, known)
    free = free_coordinates(k, d, fixed, q.device)
    shares = torch.where(free[:k], parameters.log_weights.exp(), 0.0)
    shares = shares / shares.sum().clamp(min=1e-300)
    T = torch.eye(len(order), dtype=H.dtype, device=H.device)
    T[:k, :k] -= free[:k, None] * shares[None]
    H, J, gradient = T.T @ H @ T, T.T @ J @ T, T.T @ gradient
    H[:k, :k] += torch.where(free[:k], q, 0.0).sum() * (torch.diag(shares) - shares[:, None] * shares)
    unit = chart.unscaled(torch.ones_like(gradient)) * free
    H, J = (unit[:, None] * A * unit for A in (H, J))
    same = torch.where(free[:k], chart.information.sqrt(), 0.0)  # all logits together
    same = same / same.norm().clamp(min=1e-300)
    H[:k, :k] += same[:, None] * same
    return Information(chart, unit * gradient, H + torch.diag((~free).to(H.dtype)), J, free)


def free_coordinates(k: int, d: int, fixed: Fixed, device: torch.device) -> Tensor:
    """Which coordinates of a chart (P,) are not held."""
    weights, means, covariances = (~fixed.mask(what, k, device) for what in ("weights", "means", "covariances"))
    T = d * (d + 1) // 2
    return torch.cat([weights, means.repeat_interleave(d), covariances.repeat_interleave(T)])


def _by_kind(k: int, d: int, device: torch.device) -> Tensor:
    """Where each coordinate of a chart (all weights, all means, all factors) is in the order of components."""
    place = torch.arange(k * _each(d), device=device).view(k, -1)
    return torch.cat([place[:, 0], place[:, 1 : 1 + d].reshape(-1), place[:, 1 + d :].reshape(-1)])


def _spread(blocks: Tensor) -> Tensor:
    return torch.block_diag(*blocks)


def _each(d: int) -> int:
    """Numbers per component."""
    return 1 + d + d * (d + 1) // 2


def _sizes(k: int, d: int) -> list[int]:
    size = k * _each(d)
    return [size, size * size, size * size, k * _each(d) ** 2]
