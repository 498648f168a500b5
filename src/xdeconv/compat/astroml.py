"""What users of astroML's XDGMM write: fit(X, Xerr), and the attributes mu, V and alpha."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from .. import kernels
from ..fitting._fit import fit
from ..methods import EM
from ..mixture._mixture import Mixture
from ..mixture.undefined import refuse_undefined
from ..rows import checks

Array = np.ndarray


class XDGMM(BaseEstimator):
    """astroML's class: parameters in ``mu`` (k, d), ``V`` (k, d, d) and ``alpha`` (k,); ``Xerr`` is covariances.

    Missing values (NaN) and projections ``R`` work here, and ``sample`` follows its seed.

    Parameters
    ----------
    n_components : int
        How many components.
    max_iter : int, default 100
        At most so many steps.
    tol : float, default 1e-05
        As there, of the summed log-likelihood.
    verbose : bool, default False
        Whether to show progress.
    random_state : int, RandomState or None, optional
        The seed, as scikit-learn takes it.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> model = XDGMM(2, random_state=0).fit(X, np.tile(0.1 * np.eye(2), (500, 1, 1)))
    >>> model.mu.shape, model.V.shape, model.alpha.shape
    ((2, 2), (2, 2, 2), (2,))
    """

    def __init__(
        self,
        n_components: int,
        max_iter: int = 100,
        tol: float = 1e-5,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state
        self.mu: Array | None = None
        self.V: Array | None = None
        self.alpha: Array | None = None

    def fit(self, X: Any, Xerr: Any, R: Any = None) -> Self:
        """Fit rows with noise.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        Xerr : array-like (n, p, p)
            Covariances of the noise of each row.
        R : array-like (n, p, d), optional
            Matrices through which rows see the true values.

        Returns
        -------
        XDGMM
            The model itself.
        """
        S = covariances_of(Xerr, X)
        result = fit(
            X,
            self.n_components,
            noise=S,
            projection=R,
            method=EM(),
            epochs=self.max_iter,
            tol=self.tol / len(S),
            seed=seed_of(self.random_state),
            verbose=self.verbose,
        )
        mixture = result.mixture
        self.mu, self.V, self.alpha = (np.array(a) for a in (mixture.means, mixture.covariances, mixture.weights))
        return self

    @property
    def mixture(self) -> Mixture:
        """The same as a :class:`xdeconv.Mixture`."""
        if self.mu is None or self.V is None or self.alpha is None:
            raise ValueError("there is no model yet: call fit(X, Xerr) first, or set mu, V and alpha")
        return Mixture(self.alpha, self.mu, self.V)

    def logprob_a(self, X: Any, Xerr: Any) -> Array:
        """log(alpha_j N_j) of each row and component.

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
        """The log-likelihood of all rows together: a sum, not a mean.

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

    def sample(self, size: int | tuple[int, ...] = 1, random_state: Any = None) -> Array:
        r"""Draws of true values.

        Parameters
        ----------
        size : int or tuple of int, default 1
            How many.
        random_state : int, RandomState or None, optional
            The seed, as scikit-learn takes it.

        Returns
        -------
        numpy.ndarray (\*size, d)
            The draws.
        """
        shape = tuple(np.atleast_1d(size))
        seed = seed_of(self.random_state if random_state is None else random_state)
        return self.mixture.sample(int(np.prod(shape)), seed).reshape(*shape, -1)


def log_joint_of(mixture: Mixture, X: Any, Xerr: Any) -> Array:
    """log(alpha_j N_j) of each row and component.

    Parameters
    ----------
    mixture : Mixture
        Of d dimensions.
    X : array-like (n, d)
        Rows; NaN where a value is missing.
    Xerr : array-like (n, d, d)
        Their covariances.

    Returns
    -------
    numpy.ndarray (n, k)
    """
    batch = mixture.batch(X, covariances_of(Xerr, X))
    return refuse_undefined(kernels.log_joint(*mixture.tensors(), batch)).numpy()


def covariances_of(Xerr: Any, X: Any) -> Array:
    """Covariances as they are; anything else is refused, since (n, p) could be variances or standard deviations.

    Parameters
    ----------
    Xerr : array-like (n, p, p)
        Covariances of the noise of each row.
    X : array-like (n, p) or table
        Noisy rows; NaN is missing.

    Returns
    -------
    numpy.ndarray (n, p, p)
        The covariances.
    """
    S, shape = checks.to_array(Xerr, "Xerr"), np.shape(X)
    if len(shape) != 2 or S.shape != (*shape, shape[1]):
        wanted = "(n, p, p)" if len(shape) != 2 else str((*shape, shape[1]))
        hint = "from standard deviations: Xerr[:, :, None] ** 2 * np.eye(p)"
        raise ValueError(f"Xerr must be covariances {wanted}, got {S.shape} ({hint})")
    return S


def seed_of(random_state: Any) -> int:
    """A seed from whatever scikit-learn takes as random_state.

    Parameters
    ----------
    random_state : int, RandomState or None
        The seed, as scikit-learn takes it.

    Returns
    -------
    int
        A seed.
    """
    return int(check_random_state(random_state).randint(2**31 - 1))
