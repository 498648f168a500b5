"""extreme_deconvolution(): the call of Bovy, Hogg & Roweis (2011), with this engine behind it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import torch

from .. import kernels
from ..kernels.parameters import Parameters
from ..methods import EM, Fixed
from ..methods.em import EMState
from ..methods.prior import Prior
from ..rows import checks
from ..rows.batch import Batch
from ..search.aim import Aim
from ..search.moves import Moves, Search
from .bovy_logs import append_logs, criteria, free_parameters
from .bovy_moves import FEWEST_TO_MOVE, candidates

Array = np.ndarray
ROUNDING = 1e-9  # of the largest eigenvalue: less is not negative
LEAST_GAIN = 1e-9  # of a move, per row: less is not worth another round


def extreme_deconvolution(
    ydata: Any,
    ycovar: Any,
    xamp: Array,
    xmean: Array,
    xcovar: Array,
    projection: Any = None,
    weight: Any = None,
    fixamp: Any = None,
    fixmean: Any = None,
    fixcovar: Any = None,
    tol: float = 1e-6,
    maxiter: int = 10**9,
    w: float = 0.0,
    logfile: str | None = None,
    splitnmerge: int = 0,
    maxsnm: bool = False,
    likeonly: bool = False,
    logweight: bool = False,
) -> float:
    """Fit a mixture in place: xamp, xmean and xcovar go in as the start and come out as the fit.

    The numbers are those of EM as published; :func:`xdeconv.fit` is the call to use for anything new.

    Parameters
    ----------
    ydata : array_like
        (n, p); NaN is a missing value.
    ycovar : array_like
        Covariances (n, p, p), or variances (n, p).
    xamp : numpy.ndarray
        (k,), changed in place.
    xmean : numpy.ndarray
        (k, d), changed in place.
    xcovar : numpy.ndarray
        (k, d, d), changed in place; only the upper triangles are read.
    projection : array_like, optional
        (n, p, d), or a list of n matrices (p, d).
    weight : array_like, optional
        (n,) or (n, 1), or its logarithm with ``logweight``.
    fixamp, fixmean, fixcovar : bool or sequence of bool, optional
        What is held: True for all components, or one value per component; of longer lists the first k count.
    tol : float
        Stop when the average log-likelihood rises by no more in a step; 0 takes all ``maxiter`` steps.
    maxiter : int
        Most steps.
    w : float
        Covariances become (sum + w I) / (q + 1).
    logfile : str, optional
        LOGFILE_c.log gets the settings, the start, every step, the end, AIC and MDL; LOGFILE_loglike.log the
        log-likelihoods. Both are appended to.
    splitnmerge : int
        How many of the published candidates to try in a row after convergence, each by EM on all rows; where
        something is held, among the components of which nothing is.
    maxsnm : bool
        Try every component instead.
    likeonly : bool
        Change nothing, only return the log-likelihood.
    logweight : bool
        Whether ``weight`` is a logarithm.

    Returns
    -------
    float
        sum(weight * log-likelihood) / n of the parameters that it returns.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(3.0, np.sqrt(1.25), size=(4000, 1))
    >>> amp, mean, covar = np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1))
    >>> average = extreme_deconvolution(X, np.full((4000, 1), 0.25), amp, mean, covar)
    >>> mean.round(1), covar.round(1)
    (array([[3.]]), array([[[1.]]]))
    """
    for name, array in (("xamp", xamp), ("xmean", xmean), ("xcovar", xcovar)):
        _refuse_unwritable(name, array)
    fixed = Fixed(*(_held(name, given, len(xamp)) for name, given in
                    (("fixamp", fixamp), ("fixmean", fixmean), ("fixcovar", fixcovar))))  # fmt: skip
    batch = _rows(ydata, ycovar, projection, weight, logweight)
    method = EM(prior=Prior(w=w) if w > 0 else None, fixed=fixed)
    run = _Run(batch, method, float(tol), int(maxiter))
    state = _start(xamp, xmean, xcovar)
    start = xamp.copy(), xmean.copy(), xcovar.copy()
    if not likeonly:
        state = run.converge(state)
        if (splitnmerge > 0 or maxsnm) and len(xamp) >= FEWEST_TO_MOVE:
            state = run.moved(state, int(splitnmerge), maxsnm)
        xamp[...], xmean[...], xcovar[...] = (t.numpy() for t in (state.weights, state.means, state.covariances))
    average = run.average(state)
    if logfile is not None:
        settings = {"n": batch.n, "k": len(xamp), "tol": tol, "maxiter": maxiter, "w": w, "splitnmerge": splitnmerge,
                    "maxsnm": maxsnm, "likeonly": likeonly}  # fmt: skip
        facts = criteria(average, batch.n, free_parameters(fixed, *xmean.shape))
        append_logs(logfile, settings, start, (xamp, xmean, xcovar), [*run.path, average], dict(run.notes), facts)
    return average


@dataclass
class _Run:
    """EM steps; ``path`` has the average log-likelihood before each, ``notes`` what happened between them."""

    batch: Batch
    method: EM
    tol: float
    maxiter: int
    path: list[float] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)

    def converge(self, state: EMState) -> EMState:
        """The state after so many steps that another hardly gains."""
        total, before = float(self.batch.total_weight()), -np.inf
        for _ in range(self.maxiter):
            stats = kernels.accumulate(*state.parameters(), self.batch)
            average = float(stats.loglik) / self.batch.n
            if np.isnan(average):
                raise ArithmeticError(f"step {len(self.path) + 1} met {_trouble(state)}")
            state = _mended(state, self.method.update(state, stats, total))
            self.path.append(average)
            if self.tol > 0 and average - before <= self.tol:
                break
            before = average
        return state

    def moved(self, state: EMState, splitnmerge: int, maxsnm: bool) -> EMState:
        """The state after split-and-merge moves, as long as they gain."""
        fixed, k = self.method.fixed or Fixed(), len(state.weights)
        held = [fixed.mask(name, k, "cpu") for name in ("weights", "means", "covariances")]
        free = (~torch.stack(held).any(0)).nonzero()[:, 0].tolist()
        if maxsnm and len(free) == k:
            return self._search(state, Moves())
        return self._moved_among(state, free, None if maxsnm else splitnmerge)

    def _moved_among(self, state: EMState, free: list[int], tries: int | None) -> EMState:
        """The state after moves of some components: each is tried by EM on all rows, and kept if it gains."""
        if len(free) < FEWEST_TO_MOVE:
            self.notes.append((len(self.path), f"no moves: only {len(free)} components have nothing held"))
        best, moving = self.average(state), True
        while moving:
            moving = False
            for parameters in islice(candidates(Parameters(*state.parameters()), self.batch, free), tries):
                after = self.converge(self.method.moved(state, parameters))
                value = self.average(after)
                if value > best + max(self.tol, LEAST_GAIN):
                    self.notes.append((len(self.path), "two components were merged and one was split"))
                    state, best, moving = after, value, True
                    break
        return state

    def _search(self, state: EMState, moves: Moves) -> EMState:
        """The state after the moves of xd.fit, as long as they gain."""
        size = min(self.batch.n, max(moves.pool_rows, 8 * len(state.weights)))
        rng = np.random.default_rng(0)
        pool = self.batch.rows(torch.from_numpy(np.sort(rng.permutation(self.batch.n)[:size])))
        share = float(pool.total_weight()) / float(self.batch.total_weight())
        aim = Aim(self.method.prior).scaled(share)
        best = self.average(state)
        for _ in range(moves.rounds):
            result = Search(pool, moves, rng, aim).run(state.parameters())
            if not result.moved:
                break
            self.notes.append((len(self.path), f"{result.moved} components were moved"))
            after = self.converge(self.method.moved(state, result.parameters))
            value = self.average(after)
            if aim.prior is None and not value > best:
                break
            state, best = after, value
        return state

    def average(self, state: EMState) -> float:
        """sum(weight * log-likelihood) / n."""
        log_prob = kernels.log_prob(*state.parameters(), self.batch).double()
        weighted = log_prob if self.batch.weight is None else self.batch.weight * log_prob
        return float(weighted.sum()) / self.batch.n


def _rows(ydata: Any, ycovar: Any, projection: Any, weight: Any, logweight: bool) -> Batch:
    y, S = checks.to_array(ydata, "ydata"), checks.to_array(ycovar, "ycovar")
    if y.ndim != 2 or len(y) == 0:
        raise ValueError(f"ydata must have shape (n, p), got {y.shape}")
    if S.shape not in (y.shape, (*y.shape, y.shape[1])):
        raise ValueError(f"ycovar must have shape {(*y.shape, y.shape[1])} or {y.shape}, got {S.shape}")
    weights = None if weight is None else checks.to_array(weight, "weight")
    if weights is not None and weights.shape == (len(y), 1):
        weights = weights[:, 0]
    if weights is not None and logweight:
        weights = np.exp(weights)
    return Batch.from_arrays(y, S, projection, weights)


def _start(xamp: Array, xmean: Array, xcovar: Array) -> EMState:
    k, d = xmean.shape if xmean.ndim == 2 else (-1, -1)
    if xamp.shape != (k,) or xcovar.shape != (k, d, d):
        shapes = f"{xamp.shape}, {xmean.shape} and {xcovar.shape}"
        raise ValueError(f"xamp (k,), xmean (k, d) and xcovar (k, d, d) do not fit: {shapes}")
    upper = np.triu(xcovar)
    V = upper + np.triu(xcovar, 1).transpose(0, 2, 1)
    weights, means, covariances = (torch.tensor(a, dtype=torch.float64) for a in (xamp, xmean, V))
    return EMState(weights, means, covariances, torch.zeros((), dtype=torch.float64))


def _refuse_unwritable(name: str, array: Any) -> None:
    fine = isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.flags.writeable
    if not fine:
        raise ValueError(f"{name} must be a NumPy array of floats that can be written to: the result is put there")


def _held(name: str, given: Any, k: int) -> bool | list[bool]:
    """True or False for all components, or k of them; one in a list counts for all, and the first k of more."""
    if given is None or np.ndim(given) == 0:
        return bool(given)
    flags = [bool(flag) for flag in given]
    if len(flags) != 1 and len(flags) < k:
        raise ValueError(f"{name} must be one truth value or {k}, got {len(flags)}")
    return flags[:k] if len(flags) >= k else flags[0]


def _trouble(state: EMState) -> str:
    """Why rows have no density: a start that is not a covariance, or one without width where there is no noise."""
    values = torch.linalg.eigvalsh(state.covariances)
    bad = values[:, 0] < -ROUNDING * values[:, -1].abs()
    if bool(bad.any()):
        j = int(bad.nonzero()[0])
        return f"an indefinite xcovar of component {j} (eigenvalue {float(values[j, 0]):.3g}): start from a covariance"
    return "a covariance xcovar + ycovar that is singular: give w > 0, or noise to rows that repeat"


def _mended(before: EMState, after: EMState) -> EMState:
    """The state after a step, without what rounding has made negative.

    A step from a covariance leads to a covariance. From one that is wider than the data by many orders of magnitude,
    what is left is below the rounding of what went: as much as is missing is then added in all directions.
    """
    least = torch.linalg.eigvalsh(after.covariances)[:, 0]
    was = torch.linalg.eigvalsh(before.covariances)
    lost = (least < 0) & (was[:, 0] >= -ROUNDING * was[:, -1].abs())
    if not bool(lost.any()):
        return after
    eye = torch.eye(after.means.shape[1], dtype=torch.float64)
    added = torch.where(lost, -2 * least, 0.0)[:, None, None] * eye
    return replace(after, covariances=after.covariances + added)
