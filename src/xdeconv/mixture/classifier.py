"""Classifier: several mixtures, one question. Which of them does a row come from?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import kernels
from ..rows import checks
from ._mixture import Mixture, refuse_nan

Array = np.ndarray
Priors = Mapping[str, Any]


@dataclass(frozen=True)
class Classifier:
    """Classes {name: mixture} over the same coordinates and units, and how common each is before a row is seen.

    ``priors`` {name: number}, or {name: (n,)} with a number for each row, such as the counts of the class at the row's
    magnitude; only their ratios matter. Equal by default. The questions take ``priors`` too, for the rows they get.

    >>> near, far = (Mixture([1.0], [[m]], [[[1.0]]]) for m in (0.0, 4.0))
    >>> Classifier({"near": near, "far": far}).predict([[0.0], [4.0]])
    ['near', 'far']
    """

    mixtures: Mapping[str, Mixture]
    priors: Priors | None = None

    def __post_init__(self) -> None:
        if not self.mixtures:
            raise ValueError("a classifier needs at least one class")
        first, *others = self.mixtures.items()
        for name, mixture in others:
            for what in ("d", "labels", "units"):
                ours, theirs = getattr(first[1], what), getattr(mixture, what)
                if ours != theirs:
                    raise ValueError(f"classes {first[0]!r} and {name!r} differ in {what}: {ours} and {theirs}")
        self._log_priors(self.priors)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the columns of predict_proba."""
        return tuple(self.mixtures)

    def log_joint(
        self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None, priors: Priors | None = None
    ) -> Array:
        """log prior + log-likelihood (n, classes); differences between columns are log Bayes factors and prior odds."""
        first = next(iter(self.mixtures.values()))
        batch = first.batch(X, noise, projection, error=error)
        log_priors = self._log_priors(self.priors if priors is None else priors)
        if log_priors.shape[0] not in (1, batch.n):
            raise ValueError(f"priors are given for {log_priors.shape[0]} rows, and X has {batch.n}")
        each = [refuse_nan(kernels.log_prob(*m.tensors(), batch)).numpy() for m in self.mixtures.values()]
        return np.stack(each, axis=1) + log_priors

    def predict_proba(
        self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None, priors: Priors | None = None
    ) -> Array:
        """Probability (n, classes) of each class; rows of one sum to 1."""
        joint = self.log_joint(X, noise, projection, error=error, priors=priors)
        odds = np.exp(joint - joint.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def predict(
        self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None, priors: Priors | None = None
    ) -> list[str]:
        """The likeliest class of each row."""
        best = self.log_joint(X, noise, projection, error=error, priors=priors).argmax(axis=1)
        return [self.classes[c] for c in best]

    def _log_priors(self, priors: Priors | None) -> Array:
        """Log-priors (1 or n, classes): equal by default, scaled so that each line sums to one."""
        given = dict.fromkeys(self.mixtures, 1.0) if priors is None else priors
        if set(given) != set(self.mixtures):
            raise ValueError(f"priors are given for {sorted(given)} and the classes are {sorted(self.mixtures)}")
        columns = [np.atleast_1d(checks.to_array(given[name], f"the prior of {name!r}")) for name in self.mixtures]
        shapes = {column.shape for column in columns if column.shape != (1,)}
        if len(shapes) > 1 or any(len(shape) > 1 for shape in shapes):
            raise ValueError(f"priors are numbers or (n,) for the same n rows, got {sorted(shapes)}")
        table = np.stack(np.broadcast_arrays(*columns), axis=1)
        bad = ~np.isfinite(table).all(axis=1) | (table < 0).any(axis=1) | (table.sum(axis=1) <= 0)
        if bad.any():
            where = f" in row {int(bad.argmax())}" if len(table) > 1 else ""
            raise ValueError(f"priors must be probabilities or counts, not all zero: {table[bad.argmax()]}{where}")
        with np.errstate(divide="ignore"):
            return np.log(table / table.sum(axis=1, keepdims=True))
