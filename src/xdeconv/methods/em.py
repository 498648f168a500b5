"""EM, batch and minibatch, as one method whose running statistics are the mixture itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..kernels.parameters import Parameters
from ..kernels.stats import Stats
from ..mixture._mixture import Mixture
from .checks import per_dimension, variances
from .constants import per_coordinate
from .contract import Method, State
from .fixed import Fixed, refuse_other_kinds, share_among_free
from .prior import Prior
from .schedule import Schedule, at_epoch, checked_schedule

ROUNDING = 2.0**-51
SMALLEST = 1e-300


@dataclass(frozen=True)
class EMState(State):
    """The mixture, which is also the running statistic, and the weight of the rows seen."""

    weights: Tensor
    means: Tensor
    covariances: Tensor
    seen: Tensor

    def parameters(self) -> Parameters:
        """Log-weights, means and covariances, as kernels want them."""
        return Parameters(self.weights.log(), self.means, self.covariances)

    def tensors(self) -> dict[str, Tensor]:
        """Everything there is to save."""
        return dict(vars(self))


@dataclass(frozen=True)
class EM(Method):
    """Expectation-maximisation (Bovy et al. 2011); with a step below 1 on batches, the paper's minibatch EM.

    step     1 on a full pass is batch EM; a number or a schedule of the epoch below 1 for batches
    prior    :class:`Prior`, meaning the same in every method
    inflate  the paper's own penalty: this variance is added to V after each step and removed before the next
    fixed    :class:`Fixed`: parameters that are held
    accelerate  whether a fit by full passes learns the curvature that EM does not know; it ends in the same places,
                in a small part of the passes
    """

    step: Schedule = 1.0
    prior: Prior | None = None
    inflate: float | Sequence[float] = 0.0
    fixed: Fixed | None = None
    accelerate: bool = True

    def __post_init__(self) -> None:
        checked_schedule(self.step, "step", most=1.0)
        refuse_other_kinds(self)
        object.__setattr__(self, "inflate", variances(self.inflate, "inflate"))

    def init(self, mixture: Mixture, device: torch.device | str = "cpu") -> EMState:
        """The state that stands for a mixture."""
        weights = torch.tensor(mixture.weights, device=device)
        _, means, covariances = mixture.tensors(device)
        return EMState(weights, means, covariances, torch.zeros((), dtype=torch.float64, device=device))

    def restore(self, state: EMState, tensors: Mapping[str, Tensor]) -> EMState:
        """The state whose tensors were saved."""
        return EMState(**{name: tensors[name].to(value.device) for name, value in state.tensors().items()})

    def update(self, state: EMState, stats: Stats, total: float) -> EMState:
        """One update from the sums over a batch, or over all rows; ``total`` is the weight of the data set."""
        n, V = stats.rows, state.covariances
        lam = at_epoch(self.step, state.seen / total) * (n > 0).to(n.dtype)  # a batch of no weight changes nothing
        mass = (1 - lam) * state.weights + lam * stats.q / n.clamp(min=SMALLEST)
        share = torch.where(mass > 0, lam / (n * mass).clamp(min=SMALLEST), 0.0)
        fixed = self.fixed or Fixed()
        k, device = len(mass), mass.device

        free = ~fixed.mask("means", k, device)[:, None]
        if self.step == 1.0:
            delta, moved = moved_in_frame(V, share, stats, free)
        else:
            delta = share[:, None] * torch.einsum("kde,ke->kd", V, stats.g) * free
            moved = V + share[:, None, None] * (V @ stats.G @ V) - delta[:, :, None] * delta[:, None, :]
        if self.inflate:
            moved = moved + (share * stats.q)[:, None, None] * torch.diag_embed(per_coordinate(self.inflate, V))
        if self.prior is not None:
            moved = self.prior.covariances(moved, total * mass, lam)
        moved = torch.where(fixed.mask("covariances", k, device)[:, None, None], V, (moved + moved.mT) / 2)

        weights = mass if self.prior is None else self.prior.weights(mass, total, lam)
        if fixed.weights is not False:
            weights = share_among_free(weights, state.weights, fixed.mask("weights", k, device))
        return EMState(weights, state.means + delta, moved, state.seen + n)

    def moved(self, state: EMState, parameters: Parameters) -> EMState:
        """The state with other parameters, as far along as it was."""
        log_weights, means, covariances = parameters
        return EMState(log_weights.exp(), means, covariances, state.seen)

    def with_prior(self, prior: Prior) -> EM:
        """The same method with a prior."""
        return replace(self, prior=prior)

    @property
    def ascends(self) -> bool:
        """Plain EM on full passes never falls."""
        return self.step == 1.0 and not self.inflate and self.prior is None and self.fixed is None

    @property
    def recordable(self) -> bool:
        """No decision reads a number of the device; masks of fixed parameters are made on the host."""
        return self.fixed is None

    def owned(self, state: EMState) -> EMState:
        """A state with tensors of its own."""
        return EMState(**{name: tensor.clone() for name, tensor in state.tensors().items()})

    def mixture(self, state: EMState) -> Mixture:
        """The mixture that a state stands for."""
        return Mixture.from_tensors(state.weights, state.means, state.covariances)

    def standardized(self, scale: Sequence[float]) -> EM:
        """The same method for coordinates divided by ``scale``: priors and penalties stay in the user's units."""
        prior = None if self.prior is None else self.prior.standardized(scale)
        inflate = per_dimension(self.inflate, len(scale), "inflate")
        scaled = tuple(value / s**2 for value, s in zip(inflate, scale, strict=True)) if self.inflate else 0.0
        return replace(self, prior=prior, inflate=scaled)


def moved_in_frame(V: Tensor, share: Tensor, stats: Stats, free: Tensor) -> tuple[Tensor, Tensor]:
    """The shift of the means and V' = L (I + s L^T G L - u u^T) L^T with V = L L^T and u = s L^T g.

    It equals V + s V G V - delta delta^T, but rounding is relative to each direction's own variance. The middle is
    positive semi-definite; where rounding has made it otherwise, a bound of that rounding is added. A singular V, which
    has no factor, is updated as V + s V G V - delta delta^T.
    """
    L, failed = torch.linalg.cholesky_ex(V)
    eye = torch.eye(V.shape[-1], dtype=V.dtype, device=V.device)
    sound, s = (failed == 0)[:, None, None], share[:, None, None]
    frame, core, factor = torch.where(sound, L, V), torch.where(sound, eye, V), torch.where(sound, L, eye)
    u = s[:, 0] * torch.einsum("kde,kd->ke", frame, stats.g) * free
    middle = core + s * (frame.mT @ stats.G @ frame) - u[:, :, None] * u[:, None, :]
    terms = s * (frame.mT.abs() @ stats.G.abs() @ frame.abs())
    rounding = ROUNDING * (1 + terms.diagonal(dim1=-2, dim2=-1).sum(-1) + (u * u).sum(-1))
    lost = (torch.linalg.cholesky_ex(middle).info != 0)[:, None, None] & sound
    middle = torch.where(lost, middle + rounding[:, None, None] * eye, middle)
    return torch.einsum("kde,ke->kd", factor, u), torch.where(s > 0, factor @ middle @ factor.mT, V)
