"""Factors on errors and on widths that rows ask for, coordinate by coordinate.

With f the factor on the errors of a coordinate and g that on the components' widths along it,
sum_i log sum_j alpha_j N(x_i | m_j, g^2 V_j + f^2 S_i) is highest near f = g = 1 if all is right. Rows of different
errors, or components of different widths, tell the two apart. A background stays as it is. Rows that were cut have
densities given that they were kept: each component's counts as much as lies between the edges of the other coordinates
that are cut, given the value, and all together as much as they keep. Edges are those of the errors as quoted.
Where noise depends on the value x, the density is dF/dx (:mod:`xdeconv.studies.sizes`): each component's counts
1 - (x - m_j) f^2 S'(x) / 2 T_j times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.stats import chi2
from torch import Tensor

from ..mixture._mixture import Mixture
from ..mixture.selections.cuts import Cuts
from ..mixture.selections.intervals import share
from ..rows.batch import Batch

Array = np.ndarray
Loglik = Callable[[Tensor], Tensor]
NEWTON = 30
STEP = 1e-3  # of a logarithm, for derivatives
NEAR = 1e-6
CUT_ROWS = 10_000  # rows that are enough, of those that were cut
PAIRS = 1 << 18  # of a row and a component at a time
LEAST = 1e-300
LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Scale:
    """A factor, its standard error, and the p-value of 1."""

    factor: float
    standard_error: float
    p_value: float


def scales(
    mixture: Mixture, quoted: Batch, a: int, seen: Array, slope: Array | None = None
) -> tuple[Scale | None, Scale | None]:
    """The factors on errors and on widths of value ``a``, each with the other free, by the rows that are ``seen`` (n,).

    ``slope`` (n,) is of the noise by the value. None where the two cannot be told apart, or where the density of
    selected rows, or that of a background behind noise which depends on the value, is not known.
    """
    rows = torch.from_numpy(np.flatnonzero(seen))
    if slope is not None and (mixture.selection is not None or mixture.background is not None):
        return None, None
    if mixture.selection is None:
        loglik, noisy = _plain(mixture, quoted.rows(rows), a, None if slope is None else slope[seen])
    elif isinstance(mixture.selection, Cuts) and mixture.background is None:
        rows = rows[:: -(-len(rows) // CUT_ROWS)]
        loglik, noisy = _cut(mixture, mixture.selection, quoted.rows(rows), a)
    else:
        return None, None
    return _told(loglik, torch.tensor([noisy, bool((mixture.covariances > 0).any())]))


def _plain(mixture: Mixture, quoted: Batch, a: int, slope: Array | None) -> tuple[Loglik, bool]:
    """The log-likelihood by the logarithms of both factors, and whether there are errors."""
    batch = mixture.widened(quoted)
    log_weights, means, V = mixture.scaled()
    S = batch.covariance()[:, a, a].double().expand(batch.n)
    if batch.projection is None:
        m, v = means[None, :, a], V[None, :, a, a]
    else:
        R = batch.projection[a].T.double()
        m, v = R @ means.T, torch.einsum("nd,kde,ne->nk", R, V, R)
    away, beside = batch.x[a].double()[:, None] - m, _beside(mixture, quoted, a)
    grows = None if slope is None else away * torch.from_numpy(slope)[:, None] / 2

    def loglik(logs: Tensor) -> Tensor:
        T = (2 * logs[1]).exp() * v + (2 * logs[0]).exp() * S[:, None]
        each = log_weights - 0.5 * (away**2 / T + T.log() + LOG_2PI)
        if grows is not None:
            each = each + (1 - (2 * logs[0]).exp() * grows / T).clamp(min=LEAST).log()
        density = each.logsumexp(1)
        return (density if beside is None else torch.logaddexp(density, beside)).sum()

    return loglik, bool((S > 0).any())


def _beside(mixture: Mixture, quoted: Batch, a: int) -> Tensor | None:
    """What a background adds to the density of value ``a`` (n,), as a logarithm."""
    if mixture.background is None:
        return None
    share_of = float(np.log(max(mixture.background_weight, LEAST)))
    if quoted.projection is not None:
        one = replace(quoted, x=torch.full_like(quoted.x, torch.nan))
        one.x[a] = quoted.x[a]
        return share_of + mixture.background.log_density(one)
    noise = None if quoted.noise is None else quoted.covariance()[:, a, a].double().expand(quoted.n)[None]
    line = Batch(quoted.x[a : a + 1].double(), noise)
    return share_of + mixture.background.restricted([a]).log_density(line)


def _cut(mixture: Mixture, cuts: Cuts, quoted: Batch, a: int) -> tuple[Loglik, bool]:
    """The same of rows that were cut, given that they were kept."""
    others = [c for c in cuts.coordinates if c != a]
    kept = [others.index(c) + 1 if c != a else 0 for c in cuts.coordinates]
    log_weights, means, V = mixture.scaled()
    places = [a, *others]
    V, m = V[:, places][:, :, places], means[:, places]
    noisy = bool((quoted.covariance()[:, a, a] > 0).any())

    def of(rows: Batch, logs: Tensor) -> Tensor:
        sides, S = cuts.sides(rows), mixture.widened(rows).covariance().double()[:, places][:, :, places]
        f, g = (torch.cat([log.exp()[None], torch.ones(len(others), dtype=torch.float64)]) for log in logs)
        T = g[:, None] * V * g + (f[:, None] * S * f)[:, None]
        away, own = rows.x[a].double()[:, None] - m[:, 0], T[..., 0, 0]
        each = log_weights - 0.5 * (away**2 / own + own.log())
        low, high = (torch.full((len(edge), len(places)), torch.nan, dtype=torch.float64).index_copy_(
            1, torch.tensor(kept), edge)[:, None] for edge in (sides.low, sides.high))  # fmt: skip
        if others:
            slope = T[..., 1:, 0] / own[..., None]
            rest = T[..., 1:, 1:] - slope[..., :, None] * T[..., None, 0, 1:]
            middle = m[:, 1:] + slope * away[..., None]
            each = each + share(low[..., 1:] - middle, high[..., 1:] - middle, rest).clamp(min=LEAST).log()
        inside = share(low[..., kept] - m[:, kept], high[..., kept] - m[:, kept], T[..., kept, :][..., kept])
        chance = (log_weights + inside.clamp(min=LEAST).log()).logsumexp(1)
        return (each.logsumexp(1) - chance).sum()

    def loglik(logs: Tensor) -> Tensor:
        return torch.stack([of(rows, logs) for rows in quoted.chunks(max(1, PAIRS // len(means)))]).sum()

    return loglik, noisy


def _told(loglik: Loglik, free: Tensor) -> tuple[Scale | None, Scale | None]:
    both, H = _maximum(loglik, free)
    if not _told_apart(H):  # errors alone, or widths alone, would explain as much
        return None, None
    factors: list[Scale | None] = [None, None]
    variance = torch.linalg.inv(H)
    for i in range(2):
        if bool(free[i]):
            place = int(free[:i].sum())
            held, _ = _maximum(loglik, free & (torch.arange(2) != i))
            gained = 2 * float(loglik(both) - loglik(held))
            factor, error = float(both[i].exp()), float(variance[place, place].clamp(min=0).sqrt())
            factors[i] = Scale(factor, factor * error, float(chi2.sf(max(gained, 0.0), 1)))
    return factors[0], factors[1]


def _told_apart(H: Tensor) -> bool:
    if not bool(torch.isfinite(H).all()) or not len(H):
        return False
    values = torch.linalg.eigvalsh(H)
    return bool(values[0] > 1e-6 * values[-1])


def _maximum(loglik: Loglik, free: Tensor) -> tuple[Tensor, Tensor]:
    """Newton's method on the logarithms of the two factors, those not free held at 0; the place and the curvature."""
    logs = torch.zeros(2, dtype=torch.float64)
    unit = torch.eye(2, dtype=torch.float64)[free]
    H = torch.zeros(len(unit), len(unit), dtype=torch.float64)
    for _ in range(NEWTON if len(unit) else 0):
        before, (g, H) = loglik(logs), _derivatives(loglik, logs, unit)
        if not bool(torch.isfinite(H).all()):
            return logs, H
        values, vectors = torch.linalg.eigh(H)
        step = vectors @ ((vectors.T @ g) / values.abs().clamp(min=1e-9 * float(values.abs().amax()) + 1e-300))
        step = step * min(1.0, 0.5 / max(float(step.abs().amax()), 1e-300))
        length = 1.0
        while length > 1e-3 and not bool(loglik(logs + length * step @ unit) >= before):
            length /= 2
        if length > 1e-3:
            logs = logs + length * step @ unit
        if length <= 1e-3 or float(step.abs().amax()) < NEAR:
            break
    return logs, H


def _derivatives(loglik: Loglik, logs: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient and minus the second derivatives along some unit vectors, by differences."""
    steps, here = STEP * unit, loglik(logs)
    up, down = ([loglik(logs + way * step) for step in steps] for way in (1, -1))
    g = torch.stack([a - b for a, b in zip(up, down, strict=True)]) / (2 * STEP)
    H = torch.diag(torch.stack([2 * here - a - b for a, b in zip(up, down, strict=True)]) / STEP**2)
    if len(steps) == 2:
        one, two = steps
        corners = loglik(logs + one - two) + loglik(logs - one + two) - loglik(logs + one + two) - loglik(
            logs - one - two)  # fmt: skip
        H[0, 1] = H[1, 0] = corners / (4 * STEP**2)
    return g, H
