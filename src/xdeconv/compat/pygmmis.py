"""What users of pygmmis write: a GMM that fit(gmm, data, ...) fills in place, a Background, and sel_callback.

Fits continue until less than 0.1 nat is left, whatever ``tol`` says; ``oversampling`` and ``cutoff`` mean nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..fitting._fit import fit as fit_mixture
from ..methods import EM, Fixed
from ..methods.prior import Prior
from ..mixture._mixture import Mixture
from ..mixture.background import Uniform
from ..mixture.selections.completeness import Completeness

Array = np.ndarray
INITS = ("random", "minmax", "kmeans", "none")


class GMM:
    """A mixture whose ``amp`` (K,), ``mean`` (K, D) and ``covar`` (K, D, D) may be written.

    Parameters
    ----------
    K, D : int, default 0
        Components and dimensions.

    Examples
    --------
    >>> gmm = GMM(2, 1)
    >>> gmm.amp[:], gmm.mean[:], gmm.covar[:] = 0.5, [[0.0], [3.0]], 1.0
    >>> gmm(np.array([[0.0]])).round(3)
    array([0.202])
    """

    def __init__(self, K: int = 0, D: int = 0) -> None:
        self.amp, self.mean, self.covar = np.zeros(K), np.empty((K, D)), np.empty((K, D, D))

    @property
    def K(self) -> int:
        """Number of components."""
        return len(self.amp)

    @property
    def D(self) -> int:
        """Number of dimensions."""
        return self.mean.shape[1]

    @property
    def mixture(self) -> Mixture:
        """The same as a mixture of this library."""
        return Mixture(self.amp / self.amp.sum(), self.mean, self.covar)

    def __call__(self, coords: Any, covar: Any = None, as_log: bool = False) -> Array:
        """Densities of rows.

        Parameters
        ----------
        coords : array-like (n, D)
            Noisy rows.
        covar : array-like (D, D) or (n, D, D), optional
            Their noise.
        as_log : bool, default False
            Whether logarithms are wanted.

        Returns
        -------
        numpy.ndarray (n,)
        """
        logs = self.mixture.log_prob(coords, _noise(covar))
        return logs if as_log else np.exp(logs)

    def draw(self, size: int = 1, rng: Any = np.random) -> Array:
        """Draws of true values.

        Parameters
        ----------
        size : int, default 1
            How many.
        rng : numpy.random.RandomState, optional
            Where randomness comes from.

        Returns
        -------
        numpy.ndarray (size, D)
        """
        return self.mixture.sample(size, int(rng.randint(2**31 - 1)))


class Background:
    """A uniform background, whose ``amp`` a fit finds.

    Parameters
    ----------
    footprint : pair of array-like (D,)
        The lowest and the highest corner.
    amp : float, default 0
        Its weight.

    Examples
    --------
    >>> Background(([0.0, 0.0], [10.0, 4.0])).p
    0.025
    """

    def __init__(self, footprint: tuple[Any, Any], amp: float = 0) -> None:
        self.footprint, self.amp, self.adjust_amp = footprint, amp, True

    @property
    def p(self) -> float:
        """Its density."""
        return float(1 / np.prod(np.subtract(self.footprint[1], self.footprint[0])))


def fit(
    gmm: GMM,
    data: Any,
    covar: Any = None,
    R: Any = None,
    init_method: str = "random",
    w: float = 0.0,
    cutoff: float | None = None,
    sel_callback: Callable[[Array], Any] | None = None,
    oversampling: int = 10,
    covar_callback: Callable[[Array], Any] | None = None,
    background: Background | None = None,
    tol: float = 1e-3,
    miniter: int = 1,
    maxiter: int = 1000,
    frozen: Any = None,
    split_n_merge: Any = False,
    rng: Any = np.random,
) -> tuple[float, None]:
    """Fit a GMM to rows that were selected, in place, as pygmmis does.

    Parameters
    ----------
    gmm : GMM
        What is filled.
    data : array-like (n, D)
        Noisy rows; NaN is missing.
    covar : array-like (D, D) or (n, D, D), optional
        Their noise.
    R : array-like (n, p, D), optional
        Projections.
    init_method : str, default "random"
        random, minmax, kmeans, or none: from what the GMM is.
    w : float, default 0.0
        The least width of components, in the units of the data.
    cutoff : float, optional
        Without meaning here: all components count.
    sel_callback : callable, optional
        From rows (n, D) to the probability that each was kept: not to a random choice.
    oversampling : int, default 10
        Without meaning here: draws are added until they do not matter.
    covar_callback : callable, optional
        From true values (n, D) to the noise that they would have, for rows that were not kept.
    background : Background, optional
        Whose amp is fitted in place.
    tol, miniter : float and int, optional
        Without meaning here.
    maxiter : int, default 1000
        At most so many passes.
    frozen : sequence of int, or dict of amp, mean and covar, optional
        Components that are held.
    split_n_merge : int or bool, default False
        Whether components are split and merged.
    rng : numpy.random.RandomState, optional
        Where the seed comes from.

    Returns
    -------
    float, None
        Mean log-likelihood of the rows given that they were kept; neighbourhoods do not exist here.

    Examples
    --------
    >>> gmm, rng = GMM(1, 1), np.random.RandomState(0)
    >>> X = rng.normal(0.0, 1.0, size=(4000, 1))
    >>> _ = fit(gmm, X[X[:, 0] > -0.5], sel_callback=lambda X: X[:, 0] > -0.5, rng=rng)
    >>> bool(abs(gmm.mean[0, 0]) < 0.1)
    True
    """
    if init_method.lower() not in INITS:
        raise ValueError(f"init_method must be one of {list(INITS)}, got {init_method!r}")
    if background is not None and not background.adjust_amp:
        raise ValueError("a background whose amp is not adjusted cannot be fitted here: leave adjust_amp True")
    rows = np.asarray(data, dtype=np.float64)
    given = init_method.lower() == "none"
    start = "kmeans" if init_method.lower() == "kmeans" else "random"
    result = fit_mixture(
        rows,
        None if given else gmm.K,
        noise=_noise(covar),
        projection=R,
        mixture=_given(gmm, background) if given else None,
        start=start,
        seed=int(rng.randint(2**31 - 1)),
        method=EM(prior=_prior(w, len(rows), gmm.K), fixed=_fixed(frozen)),
        moves="auto" if split_n_merge and frozen is None else "none",
        epochs=maxiter,
        background=None if background is None else Uniform(*background.footprint),
        selection=_selection(sel_callback, covar_callback),
    )
    found = result.mixture
    gmm.amp, gmm.mean, gmm.covar = (np.array(a) for a in (found.weights, found.means, found.covariances))
    if background is not None:
        background.amp = found.background_weight
    return result.loglik, None


def _noise(covar: Any) -> Array | None:
    """Noise as this library takes it: one matrix is shared by all rows."""
    if covar is None:
        return None
    array = np.asarray(covar, dtype=np.float64)
    return array[None] if array.ndim == 2 else array


def _given(gmm: GMM, background: Background | None) -> Mixture:
    if background is None:
        return gmm.mixture
    return gmm.mixture.with_(background=Uniform(*background.footprint), background_weight=background.amp or 0.1)


def _prior(w: float, n: int, k: int) -> Prior | None:
    """A floor w^2 under variances, as strong as pygmmis has it: n / k rows of it, and one more row."""
    return Prior(w=w**2 * (n / k + 1), c=1.0) if w > 0 else None


def _fixed(frozen: Any) -> Fixed | None:
    if frozen is None:
        return None
    held = frozen if isinstance(frozen, Mapping) else {"mean": frozen, "covar": frozen}
    words = {"amp": "weights", "mean": "means", "covar": "covariances"}
    return Fixed(**{words[name]: list(which) for name, which in held.items() if len(which)})


def _selection(kept: Callable[[Array], Any] | None, noise: Callable[[Array], Any] | None) -> Completeness | None:
    if kept is None:
        return None

    def covariances(v: Array) -> Array:
        assert noise is not None
        S = np.asarray(noise(v), dtype=np.float64)
        return np.broadcast_to(S, (len(v), *S.shape)) if S.shape == (v.shape[1],) * 2 else S

    return Completeness(lambda X: kept(X), None if noise is None else covariances)
