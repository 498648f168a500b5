"""Rounds of draws: chances to be kept are drawn from the mixture that a fit has come to.

Where the draws of a round are of elsewhere, as many are drawn again; of a fit that had converged with them, more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ... import kernels
from ...mixture._mixture import Mixture
from ...rows.batch import Batch
from ..state import FitState
from ..workspace import Workspace

FIRST = 4  # draws per row, of the first round
MORE, MOST = 4, 256  # times as many, up to so many
POOR = 0.2  # overlap of the mixture that was drawn from and the present one
TRIED = 1024


def drawn(workspace: Workspace, learner: Any, state: FitState) -> tuple[Workspace, FitState]:
    """The next round, from where the fit is."""
    (rounds, size, _), mixture = state.drawing, workspace.mixture(learner)
    if state.proposal is None:
        size = FIRST
    elif overlapping(state.proposal, mixture) >= POOR:
        size = min(MOST, size * MORE)
    state = replace(state, proposal=mixture, drawing=(rounds + 1, size, state.epoch))
    return drawn_again(workspace, state), state


def drawn_again(workspace: Workspace, state: FitState) -> Workspace:
    """The present round, as it was."""
    rounds, size, _ = state.drawing
    assert state.proposal is not None
    return workspace.around(state.proposal, size, workspace.plan.seed + 7919 * rounds)


def overlapping(proposal: Mixture, mixture: Mixture) -> float:
    """How much draws from one mixture are worth for another: their effective number over their number."""
    v = proposal.with_(background=None).drawn(TRIED, np.random.default_rng(0))
    batch = Batch.from_arrays(v)
    logs = [kernels.log_prob(*m.with_(background=None).scaled(), batch).numpy() for m in (mixture, proposal)]
    ratio = np.exp(logs[0] - logs[1] - (logs[0] - logs[1]).max())
    return float(ratio.sum() ** 2 / (TRIED * (ratio**2).sum()))
