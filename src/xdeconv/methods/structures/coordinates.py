"""Coordinates of covariances around an anchor, in which EM's step is the gradient, to first order.

Each number is multiplied by the square root of the information that complete data would hold of it, so that a step
along the gradient of the log-likelihood is the natural one, and that is EM's (Xu & Jordan 1996).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Literal, Self

import torch
from torch import Tensor

from ...kernels.parameters import Factors
from .relative import covariances_at, gradient_at

LEAST = 0.05  # of the information on a factor: a factor that explains nothing holds none


class Coordinates(ABC):
    """Numbers y (size,) that stand for covariances near an anchor. Its attributes are tensors, but for words."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers there are."""

    @abstractmethod
    def at(self, y: Tensor) -> tuple[Tensor, Factors | None]:
        """The covariances (k, d, d) at y, and their factors where there are any."""

    @abstractmethod
    def gradient(self, y: Tensor, G: Tensor, free: Tensor) -> Tensor:
        """The gradient (size,) from that on covariances at y, G / 2; zero where components (k,) are not free."""

    @abstractmethod
    def most(self, y: Tensor) -> Tensor:
        """The largest relative change that a step y makes."""

    @abstractmethod
    def unscaled(self, y: Tensor) -> Tensor:
        """The same numbers without the scale of their information (size,)."""

    @abstractmethod
    def free(self, components: Tensor) -> Tensor:
        """Which numbers (size,) stand for the covariances of some components (k,)."""

    @abstractmethod
    def scaled(self, scale: Tensor) -> Self:
        """The same numbers for covariances of coordinates multiplied by ``scale`` (d,)."""

    @property
    def condition(self) -> float:
        """How many times more complete data would know than rows do."""
        return 1.0

    def strayed(self, y: Tensor) -> bool:
        """Whether y is so far from the anchor that what is known there tells nothing of it."""
        return False

    def tensors(self) -> dict[str, Tensor]:
        """What a chart saves of them."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}


@dataclass(frozen=True)
class LogCholesky(Coordinates):
    """Log-Cholesky factors C of V = L C C^T L^T, L being the anchor's.

    The information is q for entries below the diagonal of C and 2 q for its log-diagonal. Diagonal, spherical and tied
    covariances are linear in these entries: they have some of them alone, or one for many.
    """

    factors: Tensor
    information: Tensor
    among: Literal["all", "tied", "diagonal", "spherical"] = "all"

    @classmethod
    def around(
        cls, V: Tensor, information: Tensor, among: Literal["all", "tied", "diagonal", "spherical"] = "all"
    ) -> Self:
        """The coordinates whose origin is V; NaN where V has no factor."""
        factors, failed = torch.linalg.cholesky_ex(V)
        return cls(torch.where((failed > 0)[:, None, None], torch.nan, factors), information, among)

    @property
    def size(self) -> int:
        """How many entries are free."""
        k, d, _ = self.factors.shape
        triangle = d * (d + 1) // 2
        return {"all": k * triangle, "tied": triangle, "diagonal": k * d, "spherical": k}[self.among]

    def at(self, y: Tensor) -> tuple[Tensor, Factors | None]:
        """V = L C C^T L^T."""
        if self.among == "all":
            return covariances_at(self.factors, *self._whole(y)), None
        L = self.factors @ self._relative(y)
        return L @ L.mT, None

    def gradient(self, y: Tensor, G: Tensor, free: Tensor) -> Tensor:
        """L^T G L C, times C on the diagonal."""
        if self.among == "all":
            on_entries = gradient_at(self.factors, *self._whole(y), G)
            return (on_entries * free[:, None] / self._root()).reshape(-1)
        C = self._relative(y)
        on_entries = self.factors.mT @ G @ self.factors @ C
        diagonal = on_entries.diagonal(dim1=1, dim2=2) * C.diagonal(dim1=1, dim2=2) * free[:, None]
        if self.among == "diagonal":
            return (diagonal / self._root()).reshape(-1)
        if self.among == "spherical":
            return diagonal.sum(1) / self._root()
        a, b = self._triangle()
        entries = torch.where(a == b, diagonal[:, a], on_entries[:, a, b] * free[:, None])
        return ((entries.sum(0) if self.among == "tied" else entries) / self._root()).reshape(-1)

    def most(self, y: Tensor) -> Tensor:
        """The largest logarithm."""
        return self.unscaled(y).abs().amax()

    def unscaled(self, y: Tensor) -> Tensor:
        """The free entries of C below its diagonal, and logarithms on it."""
        root = self._root()
        return (y.view(root.shape) / root).reshape(-1)

    def free(self, components: Tensor) -> Tensor:
        """As many for each component, or one that all share."""
        if self.among == "tied":
            return components.all().expand(self.size)
        return components.repeat_interleave(self.size // len(components))

    def scaled(self, scale: Tensor) -> Self:
        """C is the same, L in other units."""
        return replace(self, factors=scale[:, None] * self.factors)

    def _root(self) -> Tensor:
        """Square roots of the information on each free entry: (k, d (d + 1) / 2), or as many as there are."""
        d = self.factors.shape[1]
        if self.among == "spherical":
            return (2 * d * self.information).sqrt()
        if self.among == "diagonal":
            return (2 * self.information).sqrt()[:, None].expand(-1, d)
        a, b = self._triangle()
        ratio = torch.where(a == b, 2.0**0.5, 1.0).to(self.information.dtype)
        return ratio * (self.information.sum().sqrt() if self.among == "tied" else self.information.sqrt()[:, None])

    def _whole(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """The entries of each component (k, d (d + 1) / 2), and the least that the diagonal may have (k, d)."""
        return self.unscaled(y).view(len(self.factors), -1), torch.zeros_like(self.factors[:, 0])

    def _triangle(self) -> tuple[Tensor, Tensor]:
        d = self.factors.shape[1]
        a, b = torch.tril_indices(d, d, device=self.factors.device)
        return a, b

    def _relative(self, y: Tensor) -> Tensor:
        """C (k, d, d): factors over the anchor's."""
        k, d, _ = self.factors.shape
        free = self.unscaled(y)
        if self.among in ("diagonal", "spherical"):
            return torch.diag_embed(free.view(k, -1).exp().expand(k, d))
        a, b = self._triangle()
        entries = free.view(-1, len(a)).expand(k, len(a))
        C = torch.zeros_like(self.factors)
        C[:, a, b] = torch.where(a == b, entries.exp(), entries)
        return C


@dataclass(frozen=True)
class Loadings(Coordinates):
    """Loadings F and logarithms of own variances D, around an anchor's, of V = F F^T + D.

    With L L^T = V and F chosen so that F^T V^-1 F = diag(s), complete data hold q s_b |L^-1 dF_b|^2 of column b of F
    (what a rotation of the factors and the own variances share with it is left for a method to learn), and
    q / 2 (D_a (V^-1)_ab D_b)^2 of the logarithms of D.
    """

    factors: Tensor  # L (k, d, d)
    loadings: Tensor
    own: Tensor
    signal: Tensor  # s (k, r)
    own_root: Tensor  # Cholesky factor (k, d, d) of the information on log D of one row
    information: Tensor

    @classmethod
    def around(cls, V: Tensor, factors: Factors, information: Tensor) -> Self:
        """The coordinates whose origin these are."""
        L, failed = torch.linalg.cholesky_ex(V)
        L = torch.where((failed > 0)[:, None, None], torch.nan, L)
        inside = torch.linalg.solve_triangular(L, factors.loadings, upper=False)
        signal, rotation = torch.linalg.eigh((inside.mT @ inside).cpu())
        loadings = factors.loadings @ rotation.to(L.device)
        inverse = torch.cholesky_inverse(L)
        on_own = 0.5 * (inverse * factors.own[:, None, :]) * (inverse * factors.own[:, :, None])
        ridge = 1e-3 * on_own.diagonal(dim1=1, dim2=2) + 1e-12
        own_root = torch.linalg.cholesky_ex(on_own + torch.diag_embed(ridge))[0]
        return cls(L, loadings, factors.own, signal.to(L.device).clamp(min=LEAST), own_root, information)

    @property
    def size(self) -> int:
        """d r + d for each component."""
        return self.loadings.numel() + self.own.numel()

    def at(self, y: Tensor) -> tuple[Tensor, Factors | None]:
        """V = F F^T + D."""
        factors = self._factors(y)
        return factors.covariances(), factors

    def gradient(self, y: Tensor, G: Tensor, free: Tensor) -> Tensor:
        """G F and diag(G D) / 2."""
        F, D = self._factors(y)
        root = self.information.sqrt()[:, None, None]
        on_F = self.factors.mT @ (G @ F) / self.signal.sqrt()[:, None, :] / root
        on_logs = (G.diagonal(dim1=1, dim2=2) * D / 2)[..., None]
        on_D = torch.linalg.solve_triangular(self.own_root, on_logs, upper=False) / root
        return torch.cat([(on_F * free[:, None, None]).reshape(-1), (on_D * free[:, None, None]).reshape(-1)])

    def most(self, y: Tensor) -> Tensor:
        """The largest logarithm of an own variance, or shift of a loading by standard deviations."""
        dF, logs = self._steps(y)
        spread = self.factors.square().sum(-1, keepdim=True).sqrt()
        return torch.maximum(logs.abs().amax() / 2, (dF / spread).abs().amax())

    def unscaled(self, y: Tensor) -> Tensor:
        """Shifts of loadings, and logarithms."""
        return torch.cat([part.reshape(-1) for part in self._steps(y)])

    def free(self, components: Tensor) -> Tensor:
        """All loadings, then all own variances."""
        return torch.cat([components.repeat_interleave(part[0].numel()) for part in (self.loadings, self.own)])

    def scaled(self, scale: Tensor) -> Self:
        """Loadings and own variances in other units."""
        L, F = (scale[:, None] * matrix for matrix in (self.factors, self.loadings))
        return replace(self, factors=L, loadings=F, own=scale**2 * self.own)

    def _steps(self, y: Tensor) -> tuple[Tensor, Tensor]:
        on_F, on_D = y.split([self.loadings.numel(), self.own.numel()])
        root = self.information.sqrt()[:, None, None]
        dF = self.factors @ (on_F.view_as(self.loadings) / self.signal.sqrt()[:, None, :]) / root
        logs = torch.linalg.solve_triangular(self.own_root.mT, on_D.view(*self.own.shape, 1), upper=True) / root
        return dF, logs[..., 0]

    def _factors(self, y: Tensor) -> Factors:
        dF, logs = self._steps(y)
        return Factors(self.loadings + dF, self.own * logs.exp())
