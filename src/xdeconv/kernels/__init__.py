"""Where data meets parameters: a few functions, several backends, one definition.

Row i is x_i = R_i v_i + e_i with e_i ~ N(0, S_i) and v_i drawn from sum_j alpha_j N(m_j, V_j). With
T_ij = R_i V_j R_i^T + S_i, row i and component j have

    w_ij = R_i^T T_ij^-1 (x_i - R_i m_j)      M_ij = R_i^T T_ij^-1 R_i
    r_ij = alpha_j N(x_i | R_i m_j, T_ij) / sum_l alpha_l N(x_i | R_i m_l, T_il)

and everything that learns needs only the sums over rows (:class:`xdeconv.kernels.stats.Stats`)

    q_j = sum_i r_ij     g_j = sum_i r_ij w_ij     G_j = sum_i r_ij (w_ij w_ij^T - M_ij).

The posterior of v_i under component j is N(b_ij, B_ij) with b_ij = m_j + V_j w_ij and B_ij = V_j - V_j M_ij V_j, so
sum_i r_ij (b_ij - m_j) = V_j g_j and sum_i r_ij [(b_ij - m_j)(b_ij - m_j)^T + B_ij] = q_j V_j + V_j G_j V_j: EM in a
form that never holds m m^T. The same sums are gradients: dL/dm = g, dL/dV = G / 2, dL/dlog alpha = q.

A batch may carry a background, the log-density u_i of what else makes rows. It has the weight that the components
leave: the density of a row is sum_j alpha_j N_ij + (1 - sum_j alpha_j) u_i, and sum_i (1 - sum_j r_ij) of its rows are
the background's.

A missing value has its row and column of T replaced by the identity's, its residual and its row of R by zero, and does
not count in the normalisation. A failed Cholesky factor gives NaN, never -inf: a caller can see it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, reduce
from operator import add
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..rows.batch import Batch
from ..rows.halves import in_halves
from .groups import Groups, GroupSums
from .options import DEFAULT, Backend, Options
from .parameters import Factors
from .stats import Stats

__all__ = [
    "Backend",
    "GroupSums",
    "Groups",
    "Options",
    "accumulate",
    "accumulate_groups",
    "accumulate_slopes",
    "for_groups",
    "log_joint",
    "log_prob",
    "posterior_moments",
]
log = logging.getLogger("xdeconv")


def accumulate(
    log_weights: Tensor,
    means: Tensor,
    covariances: Tensor,
    batch: Batch,
    options: Options = DEFAULT,
    factors: Factors | None = None,
) -> Stats:
    """The sums over the rows of a batch for log_weights (k,), means (k, d), covariances (k, d, d).

    With the factors of the covariances, G need be right only where they read it (``Stats.whole``): where noise is
    diagonal a row and a component then cost d r^2 operations instead of d^3.
    """
    _check_shapes(log_weights, means, covariances, batch)
    batch = _weighed(log_weights, batch)
    backend = _backend(means, batch, options)
    if factors is not None and backend is _load("cpu") and backend.takes_factors(batch, factors.loadings.shape[-1]):
        return backend.accumulate_factors(log_weights, means, factors, batch, options)
    compute = backend.accumulate
    return reduce(add, in_halves(lambda part: compute(log_weights, means, covariances, part, options), batch))


def accumulate_slopes(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> Stats:
    """The sums, and how the log-likelihood changes with the logarithm of each observed coordinate's errors.

    ``slopes`` (p,) are sum_i (S_i G_i)_aa with G_i = sum_j r_ij (u_ij u_ij^T - T_ij^-1) and u_ij = T_ij^-1 (x_i -
    R_i m_j); ``certainty`` is twice the weight of the rows that observe a coordinate with an error. f_a^2 <- f_a^2 (1 +
    2 slope / certainty) is EM's update of a factor on the errors where noise is diagonal.
    """
    if batch.shared:
        stats = accumulate(log_weights, means, covariances, batch, options)
        slopes = (batch.covariance()[0].double() * stats.G.sum(0)).sum(1)
    else:
        _check_shapes(log_weights, means, covariances, batch)
        backend = _for_slopes(means, batch, options)
        weighed = _weighed(log_weights, batch)
        parts = list(in_halves(lambda part: backend.accumulate_slopes(log_weights, means, covariances, part, options),
                               weighed))  # fmt: skip
        stats, slopes = reduce(add, (part[0] for part in parts)), reduce(add, (part[1] for part in parts))
    packed = torch.cat([stats.packed, slopes.to(stats.packed), 2 * _with_error(batch).to(stats.packed)])
    return replace(stats, packed=packed, extra=batch.p)


def _for_slopes(means: Tensor, batch: Batch, options: Options) -> ModuleType:
    """The backend of a batch, or the reference where that one has no derivatives by errors."""
    backend = _backend(means, batch, options)
    reason = backend.refuses_slopes(batch, means.shape[1])
    if reason is None:
        return backend
    _say_once(options.backend, reason)
    return _load("reference")


def _with_error(batch: Batch) -> Tensor:
    """Weight (p,) of the rows that observe a coordinate with an error."""
    counts = ((batch.variances() > 0) & ~batch.x.isnan()).double()
    return counts.sum(1) if batch.weight is None else counts @ batch.weight.double()


@dataclass(frozen=True)
class RowsForGroups:
    """A batch that groups pick rows from, in the form of the backend that computes."""

    batch: Batch
    form: Any
    backend: ModuleType


def for_groups(batch: Batch, d: int, options: Options = DEFAULT) -> RowsForGroups:
    """A batch made ready, once, for many calls of :func:`accumulate_groups`."""
    backend = _backend(torch.empty(1, d), batch, options)
    return RowsForGroups(batch, backend.for_groups(batch, d), backend)


def accumulate_groups(
    log_weights: Tensor, means: Tensor, covariances: Tensor, rows: RowsForGroups, groups: Groups
) -> GroupSums:
    """The sums of groups of rows, each over its own few components: log_weights (g, m), means (g, m, d), ...

    Rows of a group see the group's components and their background, and nothing else: log-likelihoods (g,) and the
    sums of all groups come in one pass. Weights and priors of the batch are not read: groups have their own weights.
    """
    return rows.backend.accumulate_groups(log_weights, means, covariances, rows.form, groups)


def log_prob(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> Tensor:
    """Log-density of each row (n,); memory does not grow with n k."""
    _check_shapes(log_weights, means, covariances, batch)
    batch = _weighed(log_weights, batch)
    compute = _backend(means, batch, options).log_prob
    return _joined(in_halves(lambda part: compute(log_weights, means, covariances, part, options), batch))


def log_joint(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> Tensor:
    """log alpha_j + log N(x_i | R_i m_j, T_ij), (n, k)."""
    _check_shapes(log_weights, means, covariances, batch)
    compute = _backend(means, batch, options).log_joint
    return _joined(in_halves(lambda part: compute(log_weights, means, covariances, part, options), batch))


def posterior_moments(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> tuple[Tensor, Tensor]:
    """Where each row's true values lie (n, d), and their packed covariances (n, d (d + 1) / 2).

    A mean is given as its distance from x where x is observed as it is, without a projection; else as it is. A row that
    has no posterior is NaN. A background is not looked at.
    """
    _check_shapes(log_weights, means, covariances, batch)
    batch = replace(batch, background=None, weight=None)
    compute = _backend(means, batch, options).posterior_moments
    parts = list(in_halves(lambda part: compute(log_weights, means, covariances, part, options), batch))
    mean, covariance = zip(*parts, strict=True)
    return _joined(mean), _joined(covariance)


def _weighed(log_weights: Tensor, batch: Batch) -> Batch:
    """The batch as backends want it: with the background's share of each density, not its density alone."""
    if batch.background is None:
        return batch
    left = (1 - log_weights.double().exp().sum()).clamp(min=0.0).log()
    return replace(batch, background=(batch.background.double() + left.to(batch.device)).to(batch.dtype))


def _joined(found: Iterable[Tensor]) -> Tensor:
    parts = list(found)
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _check_shapes(log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch) -> None:
    k, d = means.shape
    if log_weights.shape != (k,) or covariances.shape != (k, d, d):
        raise ValueError(f"log_weights {tuple(log_weights.shape)} and covariances {tuple(covariances.shape)} "
                         f"do not fit means {(k, d)}")  # fmt: skip
    if batch.d != d:
        raise ValueError(f"the mixture has {d} dimensions and the batch {batch.d}")
    if batch.log_prior is not None and batch.log_prior.shape[1] != k:
        raise ValueError(f"log_prior has {batch.log_prior.shape[1]} columns for {k} components")


def _backend(means: Tensor, batch: Batch, options: Options) -> ModuleType:
    """The module that computes: the one asked for, or the fast one of the device unless it refuses."""
    name = options.backend if options.backend != "auto" else "cuda" if batch.device.type == "cuda" else "cpu"
    reason = _load(name).refuses(batch, *means.shape)
    if reason is None:
        return _load(name)
    if options.backend != "auto":
        raise ValueError(f"backend {name!r} cannot take this: {reason}")
    _say_once(name, reason)
    return _load("reference")


@cache
def _load(name: str) -> ModuleType:
    from importlib import import_module

    return import_module(f".{name}", __name__)


@cache
def _say_once(name: str, reason: str) -> None:
    log.warning("using the slower reference kernels: backend %r cannot take this: %s", name, reason)
