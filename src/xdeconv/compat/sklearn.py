"""XDGMM: the scikit-learn shell around fit() and Mixture."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from typing import Any, Literal, Self, cast

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..fitting._fit import fit
from ..fitting.beside.inflating import paired
from ..fitting.checkpoint import Checkpoint
from ..fitting.initial import Start
from ..fitting.weak_prior import weak_prior
from ..fitting.words import Way, Worded
from ..kernels.options import Options
from ..methods import EM, Method
from ..methods.prior import Prior
from ..methods.structures import Structure, as_structure
from ..mixture._mixture import Mixture
from ..mixture.background import Uniform
from ..mixture.inflation import Inflation
from ..mixture.tails import StudentT
from ..rows import tables as tabular
from ..rows.batch import Batch
from ..rows.checks import whole_number
from ..rows.data import ArraySource
from ..rows.resident import Cache
from ..search.moves import Moves
from .fitted import FittedMixture, one_weight, refuse_errors

Array = np.ndarray
FIRST_ROWS, STEP_POWER = 10, 0.6  # of partial_fit: rows per component of the first batch, and of Robbins and Monro
ROUNDING = 1e-14  # of a column's mean: what scatters less is constant
FEW = 8  # components that settings are made for where nobody knows how many there will be
SHARE = 1e-6  # of a column's variance: what a covariance has at least, by default


class XDGMM(FittedMixture):
    """Extreme deconvolution with scikit-learn's habits; NaN in X means missing.

    Parameters are those of ``GaussianMixture`` where it has them.

    Parameters
    ----------
    n_components : int or "auto", default 1
        How many components; auto chooses them, as ``xdeconv.fit(X, "auto")`` does.
    covariance_type : str or LowRank, default "full"
        full, tied, diag or spherical, as in scikit-learn, whose shapes ``covariances_`` has; or an
        :class:`xdeconv.LowRank`.
    method : str or Method, default "em"
        auto, em, minibatch-em, sgd, or a method of your own (``xd.EM(...)``, ``xd.SGD(...)``), which has its own prior.
    moves : Moves or str, optional
        Whether components are split, merged and revived between passes, as :func:`xdeconv.fit` takes it.
    tol : float, default 0.1
        Nats of total log-likelihood that may be left, by the fit's own estimate, when it stops; 0 never stops.
    patience : int, optional
        Stop after so many passes without a better validation, and keep the mixture of the best pass.
    reg_covar : float, optional
        A variance in the units of X: EM adds it to every covariance as scikit-learn does, SGD takes it as the ``w``
        of the prior. By default a weak prior of a millionth of each column's variance.
    prior : Prior, optional
        A prior on weights and covariances.
    tails : StudentT or float, optional
        Tails heavier than a Gaussian's, as :func:`xdeconv.fit` takes them.
    inflation : Inflation, optional
        Fitted factors on errors that are too small, as :func:`xdeconv.fit` takes them.
    background : Uniform or Mixture, optional
        What else makes rows, with a weight that is fitted, as :func:`xdeconv.fit` takes it.
    selection : Cut, sequence of Cut, Completeness or callable, optional
        The chance with which rows were kept, as :func:`xdeconv.fit` takes it; ``score`` is then given that they were.
    max_iter : int, optional
        At most so many passes; by default as many as the method wants.
    batch_size : int, default 512
        Rows of an update of sgd and of EM with a step below 1; EM with step 1 sees all rows at once.
    n_init : int, default 1
        How many starts; the best fit is kept.
    init_params : str or Start, default "kmeans"
        How means start: kmeans, kmeans++, random, or a Start.
    standardize : bool, default True
        Whether rows are shifted and scaled inside; results are in the units of X.
    random_state : int, RandomState or None, optional
        The seed, as scikit-learn takes it.
    warm_start : bool, default False
        Whether the next fit starts from the last.
    device : str, optional
        Where kernels run; a GPU where there is one by default.
    dtype : str, optional
        float32 or float64; by default what suits the device.
    cache : str, optional
        Where rows are kept between passes: device, host or none; by default the first that they fit in.
    options : Options, optional
        How kernels compute: :class:`xdeconv.Options`.
    checkpoint : Checkpoint, str or path, optional
        A file to save to every ten seconds, or a :class:`xdeconv.Checkpoint`.
    verbose : bool, optional
        Whether to show progress: by default on a terminal or in a notebook, after two seconds; with True always, with
        False never.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> model = XDGMM(2, random_state=0).fit(X, error=np.full((500, 2), 0.1))
    >>> model.means_.shape
    (2, 2)
    """

    mixture_: Mixture

    def __init__(
        self,
        n_components: int | Literal["auto"] = 1,
        *,
        covariance_type: Structure | str = "full",
        method: str | Method = "em",
        moves: Moves | str | None = None,
        tol: float = 0.1,
        patience: int | None = None,
        reg_covar: float | None = None,
        prior: Prior | None = None,
        background: Uniform | Mixture | None = None,
        tails: StudentT | float | None = None,
        inflation: Inflation | None = None,
        selection: Any = None,
        max_iter: int | None = None,
        batch_size: int = 512,
        n_init: int = 1,
        init_params: str | Start = "kmeans",
        standardize: bool = True,
        random_state: Any = None,
        warm_start: bool = False,
        device: str | None = None,
        dtype: str | None = None,
        cache: Cache | None = None,
        options: Options | None = None,
        checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        verbose: bool | None = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.method = method
        self.moves = moves
        self.tol = tol
        self.patience = patience
        self.reg_covar = reg_covar
        self.prior = prior
        self.background = background
        self.tails = tails
        self.inflation = inflation
        self.selection = selection
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.n_init = n_init
        self.init_params = init_params
        self.standardize = standardize
        self.random_state = random_state
        self.warm_start = warm_start
        self.device = device
        self.dtype = dtype
        self.cache = cache
        self.options = options
        self.checkpoint = checkpoint
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        noise: Any = None,
        error: Any = None,
        projection: Any = None,
        weight: Any = None,
        sample_weight: Any = None,
        log_prior: Any = None,
        validation: Any = None,
    ) -> Self:
        """Fit to noisy rows.

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
        log_prior : array-like (n, k), optional
            Added to the log-weights, row by row; -inf rules a component out.
        validation : float, Batch, Source or dict, optional
            Held-out rows, or a fraction of X, whose likelihood is reported; with ``patience`` they end the fit.

        Returns
        -------
        XDGMM
            The estimator itself.
        """
        refuse_errors(y)
        noise, error = self._beside(X, noise, error)
        names, units = (None, None) if projection is not None else (tabular.names(X), tabular.column_units(X))
        table, X = X, self._rows(X, reset=True)
        weight = one_weight(weight, sample_weight, table, len(X))
        log_prior = tabular.aligned(log_prior, table, "log_prior")
        d = X.shape[1] if projection is None else np.shape(projection)[-1]
        again = self.warm_start and "mixture_" in vars(self)
        rows = Batch.from_arrays(X, noise, projection, weight, log_prior, error=error)
        result = fit(
            ArraySource(rows, tuple(names) if names else None, units),
            None if again else self.n_components,
            mixture=self.mixture_ if again else None,
            background=tabular.aligned(self.background, table, "background"),
            tails=self.tails,
            inflation=paired(self.inflation, table),
            selection=self.selection,
            validation=validation,
            covariance=self._covariance(),
            method=self._method(X, noise, error, d, weight),
            moves=self.moves,
            batch_rows=self._batch_rows(len(X)),
            epochs=self.max_iter,
            tol=self.tol,
            patience=self.patience,
            start=self.init_params if isinstance(self.init_params, Start) else Start(centers=self.init_params),  # type: ignore[arg-type]
            restarts=self.n_init,
            seed=int(self._random().randint(2**31 - 1)),
            standardize=self.standardize,
            device=self.device,
            dtype=self.dtype,
            cache=self.cache,
            options=self.options,
            checkpoint=self.checkpoint,
            verbose=self.verbose,
        )
        self.mixture_ = result.mixture
        self.history_ = result.history
        self.converged_ = result.converged
        self.lower_bounds_ = [epoch.loglik for epoch in result.history if epoch.restart == result.restart]
        self.n_iter_ = len(self.lower_bounds_)
        self.lower_bound_ = result.loglik
        self.weight_seen_ = float(len(X) if weight is None else np.sum(weight))
        if self.tol and not result.converged and self._batch_rows(len(X)) is None and not result.interrupted:
            text = f"the fit has not converged after {self.n_iter_} passes: raise max_iter, or tol"
            warnings.warn(text, ConvergenceWarning, stacklevel=2)
        return self

    def partial_fit(
        self, X: Any, y: Any = None, *, noise: Any = None, error: Any = None, projection: Any = None,
        weight: Any = None, sample_weight: Any = None,
    ) -> Self:  # fmt: skip
        """Learn from a batch of rows of a stream: the first starts the mixture, each other is a step of minibatch EM.

        The step is the batch's share of all weight seen so far, to the power 0.6. After :meth:`fit`, a batch is a step
        from where it ended.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing. The first batch must have at least 10 rows per component.
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
        XDGMM
            The estimator itself.
        """
        refuse_errors(y)
        arrays = {"noise": noise, "error": error, "projection": projection}
        if "mixture_" in vars(self):
            return self._step(X, arrays, weight, sample_weight)
        rows, k = len(self._rows(X, reset=True)), FEW if self.n_components == "auto" else self.n_components
        if rows < FIRST_ROWS * k:
            raise ValueError(f"the first batch has {rows} rows, and {k} components need at least "
                             f"{FIRST_ROWS} each: {FIRST_ROWS * k}. More than n_samples={rows} are wanted")  # fmt: skip
        return self.fit(X, weight=weight, sample_weight=sample_weight, **arrays)

    def _step(self, X: Any, arrays: dict[str, Any], weight: Any, sample_weight: Any) -> Self:
        """One step of minibatch EM."""
        arrays["noise"], arrays["error"] = self._beside(X, arrays["noise"], arrays["error"])
        self._fitted(X, arrays["noise"], arrays["error"])
        table, X = X, self._rows(X)
        self.mixture_.batch(X, **arrays)  # which warns of errors that earlier rows had
        weight = one_weight(weight, sample_weight, table, len(X))
        new = float(len(X) if weight is None else np.sum(weight))
        step = (new / (self.weight_seen_ + new)) ** STEP_POWER
        before = self._method(X, arrays["noise"], arrays["error"], self.mixture_.d, weight)
        method = replace(before, step=step, accelerate=False) if isinstance(before, EM) else EM(step=step)
        result = fit(X, mixture=self.mixture_, method=method, batch_rows=len(X), epochs=1, tol=0, moves="none",
                     standardize=self.standardize, device=self.device, dtype=self.dtype, options=self.options,
                     weight=weight, **arrays)  # fmt: skip
        self.mixture_ = result.mixture.with_(meta=self.mixture_.meta)
        self.weight_seen_ += new
        self.n_iter_ += 1
        self.lower_bound_, self.converged_ = result.loglik, False
        self.lower_bounds_ = [*self.lower_bounds_, result.loglik]
        return self

    def _method(self, X: Array, noise: Any, error: Any, d: int, weight: Any = None) -> Method | Worded:
        if self.reg_covar is not None and self.reg_covar < 0:
            raise ValueError(f"reg_covar must not be negative, got {self.reg_covar}")
        if not isinstance(self.method, str):
            if self.prior is not None:
                raise ValueError(f"method={self.method} has its own prior: give prior={self.prior} there")
            if self.reg_covar is not None:
                raise ValueError(f"method={self.method} has its own prior: reg_covar={self.reg_covar} is not used")
            return self.method
        prior = self.prior
        k = FEW if self.n_components == "auto" else self.n_components
        if prior is None and self.reg_covar is None and X.shape[1] == d:
            prior = _weak_prior(Batch.from_arrays(X, noise, error=error, weight=weight), k)
        return Worded(cast(Way, self.method), prior, self.reg_covar)

    def _covariance(self) -> Structure | None:
        """The structure; that of a method of the user's own where none but the default is given."""
        return None if self.covariance_type == "full" else as_structure(self.covariance_type)

    def _batch_rows(self, n: int) -> int | None:
        """Rows of an update; None where each sees all rows."""
        if self.method in ("auto", "em") or (isinstance(self.method, EM) and self.method.step == 1):
            return None
        return max(1, min(whole_number(self.batch_size, "batch_size", 1), n))


def _weak_prior(batch: Batch, k: int) -> Prior:
    """A prior that leaves no covariance below a millionth of the columns' variances, for components of n / k rows.

    Columns that are rounded more coarsely than their noise get what the plain call gives them, where that is more.
    """
    X, own = batch.x.T.numpy(), weak_prior(ArraySource(batch))
    counts = np.isfinite(X) * batch.weights().numpy()[:, None]
    total, filled = np.maximum(counts.sum(0), 1e-300), np.where(np.isfinite(X), X, 0.0)
    mean = (counts * filled).sum(0) / total
    variance = (counts * (filled - mean) ** 2).sum(0) / total
    constant = variance <= (ROUNDING * np.abs(mean)) ** 2  # which has no scale of its own
    w = SHARE * np.where(constant, 1.0, variance) * float(batch.total_weight()) / max(1, k)
    return Prior(w=tuple((w if own is None else np.maximum(w, own.w)).tolist()), c=0.0)
