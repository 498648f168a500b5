"""Workspace: what one attempt works on: rows in the frame, the method, the number type."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..kernels.sight import NOISES, sight_of
from ..kernels.stats import Stats
from ..methods import Method, Prior, State
from ..mixture._mixture import Mixture
from ..mixture.background import Background
from ..mixture.selections.contract import Selecting
from ..rows.batch import Batch
from ..rows.data import Source
from ..rows.resident import Cache, Place, placed
from ..system.progress import tell
from ..system.ranks import from_first, made_by_first, rank, world
from .beside.carried import Carried
from .beside.selected import Selected
from .frame import Frame
from .full_pass import score_of, stats_of, summed, weight_of
from .minibatches import Steps, make_steps
from .plan import Plan
from .rescue import NumericalTrouble

log = logging.getLogger("xdeconv")
CHECKED_ROWS = 1 << 14
FEW_ROWS = 1 << 10  # with fewer, chances have as many draws
LIGHTEST, HEAVIEST = 1e-150, 1e150  # weight of all rows: its square stays a number
COARSE = 2e-6  # of the mean log-likelihood, relative: float32 has 1e-7 where rows and mixture allow it


@dataclass(frozen=True)
class Workspace:
    """Rows in the frame of a fit, in a number type, with the method as it is in that frame.

    ``total`` is the weight of all rows, ``empty`` how many of them have nothing observed, ``said`` where rows are kept.
    """

    plan: Plan
    frame: Frame
    raw: Source
    raw_held_out: Source | None
    method: Method
    dtype: torch.dtype
    train: Source
    held_out: Source | None
    total: float
    empty: float
    said: str
    steps: Steps | None
    selected: Selected | None = None

    @classmethod
    def of(
        cls, plan: Plan, frame: Frame, raw: Source, raw_held_out: Source | None, dtype: torch.dtype,
        cache: Cache | None, rescue: tuple[float, ...] | None = None,
    ) -> Workspace:  # fmt: skip
        """Put rows where the plan wants them, in the frame, and count them."""
        tell("reading rows")
        where = Place(frame.shift, frame.scale, plan.device, dtype, cache, rank(), world(), plan.seed)
        train, said = placed(raw, where)
        size = plan.batch_rows
        train = train.arranged(None if size is None else -(-size // world()), plan.seed)
        held_out = None
        if raw_held_out is not None:
            held_out = placed(raw_held_out, replace(where, cache=None))[0].arranged(None, 0)
        method = plan.method_for(dtype).standardized(frame.scale.tolist())
        if plan.selection is None:  # which rows were kept tells of widths, too
            some = made_by_first(lambda: raw.sample(NOISES, plan.seed), plan.device)
            some = some.standardized(frame.shift, frame.scale).to(plan.device)
            method = method.through(sight_of(some, plan.options))
        if rescue is not None:
            method = method.with_prior(Prior(w=rescue)) or method
        known = from_first(train.weighed, plan.device)  # by the first rank, which may have surveyed the rows
        total, empty = known or summed(train, weight_of, 2, plan.device).tolist()
        if total <= 0:
            raise ValueError("there are no rows with weight above 0 to fit")
        if not LIGHTEST < total < HEAVIEST:
            raise ValueError(f"the weights of all rows add up to {total:.3g}, which leaves no room to compute in: "
                             "multiply them by a constant")  # fmt: skip
        steps = None
        if size is not None:
            steps = make_steps(
                method, total, plan.options, plan.device, size, train.resident_bytes > 0, _carried(plan, frame)
            )
        made = cls(plan, frame, raw, raw_held_out, method, dtype, train, held_out, total, empty, said, steps)
        return made if plan.selection is None else made.around(None, 0, 0)

    def around(self, proposal: Mixture | None, size: int, seed: int) -> Workspace:
        """The same with the chances of rows drawn, where they are, from a mixture in the frame; or not yet."""
        background, selection = self.beside
        assert selection is not None
        if proposal is None and selection.drawn:
            return self
        selected = Selected.of(selection, background, proposal, size, seed, self.plan.device, FEW_ROWS * size)
        steps = None if self.steps is None else replace(self.steps, selected=selected, recording=None)
        return replace(self, selected=selected, steps=steps)

    @property
    def beside(self) -> tuple[Background | None, Selecting | None]:
        """The background and the selection, in the frame."""
        background, selection, inward = self.plan.background, self.plan.selection, self.frame.inward
        background = None if background is None else background.transformed(*inward)
        return background, None if selection is None else selection.transformed(*inward)

    @property
    def home(self) -> torch.device:
        """Where the method's state is: of full passes on the CPU, where an update takes no launches."""
        return torch.device("cpu") if self.steps is None else self.plan.device

    @property
    def mean_weight(self) -> float:
        """Mean weight of a row: what one nat counts in a sum over rows."""
        return self.total / self.train.rows

    @property
    def single(self) -> bool:
        """Whether numbers are float32."""
        return self.dtype == torch.float32

    def again(
        self, dtype: torch.dtype, cache: Cache | None, rescue: tuple[float, ...] | None
    ) -> Callable[[], Workspace]:
        """What makes the same in a number type; it holds no rows, so that those of this one can go first."""
        return partial(Workspace.of, self.plan, self.frame, self.raw, self.raw_held_out, dtype, cache, rescue)

    def with_method(self, method: Method) -> Workspace:
        """The same with another method."""
        steps = self.steps
        if steps is not None:
            rows, carried = self.plan.batch_rows, self.carried
            steps = make_steps(
                method, self.total, steps.options, steps.device, rows, steps.held, carried, self.selected
            )
        return replace(self, method=method, steps=steps)

    def passed(self, state: Any, epoch: int, interim: Callable[[Any], None]) -> tuple[Any, float]:
        """The state after one pass, and the mean log-likelihood that the pass met; minibatches tell each state."""
        if self.steps is None:
            k, d = self.plan.components, self.raw.dim
            numbers, factors, there = state.numbers(), state.factors, self.plan.device
            now = self.carried.at(numbers)
            work = partial(
                stats_of, parameters=state.parameters().to(there), options=self.plan.options,
                factors=None if factors is None else factors.to(there), tails=now.tails, inflation=now.inflation,
                selected=self.selected,
            )  # fmt: skip
            extra, heavy, all_of_G = len(numbers), now.tails is not None, factors is None or len(numbers) > 0
            unseen = self.selected is not None
            packed = self.summed(self.train, work, Stats.size(k, d, extra, heavy, unseen)).to(self.home)
            whole = Stats(packed, k, d, heavy or all_of_G, extra, heavy, unseen)
            return self.method.update(state, whole, self.total), float(whole.loglik / whole.seen)
        self.steps.begin()
        for after in self.steps.run(state, self.part(epoch)):
            state = after
            interim(state)
        return state, float(self.steps.loglik / self.steps.rows)

    def part(self, epoch: int) -> Iterator[Batch]:
        """This process's batches of an epoch."""
        return self.train.batches(epoch, rank=rank(), world=world())

    def summed(self, source: Source, function: Callable[[Batch], Tensor], size: int) -> Tensor:
        """A sum over all rows of a source."""
        return summed(source, function, size, self.plan.device)

    def begun(self, mixture: Mixture) -> Any:
        """The method's state that stands for a mixture in the frame."""
        state, numbers = self.method.init(mixture, self.home), self.carried.of(mixture).numbers
        return self.method.with_numbers(state, numbers.to(self.home)) if len(numbers) else state

    def mixture(self, state: Any) -> Mixture:
        """The mixture in the frame that the method's state stands for."""
        return self.carried.at(self.method.numbers(state)).put_on(self.method.mixture(state))

    @property
    def carried(self) -> Carried:
        """What the fit began with of numbers that belong to no component, in the frame."""
        return _carried(self.plan, self.frame)

    def score(self, mixture: Mixture, source: Source) -> float:
        """Mean log-likelihood per unit of weight over a source in the frame, by a mixture there."""
        parameters = mixture.scaled(self.plan.device)
        work = partial(
            score_of, parameters=parameters, options=self.plan.options, tails=mixture.tails,
            inflation=mixture.inflation, selected=self.selected,
        )  # fmt: skip
        total, weight = self.summed(source, work, 2).tolist()
        return total / weight

    def agrees_in_double(self, state: State) -> bool:
        """Whether some rows have the mean log-likelihood in float32 that they have in float64, almost."""
        return made_by_first(lambda: self._agrees(state), self.plan.device)

    def _agrees(self, state: State) -> bool:
        exact = self.raw.sample(CHECKED_ROWS, self.plan.seed).standardized(self.frame.shift, self.frame.scale)
        mixture, scores = self.mixture(state), []
        for dtype in (torch.float32, torch.float64):
            parameters, rows = mixture.scaled(self.plan.device), exact.to(self.plan.device, dtype)
            total, weight = score_of(rows, parameters, self.plan.options, mixture.tails, mixture.inflation).tolist()
            scores.append(total / weight)
        return abs(scores[0] - scores[1]) < COARSE * (1 + abs(scores[1]))

    def validation(self, state: State) -> float | None:
        """The score of the rows held out, if there are any, by the mixture that the fit would now return."""
        if self.held_out is None:
            return None
        score = self.score(self.mixture(state), self.held_out)
        if not score > -torch.inf:
            raise NumericalTrouble("the likelihood of the rows held out is not finite")
        return score


def _carried(plan: Plan, frame: Frame) -> Carried:
    inflation = None if plan.inflation is None else plan.inflation.transformed((1 / frame.scale).numpy())
    return Carried(plan.tails, inflation)
