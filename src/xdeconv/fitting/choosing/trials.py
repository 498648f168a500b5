"""Choosing the number of components: trials on parts of the rows, judged by the rows left out, one beside another."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ...methods import Method
from ...mixture._mixture import Mixture
from ...rows.data import ArraySource, Source
from ...system.text import counted
from ..one_of_many import Fit, Show, one_of_many
from ..result import FitResult
from ..words import as_words
from .judging import Verdict, judged, parts_of
from .walking import between, ladder, smaller

log = logging.getLogger("xdeconv")
Criterion = Literal["held-out", "cv", "bic", "aic"]
Rule = Literal["best", "one-se"]
Key = tuple[int, int, int]
FEW_ROWS = 100_000  # in memory: fewer are judged by cross-validation, more by one part held out
FOLDS, HELD_OUT = 5, 0.2
OWN = 8  # components up to which trials of selected rows have starts of their own too: what is merged then depends
# much on what was rejected, and 20 to 160 nats were lost in one trial of ten
NATS_EACH = 5e-5  # per row that a trial may have left: far less than trials differ by


@dataclass(frozen=True)
class Trial:
    """One fit of a selection.

    components      of its mixture
    above           components of the mixture that it was made of; 0 for a fit of its own
    fold            which rows it left out
    score           mean log-likelihood per unit of weight of the rows that judge it
    weight          the weight of those rows
    fitted          score of the rows that it was fitted to; infinite where it is not known
    """

    components: int
    above: int
    fold: int
    score: float
    weight: float
    seconds: float
    mixture: Mixture
    fitted: float = np.inf

    @property
    def key(self) -> Key:
        """What tells it from the other trials of a selection."""
        return self.components, self.above, self.fold


@dataclass
class Kept:
    """Finished trials, in memory; ``write`` takes each of them elsewhere, too."""

    trials: dict[Key, Trial] = field(default_factory=dict)
    write: Callable[[Trial], None] | None = None

    def keep(self, trial: Trial) -> None:
        """Add a trial."""
        self.trials[trial.key] = trial
        if self.write is not None:
            self.write(trial)


@dataclass(frozen=True)
class Judgement:
    """What a selection has found so far: trials of each number of components, and what the rows say of them.

    ``rows`` is how many a trial was fitted to; ``lacking`` is 1 / rows less that of all, which the choice is fitted to.
    """

    criterion: Criterion
    rule: Rule
    trials: Mapping[int, Sequence[Trial]]
    verdict: Verdict
    lacking: float = 0.0
    rows: float = np.inf

    def scores(self) -> np.ndarray:
        """One per number of components, rising; less is better for bic and aic."""
        if self.criterion not in ("bic", "aic"):
            return self.verdict.means
        each = np.log(self.verdict.weight) if self.criterion == "bic" else 2.0
        return -2 * self.verdict.weight * self.verdict.means + each * self._free()

    def differences(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores minus the highest (s,) as of fits to all rows, and the standard errors of these differences (s,).

        A free number costs unseen rows 1 / (2 n) nat each where n rows determine it: those of folds cost too much.
        """
        means = self.verdict.means + 0.5 * self.lacking * self._determined()
        return replace(self.verdict, means=means).differences()

    def _free(self) -> np.ndarray:
        return np.array([self.trials[k][0].mixture.n_parameters for k in sorted(self.trials)])

    def _determined(self) -> np.ndarray:
        """How many free numbers the rows determine: each makes rows that were fitted 1 / n nat better than unseen ones.

        Noise hides many of a large mixture's: of 50 components, 1,500 rows and their inflated errors told 45 of 301
        numbers, and what all 301 would cost made 50 components the choice where 2 were right.
        """
        trials = [self.trials[k] for k in sorted(self.trials)]
        gaps = [np.average([t.fitted - t.score for t in some], weights=[t.weight for t in some]) for some in trials]
        return np.clip(self.rows * np.array(gaps), 0.0, self._free())

    @property
    def best(self) -> int:
        """The choice; one-se: the smallest number that is no worse than the best by one standard error, paired."""
        sizes, scores = sorted(self.trials), self.scores()
        if self.criterion in ("bic", "aic"):
            return sizes[int(np.argmin(scores))]
        if self.rule == "best":
            return sizes[int(np.argmax(scores))]
        away, error = self.differences()
        return sizes[int(np.flatnonzero(away + error >= 0)[0])]


def usual_criterion(source: Source) -> Criterion:
    """Cross-validation for rows in memory that are few, else rows held out."""
    return "cv" if isinstance(source, ArraySource) and source.rows < FEW_ROWS else "held-out"


def usual_rule(criterion: Criterion) -> Rule:
    """The smallest that is as good as the best; of criteria that count parameters themselves, the best."""
    return "one-se" if criterion in ("cv", "held-out") else "best"


@dataclass
class Choosing:
    """All that trials share: how to fit, with what settings, parts of the rows, and what is kept and shown."""

    fit: Fit
    settings: Mapping[str, Any]
    parts: Sequence[tuple[Source, Source]]
    criterion: Criterion
    rule: Rule
    warm: bool = True
    kept: Kept = field(default_factory=Kept)
    show: Show = lambda text, done: None
    done: dict[int, list[Trial]] = field(default_factory=dict)

    def run(self, sizes: Sequence[int]) -> Judgement:
        """Trials of some numbers of components, the largest first: each smaller mixture is made of a larger one."""
        for k in sorted(set(sizes) - set(self.done), reverse=True):
            above = min((size for size in self.done if size > k), default=0) if self.warm else 0
            before = self.done[above] if above else [None] * len(self.parts)
            self.done[k] = [self._trial(k, fold, start) for fold, start in enumerate(before)]
        return self.judgement()

    def run_all(self, rows: int, d: int) -> Judgement:
        """Trials where nobody says which numbers: up to what the rows may bear, then halfway to the best."""
        judgement = self.run(ladder(rows, d))
        while finer := between(self.done, judgement.best):
            judgement = self.run(finer)
        return judgement

    def judgement(self) -> Judgement:
        """What is known so far, all finished numbers judged by the same rows."""
        sizes = sorted(self.done)
        mixtures = [[self.done[k][fold].mixture for k in sizes] for fold in range(len(self.parts))]
        verdict = judged(mixtures, [judge for _, judge in self.parts], **self._where())
        rows = max(sum(train.rows for train, _ in self.parts) / len(self.parts), 1)
        return Judgement(self.criterion, self.rule, dict(self.done), verdict, self._lacking(rows), rows)

    def _lacking(self, rows: float) -> float:
        """How much less is known from the rows of a fold than from all of them."""
        if self.criterion != "cv":
            return 0.0
        return 1 / rows - 1 / max(sum(judge.rows for _, judge in self.parts), 1)

    def last(self, source: Source, k: int) -> FitResult:
        """The fit to all rows: from the best of the trials, searched again; of its own where trials are not warm."""
        name = f"{counted(k, 'component')}, all rows"
        if not self.warm:
            return self._fit(source, k, None, name)
        best = max(self.done[k], key=lambda trial: trial.score)
        return self._fit(source, k, best.mixture, name, last=True)

    def _trial(self, k: int, fold: int, above: Trial | None) -> Trial:
        """One fit, or what was kept of it."""
        name = counted(k, "component") + (f", fold {fold + 1} of {len(self.parts)}" if len(self.parts) > 1 else "")
        trial = self.kept.trials.get((k, above.components if above else 0, fold))
        if trial is None:
            began = time.monotonic()
            train, judge = self.parts[fold]
            result = self._better(train, k, above.mixture if above else None, name)
            verdict = judged([[result.mixture]], [judge], **self._where())
            score, above_k = float(verdict.means[0]), above.components if above else 0
            seconds = time.monotonic() - began
            trial = Trial(k, above_k, fold, score, verdict.weight, seconds, result.mixture, result.loglik)
            self.kept.keep(trial)
        self.show(f"{name}: log-likelihood {trial.score:.4f}", 1)
        return trial

    def _better(self, source: Source, k: int, start: Mixture | None, name: str) -> FitResult:
        """A fit from the next larger mixture; where rows were selected one of its own too, and the better of both."""
        grown = self._fit(source, k, start, name)
        if start is None or start.selection is None or k > OWN:
            return grown
        return max(grown, self._fit(source, k, None, name), key=lambda result: result.loglik)

    def _fit(self, source: Source, k: int, start: Mixture | None, name: str, last: bool = False) -> FitResult:
        """A fit from the start of a larger mixture, which is made smaller, or from a start of its own."""
        settings, tol = {**self.settings, "components": None if start else k}, self.settings.get("tol", 0.1)
        if start is not None:
            if start.k > k:
                start = smaller(start, k, source, settings["seed"], as_words(settings.get("method")).prior)
            moves = (settings.get("moves") or "auto") if last else "none"
            settings |= {"mixture": start, "moves": moves, "restarts": 1}
        if not last and tol:
            settings["tol"] = max(tol, NATS_EACH * source.rows)
        return one_of_many(self.fit, name, self.show, source, **settings)

    def _where(self) -> dict[str, Any]:
        return {name: self.settings.get(name) for name in ("device", "dtype", "options")}


def chosen_components(fit: Fit, source: Source, settings: Mapping[str, Any]) -> tuple[int, str]:
    """How many components ``fit(source, "auto")`` takes, and a note that says how they were chosen."""
    refuse_named(source, settings.get("method"))
    criterion = usual_criterion(source)
    parts, _ = parts_of(source, criterion, min(FOLDS, source.rows), HELD_OUT, settings["seed"])
    choosing = Choosing(fit, settings, parts, criterion, usual_rule(criterion))
    judgement = choosing.run_all(source.rows, source.dim)
    top, how = max(judgement.trials), "cross-validation" if criterion == "cv" else "rows held out"
    note = f"{judgement.best} of 1 to {top} components chosen by {how}, within one standard error of the best"
    if judgement.best == top and top > 1:
        note += "; it is the most that was tried: more may be better (xd.select tries any)"
    log.info(note)
    return judgement.best, note


def refuse_named(source: Source, method: Any) -> None:
    """Refuse what names components: their number cannot be chosen then."""
    if source.has_log_prior:
        raise ValueError("log_prior has a column for each component, so the number of components cannot be chosen: "
                         "leave it out")  # fmt: skip
    if isinstance(method, Method) and method.fixed is not None:
        raise ValueError("Fixed parameters name components, so their number cannot be chosen: say how many")
