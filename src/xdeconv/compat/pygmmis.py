"""What users of pygmmis write: a GMM that fit(gmm, data, ...) fills in place, a Background, and sel_callback.

Fits continue until less than 0.1 nat is left, whatever ``tol`` says; ``oversampling`` and ``cutoff`` mean nothing here.
A start that the user does not give is searched from, as everywhere here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
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

    def logL(self, coords: Any, covar: Any = None) -> Array:
        """Log-densities of rows.

        Parameters
        ----------
        coords : array-like (n, D)
            The rows.
        covar : array-like (D, D) or (n, D, D), optional
            Their noise.

        Returns
        -------
        numpy.ndarray (n,)
        """
        return self(coords, covar, as_log=True)

    def save(self, filename: Any, **more: Any) -> None:
        """Write an .npz file of amp, mean, covar and more arrays.

        Parameters
        ----------
        filename : str or path
            The file.
        **more : array-like
            What else to write.
        """
        np.savez(filename, amp=self.amp, mean=self.mean, covar=self.covar, **more)

    def load(self, filename: Any) -> None:
        """Take amp, mean and covar from an .npz file.

        Parameters
        ----------
        filename : str or path
            The file.
        """
        with np.load(filename) as file:
            self.amp, self.mean, self.covar = file["amp"], file["mean"], file["covar"]


def stack(gmms: Sequence[GMM], weights: Any) -> GMM:
    """One GMM of the components of several.

    Parameters
    ----------
    gmms : sequence of GMM
        What is put together.
    weights : array-like (len(gmms),)
        How much each counts.

    Returns
    -------
    GMM

    Examples
    --------
    >>> one = GMM(1, 1)
    >>> one.amp[:] = 1.0
    >>> stack([one, one], [1.0, 3.0]).amp
    array([0.25, 0.75])
    """
    made, shares = GMM(), np.asarray(weights, dtype=np.float64)
    made.amp = np.concatenate([share * gmm.amp for share, gmm in zip(shares / shares.sum(), gmms, strict=True)])
    made.mean, made.covar = (np.concatenate([part(g) for g in gmms]) for part in (lambda g: g.mean, lambda g: g.covar))
    return made


def covar_callback_default(coords: Any, default: Any = None) -> Array:
    """One noise for all rows: ``functools.partial(covar_callback_default, default=S)``.

    Parameters
    ----------
    coords : array-like (n, D)
        Rows.
    default : array-like (D, D)
        The noise.

    Returns
    -------
    numpy.ndarray (n, D, D)
    """
    n, d = np.shape(coords)
    if np.shape(default) != (d, d):
        raise ValueError(f"covar_callback_default needs default= of shape {(d, d)}, got {np.shape(default)}")
    return np.broadcast_to(np.asarray(default, dtype=np.float64), (n, d, d))


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
        self.footprint, self.amp, self.adjust_amp, self.amp_max = footprint, amp, True, 1.0

    @property
    def p(self) -> float:
        """Its density."""
        return float(1 / np.prod(np.subtract(self.footprint[1], self.footprint[0])))

    def draw(self, size: int = 1, rng: Any = np.random) -> Array:
        """Rows of the background.

        Parameters
        ----------
        size : int, default 1
            How many.
        rng : numpy.random.RandomState, optional
            Where they come from.

        Returns
        -------
        numpy.ndarray (size, D)
        """
        low, high = (np.asarray(corner, dtype=np.float64) for corner in self.footprint)
        return low + (high - low) * rng.random_sample((size, len(low)))


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
        random, minmax, kmeans, or none: from what the GMM is. Other starts than that are searched from.
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
        Whose amp is fitted in place; ``amp_max`` is not held, and warned of where the amp is larger.
    tol, miniter : float and int, optional
        Without meaning here.
    maxiter : int, default 1000
        At most so many passes.
    frozen : sequence of int, or dict of amp, mean and covar, optional
        Components that are held.
    split_n_merge : int or bool, default False
        Whether components are split and merged from a start that is given, too.
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
    way = init_method.lower() if isinstance(init_method, str) else ""
    if way not in INITS:
        raise ValueError(f"init_method must be one of {list(INITS)}, got {init_method!r}")
    if background is not None and not background.adjust_amp:
        raise ValueError("a background whose amp is not adjusted cannot be fitted here: leave adjust_amp True")
    rows = np.asarray(data, dtype=np.float64)
    given, start = way == "none", "kmeans" if way == "kmeans" else "random"
    result = fit_mixture(
        rows,
        None if given else gmm.K,
        noise=_noise(covar),
        projection=R,
        mixture=_given(gmm, background) if given else None,
        start=start,
        seed=int(rng.randint(2**31 - 1)),
        method=EM(prior=_prior(w, len(rows), gmm.K), fixed=_fixed(frozen)),
        moves="auto" if (split_n_merge or not given) and frozen is None else "none",
        epochs=maxiter,
        background=None if background is None else Uniform(*background.footprint),
        selection=_selection(sel_callback, covar_callback),
    )
    mixture = result.mixture
    gmm.amp, gmm.mean, gmm.covar = (np.array(a) for a in (mixture.weights, mixture.means, mixture.covariances))
    if background is not None:
        background.amp = mixture.background_weight
        if background.amp > background.amp_max:
            text = f"the background has amp {background.amp:.4g}, above its amp_max, which is not held here"
            warnings.warn(text, stacklevel=2)
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
