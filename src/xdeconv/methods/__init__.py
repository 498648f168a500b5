"""Learning from sums: each method is frozen settings, an explicit state, and one update.

A method sees :class:`xdeconv.stats.Stats` and never a row: it imports neither kernels nor data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ..kernels.stats import Stats
from ..mixture._mixture import Mixture
from .em import EM
from .fixed import Fixed
from .schedule import Decaying, Schedule, Stepped, suited_batch, suited_step
from .sgd import SGD

__all__ = [
    "EM",
    "SGD",
    "Decaying",
    "Fixed",
    "Method",
    "Schedule",
    "State",
    "Stepped",
    "describe",
    "suited_batch",
    "suited_step",
]


class State(Protocol):
    """What a method carries from one update to the next."""

    def parameters(self) -> tuple[Tensor, Tensor, Tensor]:
        """Log-weights (k,), means (k, d) and covariances (k, d, d), as kernels want them."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything there is to save."""


class Method(Protocol):
    """The one protocol of everything that learns."""

    def init(self, mixture: Mixture, device: torch.device | str = "cpu") -> Any:
        """The state that stands for a mixture."""

    def update(self, state: Any, stats: Stats, total: float) -> Any:
        """The next state, from the sums over a batch of a data set that weighs ``total``."""

    def moved(self, state: Any, parameters: tuple[Tensor, Tensor, Tensor]) -> Any:
        """The state with other parameters, as far along as it was."""

    def mixture(self, state: Any) -> Mixture:
        """The mixture that a state stands for."""

    def restore(self, state: Any, tensors: Mapping[str, Tensor]) -> Any:
        """The state whose tensors were saved."""

    def standardized(self, scale: Sequence[float]) -> Method:
        """The same method for coordinates divided by ``scale``."""


def describe(method: Any) -> str:
    """A method's settings as text that is the same whenever the settings are."""
    settings = {name: value for name, value in vars(method).items() if name != "scale"}
    return json.dumps([type(method).__name__, settings], default=_name, sort_keys=True)


def _name(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return [type(value).__name__, {name: getattr(value, name) for name in value.__dataclass_fields__}]
    return getattr(value, "__qualname__", None) or (dict(value) if isinstance(value, Mapping) else repr(value))
