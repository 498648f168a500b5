"""The contract of a structure: what covariances may look like, and how sums over rows are projected onto it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from ...kernels.parameters import Factors
from ...mixture.matrices import of_one_covariance
from ..fixed import Fixed
from .coordinates import Coordinates

OFF = 1e-6  # of a variance: how far from a structure covariances may be that are held as they are


class Covariances(NamedTuple):
    """Covariances V (k, d, d) of a structure, and their factors where the structure has them."""

    V: Tensor
    factors: Factors | None = None

    def held(self, keep: Tensor, before: Covariances) -> Covariances:
        """The same with those of some components (k,) as they were."""
        V = torch.where(keep[:, None, None], before.V, self.V)
        if self.factors is None or before.factors is None:
            return Covariances(V)
        loadings = torch.where(keep[:, None, None], before.factors.loadings, self.factors.loadings)
        return Covariances(V, Factors(loadings, torch.where(keep[:, None], before.factors.own, self.factors.own)))


class Structure(ABC):
    """What covariances may look like: frozen settings, and how the sums (q, g, G) act on what is free.

    Each EM step maximises sum_j rows_j (-log|V_j| - tr(V_j^-1 A_j)) with A_j the covariance that a full mixture would
    have after it: that is all a structure has to know of EM. Its gradient is G pulled back onto what is free.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The word that stands for it, in calls, commands and files."""

    @property
    def shared(self) -> bool:
        """Whether all components have one covariance."""
        return False

    def of_one(self, d: int) -> int:
        """Free numbers of one covariance in d dimensions.

        Parameters
        ----------
        d : int
            Dimensions.

        Returns
        -------
        int
            How many.
        """
        return of_one_covariance(self.name, d)

    @abstractmethod
    def nearest(self, V: Tensor, rows: Tensor) -> Covariances:
        """The covariances of this structure that suit given ones best.

        Parameters
        ----------
        V : torch.Tensor (k, d, d)
            Covariances.
        rows : torch.Tensor (k,)
            Rows of each component.

        Returns
        -------
        Covariances
            Of this structure.
        """

    def factored(self, V: Tensor, rows: Tensor) -> Covariances:
        """Covariances of this structure as they are, with their factors.

        Parameters
        ----------
        V : torch.Tensor (k, d, d)
            Covariances.
        rows : torch.Tensor (k,)
            Rows of each component.

        Returns
        -------
        Covariances
            The same, but for rounding.
        """
        return self.nearest(V, rows)

    def roughly(self, V: Tensor, rows: Tensor) -> Tensor:
        """Much the same as :meth:`nearest`, V alone, in little time.

        Parameters
        ----------
        V : torch.Tensor (k, d, d)
            Covariances.
        rows : torch.Tensor (k,)
            Rows of each component.

        Returns
        -------
        torch.Tensor (k, d, d)
            For trials of components, whose covariances are their own.
        """
        return self.nearest(V, rows).V

    def stepped(self, A: Tensor, rows: Tensor, before: Covariances, whole: bool) -> Covariances:
        """An EM step, given the covariances that full ones would have after it.

        Parameters
        ----------
        A : torch.Tensor (k, d, d)
            Covariances.
        rows : torch.Tensor (k,)
            Rows of each component.
        before : Covariances
            Those before the step.
        whole : bool
            Whether all of A is right; else it is so where V F and the diagonal read it, F being the factors before.

        Returns
        -------
        Covariances
            Those after it.
        """
        return self.nearest(A, rows)

    @abstractmethod
    def free(self, covariances: Covariances) -> tuple[Tensor, ...]:
        """Unconstrained numbers that stand for covariances.

        Parameters
        ----------
        covariances : Covariances
            Of this structure.

        Returns
        -------
        tuple of torch.Tensor
            What gradients act on.
        """

    @abstractmethod
    def made(self, free: tuple[Tensor, ...], k: int, d: int) -> Covariances:
        """The covariances that unconstrained numbers stand for.

        Parameters
        ----------
        free : tuple of torch.Tensor
            Unconstrained numbers.
        k, d : int
            Components and dimensions.

        Returns
        -------
        Covariances
            Of this structure.
        """

    @abstractmethod
    def pulled_back(self, free: tuple[Tensor, ...], G: Tensor) -> tuple[Tensor, ...]:
        """The gradient on steps of no length from unconstrained numbers, as :meth:`gone` takes them.

        Parameters
        ----------
        free : tuple of torch.Tensor
            Unconstrained numbers.
        G : torch.Tensor (k, d, d)
            Twice the gradient on covariances.

        Returns
        -------
        tuple of torch.Tensor
            One per tensor of ``free``.
        """

    def gone(self, free: tuple[Tensor, ...], steps: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Unconstrained numbers after steps that are relative to the widths of components.

        Parameters
        ----------
        free, steps : tuple of torch.Tensor
            Unconstrained numbers, and one step for each.

        Returns
        -------
        tuple of torch.Tensor
            Where the steps lead.
        """
        return tuple(number + step for number, step in zip(free, steps, strict=True))

    def frames(self, free: tuple[Tensor, ...], k: int, d: int) -> Tensor:
        """What turns steps of about a width of each component into steps of its mean.

        Parameters
        ----------
        free : tuple of torch.Tensor
            Unconstrained numbers.
        k, d : int
            Components and dimensions.

        Returns
        -------
        torch.Tensor (k, d, d)
            Factors of the covariances, or their widths on the diagonal.
        """
        return torch.diag_embed(self.made(free, k, d).V.diagonal(dim1=-2, dim2=-1).sqrt())

    @abstractmethod
    def around(self, covariances: Covariances, information: Tensor) -> Coordinates:
        """Coordinates around positive definite covariances.

        Parameters
        ----------
        covariances : Covariances
            Of this structure.
        information : torch.Tensor
            Rows of each component.

        Returns
        -------
        Coordinates
            In which EM's step is the gradient, to first order.
        """

    def blank(self, k: int, d: int, device: torch.device) -> Covariances:
        """Covariances of the right shapes, for a state whose tensors are then replaced.

        Parameters
        ----------
        k, d : int
            Components and dimensions.
        device : torch.device
            Where.

        Returns
        -------
        Covariances
            Of the right shapes.
        """
        return Covariances(torch.eye(d, dtype=torch.float64, device=device).expand(k, d, d).contiguous())

    def standardized(self, scale: Sequence[float]) -> Self:
        """The same structure for coordinates divided by ``scale``.

        Parameters
        ----------
        scale : sequence of float
            (d,), in the user's units.

        Returns
        -------
        Structure
            By default itself.
        """
        return self

    def refuse(self, k: int, d: int, fixed: Fixed | None) -> None:
        """Refuse dimensions that it cannot have, and parameters that cannot be held with it.

        Parameters
        ----------
        k, d : int
            Components and dimensions.
        fixed : Fixed or None
            What is held.
        """
        if fixed is not None:
            fixed.refuse(k, d)
        if fixed is None or fixed.covariances is False or not self.shared:
            return
        if not bool(fixed.mask("covariances", k, "cpu").all()):
            raise ValueError(f"covariance={self.name!r} is one for all components: hold all of them or none")

    def refuse_held(self, V: Tensor, rows: Tensor, fixed: Fixed | None) -> None:
        """Refuse to hold covariances that are not of this structure.

        Parameters
        ----------
        V : torch.Tensor (k, d, d)
            Covariances.
        rows : torch.Tensor (k,)
            How many rows each component has.
        fixed : Fixed or None
            What is held.
        """
        if fixed is None or fixed.covariances is False:
            return
        spread = V.diagonal(dim1=-2, dim2=-1).sqrt().clamp(min=1e-150)
        off = (self.nearest(V, rows).V - V).abs() / (spread[:, :, None] * spread[:, None, :])
        wrong = (off.amax((1, 2)) > OFF) & fixed.mask("covariances", len(V), V.device)
        if bool(wrong.any()):
            j = int(wrong.nonzero()[0, 0])
            raise ValueError(f"the covariance of component {j} is held and is not {self.name}: "
                             f"give a mixture of {self.name} covariances, or another covariance=")  # fmt: skip
