"""The definition of correct: the sums in dense torch, on any device, in any dtype, with nothing clever."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ..rows.batch import Batch
from . import posteriors
from .grouped import grouped_sum
from .groups import Groups, GroupSums
from .joint import constant, density, with_prior
from .options import DEFAULT, Options
from .parameters import Parameters
from .stats import Stats

PAIR_NUMBERS = 1 << 22  # numbers in one (n, k, p, p) array of a chunk of rows and components


def refuses(batch: Batch, k: int, d: int) -> str | None:
    """Never: the reference takes everything."""
    return None


def accumulate(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> Stats:
    """The five sums over the rows of a batch, added up in float64 chunk by chunk."""
    k, d = means.shape
    total = Stats.zeros(k, d, batch.device)
    parts = _parts(batch, k)
    for chunk in _chunks(batch, k):
        held = _pairs(log_weights, means, covariances, chunk, parts[0]) if len(parts) == 1 else None
        log_joint = _joint(log_weights, means, covariances, chunk, parts) if held is None else held[0]
        log_prob = density(log_joint, chunk)
        weight = torch.ones_like(log_prob) if chunk.weight is None else chunk.weight
        r = torch.where(log_joint == -torch.inf, 0.0, (log_joint - log_prob[:, None]).exp() * weight[:, None])
        sums = Stats.zeros(k, d, batch.device)
        sums.rows.add_(weight.sum())
        sums.loglik.add_((weight * log_prob).sum())
        for part in parts:
            _, w, M = held or _pairs(log_weights, means, covariances, chunk, part)
            sums.q[part] = r[:, part].sum(0).double()
            sums.g[part] = torch.einsum("nk,nkd->kd", r[:, part], w).double()
            outer = torch.einsum("nk,nkd,nke->kde", r[:, part], w, w)
            sums.G[part] = (outer - torch.einsum("nk,nkde->kde", r[:, part], M)).double()
        total = total + sums
    return total


def refuses_slopes(batch: Batch, d: int) -> str | None:
    """Never: the reference takes everything."""
    return None


def accumulate_slopes(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> tuple[Stats, Tensor]:
    """The five sums, and sum_i sum_j r_ij (S_i (u u^T - T^-1))_aa (p,) with u = T^-1 (x - R m)."""
    slopes = torch.zeros(batch.p, dtype=torch.float64, device=batch.device)
    for chunk in _chunks(batch, len(means)):
        log_joint, u, inverse = _pairs(log_weights, means, covariances, chunk, slice(None), observed=True)
        weight = torch.ones_like(log_joint[:, 0]) if chunk.weight is None else chunk.weight
        r = (log_joint - density(log_joint, chunk)[:, None]).exp() * weight[:, None]
        r = torch.where(log_joint == -torch.inf, 0.0, r)
        G = torch.einsum("nk,nka,nkb->nab", r, u, u) - torch.einsum("nk,nkab->nab", r, inverse)
        slopes += (chunk.covariance() * G).sum((0, 2)).double()
    return accumulate(log_weights, means, covariances, batch, options), slopes


def pairs(parameters: Parameters, batch: Batch) -> Iterator[tuple[Batch, Tensor, Tensor, Tensor]]:
    """Chunks of rows with r (n, k), w (n, k, d) and M (n, k, d, d) of every pair: for what sums do not tell."""
    for chunk in _chunks(batch, parameters.k):
        log_joint, w, M = _pairs(*parameters, chunk, slice(None))
        yield chunk, (log_joint - density(log_joint, chunk)[:, None]).exp(), w, M


def hidden_one_by_one(parameters: Parameters, batch: Batch) -> Iterator[tuple[Tensor, Tensor]]:
    """Chunks of rows with what their other values say of each observed one: log-weights and scores (n, k, p).

    With P = (T^-1)_aa, a component's residual of x_a given the others is z = (T^-1 (x - R m))_a / sqrt(P) of its
    standard deviations, and its weight alpha N(x) / N(x_a | the others). Both are NaN where a value is missing.
    """
    for chunk in _chunks(batch, parameters.k):
        log_joint, u, inverse = _pairs(*parameters, chunk, slice(None), observed=True)
        P = inverse.diagonal(dim1=-2, dim2=-1)
        z = u / P.sqrt()
        yield log_joint[..., None] + 0.5 * (z * z - P.log()), z


def log_prob(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> Tensor:
    """Log-density of each row (n,)."""
    k = len(log_weights)
    parts = _parts(batch, k)
    chunks = _chunks(batch, k)
    return torch.cat([density(_joint(log_weights, means, covariances, chunk, parts), chunk) for chunk in chunks])


def posterior_moments(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> tuple[Tensor, Tensor]:
    """Distances of posterior means (n, d) and packed covariances (n, ...), see :mod:`xdeconv.kernels.posteriors`."""
    k, d = means.shape
    parameters = Parameters(log_weights, means, covariances)
    parts = []
    for chunk in batch.chunks(posteriors.chunk_rows(k, max(d, batch.p))):
        parts.append(posteriors.moments(parameters, chunk, log_joint(log_weights, means, covariances, chunk)))
    mean, covariance = zip(*parts, strict=True)
    return torch.cat(mean), torch.cat(covariance)


def for_groups(batch: Batch, d: int) -> Batch:
    """The batch as groups pick rows from it: as it is."""
    return batch


def accumulate_groups(
    log_weights: Tensor, means: Tensor, covariances: Tensor, rows: Batch, groups: Groups
) -> GroupSums:
    """The sums of every group of rows over its own components (g, m, ...)."""
    (g, m, d), device = means.shape, rows.device
    group = torch.repeat_interleave(torch.arange(g), groups.sizes.cpu()).to(device)
    loglik = torch.zeros(g, dtype=torch.float64, device=device)
    total = torch.zeros(g, m * (1 + d + d * d), dtype=torch.float64, device=device)
    size = max(1, PAIR_NUMBERS // (m * max(rows.p, d) ** 2))
    for start in range(0, len(group), size):
        own = slice(start, start + size)
        at, whose = groups.rows[own].to(device), group[own]
        batch = replace(rows.rows(at), background=groups.background[own].to(device), log_prior=None, label=None)
        log_joint, w, M = _pairs(log_weights, means, covariances, batch, slice(None), whose)
        log_prob, weight = density(log_joint, batch), groups.weight[own].to(device)
        r = torch.where(log_joint == -torch.inf, 0.0, (log_joint - log_prob[:, None]).exp()).double() * weight[:, None]
        outer = w[..., :, None] * w[..., None, :] - M
        sums = [r, r[..., None] * w, r[..., None, None] * outer]
        loglik += grouped_sum(weight * log_prob.double(), whose, g)
        total += grouped_sum(torch.cat([part.flatten(1).double() for part in sums], 1), whose, g)
    q, on_means, on_covariances = total.split([m, m * d, m * d * d], dim=1)
    totals = torch.stack([groups.weight.sum().to(device), loglik.sum()])
    packed = torch.cat([totals, *(part.reshape(-1) for part in (q, on_means, on_covariances))])
    return GroupSums(Stats(packed, g * m, d), loglik, m)


def log_joint(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> Tensor:
    """log alpha_j + log N(x_i | R_i m_j, T_ij), (n, k)."""
    k = len(log_weights)
    parts = _parts(batch, k)
    return torch.cat([_joint(log_weights, means, covariances, chunk, parts) for chunk in _chunks(batch, k)])


def _chunks(batch: Batch, k: int) -> Iterator[Batch]:
    yield from batch.chunks(max(1, PAIR_NUMBERS // (k * max(batch.p, batch.d) ** 2)))


def _parts(batch: Batch, k: int) -> list[slice]:
    """Components that are computed together: all of them, unless those of one row would be too many numbers."""
    size = max(1, PAIR_NUMBERS // max(batch.p, batch.d) ** 2)
    return [slice(start, min(start + size, k)) for start in range(0, k, size)]


def _joint(log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, parts: list[slice]) -> Tensor:
    """log alpha N (n, k)."""
    return torch.cat([_pairs(log_weights, means, covariances, batch, part)[0] for part in parts], dim=1)


def _pairs(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, part: slice, group: Tensor | None = None,
    observed: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """log alpha N (n, k), w (n, k, d) and M (n, k, d, d) of every row and some components; of its group's, with one.

    With ``observed``, T^-1 (x - R m) (n, k, p) and T^-1 (n, k, p, p), zero where values are missing, instead.
    """
    log_alpha, m, V = (t.to(batch.device, batch.dtype) for t in (log_weights, means, covariances))
    log_alpha, m, V = (t[part][None] if group is None else t[group] for t in (log_alpha, m, V))
    there = ~batch.x.T.isnan()
    x = torch.where(there, batch.x.T, 0.0)
    seen = there.to(batch.dtype)
    R = seen[:, :, None] * (torch.eye(batch.p, device=batch.device, dtype=batch.dtype) if batch.projection is None
                            else batch.projection.permute(2, 0, 1))  # fmt: skip
    S = batch.covariance() * seen[:, :, None] * seen[:, None, :] + torch.diag_embed(1 - seen)
    T = R[:, None] @ V @ R[:, None].mT + S[:, None]
    L, failed = torch.linalg.cholesky_ex(T)
    L = torch.where((failed > 0)[..., None, None], torch.nan, L)
    residual = (x[:, None] - (R[:, None] @ m[..., None])[..., 0]) * seen[:, None]
    z = torch.linalg.solve_triangular(L, residual[..., None], upper=False)
    view = torch.diag_embed(seen) if observed else R
    A = torch.linalg.solve_triangular(L, view[:, None].expand(-1, m.shape[1], -1, -1), upper=False)
    log_det = L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    log_normal = -0.5 * (z * z).sum((-2, -1)) - log_det - constant(batch)[:, None]
    return with_prior(log_alpha + log_normal, batch, part), (A.mT @ z)[..., 0], A.mT @ A
