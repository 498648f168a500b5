"""Classifier: several mixtures, one question. Which of them does a row come from?"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..rows import checks
from ..rows import tables as tabular
from ..rows.batch import Batch
from ._mixture import Mixture
from .computing import answers, computing, rows_in
from .facts import number, table
from .undefined import refuse_undefined

Array = np.ndarray
Word = Literal["equal", "training", "fitted"]
Priors = Mapping[str, Any] | Word
WORDS = ("equal", "training", "fitted")
STEPS, ARRIVED = 10_000, 1e-9  # of EM on priors alone: most steps, and the change of a fraction that ends it


@dataclass(frozen=True)
class Classifier:
    """Classes over the same coordinates and units, and how common each is before a row is seen.

    Every question takes rows as a mixture does: arrays, tables, file names, sources; and ``priors`` for those rows.

    Parameters
    ----------
    mixtures : dict
        ``{class: Mixture}``.
    priors : dict or str, optional
        ``{class: number}``; or ``{class: (n,)}`` with a number for each row, such as the counts of the class at the
        row's magnitude, or at its error where classes differ in those; only ratios matter. Or a word: "training" (as
        common as in the rows that the mixtures were fitted to), "fitted" (as common as makes the rows asked about
        likeliest) or "equal". What is not said is equal, with a warning: where classes are rare, that is rarely meant.

    Examples
    --------
    >>> near, far = (Mixture([1.0], [[m]], [[[1.0]]]) for m in (0.0, 4.0))
    >>> Classifier({"near": near, "far": far}, {"near": 9, "far": 1}).predict([[0.0], [4.0]])
    array(['near', 'far'], dtype='<U4')
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
        if self.priors is not None:
            self._checked(self.priors)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the columns of predict_proba."""
        return tuple(self.mixtures)

    def log_joint(
        self,
        X: Any,
        noise: Any = None,
        projection: Any = None,
        *,
        error: Any = None,
        priors: Priors | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> Array:
        """log prior + log-likelihood; differences between columns are log Bayes factors and prior odds.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        noise, projection, error : array_like, optional
            As in :meth:`Mixture.log_prob`.
        priors : dict or str, optional
            For these rows, instead of the classifier's own.
        device : {"cpu", "cuda"}, optional
            Where to compute, as in :meth:`Mixture.log_prob`.
        dtype : {"float64", "float32"}, optional
            The number type, as in :meth:`Mixture.log_prob`.

        Returns
        -------
        numpy.ndarray
            (n, classes).
        """
        said = self.priors if priors is None else priors
        if said is None:
            warnings.warn(
                "priors are not said: every class is taken to be equally common. Give priors={class: number}, or "
                "priors='training', 'fitted' or 'equal'",
                UserWarning,
                stacklevel=3,
            )
        likelihoods = self._log_likelihoods(X, noise, projection, error, device, dtype)
        if isinstance(said, Mapping):
            said = {name: tabular.aligned(each, X, f"the prior of {name}") for name, each in said.items()}
        log_priors = self._fitted(likelihoods) if said == "fitted" else self._log_priors(said)
        if log_priors.shape[0] not in (1, len(likelihoods)):
            raise ValueError(f"priors are given for {log_priors.shape[0]} rows, and X has {len(likelihoods)}")
        return likelihoods + log_priors

    def predict_proba(
        self,
        X: Any,
        noise: Any = None,
        projection: Any = None,
        *,
        error: Any = None,
        priors: Priors | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> Array:
        """Probability of each class; those of a row sum to 1.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        noise, projection, error : array_like, optional
            As in :meth:`Mixture.log_prob`.
        priors : dict or str, optional
            For these rows, instead of the classifier's own.
        device : {"cpu", "cuda"}, optional
            Where to compute, as in :meth:`Mixture.log_prob`.
        dtype : {"float64", "float32"}, optional
            The number type, as in :meth:`Mixture.log_prob`.

        Returns
        -------
        numpy.ndarray
            (n, classes).
        """
        return _shares(self.log_joint(X, noise, projection, error=error, priors=priors, device=device, dtype=dtype))

    def predict(
        self,
        X: Any,
        noise: Any = None,
        projection: Any = None,
        *,
        error: Any = None,
        priors: Priors | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> Array:
        """The likeliest class of each row.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        noise, projection, error : array_like, optional
            As in :meth:`Mixture.log_prob`.
        priors : dict or str, optional
            For these rows, instead of the classifier's own.
        device : {"cpu", "cuda"}, optional
            Where to compute, as in :meth:`Mixture.log_prob`.
        dtype : {"float64", "float32"}, optional
            The number type, as in :meth:`Mixture.log_prob`.

        Returns
        -------
        numpy.ndarray
            (n,) of names.
        """
        best = self.log_joint(X, noise, projection, error=error, priors=priors, device=device, dtype=dtype).argmax(
            axis=1
        )
        return np.array(self.classes)[best]

    def fitted_priors(
        self,
        X: Any,
        noise: Any = None,
        projection: Any = None,
        *,
        error: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> dict[str, float]:
        """How common each class must be to make these rows likeliest: EM on the priors alone.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        noise, projection, error : array_like, optional
            As in :meth:`Mixture.log_prob`.
        device : {"cpu", "cuda"}, optional
            Where to compute, as in :meth:`Mixture.log_prob`.
        dtype : {"float64", "float32"}, optional
            The number type, as in :meth:`Mixture.log_prob`.

        Returns
        -------
        dict
            ``{class: fraction}``.

        Examples
        --------
        >>> near, far = (Mixture([1.0], [[m]], [[[1.0]]]) for m in (0.0, 40.0))
        >>> Classifier({"near": near, "far": far}).fitted_priors([[0.0], [1.0], [40.0], [0.5]])
        {'near': 0.75, 'far': 0.25}
        """
        shares = np.exp(self._fitted(self._log_likelihoods(X, noise, projection, error, device, dtype)))[0]
        return dict(zip(self.classes, shares.tolist(), strict=True))

    def _log_likelihoods(self, X: Any, noise: Any, projection: Any, error: Any, device: Any, dtype: Any) -> Array:
        """(n, classes), read batch by batch as the first class reads rows."""
        mixtures = list(self.mixtures.values())
        asked = mixtures[0].asked_rows(X, noise, projection, error=error)
        places = [computing(mixture.scaled(), lambda: rows_in(asked), device, dtype) for mixture in mixtures]

        def each(batch: Batch) -> Tensor:
            plain = batch.to("cpu", torch.float64)
            columns = [kernels.log_prob(*where.parameters, where.batch(mixture.seen(plain))).double().cpu()
                     for mixture, where in zip(mixtures, places, strict=True)]  # fmt: skip
            return torch.stack(columns, dim=1)

        parts: list[Array] = []
        first = 0
        for likelihoods in answers(asked, each, places[0]):
            parts.append(refuse_undefined(likelihoods, first).numpy())
            first += len(parts[-1])
        return np.concatenate(parts) if parts else np.zeros((0, len(mixtures)))

    def _fitted(self, likelihoods: Array) -> Array:
        """Log-priors (1, classes) that make rows likeliest."""
        if not len(likelihoods):
            raise ValueError("there are no rows to fit priors to")
        priors = np.full(likelihoods.shape[1], 1 / likelihoods.shape[1])
        densities = np.exp(likelihoods - likelihoods.max(axis=1, keepdims=True))
        for _ in range(STEPS):
            after = priors * (densities / (densities @ priors)[:, None]).mean(axis=0)
            done = np.abs(after - priors).max() < ARRIVED
            priors = after
            if done:
                break
        with np.errstate(divide="ignore"):
            return np.log(priors / priors.sum())[None]

    def _checked(self, priors: Priors) -> None:
        if priors != "fitted":
            self._log_priors(priors)

    def _log_priors(self, priors: Priors | None) -> Array:
        """Log-priors (1 or n, classes), scaled so that each line sums to one."""
        given = self._numbers(priors)
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

    def _numbers(self, priors: Priors | None) -> Mapping[str, Any]:
        if priors is None or priors == "equal":
            return dict.fromkeys(self.mixtures, 1.0)
        if priors == "training":
            return {name: _training_rows(name, mixture) for name, mixture in self.mixtures.items()}
        if isinstance(priors, Mapping):
            return priors
        raise ValueError(f"priors must be a dict or one of {', '.join(WORDS)}, got {priors!r}")


def _training_rows(name: str, mixture: Mixture) -> float:
    """How many rows a mixture was fitted to, as its meta remembers."""
    rows = number(table(mixture.meta or {}, "fit"), "rows")
    if rows is None:
        raise ValueError(
            f"the mixture of {name!r} does not remember how many rows it was fitted to: give priors={{...}}"
        )
    return float(rows)


def _shares(joint: Array) -> Array:
    odds = np.exp(joint - joint.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)
