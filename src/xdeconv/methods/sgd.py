"""Stochastic gradients on softmax logits, means and what is free in covariances, by any torch optimiser."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..kernels.parameters import Factors, Parameters
from ..kernels.stats import Stats
from ..mixture._mixture import Mixture
from .checks import number
from .constants import per_coordinate
from .contract import Method, State
from .em import all_weights
from .fixed import Fixed, refuse_other_kinds
from .inverse import inverse_of
from .prior import Prior
from .schedule import Decaying, Schedule, at_epoch, checked_schedule
from .structures import FULL, Covariances, Structure, as_structure

RATE = Decaying(0.02)
CAPTURABLE = (torch.optim.Adam, torch.optim.AdamW)
OptimizerMaker = Callable[..., torch.optim.Optimizer]


@dataclass(frozen=True)
class SGDState(State):
    """Parameters that the optimiser moves in place: logits (k,), means (k, d), and what is free in covariances.

    With a background, logits are (k + 1,), its own last; ``extra`` (m,) are numbers that belong to no component.
    """

    logits: Tensor
    means: Tensor
    free: tuple[Tensor, ...]
    structure: Structure
    seen: Tensor
    optimizer: torch.optim.Optimizer
    held_weights: Tensor
    fixed_weights: Tensor
    extra: Tensor

    def parameters(self) -> Parameters:
        """Log-weights, means and covariances, as kernels want them."""
        return Parameters(self.log_weights()[: len(self.means)], self.means.detach(), self.shape.V)

    def numbers(self) -> Tensor:
        """Fitted numbers (m,) that belong to no component."""
        return self.extra.detach()

    @property
    def shape(self) -> Covariances:
        """The covariances with their factors."""
        return self.structure.made(self.detached, *self.means.shape)

    @property
    def detached(self) -> tuple[Tensor, ...]:
        """What is free in covariances, as plain numbers."""
        return tuple(tensor.detach() for tensor in self.free)

    @property
    def factors(self) -> Factors | None:  # type: ignore[override]
        """Gradients read no more of G than factors do."""
        return self.shape.factors

    def named(self) -> dict[str, Tensor]:
        """The parameters by name."""
        named = {"logits": self.logits, "means": self.means}
        named |= {f"free.{i}": tensor for i, tensor in enumerate(self.free)}
        return named | ({"extra": self.extra} if len(self.extra) else {})

    def log_weights(self) -> Tensor:
        """Log of the weights: fixed ones as they were, a softmax of the logits among the others."""
        logits = self.logits.detach()
        free = torch.where(self.fixed_weights, -torch.inf, logits)
        left = 1 - torch.where(self.fixed_weights, self.held_weights, 0.0).sum()
        return torch.where(self.fixed_weights, self.held_weights.log(), torch.log_softmax(free, 0) + left.log())

    def tensors(self) -> dict[str, Tensor]:
        """Everything there is to save, the optimiser's own state among it."""
        saved = {name: tensor.detach() for name, tensor in self.named().items()} | {"seen": self.seen}
        for index, slots in self.optimizer.state_dict()["state"].items():
            for name, value in slots.items():
                saved[f"optimizer.{index}.{name}"] = torch.as_tensor(value).detach()
        return saved


@dataclass(frozen=True)
class SGD(Method):
    """Gradient steps on the mean log-likelihood of a batch, relative to the widths of each component.

    Parameters
    ----------
    rate : float or schedule, default Decaying(0.02)
        Learning rate: a number, or a function of the epoch such as :class:`xdeconv.Stepped`. Of Adam, about the length
        of a step in widths of a component.
    optimizer : callable, default torch.optim.Adam
        Called with the parameters, ``lr=`` and the options. Means and covariances begin each step at 0, in the frame of
        their component.
    options : mapping, optional
        Further arguments of the optimiser.
    prior : Prior, optional
        Which means the same in every method.
    trace_penalty : float, default 0.0
        The paper's own penalty: w / trace(V_j) per component is added to the summed loss of all rows.
    fixed : Fixed, optional
        Parameters that are held.
    scale : tuple of float, optional
        The scale of the frame, which a fit sets.
    covariance : str or LowRank, default "full"
        What covariances may look like, as in :func:`xdeconv.fit`.
    average : bool, default True
        Whether a fit in batches ends at the average of its last steps, which has next to none of their noise.

    Examples
    --------
    >>> SGD(rate=lambda epoch: 0.01 / (1 + epoch)).rate(1.0)
    0.005
    """

    rate: Schedule = RATE
    optimizer: OptimizerMaker = torch.optim.Adam
    options: Mapping[str, Any] | None = None
    prior: Prior | None = None
    trace_penalty: float = 0.0
    fixed: Fixed | None = None
    scale: tuple[float, ...] | None = None
    covariance: Structure = FULL
    average: bool = True

    def __post_init__(self) -> None:
        checked_schedule(self.rate, "rate")
        refuse_other_kinds(self)
        object.__setattr__(self, "covariance", as_structure(self.covariance))
        object.__setattr__(self, "trace_penalty", number(self.trace_penalty, "trace_penalty"))
        if not callable(self.optimizer):
            raise ValueError(f"optimizer must be a class such as torch.optim.Adam, got {self.optimizer!r}")
        if self.options is not None and not isinstance(self.options, Mapping):
            raise ValueError(f"options must be a dict of arguments of the optimizer, got {self.options!r}")

    def init(self, mixture: Mixture, device: torch.device | str = "cpu") -> SGDState:
        """The state that stands for a mixture."""
        log_weights, means, V = mixture.tensors(device)
        shares = torch.tensor(mixture.shares, device=device)
        self.covariance.refuse(mixture.k, mixture.d, self.fixed)
        self.covariance.refuse_held(V, log_weights.exp(), self.fixed)
        shape = self.covariance.nearest(V, log_weights.exp())
        failed = torch.linalg.cholesky_ex(shape.V).info
        if bool(failed.any()):
            j = int(failed.nonzero()[0, 0])
            raise ValueError(
                f"SGD needs positive definite covariances to start from; that of component {j} is singular"
            )
        logits, means, *free = (torch.nn.Parameter(t) for t in (shares.log(), means, *self.covariance.free(shape)))
        fixed = (self.fixed or Fixed()).on_weights(len(shares), mixture.k, device)
        seen, extra = (torch.zeros(size, dtype=torch.float64, device=device) for size in ((), 0))
        optimizer = self._make_optimizer([logits, means, *free], float(at_epoch(self.rate, 0.0)))
        return SGDState(logits, means, tuple(free), self.covariance, seen, optimizer, shares, fixed, extra)

    def with_numbers(self, state: SGDState, numbers: Tensor) -> SGDState:
        """The state with fitted numbers that belong to no component; the optimiser starts afresh."""
        if not len(numbers):
            return state
        state = replace(state, extra=torch.nn.Parameter(numbers.clone()))
        optimizer = self._make_optimizer(list(state.named().values()), float(at_epoch(self.rate, 0.0)))
        return replace(state, optimizer=optimizer)

    def _make_optimizer(self, parameters: list[Tensor], rate: float) -> torch.optim.Optimizer:
        options = dict(self.options or {})
        if parameters[0].is_cuda and self.optimizer in CAPTURABLE:
            options = {"capturable": True} | options  # so that a step can be recorded in a CUDA graph
            return self.optimizer(parameters, lr=torch.tensor(rate, device=parameters[0].device), **options)
        optimizer = self.optimizer(parameters, lr=rate, **options)
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ValueError("LBFGS evaluates the loss several times per step: use one that takes one gradient")
        return optimizer

    def restore(self, state: SGDState, tensors: Mapping[str, Tensor]) -> SGDState:
        """The state whose tensors were saved, written into ``state``."""
        for name, tensor in (state.named() | {"seen": state.seen}).items():
            tensor.data.copy_(tensors[name])
        parameters = [p for group in state.optimizer.param_groups for p in group["params"]]
        on_device = any(group.get("capturable") for group in state.optimizer.param_groups)
        state.optimizer.state.clear()
        for key, value in tensors.items():
            if key.startswith("optimizer."):
                _, index, name = key.split(".", 2)
                parameter = parameters[int(index)]
                where = parameter.device if value.ndim or on_device else torch.device("cpu")
                state.optimizer.state[parameter][name] = value.clone().to(where)
        return state

    def update(self, state: SGDState, stats: Stats, total: float) -> SGDState:
        """One optimiser step from the sums over a batch; ``total`` is the weight of the data set."""
        n = stats.seen
        alpha = state.log_weights().exp()
        q, g, G = stats.masses(len(alpha)), stats.g, stats.G + self._penalty(state.shape.V, n / total)
        if self.prior is not None:
            q = q + (n / total) * self.prior.on_masses(q, len(g))
        free = ~state.fixed_weights
        share = torch.where(free, alpha, 0.0) / torch.where(free, alpha, 0.0).sum()
        on_logits = torch.where(free, q - torch.where(free, q, 0.0).sum() * share, 0.0)
        frames = self.covariance.frames(state.detached, *state.means.shape)
        on_means = (frames.mT @ self._movable(g)[..., None])[..., 0]
        on_free = self.covariance.pulled_back(state.detached, G)
        rows = n.clamp(min=1e-300)  # a batch of no weight has no gradient
        more = [stats.slopes] if len(state.extra) else []
        gradients = [-gradient / rows for gradient in (on_logits, on_means, *on_free, *more)]
        self._apply(state, gradients, frames, state.seen / total)
        return replace(state, seen=state.seen + n)

    def _movable(self, g: Tensor) -> Tensor:
        """Gradients on means without the coordinates that are held."""
        fixed, (k, d) = self.fixed or Fixed(), g.shape
        return g if fixed.means is False else torch.where(fixed.coordinates(k, d, g.device), 0.0, g)

    def _apply(self, state: SGDState, gradients: list[Tensor], frames: Tensor, epoch: Tensor) -> None:
        """One step of the optimiser, of means and covariances in the frame of each component."""
        for parameter, gradient in zip(state.named().values(), gradients, strict=True):
            parameter.grad = gradient
        held = []
        for parameter, mask in self._held(state):
            held.append((parameter, mask, parameter.detach()[mask].clone()))
        self._set_rate(state, epoch)
        within = (state.means, *state.free)
        means, *free = (parameter.detach().clone() for parameter in within)
        for parameter in within:
            parameter.data.zero_()
        state.optimizer.step()
        shift, *steps = (parameter.detach() for parameter in within)
        after = means + (frames @ shift[..., None])[..., 0], *self.covariance.gone(tuple(free), tuple(steps))
        for parameter, value in zip(within, after, strict=True):
            parameter.data.copy_(value)
        for parameter, mask, values in held:
            parameter.data[mask] = values

    def _set_rate(self, state: SGDState, epoch: Tensor) -> None:
        rate = at_epoch(self.rate, epoch)
        for group in state.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].copy_(rate) if isinstance(rate, Tensor) else group["lr"].fill_(rate)
            else:
                group["lr"] = float(rate)

    def _held(self, state: SGDState) -> list[tuple[Tensor, Tensor]]:
        """Parameters that are held in part, and which part of each."""
        fixed, (k, d), device = self.fixed or Fixed(), state.means.shape, state.seen.device
        held = [] if fixed.means is False else [(state.means, fixed.coordinates(k, d, device))]
        if fixed.covariances is not False:
            mask = fixed.mask("covariances", k, device)
            held += [(tensor, mask[: len(tensor)]) for tensor in state.free]  # one for all is held by all
        return held

    def _penalty(self, V: Tensor, share: Tensor) -> Tensor | float:
        """What prior and trace penalty add to G of a batch that is a ``share`` of the data."""
        added: Tensor | float = 0.0
        if self.prior is not None:
            added = share * self.prior.gradient(inverse_of(V))
        if self.trace_penalty:
            units = per_coordinate(self.scale or 1.0, V) ** 2
            trace = (V.diagonal(dim1=-2, dim2=-1) * units).sum(-1)
            added = added + share * torch.diag_embed(2 * self.trace_penalty * units / trace[:, None] ** 2)
        return added

    def moved(self, state: SGDState, parameters: Parameters) -> SGDState:
        """The state with other parameters, as far along as it was; the optimiser starts afresh."""
        log_weights, means, V = parameters
        weights = all_weights(log_weights, len(state.logits) > len(state.means))
        fresh = self.init(Mixture.from_tensors(weights, means, V), state.seen.device)
        return replace(self.with_numbers(fresh, state.numbers()), seen=state.seen)

    def with_prior(self, prior: Prior) -> SGD:
        """The same method with a prior."""
        return replace(self, prior=prior)

    def with_covariance(self, covariance: Structure) -> SGD:
        """The same method for covariances of a structure."""
        return replace(self, covariance=covariance)

    @property
    def recordable(self) -> bool:
        """Adam can keep its learning rate and its count on the device."""
        return self.fixed is None and self.optimizer in CAPTURABLE

    def owned(self, state: SGDState) -> SGDState:
        """The state itself, whose parameters the optimiser writes in place, with a count of its own."""
        return replace(state, seen=state.seen.clone())

    def mixture(self, state: SGDState) -> Mixture:
        """The mixture that a state stands for."""
        _, means, V = state.parameters()
        return Mixture.from_tensors(state.log_weights().exp(), means, V)

    def standardized(self, scale: Sequence[float]) -> SGD:
        """The same method for coordinates divided by ``scale``: priors and penalties stay in the user's units."""
        prior = None if self.prior is None else self.prior.standardized(scale)
        return replace(self, prior=prior, scale=tuple(scale), covariance=self.covariance.standardized(scale))
