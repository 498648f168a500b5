"""Rows with more values than latent coordinates: turned, so that precise measurements of the same thing do not cancel.

Of p > d values, T = R V R^T + S has p - d directions that only the noise fills. Where the noise is small, they are lost
in rounding: with variances of 1e-14 a log-density was off by 4e-3. With S = L L^T and L^-1 R = Q [U; 0], the values
Q^T L^-1 x are d that see U v, and p - d of pure noise. Each is scaled so that volumes, and so densities, stay as they
are: rows are turned once, and nothing else has to know.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

SMALLEST_PIVOT = 1e-6  # of a variance: with less, the noise itself is nearly singular and rows stay as they are


class Views(NamedTuple):
    """Values (p, n), noise (p, n) or (p (p + 1) / 2, n), and projections (p, d, n) of rows."""

    x: Tensor
    noise: Tensor
    projection: Tensor


def turned(x: Tensor, S: Tensor, projection: Tensor, full: bool) -> Views | None:
    """The same rows with the same log-densities; those with more than d values see them without cancellation.

    Parameters
    ----------
    x : torch.Tensor (p, n)
        Values in float64, in the user's units; NaN is missing.
    S : torch.Tensor (n, p, p) or (1, p, p)
        Covariances of their noise.
    projection : torch.Tensor (p, d, n)
        Through which rows see d true values.
    full : bool
        Whether the noise has covariances.

    Returns
    -------
    Views or None
        None where no row has more values than d, and noise to tell them apart.
    """
    p, d, n = projection.shape
    if p <= d or not n:
        return None
    x, R, S = x.T, projection.permute(2, 0, 1), S.expand(n, -1, -1)
    observed = ~x.isnan()
    order = (~observed).to(torch.int8).argsort(dim=1, stable=True)  # values that are missing come last, and stay there
    seen = observed.gather(1, order)
    T = _picked(_picked(S, order, 1), order, 2) * (seen[:, :, None] & seen[:, None, :])
    T = T + torch.diag_embed(1.0 - seen.double())
    L, failed = torch.linalg.cholesky_ex(T)
    sharp = (L.diagonal(dim1=1, dim2=2) ** 2 > SMALLEST_PIVOT * T.diagonal(dim1=1, dim2=2)).all(1)
    chosen = sharp & (failed == 0) & (seen.sum(1) > d)
    if not chosen.any():
        return None
    values = torch.where(seen, x.gather(1, order), 0.0)
    new = _turn(L[chosen], values[chosen], (_picked(R, order, 1) * seen[:, :, None])[chosen], seen[chosen])
    return _replaced(x, S, R, chosen, new, full and not bool(chosen.all()))


def _turn(L: Tensor, x: Tensor, R: Tensor, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values, variances (n, p) and projections (n, p, d) of rows whose missing values come last."""
    d = R.shape[2]
    both = torch.linalg.solve_triangular(L, torch.cat([R, x[..., None]], dim=2), upper=False)
    Q, U = torch.linalg.qr(both[..., :d], mode="complete")
    y = (Q.mT @ both[..., d:])[..., 0]
    length = U[:, :d].norm(dim=2)
    length = torch.where(length > 0, length, 1.0)
    volume = L.diagonal(dim1=1, dim2=2).log().sum(1) + length.log().sum(1)
    width = (volume / (seen.sum(1) - d)).exp()
    size = torch.cat([1 / length, width[:, None].expand(-1, x.shape[1] - d)], dim=1)
    view = torch.cat([U[:, :d] / length[..., None], torch.zeros_like(U[:, d:])], dim=1)
    return torch.where(seen, y * size, torch.nan), torch.where(seen, size**2, 0.0), view


def _replaced(x: Tensor, S: Tensor, R: Tensor, chosen: Tensor, new: tuple[Tensor, Tensor, Tensor], full: bool) -> Views:
    """Rows of which some are turned; noise stays in triangles where a row that is not turned has them."""
    x, S, R = x.clone(), S.clone(), R.clone()
    x[chosen], R[chosen] = new[0], new[2]
    S[chosen] = torch.diag_embed(new[1])
    a, b = torch.tril_indices(x.shape[1], x.shape[1], device=x.device)
    noise = S[:, a, b].T if full else S.diagonal(dim1=1, dim2=2).T
    return Views(x.T.contiguous(), noise.contiguous(), R.permute(1, 2, 0).contiguous())


def _picked(values: Tensor, order: Tensor, axis: int) -> Tensor:
    """Lines of each row's matrix in its own order."""
    shape = (*order.shape, 1) if axis == 1 else (order.shape[0], 1, order.shape[1])
    return values.gather(axis, order.reshape(shape).expand_as(values))
