"""Mixtures for other programs: scikit-learn's GaussianMixture, NumPy's .npz, FITS."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..system.files import write_atomically
from ._mixture import Mixture

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture

SUFFIXES = (".npz", ".fits")


def to_sklearn(mixture: Mixture) -> GaussianMixture:
    """A GaussianMixture with the mixture's parameters, as if it had been fitted.

    >>> Mixture([1.0], [[0.0]], [[[4.0]]]).to_sklearn().score_samples([[0.0]]).round(3)
    array([-1.612])
    """
    from sklearn.mixture import GaussianMixture

    try:
        precisions = np.linalg.inv(mixture.covariances)
        roots = np.linalg.inv(np.linalg.cholesky(mixture.covariances)).transpose(0, 2, 1)
    except np.linalg.LinAlgError as problem:
        raise ValueError("a covariance is singular: scikit-learn's model needs its inverse") from problem
    model = GaussianMixture(mixture.k, covariance_type="full")
    model.weights_, model.means_ = np.array(mixture.weights), np.array(mixture.means)
    model.covariances_, model.precisions_, model.precisions_cholesky_ = np.array(mixture.covariances), precisions, roots
    meta = mixture.meta or {}
    model.converged_, model.n_iter_ = True, int(meta.get("epochs", 0))
    model.lower_bound_ = float(meta.get("loglik", np.nan))
    model.n_features_in_ = mixture.d
    if mixture.labels:
        model.feature_names_in_ = np.array(mixture.labels, dtype=object)
    return model


def from_sklearn(model: Any, labels: Any = None, units: Any = None) -> Mixture:
    """The mixture of a fitted model with weights_, means_ and covariances_ of any of scikit-learn's types."""
    if not hasattr(model, "means_"):
        raise ValueError(f"this {type(model).__name__} is not fitted: it has no means_")
    k, d = model.means_.shape
    given, eye = np.asarray(model.covariances_, dtype=np.float64), np.eye(d)
    kind = getattr(model, "covariance_type", "full")
    full = {
        "full": lambda: given,
        "tied": lambda: np.broadcast_to(given, (k, d, d)),
        "diag": lambda: given[:, :, None] * eye,
        "spherical": lambda: given[:, None, None] * eye,
    }[kind]()
    names = getattr(model, "feature_names_in_", None) if labels is None else labels
    return Mixture(model.weights_, model.means_, full, names, units)


def export(mixture: Mixture, path: str | os.PathLike[str]) -> None:
    """Write .npz or .fits, by the suffix; what was there stays whole until the new file is."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"cannot export to {path}: its name must end in {' or '.join(SUFFIXES)}")
    write_atomically(path, _npz(mixture) if suffix == ".npz" else _fits(mixture))


def _names(mixture: Mixture) -> tuple[list[str], list[str]]:
    """Labels, or x0, x1, ..., and units, or nothing."""
    labels = mixture.labels or tuple(f"x{a}" for a in range(mixture.d))
    return list(labels), list(mixture.units or ("",) * mixture.d)


def _npz(mixture: Mixture) -> bytes:
    """weights, means, covariances, labels, units, and meta as JSON: no pickles."""
    labels, units = _names(mixture)
    file = io.BytesIO()
    np.savez(
        file, weights=mixture.weights, means=mixture.means, covariances=mixture.covariances,
        labels=np.array(labels), units=np.array(units), meta=np.array(json.dumps(dict(mixture.meta or {}))),
    )  # fmt: skip
    return file.getvalue()


def _fits(mixture: Mixture) -> bytes:
    """Three tables: COMPONENTS (weight, mean, covariance), COORDINATES (label, unit), META (JSON)."""
    try:
        from astropy.io import fits
    except ImportError as problem:
        raise ImportError("FITS files need astropy: pip install 'xdeconv[tables]'") from problem
    k, d = mixture.means.shape
    labels, units = _names(mixture)
    text = json.dumps(dict(mixture.meta or {}))
    components = [
        fits.Column("weight", "D", array=mixture.weights),
        fits.Column("mean", f"{d}D", array=mixture.means),
        fits.Column("covariance", f"{d * d}D", dim=f"({d},{d})", array=mixture.covariances.reshape(k, d, d)),
    ]
    tables = {
        "COMPONENTS": components,
        "COORDINATES": [_text("label", labels), _text("unit", units)],
        "META": [_text("json", [text])],
    }
    hdus = [fits.BinTableHDU.from_columns(columns, name=name) for name, columns in tables.items()]
    file = io.BytesIO()
    fits.HDUList([fits.PrimaryHDU(), *hdus]).writeto(file)
    return file.getvalue()


def _text(name: str, values: list[str]) -> Any:
    from astropy.io import fits

    return fits.Column(name, f"{max(1, *(len(value) for value in values))}A", array=values)
