"""Rounds of draws: chances to be kept are drawn from the mixture that a fit has come to.

Where the draws of a round are of elsewhere, as many are drawn again; of a fit that had converged with them, more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...mixture._mixture import Mixture
from ...system.ranks import made_by_first, rank, world
from ..state import FitState
from ..workspace import Workspace

FIRST = 8  # draws per row, of the first round
MORE, MOST = 4, 256  # times as many, up to so many
POOR = 0.2  # of what draws were worth for the mixture that they are of


def drawn(workspace: Workspace, learner: Any, state: FitState) -> tuple[Workspace, FitState]:
    """The next round, from where the fit is."""
    (rounds, size, _), mixture = state.drawing, workspace.mixture(learner)
    if state.proposal is None:
        size = FIRST
    elif worth(workspace, mixture) >= POOR:
        size = min(MOST, size * MORE)
    state = replace(state, proposal=mixture, drawing=(rounds + 1, size, state.epoch))
    return drawn_again(workspace, state), state


def drawn_again(workspace: Workspace, state: FitState) -> Workspace:
    """The present round, as it was."""
    rounds, size, _ = state.drawing
    assert state.proposal is not None
    return workspace.around(state.proposal, size, workspace.plan.seed + 7919 * rounds)


def worth(workspace: Workspace, mixture: Mixture) -> float:
    """What the draws of the present round are worth for a mixture, over what they were for the one they are of."""
    selected = workspace.selected
    assert selected is not None

    def told() -> float:
        batch = next(iter(workspace.train.arranged(None, 0).batches(0, rank=rank(), world=world())))
        return selected.worth(mixture, batch)

    return made_by_first(told, workspace.plan.device)
