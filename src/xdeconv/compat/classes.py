"""XDClassifier: the scikit-learn shell around one mixture per class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ..mixture._mixture import Mixture
from ..mixture.classifier import Classifier
from ..rows import tables as tabular
from ..rows.checks import to_array
from .fitted import in_order_of, one_weight, warn_of_errors_in
from .sklearn import XDGMM

Array = np.ndarray


class XDClassifier(ClassifierMixin, BaseEstimator):
    """Tells classes apart by a deconvolved mixture of each, with scikit-learn's habits; NaN in X means missing.

    A row's noise widens the density of every class, so that rows measured badly are told apart less surely.

    Parameters
    ----------
    n_components : int or dict, default 1
        Gaussians of each class, or ``{class: number}``.
    priors : str or dict, default "training"
        How common classes are: "training" (as in the rows of the fit), "equal", "fitted" (as makes the rows asked
        about likeliest) or ``{class: number}``.
    tol : float, default 0.1
        Nats of total log-likelihood that may be left in each fit when it stops.
    reg_covar : float, optional
        A variance in the units of X, added to every covariance; by default a weak prior.
    max_iter : int, optional
        At most so many passes of each fit; by default as many as it wants.
    n_init : int, default 1
        How many starts of each fit; the best is kept.
    random_state : int, RandomState or None, optional
        The seed, as scikit-learn takes it.
    device : str, optional
        Where kernels run; a GPU where there is one by default.
    dtype : str, optional
        float32 or float64; by default what suits the device.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["star", "quasar"], 200)
    >>> X = np.where(y == "star", 0.0, 3.0)[:, None] + rng.normal(size=(400, 2))
    >>> model = XDClassifier(2, random_state=0).fit(X, y, error=np.full((400, 2), 0.1))
    >>> model.predict([[0.0, 0.0], [3.0, 3.0]], error=[[0.1, 0.1], [0.1, 0.1]])
    array(['star', 'quasar'], dtype='<U6')
    """

    classes_: Array
    models_: tuple[XDGMM, ...]

    def __init__(
        self,
        n_components: int | Mapping[Any, int] = 1,
        *,
        priors: str | Mapping[Any, float] = "training",
        tol: float = 0.1,
        reg_covar: float | None = None,
        max_iter: int | None = None,
        n_init: int = 1,
        random_state: Any = None,
        device: str | None = None,
        dtype: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.priors = priors
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.random_state = random_state
        self.device = device
        self.dtype = dtype

    def fit(
        self, X: Any, y: Any, *, noise: Any = None, error: Any = None, projection: Any = None,
        weight: Any = None, sample_weight: Any = None,
    ) -> Self:  # fmt: skip
        """Fit a mixture to the rows of each class.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        y : array-like (n,)
            The class of each row.
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
        XDClassifier
            The estimator itself.
        """
        arrays = self._beside(X, noise, error, projection)
        warn_of_errors_in(X)
        table, y = X, tabular.aligned(y, X, "y")
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan")
        check_classification_targets(y)
        given = one_weight(weight, sample_weight, table, len(X))
        counts = np.ones(len(X)) if given is None else given
        self.classes_ = np.unique(y[counts > 0])
        self._refuse_other_priors()
        rows = [(y == name) & (counts > 0) for name in self.classes_]
        self.models_ = tuple(
            self._of_class(c).fit(X[mine], weight=counts[mine] if given is not None else None,
                                  **{name: of_rows(a, mine) for name, a in arrays.items()})
            for c, mine in enumerate(rows)
        )  # fmt: skip
        self.class_prior_ = np.array([counts[mine].sum() for mine in rows]) / counts.sum()
        return self

    @property
    def n_iter_(self) -> list[int]:
        """Passes of each class's fit."""
        return [model.n_iter_ for model in self.models_]

    @property
    def mixtures_(self) -> dict[Any, Mixture]:
        """The mixture of each class."""
        return {name: model.mixture_ for name, model in zip(self.classes_.tolist(), self.models_, strict=True)}

    def predict_proba(self, X: Any, *, noise: Any = None, error: Any = None, projection: Any = None) -> Array:
        """The probability of each class for each row.

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
        numpy.ndarray (n, classes)
            In the order of ``classes_``.
        """
        check_is_fitted(self, "models_")
        arrays = self._beside(X, noise, error, projection)
        X = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        return self._classifier().predict_proba(X, **arrays)

    def predict(self, X: Any, *, noise: Any = None, error: Any = None, projection: Any = None) -> Array:
        """The likeliest class of each row.

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
            Classes.
        """
        best = self.predict_proba(X, noise=noise, error=error, projection=projection).argmax(1)
        return self.classes_[best]

    def score(
        self, X: Any, y: Any, *, noise: Any = None, error: Any = None, projection: Any = None, sample_weight: Any = None
    ) -> float:
        """The fraction of rows whose likeliest class is the right one.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        y : array-like (n,)
            The class of each row.
        noise : array-like, optional
            Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
        error : array-like, optional
            Standard deviations (n, p) or (p,), instead of ``noise``.
        projection : array-like (n, p, d), optional
            Matrices through which each row sees the true values.
        sample_weight : array-like (n,), optional
            How much each row counts.

        Returns
        -------
        float
            From 0 to 1.
        """
        right = self.predict(X, noise=noise, error=error, projection=projection) == np.asarray(
            tabular.aligned(y, X, "y")
        )
        return float(np.average(right, weights=one_weight(None, sample_weight, X, len(right))))

    def _of_class(self, c: int) -> XDGMM:
        """The estimator of one class."""
        k = self.n_components
        if isinstance(k, Mapping):
            k = k[self.classes_[c]]
        return XDGMM(k, tol=self.tol, reg_covar=self.reg_covar, max_iter=self.max_iter, n_init=self.n_init,
                     random_state=self.random_state, device=self.device, dtype=self.dtype)  # fmt: skip

    def _refuse_other_priors(self) -> None:
        """Refuse priors of other classes than those of the rows."""
        if isinstance(self.priors, Mapping) and set(self.priors) != set(self.classes_.tolist()):
            given, wanted = sorted(map(str, self.priors)), sorted(map(str, self.classes_))
            raise ValueError(f"priors are given for {given} and the classes are {wanted}")

    def _classifier(self) -> Classifier:
        """Classes by number, as common as was said."""
        priors = self.priors
        if priors == "training":
            priors = dict(zip(self.classes_, self.class_prior_, strict=True))
        if isinstance(priors, Mapping):
            priors = {str(c): priors[name] for c, name in enumerate(self.classes_)}
        return Classifier({str(c): model.mixture_ for c, model in enumerate(self.models_)}, priors)  # type: ignore[arg-type]

    def _beside(self, X: Any, noise: Any, error: Any, projection: Any) -> dict[str, Any]:
        """What stands beside the rows, as arrays, in the order of the rows and columns of X."""
        given = {"noise": in_order_of(X, noise, "noise"), "error": in_order_of(X, error, "error"),
                 "projection": projection}  # fmt: skip
        return {name: None if a is None else to_array(a, name) for name, a in given.items()}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def of_rows(array: Array | None, mine: Array) -> Array | None:
    """The part of an array that belongs to some rows; all of it where rows share it."""
    return array[mine] if array is not None and len(array) == len(mine) else array
