"""Stochastic gradients on softmax logits, means and log-Cholesky factors, by any torch optimiser, without autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..kernels.parameters import Parameters
from ..kernels.stats import Stats
from ..mixture._mixture import Mixture
from .constants import per_coordinate
from .contract import Method, State
from .em import all_weights
from .fixed import Fixed, refuse_other_kinds
from .prior import Prior
from .schedule import Decaying, Schedule, at_epoch, checked_schedule

RATE = Decaying(0.02)
CAPTURABLE = (torch.optim.Adam, torch.optim.AdamW)
SAVED = ("logits", "means", "factors", "seen", "extra")
OptimizerMaker = Callable[..., torch.optim.Optimizer]


@dataclass(frozen=True)
class SGDState(State):
    """Parameters that the optimiser moves in place: logits (k,), means (k, d), factors (k, d, d) with log diagonals.

    With a background, logits are (k + 1,), its own last; ``extra`` (m,) are numbers that belong to no component.
    """

    logits: Tensor
    means: Tensor
    factors: Tensor
    seen: Tensor
    optimizer: torch.optim.Optimizer
    held_weights: Tensor
    fixed_weights: Tensor
    extra: Tensor

    def parameters(self) -> Parameters:
        """Log-weights, means and covariances, as kernels want them."""
        L = self.cholesky()
        return Parameters(self.log_weights()[: len(L)], self.means.detach(), L @ L.mT)

    def numbers(self) -> Tensor:
        """Fitted numbers (m,) that belong to no component."""
        return self.extra.detach()

    def cholesky(self) -> Tensor:
        """L (k, d, d) with V = L L^T."""
        C = self.factors.detach()
        return C.tril(-1) + torch.diag_embed(C.diagonal(dim1=-2, dim2=-1).exp())

    def log_weights(self) -> Tensor:
        """Log of the weights: fixed ones as they were, a softmax of the logits among the others."""
        logits = self.logits.detach()
        free = torch.where(self.fixed_weights, -torch.inf, logits)
        left = 1 - torch.where(self.fixed_weights, self.held_weights, 0.0).sum()
        return torch.where(self.fixed_weights, self.held_weights.log(), torch.log_softmax(free, 0) + left.log())

    def tensors(self) -> dict[str, Tensor]:
        """Everything there is to save, the optimiser's own state among it."""
        saved = {name: getattr(self, name).detach() for name in SAVED}
        for index, slots in self.optimizer.state_dict()["state"].items():
            for name, value in slots.items():
                saved[f"optimizer.{index}.{name}"] = torch.as_tensor(value).detach()
        return saved


@dataclass(frozen=True)
class SGD(Method):
    """Gradient steps on the mean log-likelihood of a batch.

    rate           learning rate: a number or a schedule of the epoch
    optimizer      called as optimizer(parameters, lr=rate, **options); Adam by default
    prior          :class:`Prior`, meaning the same in every method
    trace_penalty  the paper's own penalty: w / trace(V_j) for each component is added to the summed loss of all rows
    fixed          :class:`Fixed`: parameters that are held
    """

    rate: Schedule = RATE
    optimizer: OptimizerMaker = torch.optim.Adam
    options: Mapping[str, Any] | None = None
    prior: Prior | None = None
    trace_penalty: float = 0.0
    fixed: Fixed | None = None
    scale: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        checked_schedule(self.rate, "rate")
        refuse_other_kinds(self)
        if not self.trace_penalty >= 0:
            raise ValueError(f"trace_penalty must not be negative, got {self.trace_penalty!r}")

    def init(self, mixture: Mixture, device: torch.device | str = "cpu") -> SGDState:
        """The state that stands for a mixture."""
        _, means, V = mixture.tensors(device)
        weights = torch.tensor(mixture.shares, device=device)
        L, failed = torch.linalg.cholesky_ex(V)
        if bool(failed.any()):
            j = int(failed.nonzero()[0, 0])
            raise ValueError(
                f"SGD needs positive definite covariances to start from; that of component {j} is singular"
            )
        factors = L.tril(-1) + torch.diag_embed(L.diagonal(dim1=-2, dim2=-1).log())
        fixed = (self.fixed or Fixed()).on_weights(len(weights), mixture.k, device)
        seen, extra = (torch.zeros(size, dtype=torch.float64, device=device) for size in ((), 0))
        return self._state(SGDState(weights.log(), means, factors, seen, None, weights, fixed, extra))  # type: ignore[arg-type]

    def _state(self, state: SGDState) -> SGDState:
        """The same numbers as parameters of a fresh optimiser."""
        names = ("logits", "means", "factors", *(("extra",) if len(state.extra) else ()))
        made: dict[str, Any] = {name: torch.nn.Parameter(getattr(state, name).detach().clone()) for name in names}
        optimizer = self._make_optimizer(list(made.values()), float(at_epoch(self.rate, 0.0)))
        return replace(state, **made, optimizer=optimizer)

    def with_numbers(self, state: SGDState, numbers: Tensor) -> SGDState:
        """The state with fitted numbers that belong to no component; the optimiser starts afresh."""
        return self._state(replace(state, extra=numbers)) if len(numbers) else state

    def _make_optimizer(self, parameters: list[Tensor], rate: float) -> torch.optim.Optimizer:
        options = dict(self.options or {})
        if parameters[0].is_cuda and self.optimizer in CAPTURABLE:
            options = {"capturable": True} | options  # so that a step can be recorded in a CUDA graph
            return self.optimizer(parameters, lr=torch.tensor(rate, device=parameters[0].device), **options)
        optimizer = self.optimizer(parameters, lr=rate, **options)
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ValueError("LBFGS evaluates the loss several times a step: use an optimiser that takes one gradient")
        return optimizer

    def restore(self, state: SGDState, tensors: Mapping[str, Tensor]) -> SGDState:
        """The state whose tensors were saved, written into ``state``."""
        for name in SAVED:
            getattr(state, name).data.copy_(tensors[name])
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
        n, L = stats.rows, state.cholesky()
        alpha = state.log_weights().exp()
        q, g, G = stats.masses(len(alpha)), stats.g, stats.G + self._penalty(L, n / total)
        if self.prior is not None:
            q = q + (n / total) * self.prior.on_masses(q, len(L))
        free = ~state.fixed_weights
        share = torch.where(free, alpha, 0.0) / torch.where(free, alpha, 0.0).sum()
        on_logits = torch.where(free, q - torch.where(free, q, 0.0).sum() * share, 0.0)
        on_factors = (G @ L).tril()
        diagonal = on_factors.diagonal(dim1=-2, dim2=-1)
        diagonal.mul_(L.diagonal(dim1=-2, dim2=-1))
        rows = n.clamp(min=1e-300)  # a batch of no weight has no gradient
        if len(state.extra):
            state.extra.grad = -stats.slopes / rows
        self._apply(state, [-on_logits / rows, -g / rows, -on_factors / rows], state.seen / total)
        return replace(state, seen=state.seen + n)

    def _apply(self, state: SGDState, gradients: list[Tensor], epoch: Tensor) -> None:
        fixed = self.fixed or Fixed()
        k = len(state.means)
        for name, gradient in zip(("logits", "means", "factors"), gradients, strict=True):
            getattr(state, name).grad = gradient
        held = []
        for name, what in (("means", "means"), ("factors", "covariances")):
            if getattr(fixed, what) is not False:
                mask = fixed.mask(what, k, gradients[0].device)
                parameter = getattr(state, name)
                parameter.grad[mask] = 0.0
                held.append((parameter, mask, parameter.detach()[mask].clone()))
        rate = at_epoch(self.rate, epoch)
        for group in state.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].copy_(rate) if isinstance(rate, Tensor) else group["lr"].fill_(rate)
            else:
                group["lr"] = float(rate)
        state.optimizer.step()
        for parameter, mask, values in held:
            parameter.data[mask] = values

    def _penalty(self, L: Tensor, share: Tensor) -> Tensor | float:
        """What prior and trace penalty add to G of a batch that is a ``share`` of the data."""
        added: Tensor | float = 0.0
        if self.prior is not None:
            eye = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device).expand_as(L)
            root = torch.linalg.solve_triangular(L, eye, upper=False)
            added = share * self.prior.gradient(root.mT @ root)
        if self.trace_penalty:
            units = per_coordinate(self.scale or 1.0, L) ** 2
            trace = ((L * L).sum(-1) * units).sum(-1)
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
        return replace(self, prior=prior, scale=tuple(scale))
