"""The plain EM loop over rows in memory, which starts, searches and other tools' calls share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters
from ..kernels.sight import NOISES, sight_of
from ..methods import EM
from ..methods.accelerated import DOUBLE, SINGLE, Accelerated, AcceleratedState
from ..methods.em import EMState, all_weights
from ..rows.batch import Batch
from .aim import ANY, Aim
from .sums import sums

RESOLVED = 2.0**-18  # of a variance, by which float32 tells a covariance from one that is singular
LEFT = 0.1  # nats: a climb ends with less to gain
ROUNDING = 1e-9  # of weights: less was left by no background


def em_passes(
    parameters: Parameters, batch: Batch, count: int, aim: Aim = ANY, options: Options = DEFAULT
) -> Parameters:
    """Parameters after some EM passes over a batch; the prior weighs against these rows."""
    method = EM(prior=aim.prior, covariance=aim.covariance)
    state = _begun(method, parameters, batch)
    for _ in range(count):
        stats = sums(Parameters(*state.parameters()), batch, aim, options)
        after = method.update(state, stats, float(stats.rows))
        state = after if batch.dtype == torch.float64 else _resolved(after, state)
    return Parameters(*state.parameters())


def _resolved(after: EMState, before: EMState) -> EMState:
    """The state with covariances that float32 can factor: a component that has all but collapsed ruins a search.

    The sums of its rows are wrong by as much as they are large, and then the likelihood of every row is NaN.
    """
    if after.factors is not None:
        return after
    V = after.covariances
    ridge = torch.diag_embed(RESOLVED * V.diagonal(dim1=-2, dim2=-1))
    thin = torch.linalg.cholesky_ex(V - ridge).info > 0
    if not bool(thin.any()):
        return after
    V = torch.where(thin[:, None, None], V + ridge, V)
    lost = torch.linalg.cholesky_ex(V).info > 0
    return replace(after, covariances=torch.where(lost[:, None, None], before.covariances, V))


def _begun(method: EM, parameters: Parameters, batch: Batch) -> EMState:
    """The state of EM that stands for parameters, and for what they leave to a background."""
    weights = all_weights(parameters.log_weights, batch.background is not None)
    return method.moved(EMState(weights, *parameters[1:], torch.zeros((), dtype=torch.float64)), parameters)


@dataclass(frozen=True)
class Climb:
    """Accelerated EM over a batch, which may be interrupted."""

    batch: Batch
    aim: Aim
    options: Options
    method: Accelerated
    state: AcceleratedState

    @classmethod
    def of(cls, parameters: Parameters, batch: Batch, aim: Aim = ANY, options: Options = DEFAULT) -> Climb:
        """The climb that begins at some parameters."""
        rounding = SINGLE if batch.dtype == torch.float32 else DOUBLE
        method = Accelerated(EM(prior=aim.prior, covariance=aim.covariance), rounding)
        method = method.through(sight_of(batch.rows(slice(0, NOISES)), options))
        return cls(batch, aim, options, method, method.begun(_begun(method.em, parameters, batch)))

    def further(self, most: int) -> Climb:
        """The climb after at most so many passes more: fewer where nothing is left to gain."""
        state = self.state
        for _ in range(most):
            if self.method.left(state) < LEFT:
                break
            stats = sums(state.parameters(), self.batch, self.aim, self.options)
            state = self.method.update(state, stats, float(stats.rows))
        return replace(self, state=state)

    @property
    def arrived(self) -> bool:
        """Whether next to nothing is left to gain."""
        return self.method.left(self.state) < LEFT

    @property
    def value(self) -> float:
        """Log-likelihood and log-prior where it has come to; minus infinity where they are not finite."""
        value = self.state.progress.objective
        return value if np.isfinite(value) else -np.inf

    @property
    def parameters(self) -> Parameters:
        """Where it has come to."""
        return Parameters(*self.method.accepted(self.state).parameters())


def shared(log_weights: Tensor, before: Sequence[Parameters]) -> Tensor:
    """Log-weights that share what those of other mixtures had together on average: 1, or what a background left."""
    had = torch.stack([parameters.log_weights.exp().sum() for parameters in before]).mean()
    left = 1 - had
    return log_weights.log_softmax(0) + (torch.log1p(-left) if float(left) > ROUNDING else 0.0)
