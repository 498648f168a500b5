"""fit(): from what a user says to a mixture."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from .. import kernels
from ..catalog._open import open as open_catalog
from ..kernels.options import Options
from ..methods import Method
from ..mixture._mixture import Mixture, checked_names
from ..mixture.asking import remembered
from ..rows.batch import Batch
from ..rows.data import Source, as_source
from ..rows.resident import Cache, checked_cache
from ..search.moves import Moves
from ..system.files import locked, refuse_foreign
from ..system.ranks import rank
from ..system.threads import small_algebra
from .history import Callback
from .initial import Start
from .loop import run
from .memory import refuse_too_little
from .plan import Plan, at_least, choose_method, choose_moves, count_components, hold_out, in_batches, not_negative
from .progress import show_progress
from .rescue import NumericalTrouble
from .result import FitResult

__all__ = ["FitResult", "NumericalTrouble", "chosen_device", "fit", "in_batches"]
log = logging.getLogger("xdeconv")
FULL_PASSES, MINIBATCH_PASSES = 1000, 20


def fit(
    data: Any,
    components: int | None = None,
    *,
    noise: Any = None,
    error: Any = None,
    projection: Any = None,
    weight: Any = None,
    log_prior: Any = None,
    label: Any = None,
    mixture: Mixture | None = None,
    method: Method | None = None,
    moves: Moves | str | None = None,
    start: Start | str = "kmeans",
    restarts: int = 1,
    seed: int = 0,
    epochs: int | None = None,
    batch_rows: int | None = None,
    tol: float = 0.1,
    validation: Any = None,
    patience: int | None = None,
    standardize: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 10.0,
    resume: bool = False,
    cache: Cache | None = None,
    columns: Sequence[str] | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
    backend: kernels.Backend = "auto",
    skip: bool = True,
    deterministic: bool = False,
    verbose: bool = False,
    callback: Callback | None = None,
    labels: Sequence[str] | None = None,
    units: Sequence[str] | None = None,
) -> FitResult:
    """Fit a mixture of ``components`` Gaussians, or go on from ``mixture``, to the density of the true values.

    data        rows (n, p) with NaN for missing, a Batch, a table, or a Source
    columns     names of the features: data is then whatever xd.open reads, with errors and correlations found by name;
                a Dask DataFrame or an LSDB catalogue is summed where its partitions live (on a CPU)
    method      xd.EM() or xd.SGD(), with any settings; by default EM with moves, in batches for very long streams
    moves       none, auto, bovy or an :class:`xdeconv.Moves`: split, merge and revive components between epochs
                (the default is auto, or none where components have names: fixed ones, log-priors, a given mixture)
    start       an :class:`xdeconv.Start`, or just its centers: kmeans, kmeans++, random
    restarts    how many starts to try; the best by validation, or else by training likelihood, is kept
    batch_rows  rows of a minibatch; by default every update sees all rows
    tol         nats of total log-likelihood that may be left, by the fit's own estimate, when full passes stop; 0 never
    validation  rows held out (a fraction, a Batch, a Source, or a dict of arrays), whose likelihood is reported
    patience    stop early, after so many epochs without a better validation, and return the best epoch's mixture
    standardize scale the coordinates inside, in float64, and undo it in the result; centred they are in any case
    checkpoint  a file to save to every ``checkpoint_seconds``; ``resume=True`` goes on from it
    labels      names of the coordinates, and ``units`` their units, for data that have none of their own
    cache       where rows are kept between passes: device (the GPU), host (pinned memory) or none (read anew); by
                default the first of these that all rows fit in, exactly; a fit says what it chose
    device      cpu or cuda (the default where there is one); dtype float64 on a CPU and float32 on a GPU by default

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(3.0, np.sqrt(1.0 + 0.25), size=(4000, 1))
    >>> result = fit(X, components=1, noise=np.full((4000, 1), 0.25))
    >>> result.mixture.covariances.round(1)
    array([[[1.]]])
    """
    if columns is not None:
        data = open_catalog(data, columns)
    arrays = {"noise": noise, "error": error, "projection": projection, "weight": weight}
    source = as_source(data, cache != "none", **arrays, log_prior=log_prior, label=label)
    facts = remembered(data if isinstance(data, (Source, Batch)) else source)
    if source.rows == 0:
        raise ValueError("there are no rows to fit")
    source, held_out = hold_out(source, validation, seed)
    if held_out is not None:
        log.info("%s rows to fit, %s rows held out", f"{source.rows:,}", f"{held_out.rows:,}")
    if mixture is not None and restarts > 1:
        raise ValueError("restarts try new starts: give mixture= or restarts=, not both")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0, got {seed!r}")
    if method is not None and not isinstance(method, Method):
        raise ValueError(f"method must be an xd.EM(...) or xd.SGD(...), got {method!r}")
    chosen = chosen_device(device)
    kind = None if dtype is None else _number_type(dtype)
    k = count_components(components, mixture, source)
    batch_rows = None if batch_rows is None else at_least(1, batch_rows, "batch_rows")
    search = choose_moves(moves, method, source, mixture)
    method, batch_rows = choose_method(source, k, chosen, method, batch_rows)
    log.info(_said(source.rows, method, search, batch_rows))
    plan = Plan(
        components=k,
        given=mixture,
        method=method,
        moves=search,
        start=_checked_start(start),
        restarts=at_least(1, restarts, "restarts"),
        seed=seed,
        epochs=at_least(1, _passes(batch_rows) if epochs is None else epochs, "epochs"),
        batch_rows=batch_rows,
        tol=not_negative(tol, "tol"),
        patience=None if patience is None else at_least(1, patience, "patience"),
        standardize=standardize,
        checkpoint=checkpoint,
        checkpoint_seconds=not_negative(checkpoint_seconds, "checkpoint_seconds"),
        resume=resume,
        device=chosen,
        dtype=kind or (torch.float32 if chosen.type == "cuda" else torch.float64),
        options=Options(backend, skip, deterministic),
        labels=source.labels if labels is None else checked_names(labels, source.dim, "labels", unique=True),
        units=source.units if units is None else checked_names(units, source.dim, "units", unique=False),
        cache=checked_cache(cache, chosen),
        facts=facts,
    )
    refuse_too_little(plan, source, held_out)
    algebra = small_algebra() if chosen.type == "cpu" else nullcontext()
    expected = None if epochs is None and batch_rows is None else plan.epochs * plan.restarts  # until it converges
    with _alone(checkpoint, resume), algebra, show_progress(verbose, expected) as shown:
        return run(plan, source, held_out, [shown] + ([callback] if callback else []))


def _said(rows: int, method: Method, search: Moves | None, batch_rows: int | None) -> str:
    """What a fit is about to do."""
    kind = type(method).__name__ if batch_rows is None else f"{type(method).__name__}, {batch_rows:,} rows per step"
    return f"fitting {rows:,} rows by {kind}, {'without' if search is None else 'with'} moves"


def _alone(checkpoint: str | os.PathLike[str] | None, resume: bool) -> AbstractContextManager[None]:
    """The checkpoint held against other fits, by the one rank that writes it; a file of another kind is refused."""
    if checkpoint is None or rank() > 0:
        return nullcontext()
    if not resume:  # which reads it first, and says what is wrong with it
        refuse_foreign(checkpoint, "checkpoint")
    return locked(checkpoint)


def chosen_device(device: str | torch.device | None) -> torch.device:
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = str(device).partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu or cuda, got {device!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={device!r} was asked for and torch finds no CUDA device here")
    return torch.device(device)


def _passes(batch_rows: int | None) -> int:
    return MINIBATCH_PASSES if batch_rows else FULL_PASSES


def _checked_start(start: Any) -> Start:
    if isinstance(start, Mixture):
        raise ValueError("start says how to choose the first mixture: to start from one, give mixture=")
    if not isinstance(start, (str, Start)):
        raise ValueError(f"start must be kmeans, kmeans++, random or an xd.Start, got {start!r}")
    return Start(centers=start) if isinstance(start, str) else start  # type: ignore[arg-type]


def _number_type(dtype: torch.dtype | str) -> torch.dtype:
    known = {"float32": torch.float32, "float64": torch.float64}
    found = known.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise ValueError(f"dtype must be float32 or float64, got {dtype!r}")
    return found
