"""Chart: a mixture's free parameters as one vector, in coordinates where EM's step is the gradient.

Around an anchor with rows q_j, means m_j and V_j = L_j L_j^T, the coordinates are the logits of the weights, the shifts
of the means u_j = L_j^-1 (m - m_j), and those of the covariances that their structure has (structures/coordinates.py),
each multiplied by the square root of the information that complete data would hold of it: q_j for logits and shifts.
There EM's step is the gradient to first order (Xu & Jordan 1996), so that a quasi-Newton method has only to learn what
noise, gaps and overlap take away from that information.

A background has a logit too, after those of the components. Numbers that belong to no component, logarithms of factors
on errors or of a tail's nu, are the last coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ..kernels.parameters import Factors, Parameters
from ..kernels.stats import Stats
from .em import EMState
from .fixed import Fixed
from .inverse import inverse_of
from .prior import Prior
from .structures import FULL, Coordinates, Covariances, LogCholesky, Sight, Structure, ThroughNoise

SAVED = ("log_weights", "means", "factors", "information", "numbers", "certainty")
LONGEST = (2.0, 2.0, 1.0, 1.0)  # that a step may change logits, means over widths, widths and numbers by


@dataclass(frozen=True)
class Chart:
    """Coordinates around an anchor; ``information`` (k,) is that of complete data, ``factors`` are L (k, d, d).

    With a background, log_weights and information are (k + 1,); ``certainty`` is the information of ``numbers`` (m,).
    """

    log_weights: Tensor
    means: Tensor
    factors: Tensor
    information: Tensor
    shape: Coordinates = None  # type: ignore[assignment]
    numbers: Tensor = None  # type: ignore[assignment]
    certainty: Tensor = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.shape is None:  # full covariances
            object.__setattr__(self, "shape", LogCholesky(self.factors, self.information[: len(self.means)]))
        for name in ("numbers", "certainty"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, self.means.new_zeros(0, dtype=torch.float64))

    @classmethod
    def around(
        cls,
        parameters: Parameters,
        q: Tensor,
        prior: Prior | None,
        structure: Structure = FULL,
        factors: Factors | None = None,
    ) -> Chart:
        """The chart whose origin is a mixture with positive definite covariances and q (k,) rows per component."""
        log_weights, means, V = parameters
        information = q.clamp(min=1e-3 * float(q.mean())) + (0.0 if prior is None else prior.c)
        L, failed = torch.linalg.cholesky_ex(V)
        L = torch.where((failed > 0)[:, None, None], torch.nan, L)
        shape = structure.around(Covariances(V, factors), information[: len(means)])
        return cls(log_weights, means, L, information, shape)

    @classmethod
    def around_state(
        cls, state: EMState, stats: Stats, prior: Prior | None, structure: Structure, sight: Sight | None = None
    ) -> Chart:
        """The same around a state, with its background and its numbers, given the sums of all rows there."""
        everything = state.parameters()._replace(log_weights=state.weights.log())
        chart = cls.around(everything, stats.masses(len(state.weights)), prior, structure, state.factors)
        chart = replace(chart, numbers=state.extra, certainty=stats.certainty.clamp(min=1e-300))
        return chart if sight is None else chart._through_noise(stats.G, prior, sight)

    def _through_noise(self, G: Tensor, prior: Prior | None, sight: Sight) -> Chart:
        """The same, of full covariances, with the information that rows have through their noise."""
        L, rows = self.factors, self.information[: len(self.means)]
        V = L @ L.mT
        if prior is not None:
            G = G + prior.gradient(inverse_of(V))
        shape = ThroughNoise.around(L, sight(V), rows, G)
        return replace(self, factors=shape.units, shape=shape)

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return sum(self._sizes)

    @cached_property
    def _sizes(self) -> list[int]:
        return [len(self.log_weights), self.means.numel(), self.shape.size, len(self.numbers)]

    def tensors(self) -> dict[str, Tensor]:
        """Everything there is to save."""
        plain = {name: getattr(self, name) for name in SAVED}
        return plain | {f"shape.{name}": tensor for name, tensor in self.shape.tensors().items()}

    def restored(self, tensors: Mapping[str, Tensor]) -> Chart:
        """The chart whose tensors were saved."""
        shape = replace(self.shape, **{name: tensors[f"shape.{name}"] for name in self.shape.tensors()})  # type: ignore[type-var]
        return Chart(**{name: tensors[name] for name in SAVED}, shape=shape)

    @cached_property
    def _roots(self) -> tuple[Tensor, Tensor]:
        """Square roots of the information on logits (k,) and on shifts (k, 1)."""
        root = self.information.sqrt()
        return root, root[: len(self.means), None]

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What coordinates stand for: logits (k,), shifts (k, d), and the rest as it is."""
        on_logits, on_shifts = self._roots
        logits, shifts, rest, _ = torch.split_with_sizes(x, self._sizes)
        return logits / on_logits, shifts.view_as(self.means) / on_shifts, rest

    def unscaled(self, x: Tensor) -> Tensor:
        """Coordinates as logits, shifts and entries in one vector, without the scale of their information."""
        logits, shifts, rest = self.parts(x)
        return torch.cat([logits, shifts.reshape(-1), self.shape.unscaled(rest), self._moved_numbers(x)])

    def _moved_numbers(self, x: Tensor) -> Tensor:
        return x[len(x) - len(self.numbers) :] / self.certainty.sqrt() if len(self.numbers) else self.numbers

    def factored(self, x: Tensor) -> Factors | None:
        """The factors of the covariances at coordinates x, where the structure has them."""
        return self.shape.at(self.parts(x)[2])[1]

    def parameters(self, x: Tensor, fixed: Fixed) -> Parameters:
        """The mixture at coordinates x."""
        return self.state(x, fixed, 0.0).parameters()

    def state(self, x: Tensor, fixed: Fixed, seen: float) -> EMState:
        """The mixture at coordinates x, with its background and numbers, and the weight of the rows seen."""
        logits, shifts, rest = self.parts(x)
        V, factors = self.shape.at(rest)
        log_weights = fixed.log_weights(self.log_weights + logits, self.log_weights, len(self.means))
        moved = (self.factors * shifts[:, None, :]).sum(2)
        if fixed.means is not False:
            moved = torch.where(fixed.coordinates(len(moved), moved.shape[1], moved.device), 0.0, moved)
        numbers = self.numbers + self._moved_numbers(x)
        return EMState(log_weights.exp(), self.means + moved, V, V.new_full((), seen), factors, numbers)

    def gradient(self, x: Tensor, weights: Tensor, stats: Stats, prior: Prior | None, fixed: Fixed) -> Tensor:
        """The gradient of log-likelihood and log-prior in these coordinates, from the sums at x; zero where held."""
        k = len(self.means)
        rest = self.parts(x)[2]
        q, G = stats.masses(len(weights)), stats.G
        if prior is not None:
            q, G = q + prior.on_masses(q, k), G + prior.gradient(inverse_of(self.shape.at(rest)[0]))
        on_weights, on_means = self._roots
        on_logits = _on_logits(q, weights, None if fixed.weights is False else fixed.on_weights(len(q), k, q.device))
        on_shifts = self._on_shifts(stats.g, fixed) / on_means
        on_rest = self.shape.gradient(rest, G, ~fixed.mask("covariances", k, q.device))
        parts = [on_logits / on_weights, on_shifts.reshape(-1), on_rest]
        return torch.cat([*parts, stats.slopes / self.certainty.sqrt()] if len(self.numbers) else parts)

    def _on_shifts(self, g: Tensor, fixed: Fixed) -> Tensor:
        """L^T g (k, d), without what would move coordinates that are held."""
        u = (self.factors * g[:, :, None]).sum(1)
        if fixed.means is False:
            return u
        held = fixed.coordinates(len(u), u.shape[1], u.device).to(u.dtype)[..., None] * self.factors
        return u - (torch.linalg.pinv(held) @ held @ u[..., None])[..., 0]

    def changes(self, direction: Tensor) -> Tensor:
        """By how much a direction changes weights, means over widths, widths, and numbers at most (4,), relatively."""
        logits, shifts, rest = self.parts(direction)
        numbers = self._moved_numbers(direction).abs().sum()
        return torch.stack([logits.abs().amax(), shifts.abs().amax(), self.shape.most(rest), numbers])

    def free(self, fixed: Fixed) -> Tensor:
        """Which coordinates (P,) are not held; a background's weight and numbers never are."""
        (k, d), device = self.means.shape, self.means.device
        weights = ~fixed.on_weights(len(self.log_weights), k, device)
        means, covariances = (~fixed.mask(what, k, device) for what in ("means", "covariances"))
        numbers = torch.ones(len(self.numbers), dtype=torch.bool, device=device)
        return torch.cat([weights, means.repeat_interleave(d), self.shape.free(covariances), numbers])

    def in_units(self, shift: Tensor, scale: Tensor) -> Chart:
        """The same coordinates, of a mixture whose own are multiplied by ``scale`` (d,) and shifted (d,)."""
        factors = scale[:, None] * self.factors
        return replace(self, means=shift + scale * self.means, factors=factors, shape=self.shape.scaled(scale))

    def longest(self, direction: Tensor) -> float:
        """How many times a direction may be gone before weights, means or widths change by more than they should."""
        changes = self.changes(direction).tolist()
        return min(limit / max(change, 1e-300) for limit, change in zip(LONGEST, changes, strict=True))


def _on_logits(q: Tensor, weights: Tensor, held: Tensor | None) -> Tensor:
    """The gradient on logits: rows less what the weights have of all of them; zero where they are held."""
    if held is None:
        return q - q.sum() * (weights / weights.sum().clamp(min=1e-300))
    shares = torch.where(held, 0.0, weights)
    shares = shares / shares.sum().clamp(min=1e-300)
    return torch.where(held, 0.0, q - torch.where(held, 0.0, q).sum() * shares)
