"""The contract of everything that learns: frozen settings, an explicit state, one update.

A method sees :class:`xdeconv.kernels.stats.Stats` and never a row. To write one, subclass :class:`Method`, say what its
state is, and define the six abstract methods; what is not abstract has an answer that suits most methods.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import BuiltinFunctionType
from typing import Any, Self

import torch
from torch import Tensor

from ..kernels.parameters import Factors, Parameters
from ..kernels.stats import Stats
from ..mixture._mixture import Mixture
from ..system.functions import named
from .fixed import Fixed
from .prior import Prior
from .structures import FULL, Sight, Structure


class State(ABC):
    """What a method carries from one update to the next."""

    factors: Factors | None = None
    """Factors of the covariances, where sums need be right only in what they read; none where all of G is needed."""

    @abstractmethod
    def parameters(self) -> Parameters:
        """The mixture that the next batch is to be summed for."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Everything there is to save, by name."""

    def numbers(self) -> Tensor:
        """Fitted numbers (m,) that belong to no component: logarithms of factors on errors, of a tail's nu."""
        return torch.zeros(0, dtype=torch.float64)


class Method(ABC):
    """How to learn from sums over rows: frozen settings, a state that is passed on, and one update."""

    prior: Prior | None = None
    """A prior that means the same in every method, or none."""
    fixed: Fixed | None = None
    """Parameters that are held, or none."""
    covariance: Structure = FULL
    """What covariances may look like."""
    average: bool = False
    """Whether a fit in batches is to end at the average of its last steps."""

    @abstractmethod
    def init(self, mixture: Mixture, device: torch.device | str = "cpu") -> Any:
        """The state that stands for a mixture.

        Parameters
        ----------
        mixture : Mixture
            In the frame of the fit.
        device : torch.device or str, default "cpu"
            Where its tensors live.

        Returns
        -------
        State
            Of this method.
        """

    @abstractmethod
    def update(self, state: Any, stats: Stats, total: float) -> Any:
        """The next state, from the sums over a batch.

        Parameters
        ----------
        state : State
            Of this method.
        stats : Stats
            Sums over a batch, or over all rows, at the parameters of the state.
        total : float
            Weight of all rows of the data set.

        Returns
        -------
        State
            The next one; the old one is not used again.
        """

    @abstractmethod
    def mixture(self, state: Any) -> Mixture:
        """The mixture that a state stands for.

        Parameters
        ----------
        state : State
            Of this method.

        Returns
        -------
        Mixture
            In the frame of the fit.
        """

    @abstractmethod
    def moved(self, state: Any, parameters: Parameters) -> Any:
        """The state with other parameters, as far along as it was.

        Parameters
        ----------
        state : State
            Of this method.
        parameters : Parameters
            What a search found, or a small prior widened.

        Returns
        -------
        State
            With these parameters.
        """

    @abstractmethod
    def restore(self, state: Any, tensors: Mapping[str, Tensor]) -> Any:
        """The state whose tensors were saved, given one of the same shapes.

        Parameters
        ----------
        state : State
            Of the same shapes; it may be written into.
        tensors : mapping of str to torch.Tensor
            What :meth:`State.tensors` gave, on the device of those of ``state``.

        Returns
        -------
        State
            The same as was saved, to the bit.
        """

    @abstractmethod
    def standardized(self, scale: Sequence[float]) -> Self:
        """The same method for coordinates divided by ``scale``.

        Parameters
        ----------
        scale : sequence of float
            One per coordinate.

        Returns
        -------
        Method
            Whose settings mean in the frame what these mean in the user's units.
        """

    def numbers(self, state: Any) -> Tensor:
        """The fitted numbers (m,) that belong to no component and go with :meth:`mixture`.

        Parameters
        ----------
        state : State
            Of this method.

        Returns
        -------
        torch.Tensor (m,)
            None for most methods.
        """
        return state.numbers()

    def with_numbers(self, state: Any, numbers: Tensor) -> Any:
        """The state with fitted numbers that belong to no component.

        Parameters
        ----------
        state : State
            Of this method.
        numbers : torch.Tensor (m,)
            What :meth:`numbers` gave.

        Returns
        -------
        State
            Which begins to learn afresh.
        """
        if len(numbers) == 0:
            return state
        raise ValueError(f"{type(self).__name__} fits nothing but components: it has no with_numbers")

    def with_prior(self, prior: Prior) -> Self | None:
        """The same method with a prior, which leads out of numerical trouble.

        Parameters
        ----------
        prior : Prior
            Far below the variances of a typical component.

        Returns
        -------
        Method or None
            None if it cannot have a prior, or is not to have one.
        """
        return None

    def with_covariance(self, covariance: Structure) -> Self | None:
        """The same method for covariances of a structure.

        Parameters
        ----------
        covariance : Structure
            What covariances may look like.

        Returns
        -------
        Method or None
            None if it knows only full ones.
        """
        return None

    @property
    def ascends(self) -> bool:
        """Whether the log-likelihood of all rows rises with every full pass, so that a fall means trouble."""
        return False

    @property
    def recordable(self) -> bool:
        """Whether an update can be recorded as a CUDA graph: no decision in it reads a number of the device."""
        return False

    def left(self, state: Any) -> float | None:
        """Nats of total log-likelihood still to be gained, by the method's own estimate.

        Parameters
        ----------
        state : State
            Of this method.

        Returns
        -------
        float or None
            None if it has no estimate: gains of earlier passes then tell.
        """
        return None

    def through(self, sight: Sight | None) -> Self:
        """The same method, told what rows can see of components through their noise.

        Parameters
        ----------
        sight : callable, optional
            From covariances (k, d, d) to the mean information of a row on each mean (k, d, d); None where rows are true
            values.

        Returns
        -------
        Method
            By default itself.
        """
        return self

    def owned(self, state: Any) -> Any:
        """A state whose tensors nobody else holds, to be written in place by recorded updates.

        Parameters
        ----------
        state : State
            Of this method.

        Returns
        -------
        State
            The same numbers in memory of its own.
        """
        return state

    def describe(self) -> str:
        """The settings as text that is the same whenever the settings are; a function must have a name."""
        return described(self)


def described(settings: Any) -> str:
    """Frozen settings as text that is the same whenever they are."""
    values = {name: value for name, value in vars(settings).items() if name != "scale"}
    return json.dumps([type(settings).__name__, values], default=_plain, sort_keys=True)


def _plain(value: Any) -> Any:
    """Something of settings that JSON does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, {field.name: getattr(value, field.name) for field in fields(value)}]
    if isinstance(value, (type, BuiltinFunctionType)):
        return value.__qualname__
    return named(value) if callable(value) else repr(value)
