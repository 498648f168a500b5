"""Structures that are linear in a covariance: full, one for all components, diagonal, spherical."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from ..constants import per_coordinate
from .contract import Covariances, Structure
from .coordinates import Coordinates, LogCholesky


def _log_cholesky(V: Tensor) -> Tensor:
    """Factors of V with logarithms on the diagonal; NaN where V has none."""
    L, failed = torch.linalg.cholesky_ex(V)
    L = torch.where((failed > 0)[..., None, None], torch.nan, L)
    return L.tril(-1) + torch.diag_embed(L.diagonal(dim1=-2, dim2=-1).log())


def _cholesky(C: Tensor) -> Tensor:
    return C.tril(-1) + torch.diag_embed(C.diagonal(dim1=-2, dim2=-1).exp())


def _on_log_cholesky(C: Tensor, G: Tensor) -> Tensor:
    """The gradient on the log-Cholesky factor B of V = L B B^T L^T, at B = 1."""
    L = _cholesky(C)
    return (L.mT @ G @ L).tril()


def _after_log_cholesky(C: Tensor, step: Tensor) -> Tensor:
    """The log-Cholesky factor of V after a step of B, whose log-Cholesky factor it is."""
    L = (_cholesky(C) @ _cholesky(step)).tril(-1)
    return L + torch.diag_embed((C + step).diagonal(dim1=-2, dim2=-1))


@dataclass(frozen=True)
class Full(Structure):
    """Any covariance for every component."""

    @property
    def name(self) -> str:
        return "full"

    def nearest(self, V: Tensor, rows: Tensor) -> Covariances:
        """V itself."""
        return Covariances(V)

    def free(self, covariances: Covariances) -> tuple[Tensor, ...]:
        """Log-Cholesky factors (k, d, d)."""
        return (_log_cholesky(covariances.V),)

    def made(self, free: tuple[Tensor, ...], k: int, d: int) -> Covariances:
        """V = L L^T."""
        L = _cholesky(free[0])
        return Covariances(L @ L.mT)

    def pulled_back(self, free: tuple[Tensor, ...], G: Tensor) -> tuple[Tensor, ...]:
        """tril(L^T G L)."""
        return (_on_log_cholesky(free[0], G),)

    def gone(self, free: tuple[Tensor, ...], steps: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The factor times that of the steps."""
        return (_after_log_cholesky(free[0], steps[0]),)

    def frames(self, free: tuple[Tensor, ...], k: int, d: int) -> Tensor:
        """L."""
        return _cholesky(free[0])

    def around(self, covariances: Covariances, information: Tensor) -> Coordinates:
        """Log-Cholesky factors over the anchor's."""
        return LogCholesky.around(covariances.V, information)


@dataclass(frozen=True)
class Tied(Structure):
    """One covariance for all components: the mean of theirs, each counted by its rows."""

    @property
    def name(self) -> str:
        return "tied"

    @property
    def shared(self) -> bool:
        """One for all."""
        return True

    def nearest(self, V: Tensor, rows: Tensor) -> Covariances:
        """The pooled covariance."""
        share = rows / rows.sum().clamp(min=1e-300)
        return Covariances(torch.einsum("k,kde->de", share, V).expand_as(V))

    def free(self, covariances: Covariances) -> tuple[Tensor, ...]:
        """One log-Cholesky factor (1, d, d)."""
        return (_log_cholesky(covariances.V[:1]),)

    def made(self, free: tuple[Tensor, ...], k: int, d: int) -> Covariances:
        """The same V for all."""
        L = _cholesky(free[0])
        return Covariances((L @ L.mT).expand(k, d, d))

    def pulled_back(self, free: tuple[Tensor, ...], G: Tensor) -> tuple[Tensor, ...]:
        """That of the sum of all G."""
        return (_on_log_cholesky(free[0], G.sum(0, keepdim=True)),)

    def gone(self, free: tuple[Tensor, ...], steps: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The factor times that of the steps."""
        return (_after_log_cholesky(free[0], steps[0]),)

    def frames(self, free: tuple[Tensor, ...], k: int, d: int) -> Tensor:
        """L, for all."""
        return _cholesky(free[0]).expand(k, d, d)

    def around(self, covariances: Covariances, information: Tensor) -> Coordinates:
        """Steps that all components take together."""
        return LogCholesky.around(covariances.V, information, "tied")


@dataclass(frozen=True)
class Diagonal(Structure):
    """No correlations within a component."""

    @property
    def name(self) -> str:
        return "diagonal"

    def nearest(self, V: Tensor, rows: Tensor) -> Covariances:
        """The diagonal."""
        return Covariances(torch.diag_embed(V.diagonal(dim1=-2, dim2=-1)))

    def free(self, covariances: Covariances) -> tuple[Tensor, ...]:
        """Logarithms of standard deviations (k, d)."""
        return (covariances.V.diagonal(dim1=-2, dim2=-1).log() / 2,)

    def made(self, free: tuple[Tensor, ...], k: int, d: int) -> Covariances:
        """Variances exp(2 y)."""
        return Covariances(torch.diag_embed((2 * free[0]).exp()))

    def pulled_back(self, free: tuple[Tensor, ...], G: Tensor) -> tuple[Tensor, ...]:
        """The diagonal of G V."""
        return (G.diagonal(dim1=-2, dim2=-1) * (2 * free[0]).exp(),)

    def around(self, covariances: Covariances, information: Tensor) -> Coordinates:
        """Steps on the diagonal of the factors alone."""
        return LogCholesky.around(covariances.V, information, "diagonal")


@dataclass(frozen=True)
class Spherical(Structure):
    """One variance per component, the same in all coordinates of the user's; ``units`` (d,) are theirs in the frame."""

    units: tuple[float, ...] | None = None

    @property
    def name(self) -> str:
        return "spherical"

    def standardized(self, scale: Sequence[float]) -> Self:
        """A sphere of the user's is an ellipsoid in coordinates of other units."""
        return replace(self, units=tuple(1 / s**2 for s in scale))

    def nearest(self, V: Tensor, rows: Tensor) -> Covariances:
        """The mean variance, in the user's units."""
        units = self._units(V)
        variance = (V.diagonal(dim1=-2, dim2=-1) / units).mean(-1)
        return Covariances(torch.diag_embed(variance[..., None] * units))

    def _units(self, V: Tensor) -> Tensor:
        return per_coordinate(1.0 if self.units is None else self.units, V)

    def free(self, covariances: Covariances) -> tuple[Tensor, ...]:
        """Logarithms of standard deviations (k, 1)."""
        V = covariances.V
        return ((V.diagonal(dim1=-2, dim2=-1) / self._units(V)).mean(-1, keepdim=True).log() / 2,)

    def made(self, free: tuple[Tensor, ...], k: int, d: int) -> Covariances:
        """Variances exp(2 y)."""
        return Covariances(torch.diag_embed((2 * free[0]).exp() * self._units(free[0].expand(k, d))))

    def pulled_back(self, free: tuple[Tensor, ...], G: Tensor) -> tuple[Tensor, ...]:
        """The trace of G V."""
        variances = (2 * free[0]).exp() * self._units(G)
        return ((G.diagonal(dim1=-2, dim2=-1) * variances).sum(-1, keepdim=True),)

    def around(self, covariances: Covariances, information: Tensor) -> Coordinates:
        """Steps that all coordinates take together."""
        return LogCholesky.around(covariances.V, information, "spherical")
