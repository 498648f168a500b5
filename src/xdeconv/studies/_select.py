"""Choosing the number of components, reported: by rows held out, by cross-validation or by an information criterion."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..fitting._fit import FitResult, fit
from ..fitting.beside.background import as_background
from ..fitting.beside.inflating import choose_inflation, grouped_data, paired
from ..fitting.choosing.judging import parts_of
from ..fitting.choosing.trials import (
    FOLDS,
    HELD_OUT,
    Choosing,
    Criterion,
    Judgement,
    Rule,
    refuse_named,
    usual_criterion,
    usual_rule,
)
from ..fitting.choosing.walking import ladder
from ..fitting.gathering import opened, opened_alike
from ..methods import described
from ..mixture.background import Background
from ..mixture.selections.given import as_selecting
from ..plot.axes import new_axes
from ..rows import tables as tabular
from ..rows.data import Source, as_source
from ..system.functions import named
from .trials import alone, kept_in, show_trials

if TYPE_CHECKING:
    from matplotlib.axes import Axes

log = logging.getLogger("xdeconv")
NAMES = {"held-out": "held-out log-likelihood per row", "cv": "cross-validated log-likelihood per row",
         "bic": "BIC", "aic": "AIC"}  # fmt: skip
OWN = ("components", "mixture", "checkpoint", "log_prior", "label")  # of fit's arguments, not for a selection


@dataclass(frozen=True)
class Record:
    """How one number of components did.

    Parameters
    ----------
    components : int
        The number.
    score : float
        Log-likelihood per unit of weight of rows left out, or the criterion.
    standard_error : float or None
        Of the score, over those rows.
    seconds : float
        That its fits took.
    folds : tuple of float
        The score of each part of the rows.
    difference : float
        The score minus that of the best.
    difference_error : float or None
        Its standard error, from the differences of single rows.
    """

    components: int
    score: float
    standard_error: float | None
    seconds: float
    folds: tuple[float, ...]
    difference: float = 0.0
    difference_error: float | None = None


@dataclass(frozen=True)
class Selection:
    """What a selection found: a record for each number of components, and the fit of the best to all rows.

    Scores are log-likelihoods per unit of weight, more is better; for bic and aic less is better.

    Parameters
    ----------
    criterion : str
        What the numbers were judged by.
    table : tuple of Record
        One record per number of components; after an interrupt, those that were finished.
    rule : str, default "best"
        How the choice is made.
    result : FitResult, optional
        The fit of the choice to all rows; None after an interrupt.
    interrupted : bool, default False
        Whether the search was interrupted.
    """

    criterion: Criterion
    table: tuple[Record, ...]
    rule: Rule = "best"
    result: FitResult | None = None
    interrupted: bool = False

    @property
    def best(self) -> int:
        """The number chosen; one-se: the smallest that is not worse than the best by one standard error, paired."""
        sign = -1 if self.criterion in ("bic", "aic") else 1
        if self.rule == "best":
            return max(self.table, key=lambda record: sign * record.score).components
        return min(r.components for r in self.table if r.difference + (r.difference_error or 0.0) >= 0)

    def plot(self, ax: Axes | None = None) -> Axes:
        """The score minus that of the best against the number of components; the choice is marked.

        Bars are standard errors of these differences, row by row paired: what tells one number from another.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
            The axes drawn on.
        """
        ax = new_axes(size=(5.0, 4.0)) if ax is None else ax
        sizes = [record.components for record in self.table]
        scores = [record.difference for record in self.table]
        bars = [record.difference_error or 0.0 for record in self.table]
        ax.axhline(0.0, color="0.8", linewidth=0.8)
        ax.errorbar(sizes, scores, yerr=bars if any(bars) else None, marker="o", capsize=3, color="tab:blue")
        ax.axvline(self.best, color="tab:orange", linestyle="--", label=f"chosen: {self.best}")
        if sizes[-1] >= 10 * sizes[0]:
            ax.set_xscale("log")
        shown = (
            sizes if len(sizes) <= 12 else [k for k in (1, 2, 4, 8, 16, 32, 64, 128, 256) if sizes[0] <= k <= sizes[-1]]
        )
        ax.set_xticks(shown, [str(k) for k in shown], minor=False)
        ax.set_xticks([], minor=True)
        ax.set(xlabel="components", ylabel=f"{NAMES[self.criterion]},\ndifference to the best")
        ax.legend()
        return ax

    def __str__(self) -> str:
        lines = [f"components  {NAMES[self.criterion]:>40}  below the best  standard error   seconds"]
        for r in self.table:
            error = "" if r.difference_error is None else f"{r.difference_error:.6f}"
            mark = "  <- chosen" if r.components == self.best else ""
            lines.append(f"{r.components:>10}  {r.score:>40.6f}  {abs(r.difference):>14.6f}  {error:>14}  "
                         f"{r.seconds:>8.1f}{mark}")  # fmt: skip
        return "\n".join(lines)


def select(
    data: Any,
    components: Iterable[int] | None = None,
    criterion: Criterion | None = None,
    *,
    columns: Sequence[str] | None = None,
    noise: Any = None,
    error: Any = None,
    projection: Any = None,
    weight: Any = None,
    rule: Rule | None = None,
    folds: int | None = None,
    validation: Any = None,
    warm: bool = True,
    seed: int = 0,
    results: str | os.PathLike[str] | None = None,
    verbose: bool | None = None,
    **options: Any,
) -> Selection:
    """Choose how many components describe rows best, and fit that many to all of them.

    Parameters
    ----------
    data : array-like (n, p), table, path, Batch or Source
        Noisy rows; NaN is missing. With ``columns``, anything that :func:`xdeconv.open` reads.
    components : iterable of int, optional
        Numbers of components to try; by default 1 to 64, or as many as the rows may bear: first in steps, then
        halfway to the best and halfway again.
    criterion : str, optional
        held-out (rows that no fit sees), cv (cross-validation), bic or aic; by default cv for fewer than 100,000 rows
        in memory and where ``folds`` says so, else held-out.
    columns : sequence of str, optional
        The features of a table, whose errors and correlations are found by name.
    noise : array-like, optional
        Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
    error : array-like, optional
        Standard deviations (n, p) or (p,), instead of ``noise``.
    projection : array-like (n, p, d), optional
        Matrices through which each row sees the true values.
    weight : array-like (n,), optional
        How much each row counts; 1 by default.
    rule : str, optional
        best, or one-se: the smallest number that is not worse than the best by more than one standard error of their
        difference, row by row paired. By default one-se for held-out and cv.
    folds : int, optional
        Parts of the rows that cross-validation leaves out in turn; 5 by default.
    validation : float, Batch, Source or dict, optional
        What held-out judges by: a fraction, or rows of their own; 0.2 by default.
    warm : bool, default True
        Whether each mixture is made of the next larger one, by merging, or starts afresh. The largest, and the last
        fit to all rows, have searches of their own.
    seed : int, default 0
        The same seed gives the same result.
    results : str or path, optional
        A file that keeps every finished fit: the same call with the same file resumes from there.
    verbose : bool, optional
        Whether to show progress: by default on a terminal or in a notebook, after two seconds; with True always, with
        False never.
    **options : dict
        Anything else that :func:`xdeconv.fit` takes.

    Returns
    -------
    Selection
        The scores, the choice, and its fit to all rows.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.concatenate([np.random.default_rng(0).normal(m, 1.0, size=(300, 1)) for m in (-5.0, 5.0)])
    >>> select(X, [1, 2, 3], "bic").best
    2
    """
    sizes = None if components is None else _sizes(components)
    options = _paired(options, data)
    arrays = {"noise": noise, "error": error, "projection": projection, "weight": weight}
    data = opened(data, columns, arrays, stacklevel=4)
    validation = opened_alike(validation, data, stacklevel=4)
    data, wider = grouped_data(data, options.get("inflation"), None)
    options = options if wider is None else {**options, "inflation": wider}
    source = as_source(data, **arrays)
    source, options = _with_groups(*_with_densities(source, options))
    if criterion is None:
        criterion = "held-out" if validation is not None else "cv" if folds is not None else usual_criterion(source)
    rule = usual_rule(criterion) if rule is None else rule
    _refuse_words(criterion, rule, options)
    refuse_named(source, options.get("method"))
    parts, judges = parts_of(
        source, criterion, FOLDS if folds is None else folds, HELD_OUT if validation is None else validation, seed
    )
    settings = {"criterion": criterion, "seed": seed, "warm": warm, **judges, **source.stamp(),
                "options": {name: _text(options[name]) for name in sorted(options) if name != "callback"}}  # fmt: skip
    wanted = ladder(source.rows, source.dim) if sizes is None else sizes
    with alone(results), show_trials(verbose, len(wanted) * len(parts)) as show:
        names = options.get("labels") or source.labels
        kept = kept_in(results, settings, as_selecting(options.get("selection"), names, source.dim))
        choosing = Choosing(fit, options | {"seed": seed}, parts, criterion, rule, warm, kept, show)
        return _chosen(choosing, source, sizes, results)


def _paired(options: dict[str, Any], data: Any) -> dict[str, Any]:
    """Options of which those that stand beside rows of pandas are in the order of these."""
    beside = {"background": tabular.aligned(options.get("background"), data, "background"),
              "inflation": paired(options.get("inflation"), data)}  # fmt: skip
    return {**options, **{name: given for name, given in beside.items() if given is not None}}


def _with_densities(source: Source, options: dict[str, Any]) -> tuple[Source, dict[str, Any]]:
    """Log-densities per row of a background go with the rows, which each fit sees a part of."""
    background = options.get("background")
    if background is None or isinstance(background, Background):
        return source, options
    return as_background(background, source, None)[0], {k: v for k, v in options.items() if k != "background"}


def _with_groups(source: Source, options: dict[str, Any]) -> tuple[Source, dict[str, Any]]:
    """Groups that have factors of their own on errors go with the rows, which each fit sees a part of."""
    wanted = options.get("inflation")
    if wanted is None:
        return source, options
    labels = options.get("labels")
    source, begun = choose_inflation(wanted, source, source.labels if labels is None else labels, None)
    assert begun is not None
    return source, {**options, "inflation": begun.asked(wanted)}


def _chosen(choosing: Choosing, source: Source, sizes: Sequence[int] | None, path: Any) -> Selection:
    """All trials, then the best number on all rows; Ctrl-C ends with what is finished."""
    try:
        judgement = choosing.run_all(source.rows, source.dim) if sizes is None else choosing.run(sizes)
        selection = _selection(judgement)
        return replace(selection, result=choosing.last(source, selection.best))
    except KeyboardInterrupt:
        saved = "" if path is None else f"; the same call resumes from {path}"
        log.warning("interrupted with %d numbers of components done%s", len(choosing.done), saved)
        if not choosing.done:
            raise
        return replace(_selection(choosing.judgement()), interrupted=True)


def _selection(judgement: Judgement) -> Selection:
    """The table of what is judged."""
    scores, counted = judgement.scores(), judgement.criterion in ("bic", "aic")
    away, error = judgement.differences()
    own = np.sqrt(np.maximum(np.diag(judgement.verdict.covariance), 0.0))
    records = []
    for i, k in enumerate(sorted(judgement.trials)):
        folds = tuple(trial.score for trial in judgement.trials[k])
        seconds = sum(trial.seconds for trial in judgement.trials[k])
        errors = (None, None) if counted else (float(own[i]), float(error[i]))
        apart = scores[i] - scores.min() if counted else away[i]
        records.append(Record(k, float(scores[i]), errors[0], seconds, folds, float(apart), errors[1]))
    return Selection(judgement.criterion, tuple(records), judgement.rule)


def _text(value: Any) -> str:
    if is_dataclass(value):
        return described(value)
    return named(value) if callable(value) else repr(value)


def _sizes(components: Iterable[int]) -> list[int]:
    """The numbers to try, each once, the smallest first."""
    sizes = sorted(set(components))
    if not sizes or not all(isinstance(k, (int, np.integer)) and not isinstance(k, bool) and k >= 1 for k in sizes):
        raise ValueError(f"components must be whole numbers of at least 1, such as [4, 8, 16], got {components!r}")
    return [int(k) for k in sizes]


def _refuse_words(criterion: str, rule: str, options: Mapping[str, Any]) -> None:
    if criterion not in NAMES:
        raise ValueError(f"criterion must be one of {', '.join(NAMES)}, got {criterion!r}")
    if rule not in ("best", "one-se") or (rule == "one-se" and criterion in ("bic", "aic")):
        raise ValueError(f"rule must be best or, for held-out and cv, one-se, got {rule!r}")
    refused = [name for name in OWN if name in options]
    if refused:
        raise ValueError(f"a selection makes many fits, so {', '.join(refused)} cannot be given; results= keeps them")
