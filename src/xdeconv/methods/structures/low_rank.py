"""LowRank: factor analysers, whose coordinates are correlated by a few factors only."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor

from ...kernels.parameters import Factors
from ..fixed import Fixed
from .contract import Covariances, Structure
from .coordinates import Coordinates, Loadings
from .factor_analysis import analysed, em_step, seeded


@dataclass(frozen=True)
class LowRank(Structure):
    """Covariances V = F F^T + D: ``rank`` factors that coordinates have in common, and a variance of each one's own.

    With diagonal noise the sums over rows cost d rank^2 operations for each row and component, instead of d^3.

    Parameters
    ----------
    rank : int
        Columns of F, at least 1 and below the number of dimensions.

    Examples
    --------
    >>> LowRank(2).of_one(20)
    59
    """

    rank: int

    def __post_init__(self) -> None:
        whole = isinstance(self.rank, Integral) and not isinstance(self.rank, bool)  # NumPy's are Integral, too
        if whole:
            object.__setattr__(self, "rank", int(self.rank))
        if not whole or self.rank < 1:
            raise ValueError(f"the rank of xd.LowRank(rank) must be a whole number of at least 1, got {self.rank!r}")

    @property
    def name(self) -> str:
        return f"low-rank:{self.rank}"

    def refuse(self, k: int, d: int, fixed: Fixed | None) -> None:
        """A rank must lie below the dimensions."""
        if self.rank >= d:
            raise ValueError(f"LowRank({self.rank}) needs more than {self.rank} dimensions and there are {d}: "
                             "use a smaller rank, or covariance='full'")  # fmt: skip
        super().refuse(k, d, fixed)

    def nearest(self, V: Tensor, rows: Tensor) -> Covariances:
        """The factor analysis of V."""
        return _whole(seeded(analysed(V, self.rank)))

    def factored(self, V: Tensor, rows: Tensor) -> Covariances:
        """The factor analysis of V, in which a factor that explains nothing stays so."""
        return _whole(analysed(V, self.rank))

    def roughly(self, V: Tensor, rows: Tensor) -> Tensor:
        """The factor analysis of V after one step."""
        return analysed(V, self.rank, steps=1).covariances()

    def stepped(self, A: Tensor, rows: Tensor, before: Covariances, whole: bool) -> Covariances:
        """The factor analysis of A from where it was, or one step of EM where not all of A is known."""
        assert before.factors is not None
        return _whole(analysed(A, self.rank, before.factors.own) if whole else em_step(A, before.factors))

    def free(self, covariances: Covariances) -> tuple[Tensor, ...]:
        """Loadings (k, d, r) and logarithms of own variances (k, d)."""
        assert covariances.factors is not None
        return covariances.factors.loadings, covariances.factors.own.log()

    def made(self, free: tuple[Tensor, ...], k: int, d: int) -> Covariances:
        """V = F F^T + D."""
        return _whole(Factors(free[0], free[1].exp()))

    def pulled_back(self, free: tuple[Tensor, ...], G: Tensor) -> tuple[Tensor, ...]:
        """G F times the widths, and half the diagonal of G D."""
        return _widths(free) * (G @ free[0]), G.diagonal(dim1=-2, dim2=-1) * free[1].exp() / 2

    def gone(self, free: tuple[Tensor, ...], steps: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Loadings after steps of so many widths, and logarithms after steps."""
        return free[0] + _widths(free) * steps[0], free[1] + steps[1]

    def around(self, covariances: Covariances, information: Tensor) -> Coordinates:
        """Loadings and logarithms of own variances."""
        assert covariances.factors is not None
        return Loadings.around(covariances.V, covariances.factors, information)

    def blank(self, k: int, d: int, device: torch.device) -> Covariances:
        """One of the right shapes."""
        one = torch.ones(k, d, dtype=torch.float64, device=device)
        return _whole(Factors(0.1 * one[..., None].expand(k, d, self.rank).contiguous(), one))


def _widths(free: tuple[Tensor, ...]) -> Tensor:
    """Square roots of the diagonal of V (k, d, 1)."""
    return (free[0].square().sum(-1, keepdim=True) + free[1].exp()[..., None]).sqrt()


def _whole(factors: Factors) -> Covariances:
    return Covariances(factors.covariances(), factors)
