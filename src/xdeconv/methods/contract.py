"""The contract of everything that learns: frozen settings, an explicit state, one update.

A method sees :class:`xdeconv.kernels.stats.Stats` and never a row. To write one, subclass :class:`Method`, say what its
state is, and define the six abstract methods; what is not abstract has an answer that suits most methods.
"""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any, Self

import torch
from torch import Tensor

from ..kernels.parameters import Factors, Parameters
from ..kernels.stats import Stats
from ..mixture._mixture import Mixture
from .fixed import Fixed
from .prior import Prior
from .structures import FULL, Structure


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
    """How to learn from sums over rows."""

    prior: Prior | None = None
    """A prior that means the same in every method, or none."""
    fixed: Fixed | None = None
    """Parameters that are held, or none."""
    covariance: Structure = FULL
    """What covariances may look like."""

    @abstractmethod
    def init(self, mixture: Mixture, device: torch.device | str = "cpu") -> Any:
        """The state that stands for a mixture."""

    @abstractmethod
    def update(self, state: Any, stats: Stats, total: float) -> Any:
        """The next state, from the sums over a batch of a data set that weighs ``total``."""

    @abstractmethod
    def mixture(self, state: Any) -> Mixture:
        """The mixture that a state stands for."""

    @abstractmethod
    def moved(self, state: Any, parameters: Parameters) -> Any:
        """The state with other parameters, as far along as it was."""

    @abstractmethod
    def restore(self, state: Any, tensors: Mapping[str, Tensor]) -> Any:
        """The state whose tensors were saved, given one of the same shapes."""

    @abstractmethod
    def standardized(self, scale: Sequence[float]) -> Self:
        """The same method for coordinates divided by ``scale``: its settings are in the user's units."""

    def numbers(self, state: Any) -> Tensor:
        """The fitted numbers (m,) that belong to no component and go with :meth:`mixture`."""
        return state.numbers()

    def with_numbers(self, state: Any, numbers: Tensor) -> Any:
        """The state with fitted numbers that belong to no component, which begins to learn afresh."""
        if len(numbers) == 0:
            return state
        raise ValueError(f"{type(self).__name__} fits nothing but components: it has no with_numbers")

    def with_prior(self, prior: Prior) -> Self | None:
        """The same method with a prior, which leads out of numerical trouble; None if it cannot have one."""
        return None

    def with_covariance(self, covariance: Structure) -> Self | None:
        """The same method for covariances of a structure; None if it knows only full ones."""
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
        """Nats of total log-likelihood still to be gained, by the method's own estimate; None if it has none."""
        return None

    def owned(self, state: Any) -> Any:
        """A state whose tensors nobody else holds, to be written in place by recorded updates."""
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
    if isinstance(value, FunctionType):  # two lambdas have one name, and two closures one code
        code, cells = value.__code__, [cell.cell_contents for cell in value.__closure__ or ()]
        inside = [code.co_code.hex(), repr(code.co_consts), code.co_names, repr(cells), repr(value.__defaults__)]
        return [value.__qualname__, zlib.crc32(json.dumps(inside).encode())]
    if is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, {field.name: getattr(value, field.name) for field in fields(value)}]
    return value.__qualname__ if isinstance(value, (type, BuiltinFunctionType)) else repr(value)
