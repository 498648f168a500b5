"""Choosing the number of components: by rows held out, by cross-validation or by an information criterion."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..fitting._fit import FitResult, NumericalTrouble, fit
from ..fitting.beside import as_background
from ..fitting.history import Epoch
from ..fitting.progress import describe_epoch
from ..methods import described
from ..mixture._mixture import Mixture
from ..mixture.background import Background
from ..rows.data import Source, as_source
from ..search.growing import grown
from .scores import mean_log_prob, parts_of
from .trials import Results, Show, Trial, new_axes, show_trials

if TYPE_CHECKING:
    from matplotlib.axes import Axes

log = logging.getLogger("xdeconv")
Criterion = Literal["held-out", "cv", "bic", "aic"]
Rule = Literal["best", "one-se"]
NAMES = {"held-out": "held-out log-likelihood per row", "cv": "cross-validated log-likelihood per row",
         "bic": "BIC", "aic": "AIC"}  # fmt: skip
OWN = ("components", "mixture", "checkpoint", "log_prior", "label")  # of fit's arguments, not for a selection
SAMPLE_ROWS = 1 << 14  # rows that say which components to split


@dataclass(frozen=True)
class Record:
    """How one number of components did: its score, the score's standard error if known, and the score of each fold."""

    components: int
    score: float
    standard_error: float | None
    seconds: float
    folds: tuple[float, ...]


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
        """The number of components chosen; one-se: the smallest within one standard error of the highest score."""
        sign = -1 if self.criterion in ("bic", "aic") else 1
        top = max(self.table, key=lambda record: sign * record.score)
        if self.rule == "best":
            return top.components
        least = top.score - (top.standard_error or 0.0)
        return min(record.components for record in self.table if record.score >= least)

    def plot(self, ax: Axes | None = None) -> Axes:
        """The score against the number of components, with standard errors; the choice is marked.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
            The axes drawn on.
        """
        ax = new_axes() if ax is None else ax
        sizes = [record.components for record in self.table]
        scores = [record.score for record in self.table]
        bars = [record.standard_error or 0.0 for record in self.table]
        ax.errorbar(sizes, scores, yerr=bars if any(bars) else None, marker="o", capsize=3, color="tab:blue")
        ax.axvline(self.best, color="tab:orange", linestyle="--", label=f"chosen: {self.best}")
        if sizes[-1] >= 10 * sizes[0]:
            ax.set_xscale("log")
        ax.set_xticks(sizes, [str(k) for k in sizes], minor=False)
        ax.set_xticks([], minor=True)
        ax.set(xlabel="components", ylabel=NAMES[self.criterion])
        ax.legend()
        return ax

    def __str__(self) -> str:
        lines = [f"components  {NAMES[self.criterion]:>40}  standard error   seconds"]
        for r in self.table:
            error = "" if r.standard_error is None else f"{r.standard_error:.6f}"
            mark = "  <- chosen" if r.components == self.best else ""
            lines.append(f"{r.components:>10}  {r.score:>40.6f}  {error:>14}  {r.seconds:>8.1f}{mark}")
        return "\n".join(lines)


def select(
    data: Any,
    components: Iterable[int],
    criterion: Criterion = "held-out",
    *,
    noise: Any = None,
    error: Any = None,
    projection: Any = None,
    weight: Any = None,
    rule: Rule = "best",
    folds: int = 5,
    validation: Any = 0.2,
    warm: bool = True,
    seed: int = 0,
    results: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    **options: Any,
) -> Selection:
    """Choose how many components describe rows best, and fit that many to all of them.

    Parameters
    ----------
    data : array-like (n, p), table, Batch or Source
        Noisy rows; NaN is missing.
    components : iterable of int
        Numbers of components to try.
    criterion : str, default "held-out"
        held-out (rows that no fit sees), cv (cross-validation), bic or aic.
    noise : array-like, optional
        Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
    error : array-like, optional
        Standard deviations (n, p) or (p,), instead of ``noise``.
    projection : array-like (n, p, d), optional
        Matrices through which each row sees the true values.
    weight : array-like (n,), optional
        How much each row counts; 1 by default.
    rule : str, default "best"
        best, or one-se: the smallest number within one standard error of the best (held-out and cv).
    folds : int, default 5
        Parts of the rows that cross-validation leaves out in turn.
    validation : float, Batch, Source or dict, default 0.2
        What held-out judges by: a fraction, or rows of their own.
    warm : bool, default True
        Whether each mixture grows from the one with fewer components, by splitting, or starts afresh.
    seed : int, default 0
        The same seed gives the same result.
    results : str or path, optional
        A file that keeps every finished fit: the same call with the same file resumes from there.
    verbose : bool, default False
        Whether to show progress.
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
    sizes = _sizes(components)
    _refuse_words(criterion, rule, options)
    source = as_source(data, noise=noise, error=error, projection=projection, weight=weight)
    beside = options.get("background") is not None
    source, options = _with_densities(source, options)
    _refuse_priors(source)
    warm = warm and not beside  # a component that a background held for others grows out of none that is there
    parts, judges = parts_of(source, criterion, folds, validation, seed)
    settings = {"criterion": criterion, "seed": seed, "warm": warm, **judges, "data": source.stamp(),
                "options": {name: _text(options[name]) for name in sorted(options) if name != "callback"}}  # fmt: skip
    kept = Results(results, settings)
    with show_trials(verbose, len(sizes) * len(parts)) as show:
        study = _Study(parts, kept, options | {"seed": seed}, warm, show)
        return study.run(source, sizes, criterion, rule)


def _with_densities(source: Source, options: dict[str, Any]) -> tuple[Source, dict[str, Any]]:
    """Log-densities per row of a background go with the rows, which each fit sees a part of."""
    background = options.get("background")
    if background is None or isinstance(background, Background):
        return source, options
    return as_background(background, source, None)[0], {k: v for k, v in options.items() if k != "background"}


@dataclass(frozen=True)
class _Study:
    """What all trials of a selection share."""

    parts: Sequence[tuple[Source, Source]]
    kept: Results
    options: Mapping[str, Any]
    warm: bool
    show: Show

    def run(self, source: Source, sizes: Sequence[int], criterion: Criterion, rule: Rule) -> Selection:
        """All trials, then the best number on all rows; Ctrl-C ends with what is finished."""
        done: list[list[Trial]] = []
        found = Selection(criterion, (), rule)
        try:
            for place in range(len(sizes)):
                chain = tuple(sizes[: place + 1]) if self.warm else (sizes[place],)
                before = done[-1] if self.warm and done else [None] * len(self.parts)
                done.append([self._trial(chain, fold, start) for fold, start in enumerate(before)])
                found = replace(found, table=(*found.table, _record(done[-1], criterion)))
            result = self._refit(source, done[sizes.index(found.best)])
            return replace(found, result=result, interrupted=result.interrupted)
        except KeyboardInterrupt:
            saved = "" if self.kept.path is None else f"; the same call goes on from {self.kept.path}"
            log.warning("interrupted with %d of %d numbers of components done%s", len(done), len(sizes), saved)
            if not found.table:
                raise
            return replace(found, interrupted=True)

    def _trial(self, chain: tuple[int, ...], fold: int, before: Trial | None) -> Trial:
        """One fit, or what was kept of it."""
        name = _name(chain[-1]) + (f", fold {fold + 1} of {len(self.parts)}" if len(self.parts) > 1 else "")
        trial = self.kept.trials.get((chain, fold))
        if trial is None:
            began = time.monotonic()
            train, judge = self.parts[fold]
            mixture = self._fit(train, chain[-1], before.mixture if before else None, name).mixture
            scores = mean_log_prob(mixture, judge, **self._where())
            trial = Trial(chain, fold, *scores, time.monotonic() - began, mixture)
            self.kept.keep(trial)
        self.show(f"{name}: log-likelihood {trial.score:.4f} +- {trial.standard_error:.4f}", 1)
        return trial

    def _fit(self, source: Source, k: int, before: Mixture | None, name: str) -> FitResult:
        seed, user = self.options["seed"], self.options.get("callback")

        def callback(record: Epoch) -> None:
            self.show(f"{name}: {describe_epoch(record)}", 0)
            if user is not None:
                user(record)

        if before is not None and before.k < k:
            before = grown(before, k, source.sample(SAMPLE_ROWS, seed))
        try:
            result = fit(source, None if before else k, mixture=before, **{**self.options, "callback": callback})
        except NumericalTrouble as trouble:
            raise NumericalTrouble(f"{name}: {trouble}") from trouble
        if result.interrupted:
            raise KeyboardInterrupt
        return result

    def _refit(self, source: Source, trials: Sequence[Trial]) -> FitResult:
        """The fit to all rows, from the trial that describes them best."""
        scores = [mean_log_prob(t.mixture, source, **self._where())[0] for t in trials] if len(trials) > 1 else [0.0]
        start = trials[int(np.argmax(scores))].mixture
        return self._fit(source, start.k, start, f"{_name(start.k)}, all rows")

    def _where(self) -> dict[str, Any]:
        return {name: self.options.get(name) for name in ("device", "dtype", "options")}


def _record(trials: Sequence[Trial], criterion: Criterion) -> Record:
    folds = [trial.score for trial in trials]
    first, score, error = trials[0], float(np.mean(folds)), None
    if criterion in ("bic", "aic"):
        each = np.log(first.weight) if criterion == "bic" else 2.0
        score = -2 * first.weight * first.score + each * first.mixture.n_parameters
    elif criterion == "cv":
        error = float(np.std(folds, ddof=1) / np.sqrt(len(folds)))
    else:
        error = first.standard_error
    return Record(first.chain[-1], float(score), error, sum(trial.seconds for trial in trials), tuple(folds))


def _name(k: int) -> str:
    return f"{k} component{'s' * (k > 1)}"


def _text(value: Any) -> str:
    return described(value) if is_dataclass(value) else repr(value)


def _sizes(components: Iterable[int]) -> list[int]:
    """The numbers to try, each once, the smallest first."""
    sizes = sorted(set(components))
    if not sizes or not all(isinstance(k, (int, np.integer)) and not isinstance(k, bool) and k >= 1 for k in sizes):
        raise ValueError(f"components must be whole numbers of at least 1, such as [4, 8, 16], got {components!r}")
    return [int(k) for k in sizes]


def _refuse_words(criterion: str, rule: str, options: Mapping[str, Any]) -> None:
    if criterion not in NAMES:
        raise ValueError(f"criterion {criterion!r} is none of {', '.join(NAMES)}")
    if rule not in ("best", "one-se") or (rule == "one-se" and criterion in ("bic", "aic")):
        raise ValueError(f"rule {rule!r} is none of best and, for held-out and cv, one-se")
    refused = [name for name in OWN if name in options]
    if refused:
        raise ValueError(f"a selection makes many fits, so {', '.join(refused)} cannot be given; results= keeps them")


def _refuse_priors(source: Source) -> None:
    if source.has_log_prior:
        raise ValueError("log_prior has a column for each component, so the number of components cannot be chosen: "
                         "leave it out")  # fmt: skip
