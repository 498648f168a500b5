"""Where a fit begins and where it looks for better optima: on a pool of rows, the same on all ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from torch import Tensor

from ..kernels.parameters import Parameters
from ..methods.em import all_weights
from ..mixture._mixture import Mixture
from ..rows.batch import Batch
from ..rows.data import ArraySource, Source
from ..rows.resident import ResidentSource
from ..search.aim import Aim
from ..search.exploring import explore
from ..search.moves import Outcome, Search
from ..system.progress import tell
from ..system.ranks import from_first, made_by_first, world
from .beside.background import FIRST_SHARE, with_share
from .beside.carried import Carried
from .beside.completed import completed
from .beside.excess import excess_start
from .full_pass import score_of
from .initial import SAMPLE_ROWS, Ground
from .state import FitState
from .workspace import Workspace


def explored(workspace: Workspace, restart: int) -> tuple[Mixture, int | None]:
    """The mixture that a restart begins with, in the frame, and how many moves led to it, if any were tried."""
    plan, frame = workspace.plan, workspace.frame
    if plan.given is not None and restart == 0:
        return _from_given(workspace, with_share(frame.into(plan.given), plan.background))
    tell("looking for a start")
    seed = plan.seed + 7919 * restart
    if plan.moves is None or plan.components == 1:
        return made_by_first(lambda: _plain_start(workspace, seed), plan.device), None
    carried = workspace.carried
    pool = _pool(workspace, np.random.default_rng([seed, 0]), carried)

    def starts(rows: Batch) -> Callable[[int], Parameters]:
        make = _starts(workspace, ArraySource(rows), seed)
        return lambda number: Parameters(*make(seed + 31 * number).tensors())

    rng = np.random.default_rng([seed, 1])
    best = explore(pool, plan.components, starts, plan.moves, rng, _aim(workspace, pool, carried), plan.options)
    best = from_first(best, plan.device)
    if not best.sound:
        return made_by_first(lambda: _plain_start(workspace, seed), plan.device), None
    return _as_mixture(best.parameters, workspace), best.moved


def _from_given(workspace: Workspace, given: Mixture) -> tuple[Mixture, int | None]:
    """The user's mixture, searched from where moves were asked for."""
    plan = workspace.plan
    if plan.moves is None or plan.components == 1:
        return given, None
    rng = np.random.default_rng([plan.seed, 1])
    result = _searched_from(workspace, Parameters(*given.tensors()), workspace.carried.of(given), rng)
    if not result.moved or not result.sound:
        return given, 0
    return workspace.carried.of(given).put_on(_as_mixture(result.parameters, workspace)), result.moved


def _as_mixture(parameters: Parameters, workspace: Workspace) -> Mixture:
    log_weights, means, covariances = parameters
    weights = all_weights(log_weights, workspace.plan.background is not None)
    return Mixture.from_tensors(weights, means, covariances)


def _plain_start(workspace: Workspace, seed: int) -> Mixture:
    """A start that nothing has been moved in."""
    return _starts(workspace, _whole(workspace), seed)(seed)


def _starts(workspace: Workspace, source: Source, seed: int) -> Callable[[int], Mixture]:
    """Makes starts for a source, or for a sample of it, from their seeds."""
    plan, sample = workspace.plan, source.sample(SAMPLE_ROWS, seed)
    if plan.background is not None and plan.start.centers == "kmeans" and not _projected(workspace):
        begun = partial(excess_start, sample, plan.components, FIRST_SHARE)
    else:
        begun = partial(Ground.of(sample, plan.start, workspace.frame.scale).mixture, plan.components)
    return lambda seed: with_share(begun(seed), plan.background)


def _projected(workspace: Workspace) -> bool:
    return workspace.raw.sample(1, 0).projection is not None


def searched(workspace: Workspace, parameters: Parameters, numbers: Tensor, state: FitState) -> Outcome:
    """What a search from the present parameters finds."""
    plan = workspace.plan
    assert plan.moves is not None
    rng = np.random.default_rng([plan.seed, state.restart, state.epoch, 2])
    return _searched_from(workspace, parameters.to("cpu"), workspace.carried.at(numbers), rng).on(workspace.home)


def _searched_from(workspace: Workspace, parameters: Parameters, carried: Carried, rng: np.random.Generator) -> Outcome:
    """What a search from some parameters finds on a pool, the same on all ranks."""
    plan, pool = workspace.plan, _pool(workspace, rng, carried)
    assert plan.moves is not None
    search = Search(pool, plan.moves, rng, _aim(workspace, pool, carried), plan.options)
    result = search.run(parameters) if plan.selection is None else _given_selection(workspace, search, parameters)
    return from_first(result, plan.device)


def _given_selection(workspace: Workspace, search: Search, parameters: Parameters) -> Outcome:
    """What a search finds on the rows with those that were rejected, if it raises their likelihood given selection."""
    plan, selected, tails = workspace.plan, workspace.selected, search.aim.tails
    background, selection = workspace.beside
    beside = {"background": background, "selection": selection, "tails": tails}
    whole = completed(search.batch, _as_mixture(parameters, workspace).with_(**beside), search.rng)
    nothing = Outcome(parameters, 0, 0.0)
    if selected is None or whole is None:
        return nothing
    result = replace(search, batch=whole).run(parameters)
    every = [some if tails is None else tails.expanded(some) for some in (parameters, result.parameters)]
    there = [some.to(search.batch.device) for some in every]
    scores = [score_of(search.batch, some, plan.options, tails, selected=selected)[0] for some in there]
    return result if result.moved and scores[1] > scores[0] else nothing


def _pool(workspace: Workspace, rng: np.random.Generator, carried: Carried) -> Batch:
    """Rows to search on, with their errors as inflated as they are now."""
    plan = workspace.plan
    assert plan.moves is not None
    size = max(plan.moves.pool_rows, 8 * plan.components)
    seed = int(rng.integers(1 << 31))
    pool = made_by_first(lambda: _whole(workspace).sample(size, seed).to("cpu"), plan.device)
    return (pool if carried.inflation is None else carried.inflation.rows_of(pool)).to(plan.device)


def _aim(workspace: Workspace, pool: Batch, carried: Carried) -> Aim:
    """The prior's share for the pool, the structure of covariances, and tails as they are now."""
    tails = None if carried.tails is None else carried.tails.held()
    aim = Aim(workspace.method.prior, workspace.method.covariance, tails=tails)
    return aim.scaled(float(pool.total_weight()) / workspace.total)


def _whole(workspace: Workspace) -> Source:
    """The rows of all ranks: where each holds a part, the source behind it."""
    train = workspace.train
    return train.origin if isinstance(train, ResidentSource) and world() > 1 else train
