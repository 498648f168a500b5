"""When a fit is done: what is left to gain, what rows held out say, and whether to look for better optima first."""

from __future__ import annotations

from typing import Any

import numpy as np

from .beside.drawing import MORE, POOR, worth
from .history import Epoch
from .state import FitState
from .workspace import Workspace

CHANGED = 1.0  # nats: where passes since a search gained less, it would find what it found
ROUNDS = 12  # of draws
NEAR = 0.8  # of what draws were worth for the mixture that they are of
LOOKS = 5  # passes between two looks at what draws are worth
ENOUGH = 0.15  # of a standard error
MOST_OF = 0.1  # of what a round has gained may be left when the next one begins
RESOLVED = {True: 6e-9, False: 1e-17}  # of the log-likelihood: what float32 and float64 can tell apart


def resolved(workspace: Workspace, loglik: float) -> float:
    """What may be left when a fit has converged: ``tol`` nats, or what the number type can resolve of a mean loglik.

    Row weights may have any unit: nats are of rows whose mean weight is 1.
    """
    if workspace.plan.tol == 0:
        return 0.0
    size = abs(loglik) * workspace.total
    return max(workspace.plan.tol * workspace.mean_weight, RESOLVED[workspace.single] * size)


def left(workspace: Workspace, learner: Any, past: list[Epoch]) -> float:
    """Nats of total log-likelihood still to be gained: by the method's estimate, or by how gains fall (Aitken)."""
    estimate = workspace.method.left(learner)
    if estimate is not None or len(past) < 4:
        return np.inf if estimate is None else estimate
    gains = workspace.total * np.diff([record.loglik for record in past[-4:]])
    ratio = gains[2] / gains[1] if gains[1] > 0 else 0.0
    if gains[2] <= 0:
        return 0.0
    return float(gains[2] * max(ratio, 0.0) / (1 - ratio)) if ratio < 1 else np.inf


def settled(workspace: Workspace, learner: Any, state: FitState) -> bool:
    """Whether full passes have converged since the last search; minibatches run for all their epochs."""
    if workspace.plan.batch_rows is not None:
        return False
    past = [record for record in _since_search(state.past()) if record.epoch >= state.drawing[2]]
    return bool(past) and left(workspace, learner, past) < resolved(workspace, past[-1].loglik)


def search_due(workspace: Workspace, learner: Any, state: FitState) -> bool:
    """When a fit has converged elsewhere, or a minibatch epoch is over, as long as searches may be made and succeed."""
    plan, past = workspace.plan, state.past()
    if plan.moves is None or plan.components == 1 or not past:
        return False
    searches = [record.moved for record in past[1:] if record.moved is not None]
    if len(searches) >= plan.moves.rounds or (searches and searches[-1] == 0):
        return False
    return plan.batch_rows is not None or (_changed(workspace, past) and settled(workspace, learner, state))


def _changed(workspace: Workspace, past: list[Epoch]) -> bool:
    """Whether passes have led away from where the last search ended."""
    since = _since_search(past)
    gained = workspace.total * (since[-1].loglik - since[0].loglik)
    return not gained < CHANGED * workspace.mean_weight


def draw_due(workspace: Workspace, learner: Any, state: FitState) -> bool:
    """Whether chances to be kept, where they are averages over draws, must be drawn from where the fit is now.

    Before the first pass and every minibatch epoch; where the draws have become poor; and when a fit has converged with
    draws of elsewhere, or with so few that its gain from them, half the squared shift in standard errors, is too large.
    """
    selection = workspace.plan.selection
    if selection is None or not selection.drawn:
        return False
    rounds, _, epoch = state.drawing
    if state.proposal is None:
        return True
    if workspace.plan.batch_rows is not None:
        return state.epoch > epoch
    if rounds >= ROUNDS or state.epoch == epoch:
        return False
    done = nearly(workspace, learner, state)
    if not done and (state.epoch - epoch) % LOOKS:
        return False
    if done and rounds < 2:
        return True
    left_of = worth(workspace, workspace.mixture(learner))
    if not done:
        return left_of < POOR
    return left_of < NEAR or monte_carlo(workspace, state) > ENOUGH


def nearly(workspace: Workspace, learner: Any, state: FitState) -> bool:
    """Whether a round has gained almost all that its draws have to give: others make more of a difference."""
    past = [record for record in state.past() if record.epoch >= state.drawing[2]]
    if not past:
        return False
    gained = workspace.total * (past[-1].loglik - past[0].loglik)
    enough = max(resolved(workspace, past[-1].loglik), min(workspace.mean_weight, MOST_OF * gained))
    return left(workspace, learner, past) < enough


def monte_carlo(workspace: Workspace, state: FitState) -> float:
    """The part of a standard error that the draws make, in the mean over parameters, by what the last round gained.

    That is half the squared step, in standard errors, from where the draws of the round before led, MORE times fewer:
    so many times larger is the variance of that end of the step.
    """
    past = [record.loglik for record in state.past() if record.epoch >= state.drawing[2]]
    gain = max(past[-1] - past[0], 0.0) * workspace.train.rows
    numbers = state.proposal.n_parameters if state.proposal else 1
    return float(np.sqrt(2 * gain / ((1 + MORE) * numbers)))


def finished(workspace: Workspace, learner: Any, state: FitState) -> bool:
    """Whether a restart may stop: nothing is left to gain, or it was told to stop early and rows held out say so."""
    if state.epoch >= workspace.plan.epochs:
        return True
    if not (settled(workspace, learner, state) or _overfits(workspace, state)):
        return False
    return not (search_due(workspace, learner, state) or draw_due(workspace, learner, state))


def _overfits(workspace: Workspace, state: FitState) -> bool:
    scores = [record.validation for record in _since_search(state.past()) if record.validation is not None]
    patience = workspace.plan.patience
    return patience is not None and len(scores) > patience and int(np.argmax(scores)) < len(scores) - patience


def _since_search(past: list[Epoch]) -> list[Epoch]:
    """The epochs since the last search for better optima that moved something."""
    last = max((i for i, record in enumerate(past) if record.moved), default=0)
    return past[last:]
