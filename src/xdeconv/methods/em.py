"""EM, batch and minibatch, as one method whose running statistics are the mixture itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..kernels.parameters import Factors, Parameters
from ..kernels.stats import Stats
from ..mixture._mixture import Mixture
from .checks import per_dimension, variances
from .constants import per_coordinate
from .contract import Method, State
from .fixed import Fixed, refuse_other_kinds, share_among_free
from .prior import Prior
from .schedule import Schedule, at_epoch, checked_schedule
from .step import ROUNDING, step_of, takes
from .structures import FULL, Covariances, LowRank, Structure, as_structure

SMALLEST = 1e-300
DRIFT = 1e-9  # of the sum of weights


@dataclass(frozen=True)
class EMState(State):
    """The mixture, which is also the running statistic, and the weight of the rows seen.

    weights are (k,), or (k + 1,) with a background's last; ``extra`` (m,) are numbers that belong to no component.
    """

    weights: Tensor
    means: Tensor
    covariances: Tensor
    seen: Tensor
    factors: Factors | None = None
    extra: Tensor = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.extra is None:
            object.__setattr__(self, "extra", self.means.new_zeros(0, dtype=torch.float64))

    def parameters(self) -> Parameters:
        """Log-weights, means and covariances, as kernels want them."""
        return Parameters(self.weights[: len(self.means)].log(), self.means, self.covariances)

    def numbers(self) -> Tensor:
        """Fitted numbers (m,) that belong to no component."""
        return self.extra

    def tensors(self) -> dict[str, Tensor]:
        """Everything there is to save."""
        plain = {name: value for name, value in vars(self).items() if name != "factors"}
        return plain if self.factors is None else plain | self.factors._asdict()

    @property
    def shape(self) -> Covariances:
        """The covariances with their factors."""
        return Covariances(self.covariances, self.factors)


@dataclass(frozen=True)
class EM(Method):
    """Expectation-maximisation (Bovy et al. 2011); with a step below 1 on batches, the paper's minibatch EM.

    Parameters
    ----------
    step : float or schedule, default 1.0
        1 on a full pass is batch EM; for batches a number below 1, or a function of the epoch such as
        :class:`xdeconv.Decaying`.
    prior : Prior, optional
        Which means the same in every method.
    inflate : float or sequence of float, default 0.0
        The paper's own penalty: this variance is added to V after each step and removed before the next.
    fixed : Fixed, optional
        Parameters that are held.
    accelerate : bool, default True
        Whether a fit by full passes learns the curvature that EM does not know; it ends in the same places, in a small
        part of the passes.
    covariance : str or LowRank, default "full"
        What covariances may look like, as in :func:`xdeconv.fit`.
    average : bool, default True
        Whether a fit in batches ends at the average of its last steps, which has next to none of their noise.

    Examples
    --------
    >>> EM(step=0.1, prior=Prior(w=0.01)).ascends
    False
    """

    step: Schedule = 1.0
    prior: Prior | None = None
    inflate: float | Sequence[float] = 0.0
    fixed: Fixed | None = None
    accelerate: bool = True
    covariance: Structure = FULL
    average: bool = True

    def __post_init__(self) -> None:
        checked_schedule(self.step, "step", most=1.0)
        refuse_other_kinds(self)
        object.__setattr__(self, "covariance", as_structure(self.covariance))
        object.__setattr__(self, "inflate", variances(self.inflate, "inflate"))

    def init(self, mixture: Mixture, device: torch.device | str = "cpu") -> EMState:
        """The state that stands for a mixture, or for the nearest of the structure."""
        self.covariance.refuse(mixture.k, mixture.d, self.fixed)
        weights = torch.tensor(mixture.shares, device=device)
        _, means, V = mixture.tensors(device)
        return self._state(weights, means, V, torch.zeros((), dtype=torch.float64, device=device))

    def _state(self, weights: Tensor, means: Tensor, V: Tensor, seen: Tensor) -> EMState:
        self.covariance.refuse_held(V, weights[: len(V)], self.fixed)
        covariances, factors = self.covariance.nearest(V, weights[: len(V)])
        return EMState(weights, means, covariances, seen, factors)

    def restore(self, state: EMState, tensors: Mapping[str, Tensor]) -> EMState:
        """The state whose tensors were saved."""
        return restored(state, tensors)

    def update(self, state: EMState, stats: Stats, total: float) -> EMState:
        """One update from the sums over a batch, or over all rows; ``total`` is the weight of the data set."""
        numbers, stats = stats, stats.for_em()
        n, V = stats.rows, state.covariances
        lam, all_rows = at_epoch(self.step, state.seen / total), numbers.complete(total)
        lam = lam * (n > 0).to(n.dtype)  # a batch of no weight changes nothing
        shares = (1 - lam) * state.weights + lam * stats.masses(len(state.weights)) / n.clamp(min=SMALLEST)
        k, device = len(V), shares.device
        mass = shares[:k]
        share = torch.where(mass > 0, lam / (n * mass).clamp(min=SMALLEST), 0.0)
        fixed = self.fixed or Fixed()

        held = None if fixed.means is False else fixed.coordinates(k, V.shape[-1], device)
        if self.step == 1.0:
            delta, moved = moved_in_frame(V, share, stats, held)
        else:
            whole = share[:, None] * torch.einsum("kde,ke->kd", V, stats.g)
            delta = whole if held is None else share[:, None] * (given_held(V, held) @ stats.g[..., None])[..., 0]
            moved = V + share[:, None, None] * (V @ stats.G @ V) + less_shift(whole, delta)
        if self.inflate:
            moved = moved + (share * stats.q)[:, None, None] * torch.diag_embed(per_coordinate(self.inflate, V))
        if self.prior is not None:
            moved = self.prior.covariances(moved, all_rows * mass, lam)
        rows = (
            all_rows * mass if self.prior is None else torch.where(mass > 0, all_rows * mass + lam * self.prior.c, 0.0)
        )
        shape = self.covariance.stepped((moved + moved.mT) / 2, rows, state.shape, stats.whole)
        if fixed.covariances is not False:
            shape = shape.held(fixed.mask("covariances", k, device), state.shape)

        weights = shares if self.prior is None else self.prior.weights(shares, all_rows, lam, k)
        if fixed.weights is not False:
            weights = share_among_free(weights, state.weights, fixed.on_weights(len(weights), k, device))
        extra = moved_numbers(state.extra, numbers, lam)
        return EMState(weights, state.means + delta, shape.V, state.seen + numbers.seen, shape.factors, extra)

    def with_numbers(self, state: EMState, numbers: Tensor) -> EMState:
        """The state with fitted numbers that belong to no component."""
        return replace(state, extra=numbers)

    def moved(self, state: EMState, parameters: Parameters) -> EMState:
        """The state with other parameters, as far along as it was."""
        log_weights, means, V = parameters
        weights = all_weights(log_weights, len(state.weights) > len(state.means))
        return replace(self._state(weights, means, V, state.seen), extra=state.extra)

    def with_prior(self, prior: Prior) -> EM:
        """The same method with a prior."""
        return replace(self, prior=prior)

    def with_covariance(self, covariance: Structure) -> EM:
        """The same method for covariances of a structure."""
        return replace(self, covariance=covariance)

    @property
    def ascends(self) -> bool:
        """Plain EM on full passes never falls."""
        return self.step == 1.0 and not self.inflate and self.prior is None and self.fixed is None

    @property
    def recordable(self) -> bool:
        """No decision reads a number of the device; masks of fixed parameters are made on the host."""
        return self.fixed is None and not isinstance(self.covariance, LowRank)  # whose factors are found on the host

    def owned(self, state: EMState) -> EMState:
        """A state with tensors of its own."""
        return restored(state, {name: tensor.clone() for name, tensor in state.tensors().items()})

    def mixture(self, state: EMState) -> Mixture:
        """The mixture that a state stands for."""
        return Mixture.from_tensors(without_drift(state.weights), state.means, state.covariances)

    def standardized(self, scale: Sequence[float]) -> EM:
        """The same method for coordinates divided by ``scale``: priors and penalties stay in the user's units."""
        prior = None if self.prior is None else self.prior.standardized(scale)
        inflate = per_dimension(self.inflate, len(scale), "inflate")
        scaled = tuple(value / s**2 for value, s in zip(inflate, scale, strict=True)) if self.inflate else 0.0
        return replace(self, prior=prior, inflate=scaled, covariance=self.covariance.standardized(scale))


def all_weights(log_weights: Tensor, background: bool) -> Tensor:
    """Weights (k,), with a background (k + 1,): it has what the components leave."""
    weights = log_weights.exp()
    return torch.cat([weights, (1 - weights.sum()).clamp(min=0.0)[None]]) if background else weights


def without_drift(weights: Tensor) -> Tensor:
    """Weights that add up to 1, from which float32 sums of many batches drift."""
    total = weights.sum()
    return torch.where((total - 1).abs() > DRIFT, weights / total, weights)


def moved_numbers(numbers: Tensor, stats: Stats, lam: Tensor | float) -> Tensor:
    """Numbers that belong to no component after one step: of factors on diagonal noise, exactly EM's."""
    if not len(numbers):
        return numbers
    ratio = 2 * stats.slopes / stats.certainty.clamp(min=SMALLEST)
    return numbers + lam * 0.5 * torch.log1p(ratio.clamp(min=-0.75, max=3.0))


def restored(state: EMState, tensors: Mapping[str, Tensor]) -> EMState:
    """The state whose tensors were saved, on the device of another of the same shapes."""
    saved = {name: tensors[name].to(value.device) for name, value in state.tensors().items()}
    factors = None if state.factors is None else Factors(*(saved.pop(name) for name in Factors._fields))
    return EMState(**saved, factors=factors)


def given_held(V: Tensor, held: Tensor) -> Tensor:
    """V (k, d, d) given the coordinates that are held (k, d): along it, means move while those stay.

    The best mean with some coordinates held solves (V^-1)_ff delta_f = g_f / q, with (V^-1)_ff^-1 = V_ff - V_fh V_hh^-1
    V_hf.
    """
    keep = held.to(V.dtype)
    inside = V * keep[:, :, None] * keep[:, None, :]
    across = V * keep[:, :, None]
    left = V - across.mT @ torch.linalg.pinv(inside, hermitian=True) @ across
    free = 1 - keep
    return left * free[:, :, None] * free[:, None, :]


def less_shift(whole: Tensor, delta: Tensor) -> Tensor:
    """What a second moment about the old means gains (k, d, d) when they move by delta and the rows by ``whole``."""
    away = whole - delta
    return away[:, :, None] * away[:, None, :] - whole[:, :, None] * whole[:, None, :]


def moved_in_frame(V: Tensor, share: Tensor, stats: Stats, held: Tensor | None) -> tuple[Tensor, Tensor]:
    """The shift of the means and V' = L (I + s L^T G L - u u^T) L^T with V = L L^T and u = s L^T g.

    Coordinates of means that are ``held`` (k, d) do not shift, and V' is about where the means are then.
    It equals V + s V G V - delta delta^T, but rounding is relative to each direction's own variance. The middle is
    positive semi-definite; where rounding has made it otherwise, a bound of that rounding is added. A singular V, which
    has no factor, is updated as V + s V G V - delta delta^T.
    """
    if held is None and takes(V):
        return step_of(V, share, stats.g, stats.G)
    L, failed = torch.linalg.cholesky_ex(V)
    eye = torch.eye(V.shape[-1], dtype=V.dtype, device=V.device)
    sound, s = (failed == 0)[:, None, None], share[:, None, None]
    frame, core, factor = torch.where(sound, L, V), torch.where(sound, eye, V), torch.where(sound, L, eye)
    u = shift = s[:, 0] * torch.einsum("kde,kd->ke", frame, stats.g)
    if held is not None:
        delta = s * (given_held(V, held) @ stats.g[..., None])
        shift = torch.linalg.solve_triangular(factor, delta, upper=False)[..., 0]
    middle = core + s * (frame.mT @ stats.G @ frame) + less_shift(u, shift)
    terms = s * (frame.mT.abs() @ stats.G.abs() @ frame.abs())
    rounding = ROUNDING * (1 + terms.diagonal(dim1=-2, dim2=-1).sum(-1) + (u * u).sum(-1))
    lost = (torch.linalg.cholesky_ex(middle).info != 0)[:, None, None] & sound
    middle = torch.where(lost, middle + rounding[:, None, None] * eye, middle)
    delta = torch.einsum("kde,ke->kd", factor, shift)
    delta = delta if held is None else torch.where(held, 0.0, delta)
    return delta, torch.where(s > 0, factor @ middle @ factor.mT, V)
