"""Classifier: several mixtures, one question. Which of them does a row come from?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import kernels
from .mixture import Mixture

Array = np.ndarray


@dataclass(frozen=True)
class Classifier:
    """Classes {name: mixture} over the same coordinates, and their probabilities before a row is seen.

    >>> near, far = (Mixture([1.0], [[m]], [[[1.0]]]) for m in (0.0, 4.0))
    >>> Classifier({"near": near, "far": far}).predict([[0.0], [4.0]])
    ['near', 'far']
    """

    mixtures: Mapping[str, Mixture]
    priors: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if not self.mixtures:
            raise ValueError("a classifier needs at least one class")
        first, *others = self.mixtures.items()
        for name, mixture in others:
            for what in ("d", "labels", "units"):
                ours, theirs = getattr(first[1], what), getattr(mixture, what)
                if ours != theirs:
                    raise ValueError(f"classes {first[0]!r} and {name!r} differ in {what}: {ours} and {theirs}")
        self._log_priors()

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the columns of predict_proba."""
        return tuple(self.mixtures)

    def log_joint(self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None) -> Array:
        """log prior + log-likelihood (n, classes)."""
        first = next(iter(self.mixtures.values()))
        batch = first.batch(X, noise, projection, error=error)
        each = [kernels.log_prob(*mixture.tensors(), batch).numpy() for mixture in self.mixtures.values()]
        return np.stack(each, axis=1) + self._log_priors()

    def predict_proba(self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None) -> Array:
        """Probability (n, classes) of each class; rows of one sum to 1."""
        joint = self.log_joint(X, noise, projection, error=error)
        odds = np.exp(joint - joint.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def predict(self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None) -> list[str]:
        """The likeliest class of each row."""
        best = self.log_joint(X, noise, projection, error=error).argmax(axis=1)
        return [self.classes[c] for c in best]

    def _log_priors(self) -> Array:
        """Log-priors (classes,): equal by default, scaled to sum to one."""
        given = self.priors or dict.fromkeys(self.mixtures, 1.0)
        if set(given) != set(self.mixtures):
            raise ValueError(f"priors are given for {sorted(given)} and the classes are {sorted(self.mixtures)}")
        values = np.array([float(given[name]) for name in self.mixtures])
        if not np.isfinite(values).all() or (values < 0).any() or values.sum() <= 0:
            raise ValueError(f"priors must be probabilities, not all zero: {dict(given)}")
        with np.errstate(divide="ignore"):
            return np.log(values / values.sum())
