"""fit(): from what a user says to a mixture."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Literal

import torch

from ..kernels.options import Options
from ..methods import Method, Structure
from ..mixture._mixture import Mixture
from ..mixture.background import Rows
from ..mixture.inflation import Inflation
from ..mixture.tails import StudentT
from ..rows.data import Source
from ..rows.resident import Cache
from ..search.moves import Moves
from ..system.devices import chosen_device
from ..system.threads import small_algebra
from .checkpoint import Checkpoint
from .choosing.trials import chosen_components
from .gathering import gathered
from .history import Callback
from .initial import Start
from .loop import run
from .memory import refuse_too_little
from .plan import refuse_contradictions, resolve
from .progress import show_progress
from .rescue import NumericalTrouble
from .result import FitResult
from .state import refuse_other_words
from .words import Way, Worded, as_words

__all__ = ["FitResult", "NumericalTrouble", "fit"]
log = logging.getLogger("xdeconv")


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
    inflation: Inflation | None = None,
    selection: Any = None,
    mixture: Mixture | None = None,
    start: Start | str = "kmeans",
    restarts: int = 1,
    seed: int = 0,
    method: Method | Worded | Way | None = None,
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
    inflation : Inflation, optional
        Factors on errors that are too small, one per observed coordinate or per coordinate and group of rows, fitted
        with the mixture: :class:`xdeconv.Inflation`. By default those of ``mixture``, if it has any.
    selection : Cut, sequence of Cut, Completeness or callable, optional
        The chance with which rows were kept, given what was observed of them and their errors: cuts in closed form
        (:class:`xdeconv.Cut`), or any function of rows to probabilities (:class:`xdeconv.Completeness`). The mixture is
        then of all rows, kept or not. Noise must not depend on the true value, unless a model of it is given. Moves are
        tried only before the first pass. By default that of ``mixture``, if it has one.
    mixture : Mixture, optional
        What to start from, instead of a start of its own. A table or a file is read as its rows were.
    start : Start or str, default "kmeans"
        How the first mixture is made: a :class:`xdeconv.Start`, or just its centers: kmeans, kmeans++, random.
    restarts : int, default 1
        How many starts to try; the best by validation, or else by training likelihood, is kept.
    seed : int, default 0
        The same seed gives the same result.
    method : Method or str, optional
        :class:`xdeconv.EM`, :class:`xdeconv.SGD` or a method of your own; or a word: em, minibatch-em, sgd, whose
        steps then suit the rows and components, or auto, the default: EM, in batches for very long streams.
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
    refuse_contradictions(mixture, restarts, seed)
    arrays = {"noise": noise, "error": error, "projection": projection, "weight": weight, "log_prior": log_prior,
              "label": label}  # fmt: skip
    words = {"components": components, "method": method, "moves": moves, "batch_rows": batch_rows, "seed": seed,
             "restarts": restarts, "data": type(data).__name__, "validation": validation,
             "source": f"{data.labels} {data.read_again}" if isinstance(data, Source) else None}  # fmt: skip
    refuse_other_words(words, chosen_device(device))
    rows = gathered(data, columns, arrays, hold=cache != "none", background=background, labels=labels, units=units,
                    mixture=mixture, validation=validation, seed=seed, inflation=inflation,
                    selection=selection)  # fmt: skip
    settings: dict[str, Any] = {
        "covariance": covariance, "tails": tails, "start": start, "restarts": restarts, "seed": seed,
        "method": as_words(method), "moves": moves, "batch_rows": batch_rows, "epochs": epochs, "tol": tol,
        "standardize": standardize, "cache": cache, "device": device, "dtype": dtype, "options": options,
    }  # fmt: skip
    said: tuple[str, ...] = ()
    if components == "auto" and mixture is None:
        beside = {
            "background": None if isinstance(rows.background, Rows) else rows.background,
            "inflation": None if inflation is None or rows.inflation is None else rows.inflation.asked(inflation),
            "selection": rows.selection,
        }
        components, note = chosen_components(fit, rows.source, {**settings, **beside})
        said = (note,)
    plan = resolve(rows, components, mixture, labels=labels, units=units, patience=patience,
                   checkpoint=checkpoint, said=said, **settings)  # fmt: skip
    log.info(plan.describe(rows.source.rows))
    refuse_too_little(plan, rows.source, rows.held_out)
    alone = nullcontext() if plan.checkpoint is None else plan.checkpoint.alone()
    with alone, small_algebra(), show_progress(verbose, plan.expected, rows.source.rows) as shown:
        return run(plan, rows.source, rows.held_out, [shown] + ([callback] if callback else []))
