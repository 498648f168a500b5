"""extreme_deconvolution(): the call of Bovy, Hogg & Roweis (2011), with this engine behind it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import kernels
from ..methods import EM, Fixed
from ..methods.em import EMState
from ..methods.prior import Prior
from ..rows import checks
from ..rows.batch import Batch
from ..search.moves import Moves, Search

Array = np.ndarray
FEWEST_TO_MOVE = 3  # components: a move splits one and merges two others


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
    """Fit a mixture in place: ``xamp``, ``xmean`` and ``xcovar`` go in as the start and come out as the fit.

    Only the upper triangles of ``xcovar`` are read. The numbers are those of EM as published; :func:`xdeconv.fit` is
    the call to use for anything new.

    Parameters
    ----------
    ydata : array-like (n, p)
        Noisy rows; NaN is a missing value.
    ycovar : array-like
        Covariances (n, p, p), or variances (n, p).
    xamp : numpy.ndarray (k,)
        Weights, changed in place.
    xmean : numpy.ndarray (k, d)
        Means, changed in place.
    xcovar : numpy.ndarray (k, d, d)
        Covariances, changed in place.
    projection : array-like (n, p, d), optional
        Matrices through which rows see the true values, or a list of n matrices (p, d).
    weight : array-like (n,), optional
        Weights of the rows, or their logarithms with ``logweight``.
    fixamp : bool or sequence of bool, optional
        Weights to be held: True for all components, or k booleans.
    fixmean : bool or sequence of bool, optional
        Means to be held, likewise.
    fixcovar : bool or sequence of bool, optional
        Covariances to be held, likewise.
    tol : float, default 1e-06
        Stop when the average log-likelihood rises by no more in a step; 0 continues to ``maxiter``.
    maxiter : int, optional
        At most so many steps.
    w : float, default 0.0
        Covariances become (sum + w I) / (q + 1).
    logfile : str, optional
        LOGFILE_c.log gets the settings and every step, LOGFILE_loglike.log the log-likelihoods.
    splitnmerge : int, default 0
        How many sweeps of moves to try after convergence, the published candidates first.
    maxsnm : bool, default False
        Try every component in a sweep instead.
    likeonly : bool, default False
        Change nothing, only return the log-likelihood.
    logweight : bool, default False
        Whether ``weight`` holds logarithms.

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
    if not likeonly:
        state = run.converge(state)
        if (splitnmerge > 0 or maxsnm) and len(xamp) >= FEWEST_TO_MOVE:
            state = run.search(state, _moves(splitnmerge, maxsnm, fixed))
        xamp[...], xmean[...], xcovar[...] = (t.numpy() for t in (state.weights, state.means, state.covariances))
    average = run.average(state)
    if logfile is not None:
        settings = {"n": batch.n, "k": len(xamp), "tol": tol, "maxiter": maxiter, "w": w, "splitnmerge": splitnmerge,
                    "maxsnm": maxsnm, "likeonly": likeonly}  # fmt: skip
        _write_logs(logfile, settings, run, average)
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
                raise ArithmeticError(f"step {len(self.path) + 1} met a covariance xcovar + ycovar that is singular: "
                                      "give w > 0, or noise to rows that repeat")  # fmt: skip
            state = self.method.update(state, stats, total)
            self.path.append(average)
            if self.tol > 0 and average - before <= self.tol:
                break
            before = average
        return state

    def search(self, state: EMState, moves: Moves) -> EMState:
        """The state after split-and-merge moves, as long as they gain."""
        size = min(self.batch.n, max(moves.pool_rows, 8 * len(state.weights)))
        rng = np.random.default_rng(0)
        pool = self.batch.rows(torch.from_numpy(np.sort(rng.permutation(self.batch.n)[:size])))
        share = float(pool.total_weight()) / float(self.batch.total_weight())
        prior = None if self.method.prior is None else self.method.prior.scaled(share)
        best = self.average(state)
        for _ in range(moves.rounds):
            found = Search(pool, moves, rng, prior).run(state.parameters())
            if not found.moved:
                break
            self.notes.append((len(self.path), f"{found.moved} components were moved"))
            after = self.converge(self.method.moved(state, found.parameters))
            value = self.average(after)
            if prior is None and not value > best:
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
    """True or False for all components, or k of them; one in a list counts for all."""
    if given is None or np.ndim(given) == 0:
        return bool(given)
    flags = [bool(flag) for flag in given]
    if len(flags) not in (1, k):
        raise ValueError(f"{name} must be one truth value or {k}, got {len(flags)}")
    return flags if len(flags) == k else flags[0]


def _moves(splitnmerge: int, maxsnm: bool, fixed: Fixed) -> Moves:
    if any(np.any(held) for held in (fixed.weights, fixed.means, fixed.covariances)):
        raise ValueError("splitnmerge replaces components: it cannot hold some as they are (fixamp, fixmean, fixcovar)")
    return Moves() if maxsnm else replace(Moves(criterion="bovy"), sweeps=int(splitnmerge))


def _write_logs(logfile: str, settings: dict[str, Any], run: _Run, average: float) -> None:
    notes = dict(run.notes)
    lines = [f"# {name} = {value}" for name, value in settings.items()]
    for step, value in enumerate([*run.path, average]):
        lines += [f"# {notes[step]}"] if step in notes else []
        lines.append(f"{value:.12g}")
    values = [f"{value:.12g}" for value in (*run.path, average)]
    Path(f"{logfile}_c.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    Path(f"{logfile}_loglike.log").write_text("\n".join(values) + "\n\n\n", encoding="utf-8")
