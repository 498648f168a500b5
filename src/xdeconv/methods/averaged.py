"""Any method in batches, ended at the average of its last steps.

Steps on batches never come to rest: with a step long enough to get anywhere, parameters go round the maximum at a
distance that the size of a batch sets. Their average does not (Polyak and Juditsky 1992). The weight of step t in it
grows as t^3, so that it forgets where the fit began and need not know when it will end (Shamir and Zhang 2013).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..kernels.parameters import Factors, Parameters
from ..kernels.stats import Stats
from ..mixture._mixture import Mixture
from .contract import Method, State
from .em import all_weights, without_drift
from .fixed import Fixed
from .prior import Prior
from .structures import Sight, Structure

POWER = 3.0  # of a step's number, in its weight: half of the weight is on the last sixth of the steps


@dataclass(frozen=True)
class AveragedState(State):
    """The last step's state, and the average of steps: weights (k,), means, covariances and numbers, over ``steps``."""

    last: State
    weights: Tensor
    means: Tensor
    covariances: Tensor
    extra: Tensor
    steps: Tensor

    @classmethod
    def begun(cls, last: State) -> AveragedState:
        """The state before the first step."""
        weights, means, covariances, extra = (part.clone() for part in _parts(last))
        return cls(last, weights, means, covariances, extra, torch.zeros_like(means[0, 0]))

    def parameters(self) -> Parameters:
        """Those of the last step: the next goes on from there."""
        return self.last.parameters()

    def numbers(self) -> Tensor:
        """Those of the last step."""
        return self.last.numbers()

    @property
    def factors(self) -> Factors | None:  # type: ignore[override]
        """Those of the last step."""
        return self.last.factors

    def tensors(self) -> dict[str, Tensor]:
        """Everything there is to save."""
        nested = {f"last.{name}": tensor for name, tensor in self.last.tensors().items()}
        return nested | {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}


@dataclass(frozen=True)
class Averaged(Method):
    """A method whose mixture is the average of its last steps; steps themselves are the method's.

    Examples
    --------
    >>> from .em import EM
    >>> Averaged(EM(step=0.1)).recordable
    True
    """

    method: Method

    @property
    def prior(self) -> Prior | None:  # type: ignore[override]
        return self.method.prior

    @property
    def fixed(self) -> Fixed | None:  # type: ignore[override]
        return self.method.fixed

    @property
    def covariance(self) -> Structure:  # type: ignore[override]
        return self.method.covariance

    def init(self, mixture: Mixture, device: torch.device | str = "cpu") -> AveragedState:
        """The state that stands for a mixture."""
        return AveragedState.begun(self.method.init(mixture, device))

    def update(self, state: AveragedState, stats: Stats, total: float) -> AveragedState:
        """One step of the method, which enters the average."""
        last, steps = self.method.update(state.last, stats, total), state.steps + 1
        share = (POWER + 1) / (steps + POWER)
        before = state.weights, state.means, state.covariances, state.extra
        pairs = zip(before, _parts(last), strict=True)
        weights, means, covariances, extra = (torch.lerp(old, new, share) for old, new in pairs)
        return AveragedState(last, weights, means, covariances, extra, steps)

    def mixture(self, state: AveragedState) -> Mixture:
        """The average; of low-rank covariances the nearest that is."""
        last = self.method.mixture(state.last)
        weights = all_weights(state.weights.log(), background=len(last.shares) > last.k)
        held = (self.fixed or Fixed()).mask("covariances", last.k, state.means.device)[:, None, None]
        factored = self.covariance.factored(state.covariances, state.weights).V
        V = torch.where(held, state.covariances, factored)
        return Mixture.from_tensors(without_drift(weights), state.means, V)

    def numbers(self, state: AveragedState) -> Tensor:
        """The average of the numbers that belong to no component."""
        return state.extra

    def with_numbers(self, state: AveragedState, numbers: Tensor) -> AveragedState:
        """The state with fitted numbers that belong to no component, whose average begins afresh."""
        return AveragedState.begun(self.method.with_numbers(state.last, numbers))

    def moved(self, state: AveragedState, parameters: Parameters) -> AveragedState:
        """The state with other parameters, whose average begins afresh."""
        return AveragedState.begun(self.method.moved(state.last, parameters))

    def restore(self, state: AveragedState, tensors: Mapping[str, Tensor]) -> AveragedState:
        """The state whose tensors were saved."""
        nested = {name.removeprefix("last."): t for name, t in tensors.items() if name.startswith("last.")}
        own = {name: tensors[name].clone() for name in ("weights", "means", "covariances", "extra", "steps")}
        return AveragedState(self.method.restore(state.last, nested), **own)

    def owned(self, state: AveragedState) -> AveragedState:
        """A state with tensors of its own."""
        own = {name: value.clone() for name, value in vars(state).items() if isinstance(value, Tensor)}
        return AveragedState(self.method.owned(state.last), **own)

    @property
    def recordable(self) -> bool:
        """The average reads no number of the device."""
        return self.method.recordable

    def through(self, sight: Sight | None) -> Averaged:
        """The same method, told what rows can see."""
        return replace(self, method=self.method.through(sight))

    def with_prior(self, prior: Prior) -> Averaged | None:
        """The same method with a prior."""
        return self._of(self.method.with_prior(prior))

    def with_covariance(self, covariance: Structure) -> Averaged | None:
        """The same method for covariances of a structure."""
        return self._of(self.method.with_covariance(covariance))

    def _of(self, method: Any) -> Averaged | None:
        return None if method is None else replace(self, method=method)

    def standardized(self, scale: Sequence[float]) -> Averaged:
        """The same method for coordinates divided by ``scale``."""
        return replace(self, method=self.method.standardized(scale))


def _parts(state: State) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What is averaged of a state."""
    log_weights, means, covariances = state.parameters()
    return log_weights.exp(), means, covariances, state.numbers()
