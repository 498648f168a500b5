"""What rows tell of a mixture's parameters: the curvature H of their log-likelihood, and the scatter J of their scores.

Coordinates are those of :class:`xdeconv.methods.chart.Chart` at its origin: logits of weights, shifts u = L^-1 (m -
m_j) of means, and entries c of the log-Cholesky factor of V = L C C^T L^T, each times the square root of the
information that complete data would hold. With w, M in whitened coordinates (w -> L^T w, M -> L^T M L) and
E = C C^T - I, a pair has

    log N = w.u + tr((w w^T - M) E) / 2 - u^T M u / 2 - u^T M E w + tr(M E M E) / 4 - w^T E M E w / 2 + ...

Its gradient is t = (1, w, lower triangle of w w^T - M), the score of row i is s_i = (r_ij t_ij)_j, and by Louis (1982)

    -H = sum_i sum_j r_ij (t_ij t_ij^T + second derivatives of log N) - sum_i s_i s_i^T,

whose first sum is block-diagonal, one block per component. So one pass gives H and J = sum_i s_i s_i^T exactly. Row
weights multiply H's terms, and their squares multiply J's. What a model has beside Gaussian components has coordinates
of its own: see :mod:`xdeconv.studies.beside`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ..fitting.full_pass import summed
from ..kernels.parameters import Parameters
from ..kernels.reference import pairs
from ..kernels.stats import Stats
from ..methods.chart import Chart
from ..methods.em import all_weights
from ..methods.fixed import Fixed
from ..methods.prior import Prior
from ..rows.batch import Batch
from ..rows.data import Source
from .beside import PLAIN, Beside

NUMBER = 1e-3  # step of a number that belongs to no component
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
    source: Source, parameters: Parameters, factors: Tensor, prior: Prior | None, fixed: Fixed, beside: Beside = PLAIN
) -> Information:
    """One pass over rows, on all ranks; ``factors`` (k, d, d) are Cholesky factors of the covariances."""
    k, d = parameters.means.shape
    device = parameters.means.device
    sizes = _sizes(k, d, beside)
    work = partial(pair_sums, parameters=parameters, factors=factors, beside=beside)
    parts = summed(source, work, sum(sizes), device).split(sizes)
    size, own = sizes[0], k * _each(d)
    gradient, weighted, J = parts[0], parts[1].view(size, size), parts[2].view(size, size)
    blocks = [*parts[3].view(k, _each(d), _each(d)), torch.diag(gradient[own : own + beside.background])]
    q = torch.cat([gradient[:own].view(k, -1)[:, 0], gradient[own : own + beside.background]])
    numbers = gradient.new_zeros(len(beside.numbers), len(beside.numbers))
    H = weighted - torch.block_diag(*blocks, numbers)
    if prior is not None:
        gradient = gradient + _prior_on(gradient, factors, prior)
        curved = [*_prior_curvature(factors, prior), gradient.new_zeros(size - own, size - own)]
        q, H = q + prior.on_masses(q, k), H + torch.block_diag(*curved)
    there = _in_chart(gradient, H, J, q, parameters, factors, prior, fixed, beside)
    return _with_numbers(there, source, prior, fixed, beside) if len(numbers) else there


def pair_sums(batch: Batch, parameters: Parameters, factors: Tensor, beside: Beside = PLAIN) -> Tensor:
    """Gradient, sums of s s^T with weights and with their squares, and blocks per component, in one flat tensor.

    Here weights count by their logarithms, free of each other, and coordinates lie component by component; then come
    the background's weight and the numbers.
    """
    k, d = parameters.means.shape
    a, b = torch.tril_indices(d, d, device=batch.device)
    each = _each(d)
    total = torch.zeros(sum(_sizes(k, d, beside)), dtype=torch.float64, device=batch.device)
    gradient, weighted, J, blocks = total.split(_sizes(k, d, beside))
    c = beside.scales(factors.to(batch.device, batch.dtype)).repeat(k)
    L = factors.to(batch.device, batch.dtype).repeat_interleave(len(c) // k, 0) * c.sqrt()[:, None, None]
    unit = torch.ones(len(c), each, dtype=L.dtype, device=L.device)
    unit[:, 1 : 1 + d] /= c.sqrt()[:, None]
    slopes, done = beside.slopes(batch, parameters), 0
    for chunk, r, w, M in pairs(beside.gaussians(parameters), beside.rows(batch, parameters)):
        w, M = torch.einsum("kab,nka->nkb", L, w), L.mT @ M @ L
        outer = w[..., :, None] * w[..., None, :]
        t = unit * torch.cat([torch.ones_like(r)[..., None], w, (outer - M)[..., a, b]], dim=-1)
        weight = torch.ones_like(r[:, 0]) if chunk.weight is None else chunk.weight
        s = (r[..., None] * t).view(chunk.n, k, -1, each).sum(2).flatten(1)
        left = (1 - r.sum(1, keepdim=True))[:, : int(beside.background)]
        s = torch.cat([s, left, slopes[done : done + chunk.n].to(s)], 1)
        done += chunk.n
        gradient += (weight @ s).double()
        squares = ((weight * weight)[:, None] * s).T @ s
        J += squares.double().reshape(-1)
        weighted += (squares if chunk.weight is None else (weight[:, None] * s).T @ s).double().reshape(-1)
        curved = unit[:, :, None] * _second_derivatives(weight[:, None] * r, w, M, outer) * unit[:, None, :]
        curved = torch.einsum("nk,nke,nkf->kef", weight[:, None] * r, t, t) + curved
        blocks += curved.double().view(k, -1, each, each).sum(1).reshape(-1)
    return total


def scores_of(
    batch: Batch, parameters: Parameters, factors: Tensor, free: Tensor, beside: Beside = PLAIN
) -> tuple[Tensor, Tensor]:
    """Log-densities (n,) of rows and their gradients (n, P) by logits, shifts, entries and numbers, as in a chart.

    ``free`` (k,) or (k + 1,) says which weights are. Where there is a background and the batch has none, densities are
    those of the components alone.
    """
    k, d = parameters.means.shape
    a, b = torch.tril_indices(d, d)
    alone = beside.background and batch.background is None
    alpha = parameters.log_weights.exp()
    alpha = alpha / alpha.sum() if alone else alpha
    parameters = parameters._replace(log_weights=alpha.log())
    alpha = torch.where(free, torch.cat([alpha, (1 - alpha.sum())[None].clamp(min=0.0)])[: len(free)], 0.0)
    share = alpha / alpha.sum().clamp(min=1e-300)
    c, slopes, scores = beside.scales(factors), beside.slopes(batch, parameters), []
    for _, r, w, M in pairs(beside.gaussians(parameters), beside.rows(batch, parameters)):
        L = factors.repeat_interleave(len(c), 0)
        w, M = torch.einsum("kab,nka->nkb", L, w), L.mT @ M @ L
        every = torch.cat([r.view(len(r), k, -1).sum(2), 1 - r.sum(1, keepdim=True)], 1)[:, : len(free)]
        on_logits = torch.where(free, every - torch.where(free, every, 0.0).sum(1, keepdim=True) * share, 0.0)
        entries = c.repeat(k)[:, None] * (w[..., :, None] * w[..., None, :] - M)[..., a, b]
        parts = [(r[..., None] * t).view(len(r), k, len(c), -1).sum(2).flatten(1) for t in (w, entries)]
        scores.append(torch.cat([on_logits, *parts], 1))
    return beside.log_prob(batch, parameters), torch.cat([torch.cat(scores), slopes], 1)


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


def _prior_on(gradient: Tensor, factors: Tensor, prior: Prior) -> Tensor:
    """What the prior adds to the gradient."""
    k, d = factors.shape[:2]
    added = torch.zeros_like(gradient)
    own = added[: k * _each(d)].view(k, -1)
    own[:, 0] = prior.concentration - 1
    own[:, 1 + d :] = _prior_gradient(factors, factors.new_zeros(k, d * (d + 1) // 2), prior)
    return added


def _in_chart(
    gradient: Tensor, H: Tensor, J: Tensor, q: Tensor, parameters: Parameters, factors: Tensor, prior: Prior | None,
    fixed: Fixed, beside: Beside,
) -> Information:  # fmt: skip
    """The same in the coordinates of a chart."""
    (k, d), logits = parameters.means.shape, len(q)
    order = _by_kind(k, d, gradient.device, beside)
    gradient, H, J = gradient[order], H[order][:, order], J[order][:, order]
    own = q if prior is None else q - prior.on_masses(q, k)
    known = own.clamp(min=1e-3 * float(own.mean())) + (0.0 if prior is None else prior.c)
    weights = all_weights(parameters.log_weights, beside.background)
    certainty = torch.diagonal(J)[len(order) - len(beside.numbers) :].clamp(min=1e-300)
    numbers = beside.numbers.to(q.device)
    chart = Chart(weights.log(), parameters.means, factors, known, numbers=numbers, certainty=certainty)
    free = chart.free(fixed)
    shares = torch.where(free[:logits], weights, 0.0)
    shares = shares / shares.sum().clamp(min=1e-300)
    T = torch.eye(len(order), dtype=H.dtype, device=H.device)
    T[:logits, :logits] -= free[:logits, None] * shares[None]
    H, J, gradient = T.T @ H @ T, T.T @ J @ T, T.T @ gradient
    H[:logits, :logits] += torch.where(free[:logits], q, 0.0).sum() * (torch.diag(shares) - shares[:, None] * shares)
    unit = chart.unscaled(torch.ones_like(gradient)) * free
    H, J = (unit[:, None] * A * unit for A in (H, J))
    return Information(chart, unit * gradient, H + nothing_said(chart, free), J, free)


def nothing_said(chart: Chart, free: Tensor) -> Tensor:
    """What stands in H (P, P) for a shift of all logits, which changes nothing, and for coordinates that are held."""
    logits = len(chart.log_weights)
    same = torch.zeros(len(free), dtype=torch.float64, device=free.device)
    same[:logits] = torch.where(free[:logits], chart.information.sqrt(), 0.0)
    same = same / same.norm().clamp(min=1e-300)
    return same[:, None] * same + torch.diag((~free).to(same.dtype))


def _with_numbers(there: Information, source: Source, prior: Prior | None, fixed: Fixed, beside: Beside) -> Information:
    """H with the rows and columns of numbers that belong to no component, by differences of the gradient."""
    chart, H = there.chart, there.H.clone()
    k, d = chart.means.shape

    def gradient(x: Tensor) -> Tensor:
        state = chart.state(x, fixed, 0.0)
        at, parameters = beside.at(state.extra), state.parameters()
        work = partial(at.sums, parameters=parameters)
        stats = at.stats(summed(source, work, at.size(k, d), x.device), k, d)
        return chart.gradient(x, state.weights, stats, prior, fixed)

    first = chart.size - len(chart.numbers)
    for e in range(first, chart.size):
        x = torch.zeros(chart.size, dtype=torch.float64, device=H.device)
        x[e] = NUMBER * chart.certainty[e - first].sqrt()
        column = (gradient(-x) - gradient(x)) / (2 * x[e])
        H[e, :e] = H[:e, e] = column[:e]
        H[e, e] = column[e]
    return replace(there, H=H)


def _by_kind(k: int, d: int, device: torch.device, beside: Beside) -> Tensor:
    """Where each coordinate of a chart (all weights, all means, all factors, numbers) is in the order of components."""
    own = k * _each(d)
    place = torch.arange(own, device=device).view(k, -1)
    others = torch.arange(own, own + beside.background + len(beside.numbers), device=device)
    weights = [place[:, 0], others[: int(beside.background)]]
    rest = [place[:, 1 : 1 + d].reshape(-1), place[:, 1 + d :].reshape(-1), others[int(beside.background) :]]
    return torch.cat(weights + rest)


def _each(d: int) -> int:
    """Numbers per component."""
    return 1 + d + d * (d + 1) // 2


def _sizes(k: int, d: int, beside: Beside) -> list[int]:
    size = k * _each(d) + beside.background + len(beside.numbers)
    return [size, size * size, size * size, k * _each(d) ** 2]
