"""FittedMixture: what scikit-learn's users ask an estimator that has been fitted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ..mixture._mixture import Mixture
from ..mixture.exchange import SKLEARN, in_sklearns_shape
from ..mixture.matrices import square_root
from ..rows import checks, units
from ..rows import tables as tabular
from ..rows.checks import to_array
from ..rows.data import errors_as_features

Array = np.ndarray


class FittedMixture(DensityMixin, BaseEstimator, ABC):
    """The attributes of a fitted estimator by scikit-learn's names, and the questions that it has methods for."""

    mixture_: Mixture
    random_state: Any

    @abstractmethod
    def fit(self, X: Any, y: Any = None) -> Self:
        """Find ``mixture_``."""

    # What it has learned

    @property
    def weights_(self) -> Array:
        return self.mixture_.weights

    @property
    def means_(self) -> Array:
        return self.mixture_.means

    @property
    def covariances_(self) -> Array:
        """(k, d, d); of one for all (d, d), of diagonal ones (k, d), of spherical ones (k,)."""
        return self._shaped(self.mixture_.covariances)

    def _shaped(self, matrices: Array) -> Array:
        return in_sklearns_shape(matrices, SKLEARN.get(self.mixture_.structure, "full"))

    @property
    def precisions_(self) -> Array:
        """Inverse covariances, in the same shape."""
        return self._shaped(np.linalg.inv(self.mixture_.covariances))

    @property
    def precisions_cholesky_(self) -> Array:
        """Upper triangular P (k, d, d) with P P^T the precisions, in the same shape."""
        factors = np.linalg.cholesky(self.mixture_.covariances)
        return self._shaped(np.linalg.inv(factors).transpose(0, 2, 1))

    # Questions

    def score_samples(self, X: Any, *, noise: Any = None, error: Any = None, projection: Any = None) -> Array:
        """The log-density of each row.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        noise : array-like, optional
            Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
        error : array-like, optional
            Standard deviations (n, p) or (p,), instead of ``noise``.
        projection : array-like (n, p, d), optional
            Matrices through which each row sees the true values.

        Returns
        -------
        numpy.ndarray (n,)
            Natural logarithms.
        """
        mixture = self._fitted(X, noise, error)
        noise, error = self._beside(X, noise, error)
        return mixture.log_prob(self._rows(X), noise, projection, error=error)

    def score(
        self, X: Any, y: Any = None, *, noise: Any = None, error: Any = None, projection: Any = None,
        weight: Any = None, sample_weight: Any = None,
    ) -> float:  # fmt: skip
        """Mean log-density per unit of weight.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        y : None, optional
            Ignored, being there for scikit-learn; errors in its place, as astroML takes them, are refused.
        noise : array-like, optional
            Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
        error : array-like, optional
            Standard deviations (n, p) or (p,), instead of ``noise``.
        projection : array-like (n, p, d), optional
            Matrices through which each row sees the true values.
        weight : array-like (n,), optional
            How much each row counts; 1 by default.
        sample_weight : array-like (n,), optional
            The same, by scikit-learn's name for it.

        Returns
        -------
        float
            A natural logarithm.
        """
        refuse_errors(y)
        mixture = self._fitted(X, noise, error)
        noise, error = self._beside(X, noise, error)
        rows = self._rows(X)
        weight = one_weight(weight, sample_weight, X, len(rows))
        return mixture.score(rows, noise, projection, error=error, weight=weight)

    def predict_proba(self, X: Any, *, noise: Any = None, error: Any = None, projection: Any = None) -> Array:
        """The probability of each component for each row.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        noise : array-like, optional
            Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
        error : array-like, optional
            Standard deviations (n, p) or (p,), instead of ``noise``.
        projection : array-like (n, p, d), optional
            Matrices through which each row sees the true values.

        Returns
        -------
        numpy.ndarray (n, k)
            Responsibilities.
        """
        mixture = self._fitted(X, noise, error)
        noise, error = self._beside(X, noise, error)
        return mixture.responsibilities(self._rows(X), noise, projection, error=error)

    def predict(self, X: Any, *, noise: Any = None, error: Any = None, projection: Any = None) -> Array:
        """The most probable component of each row.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        noise : array-like, optional
            Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
        error : array-like, optional
            Standard deviations (n, p) or (p,), instead of ``noise``.
        projection : array-like (n, p, d), optional
            Matrices through which each row sees the true values.

        Returns
        -------
        numpy.ndarray (n,)
            Numbers of components.
        """
        return self.predict_proba(X, noise=noise, error=error, projection=projection).argmax(1)

    def sample(self, n_samples: int = 1) -> tuple[Array, Array]:
        """Draws of true values, and the component of each.

        Parameters
        ----------
        n_samples : int, default 1
            How many.

        Returns
        -------
        tuple of numpy.ndarray
            Draws (n_samples, d), components (n_samples,); -1 is the background.
        """
        check_is_fitted(self, "mixture_")
        if n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, got {n_samples}")
        rng = self._random()
        component = np.sort(rng.choice(len(self.weights_), size=n_samples, p=self.weights_))
        z = rng.standard_normal((n_samples, self.means_.shape[1]))
        root = square_root(self.mixture_.covariances)[component]
        away = np.einsum("nde,ne->nd", root, z)
        if self.mixture_.tails is not None:
            c, p = (t.numpy() for t in self.mixture_.tails.scales())
            away = np.sqrt(rng.choice(c, size=n_samples, p=p))[:, None] * away
        drawn = self.means_[component] + away
        if self.mixture_.background is not None:
            beside = rng.random_sample(n_samples) < self.mixture_.background_weight
            some = self.mixture_.background.drawn(int(beside.sum()), np.random.default_rng(rng.randint(2**31 - 1)))
            drawn[beside], component[beside] = some, -1
        return drawn, component

    def n_parameters(self) -> int:
        """Free parameters of the mixture."""
        return self.mixture_.n_parameters

    def bic(self, X: Any, *, noise: Any = None, error: Any = None, projection: Any = None) -> float:
        """Bayesian information criterion, by :meth:`score`; less is better.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        noise : array-like, optional
            Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
        error : array-like, optional
            Standard deviations (n, p) or (p,), instead of ``noise``.
        projection : array-like (n, p, d), optional
            Matrices through which each row sees the true values.

        Returns
        -------
        float
            The criterion.
        """
        rows = len(self._rows(X))
        score = self.score(X, noise=noise, error=error, projection=projection)
        return float(-2 * rows * score + self.n_parameters() * np.log(rows))

    def aic(self, X: Any, *, noise: Any = None, error: Any = None, projection: Any = None) -> float:
        """Akaike information criterion, by :meth:`score`; less is better.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        noise : array-like, optional
            Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
        error : array-like, optional
            Standard deviations (n, p) or (p,), instead of ``noise``.
        projection : array-like (n, p, d), optional
            Matrices through which each row sees the true values.

        Returns
        -------
        float
            The criterion.
        """
        score = self.score(X, noise=noise, error=error, projection=projection)
        return float(-2 * len(self._rows(X)) * score + 2 * self.n_parameters())

    # Rows as they are given

    def _rows(self, X: Any, reset: bool = False) -> Array:
        if reset:
            warn_of_errors_in(X)
        else:
            check_is_fitted(self, "mixture_")
        unreadable = tabular.kind_of(X) == "astropy" or isinstance(X, (Mapping, np.ndarray))
        if unreadable and tabular.names(X) is not None:
            X = self._arrow(X)
        return validate_data(
            self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=1
        )

    def _arrow(self, table: Any) -> Any:
        """An astropy table, a dict or a structured array as a table whose names scikit-learn can read."""
        import pyarrow as pa

        values = to_array(table, "X")
        return pa.table({name: values[:, a] for a, name in enumerate(tabular.names(table) or ())})

    def _fitted(self, X: Any, noise: Any, error: Any) -> Mixture:
        check_is_fitted(self, "mixture_")
        units.refuse_others(tabular.column_units(X), self.mixture_.units, self.mixture_.labels)
        return self.mixture_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _beside(self, X: Any, noise: Any, error: Any) -> tuple[Any, Any]:
        """Noise and errors in the order and the units of the rows and columns of X, when they are tables."""
        noise, error = in_order_of(X, noise, "noise"), in_order_of(X, error, "error")
        return tabular.in_units_of(noise, X, 2, "noise"), tabular.in_units_of(error, X, 1, "error")

    def _random(self) -> np.random.RandomState:
        """Random numbers as scikit-learn has them; without a seed, others than those that all the process shares."""
        return np.random.RandomState() if self.random_state is None else check_random_state(self.random_state)


def in_order_of(X: Any, values: Any, what: str) -> Any:
    """A table's rows and columns in the order of those of X."""
    return tabular.aligned(tabular.in_order(values, tabular.names(X) or ()), X, what)


def warn_of_errors_in(X: Any) -> None:
    """Warn of a table whose columns are errors of others by their names, and would be features."""
    errors_as_features(tabular.names(X) or (), "Give X the columns {} alone, and errors by error=", stacklevel=5)


def one_weight(weight: Any, sample_weight: Any, X: Any, n: int) -> Array | None:
    """The weight of rows (n,), which has two names, in the order of the rows of X."""
    if weight is not None and sample_weight is not None:
        raise ValueError("weight and sample_weight are two names for one thing: give one of them")
    name, given = ("sample_weight", sample_weight) if weight is None else ("weight", weight)
    given = tabular.aligned(given, X, name)
    weights = None if given is None else checks.weight(np.asarray(given), n)
    return None if weights is None else weights.numpy()


def refuse_errors(y: Any) -> None:
    """Refuse errors that were given as the second argument, which scikit-learn has for labels."""
    shape = np.asarray(y).shape
    if len(shape) > 1:
        raise ValueError(f"y is for labels and has shape {shape}: give standard deviations as error=, "
                         "variances or covariances as noise=")  # fmt: skip
