"""FitResult: what a fit found, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..methods import Structure
from ..mixture._mixture import Mixture
from ..rows.data import Source
from ..system.ranks import made_by_first
from ..system.text import counted
from .beside.selected import Remains
from .beside.sureness import with_standard_errors
from .history import Epoch, columns
from .interrupting import SAID, hurried, met
from .limits import cannot_tell
from .plan import Plan
from .state import FitState
from .stopping import monte_carlo, resolved
from .workspace import Workspace

ROUNDING = 1e-12  # relative, of a weight that was multiplied and divided


@dataclass(frozen=True, repr=False)
class FitResult:
    """What a fit found: the mixture, its mean log-likelihood on the training rows, and how and from which restart.

    Parameters
    ----------
    mixture : Mixture
        The density of the true values.
    history : tuple of Epoch
        One record per pass over the rows.
    converged : bool
        Whether less than ``tol`` nats of total log-likelihood were left, by the fit's own estimate.
    loglik : float
        Mean log-likelihood of the training rows, per unit of weight; of an interrupted fit of very many, what its last
        pass met.
    validation : float or None
        The same of the rows held out.
    interrupted : bool
        Whether Ctrl-C ended the fit.
    notes : tuple of str
        What the fit had to say: where rows are kept, what was repeated, what was not reached.
    restart : int
        The start that the mixture comes from.
    """

    mixture: Mixture
    history: tuple[Epoch, ...]
    converged: bool
    loglik: float
    validation: float | None = None
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    restart: int = 0

    def __repr__(self) -> str:
        end = "interrupted" if self.interrupted else "converged" if self.converged else "not converged"
        lines = [f"{self.mixture!r}, {end} after {len(self.history)} passes"]
        held_out = "" if self.validation is None else f", held out {self.validation:.6g}"
        lines.append(f"  log-likelihood per row {self.loglik:.6g}{held_out}")
        shown = [f"  note: {note}" if len(note) < 200 else f"  note: {note[:197]}..." for note in self.notes[:6]]
        more = len(self.notes) - len(shown)
        return "\n".join([*lines, *shown, *([f"  and {more} more notes"] if more > 0 else [])])


def result_of(workspace: Workspace, state: FitState, interrupted: bool) -> FitResult:
    """The winner, in the user's units, with what the fit has to say of itself."""
    assert state.winner is not None
    plan, winner = workspace.plan, state.winner
    given, fitted = plan.given, winner.mixture
    if fitted.inflation is not None and not interrupted:
        fitted = fitted.with_(inflation=with_standard_errors(workspace, fitted))
    mixture = tidied(workspace.frame.out_of(fitted), plan.method.covariance).with_(
        labels=plan.labels or (given.labels if given else None),
        units=plan.units or (given.units if given else None),
        background=plan.background,
        selection=plan.selection,
    )
    at_once = interrupted and hurried(workspace)
    scores = met(workspace, state, winner.restart, fitted) if at_once else _scores(workspace, winner.mixture, mixture)
    loglik, validation = scores
    left = Remains.of(mixture, workspace.raw, plan.seed)
    held = None if left is None else left.share.numpy() * workspace.raw.rows
    notes = (
        *workspace.raw.notes,
        *state.notes,
        *([SAID] if at_once else []),
        *_shortfall(workspace, state, interrupted),
        *_coarseness(workspace, winner.converged, loglik),
        *cannot_tell(mixture, workspace.raw, held),
    )
    if mixture.inflation is not None:
        notes = (*(f"errors inflated, {line}" for line in mixture.inflation.describe(mixture.labels)), *notes)
    notes += () if left is None else left.notes(_drawn(workspace, state))
    meta: dict[str, Any] = {
        "fit": state.settings, "epochs": len(state.history), "loglik": loglik, "validation": validation,
        "notes": list(notes), "history": columns(state.history), **plan.facts,
    }  # fmt: skip
    mixture = mixture.with_(meta=meta)
    return FitResult(
        mixture, state.history, winner.converged, loglik, validation, interrupted, notes, winner.restart
    )  # fmt: skip


def _scores(workspace: Workspace, inside: Mixture, mixture: Mixture) -> tuple[float, float | None]:
    """The scores of a mixture, in the frame and out of it, on the rows of the fit and on those held out."""
    plan, held_out = workspace.plan, workspace.held_out
    if plan.selection is not None and plan.selection.drawn:
        return _scored(mixture, workspace.raw, plan), _scored(mixture, workspace.raw_held_out, plan)
    return workspace.score(inside, workspace.train), None if held_out is None else workspace.score(inside, held_out)


def _scored(mixture: Mixture, source: Source | None, plan: Plan) -> Any:
    """What :meth:`Mixture.score` gives, to the bit: other draws than those make another number."""
    return None if source is None else made_by_first(lambda: mixture.score(source), plan.device)


def _drawn(workspace: Workspace, state: FitState) -> str | None:
    """What is known of the error that draws make, where there are some."""
    rounds, size, _ = state.drawing
    if state.proposal is None:
        return None
    known = f"chances to be kept are averages over draws, {rounds} rounds and at last {size} per row or more"
    if workspace.plan.batch_rows is not None or rounds < 2:
        return f"{known}: their error is not known"
    return f"{known}: their error is about {monte_carlo(workspace, state):.1g} standard errors of the parameters"


def tidied(mixture: Mixture, structure: Structure) -> Mixture:
    """A mixture of a structure, without what rounding of another frame has done to it."""
    _, _, V = mixture.tensors()
    if structure.name in ("tied", "diagonal", "spherical"):
        V = structure.nearest(V, torch.from_numpy(np.array(mixture.weights))).V
    return mixture.with_(covariances=V.numpy(), structure=structure.name)


def _shortfall(workspace: Workspace, state: FitState, interrupted: bool) -> list[str]:
    """A note for a fit by full passes that ended by its limit of passes."""
    plan = workspace.plan
    if interrupted or state.winner is None or state.winner.converged or plan.batch_rows is not None or plan.tol == 0:
        return []
    if plan.patience is not None and state.epoch < plan.epochs:
        return []
    return [f"the fit ended after its limit of {plan.epochs} passes and has not converged: more epochs may gain more"]


def _coarseness(workspace: Workspace, converged: bool, loglik: float) -> list[str]:
    """A note for a fit by full passes that has converged to what its number type resolves, which is more than asked."""
    plan, finest = workspace.plan, resolved(workspace, loglik) / workspace.mean_weight
    if not converged or plan.batch_rows is not None or plan.tol == 0 or finest <= plan.tol * (1 + ROUNDING):
        return []
    number, more = ("float32", ": dtype='float64' resolves more") if workspace.single else ("float64", "")
    return [f"{number} cannot tell {plan.tol:g} nats of total log-likelihood of {counted(workspace.train.rows, 'row')} "
            f"apart: the fit has converged to within {finest:.2g}{more}"]  # fmt: skip
