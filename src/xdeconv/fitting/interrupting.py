"""Interrupting: what a fit that is to end at once says of its mixture, without another pass over very many rows."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ..mixture._mixture import Mixture
from .full_pass import score_of
from .state import FitState

if TYPE_CHECKING:
    from ..rows.data import Source
    from .workspace import Workspace

QUICK_PAIRS = 10**7  # of a row and a component: a pass takes a fraction of a second
SOME_ROWS = 1 << 14
SAID = "log-likelihoods are those that the last pass met: the fit ended without another one"


def hurried(workspace: Workspace) -> bool:
    """Whether a pass takes longer than somebody who interrupts a fit waits for."""
    return workspace.train.rows * workspace.plan.components > QUICK_PAIRS


def judged(workspace: Workspace, state: FitState, mixture: Mixture, done: bool) -> float:
    """The score by which the mixture of a restart competes with those of others."""
    if not done and hurried(workspace):
        loglik, validation = met(workspace, state, state.restart, mixture)
        return loglik if validation is None else validation
    return workspace.score(mixture, workspace.train if workspace.held_out is None else workspace.held_out)


def met(workspace: Workspace, state: FitState, restart: int, mixture: Mixture) -> tuple[float, float | None]:
    """What the last pass of a restart met, on the rows of the fit and on those held out; before it, some of them."""
    records = [record for record in state.history if record.restart == restart]
    held_out = workspace.held_out
    if records:
        best = workspace.plan.patience is not None and held_out is not None
        record = max(records, key=lambda r: -inf if r.validation is None else r.validation) if best else records[-1]
        return record.loglik, record.validation
    other = None if held_out is None else _of_some(workspace, mixture, held_out)
    return _of_some(workspace, mixture, workspace.train), other


def _of_some(workspace: Workspace, mixture: Mixture, source: Source) -> float:
    rows = source.sample(SOME_ROWS, workspace.plan.seed).to(workspace.plan.device, workspace.dtype)
    parameters, options = mixture.scaled(workspace.plan.device), workspace.plan.options
    total, weight = score_of(rows, parameters, options, mixture.tails, mixture.inflation, workspace.selected).tolist()
    return total / weight
