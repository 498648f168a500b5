"""Factor analysis of covariances A: F and D that maximise -log|V| - tr(V^-1 A) with V = F F^T + diag(D).

Given D, the best F is known: with D^-1/2 A D^-1/2 = U diag(s) U^T, its columns are D^1/2 U_b (s_b - 1)^1/2 for the r
largest s (Lawley & Maxwell 1971). What is left is a function of D alone, climbed by Newton's steps where they climb and
by EM's where not, so that no step ever goes down.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...kernels.parameters import Factors

SMALLEST = 1e-9  # of a coordinate's variance: less is not told apart from none
FIRST_STEPS, STEPS = 20, 3
SEED = 0.02  # of the own variances: loadings of factors that have not been found yet


def analysed(A: Tensor, rank: int, own: Tensor | None = None, steps: int = FIRST_STEPS) -> Factors:
    """The factors (k, d, rank) of covariances A (k, d, d), from own variances (k, d) where there are some."""
    variances = A.diagonal(dim1=-2, dim2=-1).clamp(min=1e-300)
    D = _first(A, variances) if own is None else own
    now = _profile(A, _floored(D, variances), rank)
    for _ in range(steps if own is None else STEPS):
        now = _better(_profile(A, _floored(_newton(now), variances), rank),
                      _profile(A, _floored(_em(A, now), variances), rank))  # fmt: skip
    return now[0]


def seeded(factors: Factors) -> Factors:
    """The same with small loadings for factors that explain nothing: from none, no step leads away."""
    F, D = factors
    d, rank = F.shape[-2:]
    directions = torch.linalg.qr(torch.randn(d, rank, generator=torch.Generator().manual_seed(0), dtype=F.dtype)).Q
    explained = (F * F / D[..., None]).sum(-2, keepdim=True)
    small = (SEED * d * D).sqrt()[..., None] * directions.to(F)
    return Factors(torch.where(explained < SEED, small, F), D)


def em_step(A: Tensor, before: Factors) -> Factors:
    """One step of EM for factor analysers, expanded by the covariance of the factors (Liu, Rubin & Wu 1998).

    Of A it reads A V^-1 F and the diagonal, F and V being those before.
    """
    F, D = before
    inside = F / D[..., None]  # D^-1 F
    eye = torch.eye(F.shape[-1], dtype=F.dtype, device=F.device)
    weights = torch.linalg.solve(eye + F.mT @ inside, inside.mT).mT  # V^-1 F
    across = A @ weights
    spread = eye - F.mT @ weights + weights.mT @ across
    root = torch.linalg.cholesky_ex((spread + spread.mT) / 2)[0]
    loadings = torch.linalg.solve_triangular(root, across.mT, upper=False).mT
    variances = A.diagonal(dim1=-2, dim2=-1)
    return Factors(loadings, _floored(variances - loadings.square().sum(-1), variances))


_Profile = tuple[Factors, Tensor, Tensor, Tensor]  # factors, objective (k,), s (k, d), U (k, d, d)


def _first(A: Tensor, variances: Tensor) -> Tensor:
    """Half of what the other coordinates do not explain, or of the variance where A is singular."""
    spread = variances.sqrt()
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    correlation = A / spread[..., :, None] / spread[..., None, :] + 1e-3 * eye
    alone = 1 / torch.cholesky_inverse(torch.linalg.cholesky_ex(correlation)[0]).diagonal(dim1=-2, dim2=-1)
    return variances * alone.nan_to_num(1.0).clamp(1e-3, 1.0)


def _floored(D: Tensor, variances: Tensor) -> Tensor:
    return torch.maximum(D, SMALLEST * variances)


def _profile(A: Tensor, D: Tensor, rank: int) -> _Profile:
    """The best loadings for own variances D, and what they make of A."""
    root = D.sqrt()
    values, vectors = (t.to(A.device) for t in torch.linalg.eigh((A / root[..., :, None] / root[..., None, :]).cpu()))
    s, U = values.flip(-1), vectors.flip(-1)
    top = s[..., :rank].clamp(min=1.0)
    F = root[..., None] * U[..., :rank] * (top - 1).sqrt()[..., None, :]
    fit = -(D.log().sum(-1) + top.log().sum(-1) + (s[..., :rank] / top).sum(-1) + s[..., rank:].sum(-1))
    return Factors(F, D), fit, s, U


def _newton(now: _Profile) -> Tensor:
    """Own variances after a step of Jöreskog's (1967) for their logarithms, of at most a factor e."""
    (F, D), _, s, U = now
    rank = F.shape[-1]
    rest = U[..., rank:]
    slope = (rest.square() * (s[..., None, rank:] - 1)).sum(-1)
    bend = (rest @ rest.mT).square()
    ridge = 1e-6 * torch.eye(D.shape[-1], dtype=D.dtype, device=D.device)
    return D * torch.linalg.solve(bend + ridge, slope[..., None])[..., 0].clamp(-1, 1).exp()


def _em(A: Tensor, now: _Profile) -> Tensor:
    """Own variances after a step of EM, in which the loadings are as they should be."""
    (F, D), _, s, U = now
    shrunk = (1 - 1 / s[..., : F.shape[-1]].clamp(min=1.0))[..., None, :]
    root = D.sqrt()
    across = A / root[..., None, :] @ (U[..., : F.shape[-1]] * shrunk)  # A V^-1 F (s - 1)^-1/2
    return A.diagonal(dim1=-2, dim2=-1) - (across * root[..., None] * U[..., : F.shape[-1]]).sum(-1)


def _better(one: _Profile, other: _Profile) -> _Profile:
    """Component by component, the one that fits better."""
    first = one[1].nan_to_num(-torch.inf) >= other[1].nan_to_num(-torch.inf)

    def pick(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(first.view(*first.shape, *(1,) * (a.ndim - first.ndim)), a, b)

    (F, D), fit, s, U = one
    (F_, D_), fit_, s_, U_ = other
    return Factors(pick(F, F_), pick(D, D_)), pick(fit, fit_), pick(s, s_), pick(U, U_)
