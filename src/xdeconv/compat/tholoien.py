"""What users of T. Holoien's XDGMM write: labels, condition(X_dict=...), BIC tests, and its text model file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from ..fitting._fit import fit
from ..methods import EM
from ..methods.prior import Prior
from ..mixture._mixture import Mixture
from ..rows import checks
from ..rows import tables as tabular
from ..system.files import write_atomically
from .astroml import covariances_of, log_joint_of, seed_of

Array = np.ndarray
DEFAULT_ITERATIONS = {"astroML": 100, "Bovy": 10**9}


class XDGMM(BaseEstimator):
    """Holoien's class: parameters in ``weights`` (k,), ``mu`` (k, d) and ``V`` (k, d, d); ``Xerr`` is covariances.

    An error in ``condition`` is a standard deviation, and acts as one.

    Parameters
    ----------
    n_components : int, default 1
        How many components.
    n_iter : int, default 0
        At most so many steps; 0 takes the default of the method.
    tol : float, default 1e-05
        Of the sum of the log-likelihoods (astroML) or of their mean (Bovy), as there.
    method : str, default "astroML"
        "astroML" or "Bovy": both name the same engine, with the defaults of each.
    labels : sequence of str, optional
        Names of the coordinates.
    random_state : int, RandomState or None, optional
        The seed, as scikit-learn takes it.
    V : array-like (k, d, d), optional
        Covariances of a known model.
    mu : array-like (k, d), optional
        Means of a known model.
    weights : array-like (k,), optional
        Weights of a known model.
    filename : str, optional
        A text file of that package to read the model from.
    w : float, default 0.0
        Added to covariances; it counts for Bovy alone, as there.

    Examples
    --------
    >>> model = XDGMM(labels=["x", "y"], weights=[1.0], mu=[[0.0, 0.0]], V=[[[1.0, 0.5], [0.5, 1.0]]])
    >>> given = model.condition(X_dict={"x": (1.0, 1.0)})
    >>> given.labels, given.mu
    (array(['y'], dtype='<U1'), array([[0.25]]))
    """

    def __init__(
        self,
        n_components: int = 1,
        n_iter: int = 0,
        tol: float = 1e-5,
        method: str = "astroML",
        labels: Any = None,
        random_state: Any = None,
        V: Any = None,
        mu: Any = None,
        weights: Any = None,
        filename: str | None = None,
        w: float = 0.0,
    ) -> None:
        self.n_components = n_components
        self.n_iter = n_iter
        self.tol = tol
        self.method = method
        self.labels = None if labels is None else np.asarray(labels)
        self.random_state = random_state
        self.V = None if V is None else checks.to_array(V, "V")
        self.mu = None if mu is None else checks.to_array(mu, "mu")
        self.weights = None if weights is None else checks.to_array(weights, "weights")
        self.filename = None  # what it held is in the other parameters, so that clones need no file
        self.w = w
        if method not in DEFAULT_ITERATIONS:
            raise ValueError(f"method must be one of {list(DEFAULT_ITERATIONS)}, got {method!r}")
        if filename is not None:
            self.read_model(filename)

    def fit(self, X: Any, Xerr: Any) -> Self:
        """Fit rows with noise; the columns of a DataFrame become the labels.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        Xerr : array-like (n, p, p)
            Covariances of the noise of each row.

        Returns
        -------
        XDGMM
            The model itself.
        """
        S, bovy = covariances_of(Xerr, X), self.method == "Bovy"
        result = fit(
            X,
            self.n_components,
            noise=S,
            method=EM(prior=Prior(w=self.w) if bovy and self.w > 0 else None),
            epochs=self.n_iter or DEFAULT_ITERATIONS[self.method],
            tol=self.tol if bovy else self.tol / len(S),
            seed=seed_of(self.random_state),
            labels=tabular.names(X) or (None if self.labels is None else list(self.labels)),
        )
        return self._take(result.mixture)

    def _take(self, mixture: Mixture) -> Self:
        self.weights, self.mu, self.V = (np.array(a) for a in (mixture.weights, mixture.means, mixture.covariances))
        self.labels = None if mixture.labels is None else np.array(mixture.labels)
        self.n_components = mixture.k
        return self

    @property
    def mixture(self) -> Mixture:
        """The same as a :class:`xdeconv.Mixture`."""
        if self.mu is None or self.V is None or self.weights is None:
            raise ValueError("there is no model yet: call fit(X, Xerr), or give weights, mu and V, or a filename")
        return Mixture(self.weights, self.mu, self.V, None if self.labels is None else tuple(self.labels))

    # Questions about rows

    def score_samples(self, X: Any, Xerr: Any) -> tuple[Array, Array]:
        """Log-density and responsibilities of each row.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        Xerr : array-like (n, p, p)
            Covariances of the noise of each row.

        Returns
        -------
        tuple of numpy.ndarray
            Log-densities (n,) and responsibilities (n, k).
        """
        S = covariances_of(Xerr, X)
        return self.mixture.log_prob(X, S), self.mixture.responsibilities(X, S)

    def predict(self, X: Any, Xerr: Any) -> Array:
        """The likeliest component of each row.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        Xerr : array-like (n, p, p)
            Covariances of the noise of each row.

        Returns
        -------
        numpy.ndarray (n,)
            Numbers of components.
        """
        return self.predict_proba(X, Xerr).argmax(axis=1)

    def predict_proba(self, X: Any, Xerr: Any) -> Array:
        """The probability of each component for each row.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        Xerr : array-like (n, p, p)
            Covariances of the noise of each row.

        Returns
        -------
        numpy.ndarray (n, k)
            Responsibilities.
        """
        return self.mixture.responsibilities(X, covariances_of(Xerr, X))

    def logprob_a(self, X: Any, Xerr: Any) -> Array:
        """log(weight_j N_j) of each row and component.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        Xerr : array-like (n, p, p)
            Covariances of the noise of each row.

        Returns
        -------
        numpy.ndarray (n, k)
            Logarithms.
        """
        return log_joint_of(self.mixture, X, Xerr)

    def logL(self, X: Any, Xerr: Any) -> float:
        """The log-likelihood of all rows together: a sum.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        Xerr : array-like (n, p, p)
            Covariances of the noise of each row.

        Returns
        -------
        float
            The sum over rows.
        """
        return float(self.mixture.log_prob(X, covariances_of(Xerr, X)).sum())

    def score(self, X: Any, Xerr: Any) -> float:
        """The mean log-likelihood of a row.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        Xerr : array-like (n, p, p)
            Covariances of the noise of each row.

        Returns
        -------
        float
            The mean over rows.
        """
        return self.mixture.score(X, covariances_of(Xerr, X))

    def bic(self, X: Any, Xerr: Any) -> float:
        """Bayesian information criterion; less is better.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        Xerr : array-like (n, p, p)
            Covariances of the noise of each row.

        Returns
        -------
        float
            The criterion.
        """
        return -2 * self.logL(X, Xerr) + self.mixture.n_parameters * np.log(len(X))

    def aic(self, X: Any, Xerr: Any) -> float:
        """Akaike information criterion; less is better.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        Xerr : array-like (n, p, p)
            Covariances of the noise of each row.

        Returns
        -------
        float
            The criterion.
        """
        return -2 * self.logL(X, Xerr) + 2 * self.mixture.n_parameters

    def bic_test(self, X: Any, Xerr: Any, param_range: Iterable[int], no_err: bool = False) -> tuple[Array, int, float]:
        """BIC of each number of components, the number with the lowest, and the lowest; the model is left at that.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        Xerr : array-like (n, p, p)
            Covariances of the noise of each row.
        param_range : iterable of int
            Numbers of components to try.
        no_err : bool, default False
            Whether to ignore the noise.

        Returns
        -------
        tuple
            The criterion of each, the best number, and its criterion.
        """
        return self._try_each(self.bic, X, Xerr, param_range, no_err)

    def aic_test(self, X: Any, Xerr: Any, param_range: Iterable[int], no_err: bool = False) -> tuple[Array, int, float]:
        """AIC of each number of components, the number with the lowest, and the lowest; the model is left at that.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        Xerr : array-like (n, p, p)
            Covariances of the noise of each row.
        param_range : iterable of int
            Numbers of components to try.
        no_err : bool, default False
            Whether to ignore the noise.

        Returns
        -------
        tuple
            The criterion of each, the best number, and its criterion.
        """
        return self._try_each(self.aic, X, Xerr, param_range, no_err)

    def _try_each(
        self, criterion: Callable[[Any, Any], float], X: Any, Xerr: Any, sizes: Iterable[int], no_err: bool
    ) -> tuple[Array, int, float]:
        used = np.zeros_like(covariances_of(Xerr, X)) if no_err else Xerr
        scores, models = [], []
        for size in sizes:
            self.n_components = int(size)
            self.fit(X, Xerr)
            scores.append(criterion(X, used))
            models.append(self.mixture)
        best = int(np.argmin(scores))
        self._take(models[best])
        return np.array(scores), models[best].k, float(scores[best])

    # Other models, draws, files

    def sample(self, size: int = 1, random_state: Any = None) -> Array:
        """Draws of true values.

        Parameters
        ----------
        size : int, default 1
            How many.
        random_state : int, RandomState or None, optional
            The seed, as scikit-learn takes it.

        Returns
        -------
        numpy.ndarray (size, d)
            The draws.
        """
        return self.mixture.sample(int(size), seed_of(self.random_state if random_state is None else random_state))

    def condition(self, X_input: Any = None, Xerr_input: Any = None, X_dict: Mapping[str, Any] | None = None) -> XDGMM:
        """The model of the other coordinates, given some.

        A value may come with its standard deviation.

        Parameters
        ----------
        X_input : array-like (d,), optional
            Values, with NaN for the coordinates that are not given.
        Xerr_input : array-like (d,), optional
            Standard deviations of the values.
        X_dict : dict, optional
            {label: value} or {label: (value, error)}, instead.

        Returns
        -------
        XDGMM
            The model of the coordinates that were not given.
        """
        values, errors = self._given(X_input, Xerr_input, X_dict)
        conditional = self.mixture.condition(values, error=errors)
        other = XDGMM(self.n_components, self.n_iter, self.tol, self.method, random_state=self.random_state, w=self.w)
        return other._take(conditional)

    def _given(self, X: Any, Xerr: Any, X_dict: Mapping[str, Any] | None) -> tuple[dict[Any, float], dict[Any, float]]:
        if X_dict is not None:
            pairs = {label: np.atleast_1d(np.asarray(v, dtype=float)) for label, v in X_dict.items()}
            wrong = [label for label, pair in pairs.items() if pair.shape not in ((1,), (2,))]
            if wrong:
                raise ValueError(f"{wrong[0]!r} must be a value or a pair (value, error), got {X_dict[wrong[0]]!r}")
            values = {label: float(pair[0]) for label, pair in pairs.items()}
            return values, {label: float(pair[1]) for label, pair in pairs.items() if len(pair) == 2}
        if X is None:
            raise ValueError("give X_input or X_dict: the values to condition on")
        x = checks.to_array(X, "X_input")
        if x.shape != (self.mixture.d,):
            raise ValueError(
                f"X_input must have shape ({self.mixture.d},) with NaN where nothing is known, got {x.shape}"
            )
        known = np.flatnonzero(~np.isnan(x)).tolist()
        e = np.zeros_like(x) if Xerr is None else checks.to_array(Xerr, "Xerr_input")
        return {a: float(x[a]) for a in known}, {a: float(e[a]) for a in known}

    def save_model(self, filename: str | os.PathLike[str] = "xdgmm.fit") -> None:
        """Write that package's text file: settings, labels, weights, means, covariances.

        Parameters
        ----------
        filename : str or path, default "xdgmm.fit"
            Where to write.
        """
        mixture = self.mixture
        iterations = self.n_iter or DEFAULT_ITERATIONS[self.method]
        lines = ["# XDGMM Model", "# n_components  n_iter  tol  method   random_state"]
        lines.append(f"{mixture.k},{iterations},{self.tol},{self.method},{self.random_state}")
        lines += ["# labels", "No labels" if mixture.labels is None else ",".join(mixture.labels)]
        lines += ["# weights", _line(mixture.weights), "# means", *map(_line, mixture.means), "# covars"]
        lines.append("\n#\n".join("\n".join(map(_line, V)) for V in mixture.covariances))
        write_atomically(filename, ("\n".join(lines) + "\n").encode())

    def read_model(self, filename: str | os.PathLike[str]) -> None:
        """Take the parameters and settings of a file that :meth:`save_model`, here or there, wrote.

        Parameters
        ----------
        filename : str or path
            What to read.
        """
        lines = Path(filename).read_text(encoding="utf-8").splitlines()
        try:
            _, n_iter, tol, method, state = lines[2].split(",")
            labels = None if lines[4] == "No labels" else tuple(word.strip() for word in lines[4].split(","))
            split = lines.index("# covars")
            means = _numbers(lines[8:split])
            V = _numbers(line for line in lines[split + 1 :] if line != "#")
            mixture = Mixture(_numbers(lines[6:7])[0], means, V.reshape(len(means), means.shape[1], -1), labels)
        except (ValueError, IndexError) as problem:
            raise ValueError(f"{filename} is not an XDGMM model file, or is damaged: {problem}") from problem
        self.n_iter, self.tol, self.method = int(n_iter), float(tol), method
        self.random_state = None if state == "None" else int(state)
        self._take(mixture)


def _line(numbers: Array) -> str:
    return ",".join(repr(float(number)) for number in numbers)


def _numbers(lines: Iterable[str]) -> Array:
    return np.array([[float(word) for word in line.split(",")] for line in lines])
