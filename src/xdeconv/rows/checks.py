"""Checks of arrays and counts that users hand over: every error names the row, column or shape, and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import tables as tabular

Array = np.ndarray


class NoNoiseWarning(UserWarning):
    """Rows of which values are taken as exact although nobody said that they are."""


def to_array(values: Any, name: str) -> Array:
    """Anything array-like as float64: NumPy, torch, tables of any kind, Quantities, masked arrays (NaN)."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    if tabular.is_sparse(values):
        raise ValueError(f"{name} is sparse, which is not supported: pass {name}.toarray()")
    values = tabular.numbers(values, name)
    if np.iscomplexobj(values):
        raise ValueError(f"{name} has complex numbers. Complex data not supported: pass real and imaginary parts")
    try:
        if type(values).__module__.startswith("pandas"):  # without names
            return _of_pandas(values, name)
        if tabular.is_masked(values):
            values = np.ma.filled(np.ma.asarray(values).astype(np.float64), np.nan)
        return tabular.exact_floats(values, name)
    except tabular.Inexact:
        raise
    except (TypeError, ValueError) as problem:
        raise ValueError(f"{name} cannot be read as numbers: {problem}") from problem


def _of_pandas(values: Any, name: str) -> Array:
    plain = values.to_numpy()
    if plain.dtype.kind in "iuMm":
        return tabular.exact_floats(plain, name)
    return values.to_numpy(dtype=np.float64, na_value=np.nan)


def whole_number(value: Any, name: str, least: int) -> int:
    """A whole number of at least ``least``.

    >>> whole_number(3, "restarts", 1)
    3
    >>> whole_number(True, "restarts", 1)
    Traceback (most recent call last):
    ...
    ValueError: restarts must be a whole number of at least 1, got True
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def named(labels: Any, a: int) -> str:
    """What to call a column in an error."""
    return str(labels[a]) if labels else f"column {a}"


def rows(X: Any) -> Array:
    """X as (n, p) float64; infinities are refused, NaN is missing."""
    x = to_array(X, "X")
    if x.ndim != 2:
        hint = "X[:, None] for one column, X[None, :] for one row" if x.ndim == 1 else "two axes"
        raise ValueError(f"X must have shape (n, p), got {x.shape}: use {hint}")
    if x.shape[1] == 0:
        raise ValueError(f"X of shape {x.shape} has no columns")
    bad = np.argwhere(np.isinf(x))
    if len(bad):
        i, a = bad[0]
        raise ValueError(f"X is infinite in row {i}, column {a} ({len(bad)} such values): use NaN for missing values")
    return x


def noise(noise: Any, error: Any, observed: Array) -> Array | None:
    """Noise as (n or 1, p) variances or (n or 1, p (p + 1) / 2) packed covariances; zero where nothing is observed."""
    if noise is not None and error is not None:
        raise ValueError("give noise (variances) or error (standard deviations), not both")
    if error is not None:
        return _variances(_squared(error, observed.shape), observed, "error")
    if noise is None:
        return None
    S = to_array(noise, "noise")
    n, p = observed.shape
    if S.ndim == 3:
        return _covariances(S, observed)
    if S.ndim == 2 and S.shape == (p, p) and n != p:
        raise ValueError(f"noise of shape {S.shape} is ambiguous: one covariance for all rows is noise[None] (1, p, p)")
    return _variances(S, observed, "noise")


def _squared(error: Any, shape: tuple[int, ...]) -> Array:
    e = to_array(error, "error")
    if e.ndim > 2:
        raise ValueError(f"error must have shape {shape} or ({shape[1]},), got {e.shape}: covariances go in noise")
    bad = np.argwhere(e < 0)
    if len(bad):
        raise ValueError(f"error is negative at {_place(bad[0])}")
    return e**2


def _variances(S: Array, observed: Array, name: str) -> Array:
    n, p = observed.shape
    if S.shape == (p,):
        S = S[None]
    elif S.shape != (n, p):
        raise ValueError(f"{name} must have shape {(n, p)}, or {(p,)} for all rows alike, got {S.shape}")
    needed = _needed(S, observed)
    _refuse(needed & ~np.isfinite(S), S, name, "not finite although X is observed there")
    _refuse(needed & (S < 0), S, name, "negative")
    return np.where(needed, S, 0.0)


def _covariances(S: Array, observed: Array) -> Array:
    n, p = observed.shape
    if S.shape[1:] != (p, p) or len(S) not in (1, n):
        raise ValueError(f"noise must have shape {(n, p, p)}, or {(1, p, p)} for all rows alike, got {S.shape}")
    needed = _needed(S, observed)
    pairs = needed[:, :, None] & needed[:, None, :]
    _refuse(pairs & ~np.isfinite(S), S, "noise", "not finite although X is observed there")
    S = np.where(pairs, S, 0.0)
    size = np.abs(S).max(axis=(1, 2), keepdims=True, initial=0.0)
    _refuse(np.abs(S - S.transpose(0, 2, 1)) > 1e-6 * size, S, "noise", "not symmetric")
    refuse_indefinite(S)
    a, b = np.tril_indices(p)
    return S[:, a, b]


def _needed(S: Array, observed: Array) -> Array:
    """Which noise matters: that of observed values, row by row, or of any row when one noise serves all."""
    n = len(observed)
    return observed if len(S) == n and n > 0 else np.asarray(observed.any(axis=0, keepdims=True))


def refuse_indefinite(S: Array) -> None:
    """Refuse noise (n, p, p) with an eigenvalue below -1e-8 times the largest; zero is fine."""
    diagonal = np.einsum("naa->na", S)
    _refuse(diagonal < 0, diagonal, "noise", "negative on the diagonal")
    slack = 1e-8 * diagonal.max(axis=1, initial=0.0) + np.finfo(float).tiny
    shifted = torch.from_numpy(S + slack[:, None, None] * np.eye(S.shape[1]))
    suspects = torch.linalg.cholesky_ex(shifted).info.nonzero()[:, 0].numpy()
    if len(suspects):
        i = suspects[0]
        least = np.linalg.eigvalsh(S[i])[0]
        raise ValueError(
            f"noise of row {i} is not positive semi-definite (least eigenvalue {least:.3g}; "
            f"{len(suspects)} such rows): check its correlations"
        )


def projection(R: Any, n: int, p: int) -> Tensor | None:
    """Projection (n or 1, p, d) as a (p, d, n) tensor."""
    if R is None:
        return None
    r = to_array(R, "projection")
    if r.ndim != 3 or r.shape[1] != p or len(r) not in (1, n):
        raise ValueError(f"projection must have shape (n, p, d) = ({n}, {p}, d), got {r.shape}")
    _refuse(~np.isfinite(r), r, "projection", "not finite")
    r = np.broadcast_to(r, (n, *r.shape[1:]))
    return torch.from_numpy(np.array(r.transpose(1, 2, 0), order="C"))


def weight(weight: Any, n: int) -> Tensor | None:
    """Row weights (n,), finite and not negative, not all zero."""
    if weight is None:
        return None
    w = to_array(weight, "weight")
    if w.shape != (n,):
        raise ValueError(f"weight must have shape ({n},), got {w.shape}")
    _refuse(~np.isfinite(w) | (w < 0), w, "weight", "negative or not finite")
    if n and not w.any():
        raise ValueError("weight is zero in every row: nothing is left to fit")
    return torch.from_numpy(w.copy())


def background(background: Any, n: int) -> Tensor | None:
    """Log-densities (n,) of what else makes rows; -inf where it makes none."""
    if background is None:
        return None
    density = to_array(background, "background")
    if density.shape != (n,):
        raise ValueError(f"background must be log-densities of shape ({n},), one per row, got {density.shape}")
    _refuse(np.isnan(density) | (density == np.inf), density, "background", "NaN or +inf")
    return torch.from_numpy(density.copy())


def group(group: Any, n: int) -> Tensor | None:
    """Groups (n,) of rows: whole numbers from 0."""
    if group is None:
        return None
    places = to_array(group, "group")
    if places.shape != (n,):
        raise ValueError(f"group must be whole numbers of shape ({n},), one per row, got {places.shape}")
    _refuse(~((places >= 0) & (places == np.floor(places))), places, "group", "not a whole number of at least 0")
    return torch.from_numpy(places.astype(np.int64))


def log_prior(log_prior: Any, label: Any, n: int) -> Tensor | None:
    """Log-priors (n, k), or (classes, k) with labels; -inf forbids a component, a line of only -inf is refused."""
    if log_prior is None:
        return None
    table = to_array(log_prior, "log_prior")
    if table.ndim != 2 or (label is None and len(table) != n):
        raise ValueError(f"log_prior must have shape (n, k) = ({n}, k), or (classes, k) with label=, got {table.shape}")
    _refuse(np.isnan(table) | (table == np.inf), table, "log_prior", "NaN or +inf")
    _refuse(np.asarray(np.isneginf(table).all(axis=1)), table.max(axis=1), "log_prior", "-inf for every component")
    return torch.from_numpy(table.copy())


def label(label: Any, log_prior: Any, n: int) -> Tensor | None:
    """Class indices (n,) into the lines of log_prior."""
    if label is None:
        return None
    if log_prior is None:
        raise ValueError("label chooses a line of log_prior: give log_prior (classes, k) too")
    index = np.asarray(label)
    if index.shape != (n,) or not np.issubdtype(index.dtype, np.integer):
        raise ValueError(f"label must be {n} integers, got {index.dtype} of shape {index.shape}")
    classes = len(log_prior)
    _refuse((index < 0) | (index >= classes), index, "label", f"not in 0..{classes - 1}")
    return torch.from_numpy(index.astype(np.int64))


def _refuse(bad: Array, values: Array, name: str, what: str) -> None:
    """Raise for the first bad place, if there is one."""
    if bad.any():
        place = np.argwhere(bad)[0]
        at = tuple(int(i) if size > 1 else 0 for i, size in zip(place, values.shape, strict=True))
        raise ValueError(f"{name} is {what} at {_place(place)}: {values[at]:.6g} ({int(bad.sum())} such values)")


def _place(index: Array) -> str:
    names = ["row", "column", "column"][: len(index)]
    return ", ".join(f"{name} {i}" for name, i in zip(names, index, strict=True))
