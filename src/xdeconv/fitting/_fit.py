"""fit(): from what a user says to a mixture."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import nullcontext
from numbers import Real
from typing import Any, Literal

import torch

from ..catalog._open import open as open_catalog
from ..kernels.options import Options
from ..methods import Method, Structure
from ..mixture._mixture import Mixture
from ..mixture.asking import remembered
from ..mixture.background import Rows
from ..mixture.coordinates import checked_names
from ..mixture.tails import StudentT
from ..rows.batch import Batch
from ..rows.checks import refuse_unobserved
from ..rows.data import ArraySource, Source, as_source
from ..rows.resident import Cache, checked_cache
from ..search.moves import Moves
from ..system.devices import chosen_device, number_type
from ..system.threads import small_algebra
from .beside import as_background, held_out_beside
from .checkpoint import Checkpoint, as_checkpoint
from .choosing import chosen_components
from .history import Callback
from .initial import Start
from .loop import run
from .memory import refuse_too_little
from .plan import (
    Plan,
    at_least,
    choose_covariance,
    choose_method,
    choose_moves,
    choose_tails,
    count_components,
    hold_out,
    in_batches,
    not_negative,
)
from .progress import show_progress
from .rescue import NumericalTrouble
from .result import FitResult

__all__ = ["FitResult", "NumericalTrouble", "fit", "in_batches"]
log = logging.getLogger("xdeconv")
FULL_PASSES, MINIBATCH_PASSES = 1000, 20


def fit(
    data: Any,
    components: int | Literal["auto"] | None = None,
    *,
    columns: Sequence[str] | None = None,
    noise: Any = None,
    error: Any = None,
    projection: Any = None,
    weight: Any = None,
    log_prior: Any = None,
    label: Any = None,
    labels: Sequence[str] | None = None,
    units: Sequence[str] | None = None,
    covariance: Structure | str | None = None,
    background: Any = None,
    tails: StudentT | float | None = None,
    mixture: Mixture | None = None,
    start: Start | str = "kmeans",
    restarts: int = 1,
    seed: int = 0,
    method: Method | None = None,
    moves: Moves | str | None = None,
    batch_rows: int | None = None,
    epochs: int | None = None,
    tol: float = 0.1,
    validation: Any = None,
    patience: int | None = None,
    standardize: bool = True,
    cache: Cache | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
    options: Options | None = None,
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    verbose: bool | None = None,
    callback: Callback | None = None,
) -> FitResult:
    """Fit a mixture of Gaussians to the density of the true values behind noisy, incomplete rows.

    Parameters
    ----------
    data : array-like (n, p), table, Batch or Source
        Noisy rows; NaN is missing. With ``columns``, anything that :func:`xdeconv.open` reads.
    components : int or "auto", optional
        How many Gaussians; left out where ``mixture`` says it. auto chooses them, as :func:`xdeconv.select` does by
        default, for about twice the time of the largest fit per fold, and says so in the notes.
    columns : sequence of str, optional
        Names of the features: errors and correlations are then found by name. The partitions of a Dask DataFrame or an
        LSDB catalogue are summed where they live (on a CPU).
    noise : array-like, optional
        Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
    error : array-like, optional
        Standard deviations (n, p) or (p,), instead of ``noise``.
    projection : array-like (n, p, d), optional
        Matrices through which each row sees the true values.
    weight : array-like (n,), optional
        How much each row counts; 1 by default.
    log_prior : array-like (n, k) or (classes, k), optional
        Added to the log-weights, row by row or class by class; -inf rules a component out.
    label : array-like (n,), optional
        The class of each row, where ``log_prior`` is a table of classes.
    labels : sequence of str, optional
        Names of the true coordinates, for data that have none of their own.
    units : sequence of str, optional
        Units of the true coordinates, for data that have none of their own.
    covariance : str or LowRank, optional
        What the covariances of components may look like: full (the default), tied (one for all components), diagonal,
        spherical, or :class:`xdeconv.LowRank` for factor analysers (``"low-rank:3"`` is ``xd.LowRank(3)``). By default
        that of ``mixture``, or of ``method``.
    background : Uniform, Mixture or array-like (n,), optional
        What else makes rows, a density that is known but for its weight, which is fitted: a box of true values, a
        mixture held as it is (a field), or log-densities per row. By default that of ``mixture``, if it has one.
    tails : StudentT or float, optional
        Tails of all components that are heavier than a Gaussian's: :class:`xdeconv.StudentT`, whose nu is fitted unless
        it is given. There are no moves then.
    mixture : Mixture, optional
        What to start from, instead of a start of its own.
    start : Start or str, default "kmeans"
        How the first mixture is made: a :class:`xdeconv.Start`, or just its centers: kmeans, kmeans++, random.
    restarts : int, default 1
        How many starts to try; the best by validation, or else by training likelihood, is kept.
    seed : int, default 0
        The same seed gives the same result.
    method : Method, optional
        :class:`xdeconv.EM`, :class:`xdeconv.SGD` or a method of your own; by default EM, in batches for very long
        streams.
    moves : Moves or str, optional
        Whether components are split, merged and revived between passes: none, auto, bovy or a
        :class:`xdeconv.Moves`. The default is auto, or none where components have names: fixed ones, log-priors, a
        given mixture.
    batch_rows : int, optional
        Rows per update; by default every update sees all rows.
    epochs : int, optional
        At most so many passes over the rows; by default 1,000, with ``batch_rows`` 20.
    tol : float, default 0.1
        Nats of total log-likelihood that may be left, by the fit's own estimate, when full passes stop; 0 never stops.
    validation : float, Batch, Source, table or dict, optional
        Rows held out, whose likelihood is reported: a fraction of the data, or rows of their own. A dict has X and
        noise, error, projection or weight as here.
    patience : int, optional
        Stop after so many passes without a better validation, and return the mixture of the best pass.
    standardize : bool, default True
        Whether coordinates are scaled inside, in float64. Results are in the units of the data either way.
    cache : str, optional
        Where rows are kept between passes: device (the GPU), host (pinned memory) or none (read again). By default the
        first that all rows fit in, exactly; the fit says what it chose.
    device : str or torch.device, optional
        cpu or cuda; by default cuda where there is one.
    dtype : str or torch.dtype, optional
        float32 or float64; by default float64 on a CPU and float32 on a GPU.
    options : Options, optional
        How kernels compute: :class:`xdeconv.Options`.
    checkpoint : Checkpoint, str or path, optional
        A file to save to every ten seconds, or a :class:`xdeconv.Checkpoint` that says how often and whether to resume.
    verbose : bool, optional
        Whether to show progress: by default on a terminal or in a notebook, after two seconds; with True always, with
        False never.
    callback : callable, optional
        Called with an :class:`xdeconv.Epoch` after each pass.

    Returns
    -------
    FitResult
        The mixture, the history, and whether the fit has converged.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(3.0, np.sqrt(1.0 + 0.25), size=(4000, 1))
    >>> result = fit(X, components=1, noise=np.full((4000, 1), 0.25))
    >>> result.mixture.covariances.round(1)
    array([[[1.]]])
    """
    if columns is not None:
        data = open_catalog(data, columns)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0, got {seed!r}")
    if isinstance(data, Source):
        data.look_around(seed, split=isinstance(validation, Real))
    arrays = {"noise": noise, "error": error, "projection": projection, "weight": weight}
    source = as_source(data, cache != "none", **arrays, log_prior=log_prior, label=label)
    facts = remembered(data if isinstance(data, (Source, Batch)) else source)
    if source.rows == 0:
        raise ValueError("there are no rows to fit")
    looked_at = isinstance(data, Source) and not isinstance(data, ArraySource)  # by itself, while it reads
    if mixture is None and isinstance(source, ArraySource) and not looked_at:
        refuse_unobserved(source.batch, source.labels if labels is None else labels)
    source, beside = as_background(background, source, mixture)
    source, held_out = hold_out(source, validation, seed)
    source.look_around(seed)
    held_out = held_out_beside(held_out, beside)
    if held_out is not None:
        log.info("%s rows to fit, %s rows held out", f"{source.rows:,}", f"{held_out.rows:,}")
    if mixture is not None and restarts > 1:
        raise ValueError("restarts try new starts: give mixture= or restarts=, not both")
    if method is not None and not isinstance(method, Method):
        raise ValueError(f"method must be an xd.EM(...) or xd.SGD(...), got {method!r}")
    chosen = chosen_device(device)
    kind = None if dtype is None else number_type(dtype)
    said: tuple[str, ...] = ()
    if components == "auto" and mixture is None:
        settings = {"start": start, "restarts": restarts, "seed": seed, "method": method, "moves": moves,
                    "batch_rows": batch_rows, "epochs": epochs, "tol": tol, "standardize": standardize, "cache": cache,
                    "device": device, "dtype": dtype, "options": options,
                    "background": None if isinstance(beside, Rows) else beside, "tails": tails}  # fmt: skip
        components, note = chosen_components(fit, source, settings)
        said = (note,)
    k = count_components(components, mixture, source)
    batch_rows = None if batch_rows is None else at_least(1, batch_rows, "batch_rows")
    heavier = choose_tails(tails, mixture)
    search = choose_moves(moves, method, source, mixture, heavier is not None)
    weak = method is None
    method, batch_rows = choose_method(source, k, chosen, method, batch_rows, seed)
    method = choose_covariance(covariance, method, mixture, k, source.dim)
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
        checkpoint=as_checkpoint(checkpoint),
        device=chosen,
        dtype=kind or (torch.float32 if chosen.type == "cuda" else torch.float64),
        options=_checked_options(options),
        labels=source.labels if labels is None else checked_names(labels, source.dim, "labels", unique=True),
        units=source.units if units is None else checked_names(units, source.dim, "units", unique=False),
        cache=checked_cache(cache, chosen),
        weak=weak,
        facts=facts,
        background=beside,
        tails=heavier,
        said=said,
    )
    refuse_too_little(plan, source, held_out)
    algebra = small_algebra() if chosen.type == "cpu" else nullcontext()
    expected = None if epochs is None and batch_rows is None else plan.epochs * plan.restarts  # until it converges
    alone = nullcontext() if plan.checkpoint is None else plan.checkpoint.alone()
    with alone, algebra, show_progress(verbose, expected) as shown:
        return run(plan, source, held_out, [shown] + ([callback] if callback else []))


def _said(rows: int, method: Method, search: Moves | None, batch_rows: int | None) -> str:
    """What a fit is about to do."""
    kind = type(method).__name__ if batch_rows is None else f"{type(method).__name__}, {batch_rows:,} rows per step"
    return f"fitting {rows:,} rows by {kind}, {'without' if search is None else 'with'} moves"


def _checked_options(options: Any) -> Options:
    if options is not None and not isinstance(options, Options):
        raise ValueError(f"options must be an xd.Options(...), got {options!r}")
    return options or Options()


def _passes(batch_rows: int | None) -> int:
    return MINIBATCH_PASSES if batch_rows else FULL_PASSES


def _checked_start(start: Any) -> Start:
    if isinstance(start, Mixture):
        raise ValueError("start says how to choose the first mixture: to start from one, give mixture=")
    if not isinstance(start, (str, Start)):
        raise ValueError(f"start must be kmeans, kmeans++, random or an xd.Start, got {start!r}")
    return Start(centers=start) if isinstance(start, str) else start  # type: ignore[arg-type]
