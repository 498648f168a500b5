"""The only loop: a fit goes from state to state, a pass at a time; what it knows is in the state, nothing else."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from ..mixture._mixture import Mixture
from ..rows.data import Source
from ..system.ranks import made_by_first, rank, world
from ..system.text import counted
from .beside.background import describe_rows_outside, with_share
from .beside.drawing import drawn, drawn_again
from .frame import Frame
from .history import Callback, Epoch
from .interrupting import judged
from .plan import Plan
from .rescue import REMEDY, NumericalTrouble, nothing_of, refuse_fall, refuse_trouble, rescued
from .result import FitResult, result_of
from .searching import explored, searched
from .stand_ins import describe_stand_ins
from .state import Candidate, FitState, load_state, refuse_other_learner, refuse_other_ranks, refuse_other_settings
from .stopping import draw_due, finished, search_due
from .weak_prior import describe_weak_prior
from .workspace import Workspace

log = logging.getLogger("xdeconv")


@dataclass
class Desk:
    """What changes hands during a fit: the workspace, the method's state, and the last state of the fit."""

    workspace: Workspace
    state: FitState
    learner: Any = None
    began: float = field(default_factory=time.monotonic)


def run(plan: Plan, source: Source, held_out: Source | None, callbacks: Sequence[Callback]) -> FitResult:
    """All restarts; Ctrl-C ends with the best so far."""
    settings = plan.settings(source, held_out)
    refuse_other_ranks({**settings, **plan.end()}, plan.device)
    single = plan.dtype == torch.float32
    frame = made_by_first(lambda: Frame.of(source, plan.standardize, single, plan.seed), plan.device)
    workspace = Workspace.of(plan, frame, source, held_out, plan.dtype, plan.cache)
    fresh = FitState(settings, 0, 0, _name(plan.dtype), {}, notes=_first_notes(workspace))
    desk = Desk(workspace, fresh)
    saved_at = -np.inf
    try:
        for state in _epochs(desk, _resumed(plan, fresh)):
            now = time.monotonic()
            if plan.checkpoint and rank() == 0 and (state.finished or now - saved_at > plan.checkpoint.every):
                state.save(plan.checkpoint.path)
                saved_at = time.monotonic()
            for callback in callbacks:
                callback(state.history[-1])
    except KeyboardInterrupt:
        _interrupted(desk)
        return result_of(desk.workspace, _competed(desk, False), interrupted=True)
    return result_of(desk.workspace, desk.state, interrupted=False)


def _epochs(desk: Desk, resumed: FitState | None) -> Iterator[FitState]:
    """The states of a fit, one after each epoch of each restart."""
    plan, elapsed = desk.workspace.plan, 0.0
    if resumed is not None:
        desk.state = resumed.noted(*desk.state.notes)
        elapsed = resumed.history[-1].seconds if resumed.history else 0.0
    for restart in range(desk.state.restart, plan.restarts):
        moved: int | None = None
        if resumed is not None and restart == resumed.restart:
            _take_up(desk, resumed)
        else:
            moved = _begin(desk, restart)
        done = finished(desk.workspace, desk.learner, desk.state)
        while not done:
            record = replace(_epoch(desk, moved), seconds=elapsed + time.monotonic() - desk.began)
            moved = None
            state = replace(desk.state, epoch=desk.state.epoch + 1, history=(*desk.state.history, record))
            if plan.patience is not None and record.validation is not None and record.validation > state.best_score:
                best = desk.workspace.mixture(desk.learner)
                state = replace(state, best=best, best_score=record.validation)
            desk.state = replace(state, learner=_saved(plan, desk.learner))
            desk.state = replace(desk.state, finished=finished(desk.workspace, desk.learner, desk.state))
            if desk.state.finished and desk.workspace.single and not desk.workspace.agrees_in_double(desk.learner):
                _recover(desk, NumericalTrouble("the likelihood is too coarse"))
                parameters = desk.workspace.method.mixture(desk.learner).tensors(desk.workspace.home)
                desk.learner = desk.workspace.method.moved(desk.learner, parameters)
                desk.state = replace(desk.state, finished=False, learner=_saved(plan, desk.learner))
            done = desk.state.finished
            yield desk.state
        desk.state = _competed(desk, True)


def _begin(desk: Desk, restart: int) -> int | None:
    """A restart begins as the first one did, whatever another one had to change; how many components were moved."""
    plan, state = desk.workspace.plan, desk.state
    if state.rescue is not None or state.dtype != _name(plan.dtype):
        _replace(desk, plan.dtype, plan.cache, None)
    desk.state = replace(
        desk.state, restart=restart, epoch=0, best=None, best_score=-np.inf, finished=False, proposal=None,
        drawing=(0, 0, 0),
    )  # fmt: skip
    mixture, moved = explored(desk.workspace, restart)
    desk.learner = desk.workspace.begun(mixture)
    return moved


def _take_up(desk: Desk, saved: FitState) -> None:
    """The restart that a checkpoint was saved in."""
    plan = desk.workspace.plan
    if saved.dtype != _name(desk.workspace.dtype) or saved.rescue is not None:
        cache = plan.cache if saved.dtype == _name(plan.dtype) else None
        _replace(desk, getattr(torch, saved.dtype), cache, saved.rescue)
    if saved.proposal is not None:
        desk.workspace = drawn_again(desk.workspace, saved)
    method = desk.workspace.method
    empty = desk.workspace.begun(_any_mixture(desk.workspace))
    assert plan.checkpoint is not None
    refuse_other_learner(plan.checkpoint.path, saved.learner, empty.tensors())
    there = {name: tensor.device for name, tensor in empty.tensors().items()}  # checkpoints are read to the CPU
    desk.learner = method.restore(empty, {n: t.to(there.get(n, t.device)) for n, t in saved.learner.items()})


def _epoch(desk: Desk, moved: int | None) -> Epoch:
    """One pass, repeated in float64, without a search before it, and with a small prior where it fails, all said."""
    remarks: list[str] = []
    past = desk.state.past()
    unsearched: dict[str, torch.Tensor] | None = None
    if draw_due(desk.workspace, desk.learner, desk.state):
        _draw(desk)
        past = []
    if search_due(desk.workspace, desk.learner, desk.state):
        unsearched = _copied(desk.learner)
        moved = _search(desk, remarks)
    if moved:
        remarks.append(counted(moved, "move"))
        past = []
    while True:
        before = _copied(desk.learner)
        try:
            after, loglik = desk.workspace.passed(desk.learner, desk.state.epoch, lambda s: setattr(desk, "learner", s))
            _refuse_trouble(desk.workspace, after, loglik, past)
            validation = desk.workspace.validation(after)
            break
        except NumericalTrouble as trouble:
            desk.learner = desk.workspace.method.restore(desk.learner, before)
            if moved and unsearched is not None and not desk.workspace.single:
                desk.learner = desk.workspace.method.restore(desk.learner, unsearched)
                remarks.append(f"a search that made {counted(moved, 'move')} was undone: {trouble}")
                moved, past = 0, desk.state.past()
                continue
            remarks.append(_recover(desk, trouble))
    desk.learner = after
    return Epoch(desk.state.epoch, 0.0, loglik, validation, desk.state.restart, moved, "; ".join(remarks))


def _draw(desk: Desk) -> None:
    """Draw chances to be kept from where the fit is: what a method has learnt with others is forgotten."""
    desk.workspace, desk.state = drawn(desk.workspace, desk.learner, desk.state)
    if desk.workspace.plan.batch_rows is None:
        method = desk.workspace.method
        desk.learner = method.moved(desk.learner, method.mixture(desk.learner).tensors(desk.workspace.home))


def _copied(learner: Any) -> dict[str, torch.Tensor]:
    """A copy of a method's tensors, which updates may write in place."""
    return {name: tensor.detach().clone() for name, tensor in learner.tensors().items()}


def _search(desk: Desk, remarks: list[str]) -> int:
    """Look for better optima on a pool of rows; a state whose likelihood is not finite is changed first."""
    result = searched(desk.workspace, desk.learner.parameters(), desk.learner.numbers(), desk.state)
    while not result.sound:
        remarks.append(_recover(desk, NumericalTrouble("the likelihood is not finite")))
        result = searched(desk.workspace, desk.learner.parameters(), desk.learner.numbers(), desk.state)
    if result.moved:
        desk.learner = desk.workspace.method.moved(desk.learner, result.parameters)
    return result.moved


def _refuse_trouble(workspace: Workspace, after: Any, loglik: float, past: list[Epoch]) -> None:
    refuse_trouble(after, loglik, nothing_of(workspace.plan.standardize))
    if workspace.single and past and workspace.method.ascends and workspace.plan.batch_rows is None:
        refuse_fall(past[-1].loglik, loglik)


def _recover(desk: Desk, trouble: NumericalTrouble) -> str:
    """What the failed epoch is repeated with, said as well; raise when nothing is left to change."""
    epoch, state = desk.state.epoch, desk.state
    if desk.workspace.single:
        _replace(desk, torch.float64, None, state.rescue)
        note = f"{trouble} in float32: epoch {epoch} was repeated in float64, and the fit continues in it"
    else:
        plan = desk.workspace.plan
        nothing = nothing_of(plan.standardize)
        helped = rescued(desk.workspace.method, desk.learner, plan.weak and state.rescue is None, nothing)
        if helped is None:
            raise NumericalTrouble(f"epoch {epoch}: {trouble}, in float64. {REMEDY}") from trouble
        method, desk.learner, w = helped
        desk.workspace = desk.workspace.with_method(method)
        desk.state = replace(desk.state, rescue=w)
        shown = ", ".join(f"{value:.3g}" for value in desk.workspace.frame.variances_out(w))
        note = f"{trouble} at epoch {epoch}: the fit continues with a small prior, w = ({shown}). {REMEDY}"
    _note(desk, note)
    return note


def _replace(desk: Desk, dtype: torch.dtype, cache: Any, rescue: tuple[float, ...] | None) -> None:
    """Another number type or prior: the old rows make room before the new ones are made."""
    make = desk.workspace.again(dtype, cache, rescue)
    del desk.workspace
    desk.workspace = make()
    if desk.state.proposal is not None:
        desk.workspace = drawn_again(desk.workspace, desk.state)
    desk.state = replace(desk.state, dtype=_name(dtype), rescue=rescue)


def _competed(desk: Desk, done: bool) -> FitState:
    """Keep the better of this restart's mixture and the best of those before, by validation where there is any."""
    workspace, state = desk.workspace, desk.state
    mixture = state.best or workspace.mixture(desk.learner)
    score = state.best_score
    if state.best is None and (workspace.held_out is not None or workspace.plan.restarts > 1):
        score = judged(workspace, state, mixture, done)
    if state.winner is not None and not score > state.winner.score:
        return state
    converged = done and state.epoch > 0 and finished(workspace, desk.learner, replace(state, epoch=0))
    return replace(state, winner=Candidate(mixture, score, converged, state.restart))


def _resumed(plan: Plan, fresh: FitState) -> FitState | None:
    """The state to resume from, the same on all ranks; None where there is none."""
    if plan.checkpoint is None or not plan.checkpoint.resume:
        return None
    path = plan.checkpoint.path
    saved = made_by_first(lambda: load_state(path) if os.path.exists(path) else None, plan.device)
    if saved is None:
        log.warning("there is no checkpoint %s yet: starting from the beginning", path)
        return None
    refuse_other_settings(path, saved.settings, fresh.settings)
    return saved


def _interrupted(desk: Desk) -> None:
    """Save what there is, and say how to resume; of several ranks none may wait for another now."""
    plan, state = desk.workspace.plan, desk.state
    if desk.learner is None:
        raise KeyboardInterrupt
    how = "this is the best mixture so far"
    if plan.checkpoint is not None and state.learner and rank() == 0:
        state.save(plan.checkpoint.path)
        how = f"checkpoint=xd.Checkpoint({str(plan.checkpoint.path)!r}, resume=True) resumes from here"
    if world() > 1:
        raise KeyboardInterrupt
    _note(desk, f"interrupted after {len(state.history)} epochs: {how}")


def _saved(plan: Plan, learner: Any) -> dict[str, torch.Tensor]:
    """A copy of the method's tensors, for a checkpoint."""
    if plan.checkpoint is None or rank() > 0:
        return {}
    return _copied(learner)


def _first_notes(workspace: Workspace) -> tuple[str, ...]:
    """How many components were chosen, where rows are kept, what columns without noise got, how many say nothing."""
    plan, notes = workspace.plan, [*workspace.plan.said, *([workspace.said] if workspace.said else [])]
    if plan.weak and plan.method.prior is not None:
        notes.append(describe_weak_prior(plan.method.prior, plan.labels))
    if workspace.empty:
        rows = f"{workspace.empty:,.0f} of {workspace.train.rows:,} rows have nothing observed"
        notes.append(f"{rows}: they say nothing about the mixture")
        log.warning(notes[-1])
    if outside := made_by_first(lambda: describe_rows_outside(plan.background, workspace.raw), plan.device):
        notes.append(outside)
        log.warning(outside)
    for likely in made_by_first(lambda: describe_stand_ins(workspace.raw, plan.labels), plan.device):
        notes.append(likely)
        log.warning(likely)
    return tuple(notes)


def _any_mixture(workspace: Workspace) -> Mixture:
    """A mixture of the right shape, for a state whose tensors are then replaced."""
    k, d = workspace.plan.components, workspace.raw.dim
    alike = Mixture(np.full(k, 1 / k), np.zeros((k, d)), np.broadcast_to(np.eye(d), (k, d, d)))
    return with_share(alike, workspace.plan.background)


def _note(desk: Desk, text: str) -> None:
    if rank() == 0:
        log.warning(text)
    desk.state = desk.state.noted(text)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
