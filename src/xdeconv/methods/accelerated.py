"""EM on all rows, accelerated: L-BFGS on the same sums, in coordinates where EM is its first step.

EM's rate is the fraction of missing information: with noise f times the width of a component, about 1 - 1 / (1 + f^2)^2
a pass. The curvature that EM does not know is learnt from the last ``MEMORY`` steps. Every pass evaluates one mixture;
a step that does not raise the objective (log-likelihood and prior) is shortened, so that the objective never falls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..kernels.parameters import Factors, Parameters
from ..kernels.stats import Stats
from ..mixture._mixture import Mixture
from .chart import Chart
from .contract import Method, State
from .em import EM, EMState, restored
from .fixed import Fixed
from .lbfgs import direction_of
from .prior import Prior
from .structures import FULL, Sight, Structure, ThroughNoise, complete_data

MEMORY = 50  # steps whose curvature is remembered
WARM_UP = 5  # passes of plain EM before the first chart
WINDOW, WIDEST = 10, 30  # steps whose gains tell what is left: more where the likelihood is flat
ENOUGH = 1e-4  # of the gain that the slope promises
SHORTER = 0.25  # a step that failed is tried again at this part of its length
RISE = 30.0  # times the least of the last gains leads off a saddle: what was gained before it tells nothing
TRIES = 4  # before the curvature learnt so far is forgotten
NOTHING, UNKNOWN = Fixed(), (math.inf,) * WIDEST
SINGLE, DOUBLE = 2.0**-28, 2.0**-46  # of the objective: what rounding may take from it


class Progress(NamedTuple):
    """Numbers of a state: they are saved as one tensor."""

    seen: float = 0.0  # weight of the rows that passes went through
    passes: float = 0.0
    objective: float = -torch.inf  # log-likelihood and log-prior of the accepted mixture
    loglik: float = -torch.inf
    step: float = 0.0  # of the direction that was gone to the trial
    tries: float = 0.0  # of this direction that failed
    learnt: float = 0.0  # steps in memory
    promised: float = torch.inf  # gain of the next step, by the curvature learnt so far
    window: float = WINDOW  # steps whose gains tell what is left
    plain: float = 0.0  # 1 where charts count noise no more: EM's own steps are shorter, and always gain


@dataclass(frozen=True)
class AcceleratedState(State):
    """The trial that the next pass evaluates, the accepted mixture x in a chart, and what was learnt on the way.

    steps and changes of the gradient are (MEMORY, size), the latest last; gains, WIDEST of them, are of the last
    accepted steps, infinite before there were so many; sums are those of the accepted mixture.
    """

    trial: EMState
    chart: Chart
    x: Tensor
    direction: Tensor
    gradient: Tensor
    sums: Tensor
    steps: Tensor
    changes: Tensor
    gains: tuple[float, ...]
    progress: Progress

    def parameters(self) -> Parameters:
        """What the next pass evaluates."""
        return Parameters(*self.trial.parameters())

    def numbers(self) -> Tensor:
        """What the next pass evaluates of numbers that belong to no component."""
        return self.trial.extra

    @property
    def factors(self) -> Factors | None:  # type: ignore[override]
        """Those of the trial; the first passes need all of G."""
        return None if self.progress.passes < WARM_UP else self.trial.factors

    def tensors(self) -> dict[str, Tensor]:
        """Everything there is to save."""
        plain = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        nested = {f"trial.{n}": t for n, t in self.trial.tensors().items()}
        nested |= {f"chart.{n}": t for n, t in self.chart.tensors().items()}
        numbers = {"progress": self.progress, "gains": self.gains}
        return plain | nested | {n: torch.tensor(values, dtype=torch.float64) for n, values in numbers.items()}


@dataclass(frozen=True)
class Accelerated(Method):
    """Accelerated EM with the prior and the fixed parameters of ``em``; ``rounding`` is relative, of the objective.

    Where rows have noise, ``sight`` tells what they see of components through it.
    """

    em: EM
    rounding: float = DOUBLE
    sight: Sight | None = None

    @property
    def prior(self) -> Prior | None:  # type: ignore[override]
        return self.em.prior

    @property
    def fixed(self) -> Fixed | None:  # type: ignore[override]
        return self.em.fixed

    @property
    def _held(self) -> Fixed:
        return self.em.fixed or NOTHING

    @property
    def covariance(self) -> Structure:  # type: ignore[override]
        return self.em.covariance

    @property
    def _sees_noise(self) -> bool:
        """Whether charts count what noise hides: of full covariances they do."""
        return self.sight is not None and self.covariance == FULL

    def init(self, mixture: Mixture, device: torch.device | str = "cpu") -> AcceleratedState:
        """The state that stands for a mixture."""
        return self.begun(self.em.init(mixture, device))

    def begun(self, trial: EMState) -> AcceleratedState:
        """The state that stands for a state of EM."""
        return self._begun(trial, Progress())

    def _begun(self, trial: EMState, progress: Progress) -> AcceleratedState:
        """A state that has learnt nothing yet."""
        k, d = trial.means.shape
        zeros = trial.means.new_zeros
        weights, numbers = len(trial.weights), len(trial.extra)
        shape = self.covariance.around(self.covariance.blank(k, d, trial.means.device), zeros(k))
        if self._sees_noise:
            shape = ThroughNoise.blank(zeros(k, d, d))
        blank = (zeros(weights), zeros(k, d), zeros(k, d, d), zeros(weights))
        chart = Chart(*blank, shape, zeros(numbers), zeros(numbers))
        line, memory = zeros(chart.size), zeros(MEMORY, chart.size)
        sums = zeros(Stats.size(k, d, numbers))
        return AcceleratedState(trial, chart, line, line, line, sums, memory, memory, UNKNOWN, progress)

    def restore(self, state: AcceleratedState, tensors: Mapping[str, Tensor]) -> AcceleratedState:
        """The state whose tensors were saved."""
        device = state.x.device
        saved = {name: tensor.to(device) for name, tensor in tensors.items()}
        parts = {
            "trial": restored(state.trial, _under("trial.", saved)),
            "chart": state.chart.restored(_under("chart.", saved)),
            "progress": Progress(*tensors["progress"].tolist()),
            "gains": tuple(tensors["gains"].tolist()),
        }
        names = ("x", "direction", "gradient", "sums", "steps", "changes")
        return AcceleratedState(**parts, **{name: saved[name] for name in names})  # type: ignore[arg-type]

    def update(self, state: AcceleratedState, stats: Stats, total: float) -> AcceleratedState:
        """The next trial, from the sums of all rows at the last one."""
        p = state.progress
        p = p._replace(seen=p.seen + float(stats.seen), passes=p.passes + 1)
        value = float(stats.loglik) + self._log_prior(state.parameters())
        if p.passes <= WARM_UP:
            return self._by_em(replace(state, progress=p), stats, total, value)
        if p.passes == WARM_UP + 1 and bool(torch.linalg.cholesky_ex(state.trial.covariances).info.any()):
            p = p._replace(passes=WARM_UP, promised=0.0)  # no chart around a singular covariance
            return self._by_em(replace(state, progress=p), stats, total, value)
        if p.passes == WARM_UP + 1:
            p = p._replace(objective=value, loglik=float(stats.loglik))
            return self._after_em(self._anchored(replace(state, progress=p), state.trial, stats))
        promised = p.step * float(state.gradient @ state.direction)
        if value >= p.objective + ENOUGH * promised - self.rounding * abs(p.objective):
            return self._accepted(replace(state, progress=p), stats, value)
        return self._rejected(replace(state, progress=p))

    def _by_em(self, state: AcceleratedState, stats: Stats, total: float, value: float) -> AcceleratedState:
        """One pass of plain EM."""
        p = state.progress
        gains = _with_gain(state.gains, value - p.objective)
        p = p._replace(objective=value, loglik=float(stats.loglik))
        return replace(state, trial=self.em.update(state.trial, stats, total), progress=p, gains=gains)

    def _after_em(self, state: AcceleratedState) -> AcceleratedState:
        """The first chart: EM's own gains tell what is left only where noise does not shorten its steps."""
        if state.chart.shape.condition < WINDOW:
            return state
        return replace(state, gains=UNKNOWN)

    def _anchored(self, state: AcceleratedState, accepted: EMState, stats: Stats) -> AcceleratedState:
        """A new chart around the accepted mixture; what was learnt in the old one is forgotten."""
        sight = self.sight if self._sees_noise else None
        if sight is not None and state.progress.plain:
            sight = complete_data
        chart = Chart.around_state(accepted, stats, self.prior, self.covariance, sight)
        x = torch.zeros_like(state.x)
        gradient = chart.gradient(x, accepted.weights, stats, self.prior, self._held)
        fresh = replace(state, chart=chart, x=x, gradient=gradient, sums=stats.packed[: len(state.sums)],
                        progress=state.progress._replace(learnt=0.0))  # fmt: skip
        return self._headed(fresh)

    def _accepted(self, state: AcceleratedState, stats: Stats, value: float) -> AcceleratedState:
        """The trial becomes the accepted mixture, and its step a piece of curvature."""
        p, fixed = state.progress, self._held
        x = state.x + p.step * state.direction
        gradient = state.chart.gradient(x, state.trial.weights, stats, self.prior, fixed)
        step, change = x - state.x, state.gradient - gradient
        learnt, steps, changes = p.learnt, state.steps, state.changes
        if float(step @ change) > 1e-10 * float(step @ step):
            learnt = min(learnt + 1, MEMORY)
            steps, changes = torch.cat([steps[1:], step[None]]), torch.cat([changes[1:], change[None]])
        gains = _with_gain(state.gains, value - p.objective)
        if gains[-1] > RISE * (min(gains[-int(p.window) :]) + self.rounding * abs(value)):
            gains = UNKNOWN
        progress = p._replace(objective=value, loglik=float(stats.loglik), learnt=learnt)
        sums = stats.packed[: len(state.sums)]
        state = replace(state, x=x, gradient=gradient, sums=sums, steps=steps, changes=changes,
                        gains=gains, progress=progress)  # fmt: skip
        if state.chart.shape.strayed(state.chart.parts(x)[2]):
            return self._anchored(state, self.accepted(state), stats)
        return self._headed(state)

    def _rejected(self, state: AcceleratedState) -> AcceleratedState:
        """A shorter step; after some, a new chart; where even EM's own direction fails, nothing is left to gain.

        A chart that counts noise takes it to be alike in all rows. Where one in fifty sees what others do not, a first
        step in it is fifty times too long: such charts are given up.
        """
        p = state.progress
        if p.tries + 1 < TRIES:
            return self._trial(state, p._replace(step=SHORTER * p.step, tries=p.tries + 1))
        if p.learnt == 0 and (p.plain or not self._sees_noise):
            return replace(self._trial(state, p._replace(step=0.0, promised=0.0)), gains=(0.0,) * WIDEST)
        k, d = state.chart.means.shape
        sums = Stats(state.sums, k, d, extra=len(state.chart.numbers))
        given_up = replace(state, progress=p._replace(plain=1.0)) if p.learnt == 0 else state
        return self._anchored(given_up, self.accepted(state), sums)

    def _headed(self, state: AcceleratedState) -> AcceleratedState:
        """The direction from the accepted mixture, and the first trial along it."""
        direction, flattest = _direction(state)
        slope = float(direction @ state.gradient)
        if not slope > 0 and state.progress.learnt:
            state = replace(state, progress=state.progress._replace(learnt=0.0))
            direction, flattest = state.gradient, 0.0
            slope = float(direction @ direction)
        step = min(1.0, state.chart.longest(direction))
        progress = state.progress._replace(step=step, tries=0.0, promised=slope / 2, window=_window(state, flattest))
        return self._trial(replace(state, direction=direction), progress)

    def _trial(self, state: AcceleratedState, progress: Progress) -> AcceleratedState:
        trial = self._at(state, state.x + progress.step * state.direction, progress.seen)
        return replace(state, trial=trial, progress=progress)

    def _at(self, state: AcceleratedState, x: Tensor, seen: float) -> EMState:
        """The mixture at coordinates x; covariances that are held are those of the last trial, to the bit."""
        held = self._held
        there = state.chart.state(x, held, seen)
        if held.covariances is False:
            return there
        shape = there.shape.held(held.mask("covariances", len(there.means), x.device), state.trial.shape)
        return replace(there, covariances=shape.V, factors=shape.factors)

    def _log_prior(self, parameters: Parameters) -> float:
        if self.prior is None:
            return 0.0
        return float(self.prior.log_density(parameters.log_weights.exp(), parameters.covariances))

    def left(self, state: AcceleratedState) -> float:
        """Nats that the objective has still to gain, by the curvature learnt and by how gains fall."""
        gains = state.gains[-int(state.progress.window) :]
        half = -(-len(gains) // 2)
        early, late = sum(gains[:half]), sum(gains[half:])
        if not early < torch.inf:
            return torch.inf
        ratio = late / early if early > 0 else 0.0
        falling = late * ratio / (1 - ratio) if ratio < 1 else torch.inf
        return max(state.progress.promised, falling, early + late)

    def moved(self, state: AcceleratedState, parameters: Parameters) -> AcceleratedState:
        """The state with other parameters, as far along as it was."""
        return self._begun(self.em.moved(state.trial, parameters), Progress(seen=state.progress.seen))

    def with_numbers(self, state: AcceleratedState, numbers: Tensor) -> AcceleratedState:
        """The state with fitted numbers that belong to no component, which begins to learn afresh."""
        return self._begun(replace(state.trial, extra=numbers), state.progress) if len(numbers) else state

    def through(self, sight: Sight | None) -> Accelerated:
        """The same method in charts that count what noise hides."""
        return replace(self, sight=sight)

    def with_prior(self, prior: Prior) -> Accelerated:
        """The same method with a prior."""
        return replace(self, em=self.em.with_prior(prior))

    def with_covariance(self, covariance: Structure) -> Accelerated:
        """The same method for covariances of a structure."""
        return replace(self, em=self.em.with_covariance(covariance))

    def mixture(self, state: AcceleratedState) -> Mixture:
        """The accepted mixture."""
        return self.em.mixture(self.accepted(state))

    def numbers(self, state: AcceleratedState) -> Tensor:
        """The accepted numbers that belong to no component."""
        return self.accepted(state).extra

    def accepted(self, state: AcceleratedState) -> EMState:
        """The accepted mixture as a state of EM."""
        if state.progress.passes <= WARM_UP:
            return state.trial
        return self._at(state, state.x, state.progress.seen)

    def standardized(self, scale: Sequence[float]) -> Accelerated:
        """The same method for coordinates divided by ``scale``."""
        return replace(self, em=self.em.standardized(scale))


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, by what follows it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _with_gain(gains: tuple[float, ...], gain: float) -> tuple[float, ...]:
    """The last gains with one more."""
    return (*gains[1:], max(gain, 0.0))


def _window(state: AcceleratedState, flattest: float) -> float:
    """Steps whose gains tell what is left: the square root of the condition, as of conjugate gradients.

    Complete data have curvature 1 in a chart. Noise of three to five widths leaves 1e-3 to 1e-5 of it, and saddles: ten
    steps across one gain next to nothing. A chart that counts noise has scaled it away, and says how much.
    """
    learnt, window = int(state.progress.learnt), state.progress.window
    known = window if learnt < MEMORY else WINDOW  # also of a chart before this one
    return min(max(math.ceil(math.sqrt(max(state.chart.shape.condition, flattest))), known), WIDEST)


def _direction(state: AcceleratedState) -> tuple[Tensor, float]:
    """The gradient times the inverse curvature of the steps that are remembered, and the largest of it along them."""
    learnt = int(state.progress.learnt)
    if learnt == 0:
        return state.gradient, 0.0
    return direction_of(state.gradient, state.steps[-learnt:], state.changes[-learnt:])
