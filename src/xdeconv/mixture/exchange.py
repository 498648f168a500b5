"""Mixtures for other programs, as arrays in and out: scikit-learn, PyTorch, NumPyro, NumPy's .npz, FITS."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ..system.files import write_atomically
from .coordinates import names_or_numbers
from .facts import number

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture

Array = np.ndarray
SUFFIXES = (".npz", ".fits")
SKLEARN = {"full": "full", "tied": "tied", "diagonal": "diag", "spherical": "spherical"}


class Exchanged(NamedTuple):
    """Everything that a mixture is: arrays, names and facts."""

    weights: Array
    means: Array
    covariances: Array
    labels: tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None
    meta: Mapping[str, Any] | None = None
    structure: str = "full"


def to_sklearn(given: Exchanged) -> GaussianMixture:
    """A GaussianMixture with these parameters, as if it had been fitted."""
    from sklearn.mixture import GaussianMixture

    refuse_singular(given.covariances, "scikit-learn's model")
    k, d = given.means.shape
    kind = SKLEARN.get(given.structure, "full")
    model = GaussianMixture(k, covariance_type=kind)
    model.weights_, model.means_ = np.array(given.weights), np.array(given.means)
    model.covariances_ = in_sklearns_shape(given.covariances, kind)
    model.precisions_ = in_sklearns_shape(np.linalg.inv(given.covariances), kind)
    upper = np.linalg.inv(np.linalg.cholesky(given.covariances)).transpose(0, 2, 1)
    model.precisions_cholesky_ = in_sklearns_shape(upper, kind)
    meta = given.meta or {}
    model.converged_, model.n_iter_ = True, int(number(meta, "epochs", 0))
    model.lower_bound_ = float(number(meta, "loglik", np.nan))
    model.n_features_in_ = d
    if given.labels:
        model.feature_names_in_ = np.array(given.labels, dtype=object)
    return model


def in_sklearns_shape(matrices: Array, kind: str) -> Array:
    """Matrices (k, d, d) as scikit-learn holds those of a covariance type: (d, d) tied, (k, d) diag, (k,) spherical."""
    diagonal = np.diagonal(matrices, axis1=1, axis2=2)
    shapes = {"full": matrices, "tied": matrices[0], "diag": diagonal, "spherical": diagonal.mean(1)}
    return np.array(shapes[kind])


def refuse_singular(covariances: Array, what: str) -> None:
    """Refuse covariances that have no inverse, which other programs need."""
    failed = torch.linalg.cholesky_ex(torch.from_numpy(np.array(covariances))).info.nonzero()
    if len(failed):
        raise ValueError(f"the covariance of component {int(failed[0])} is singular: {what} needs its inverse")


def from_sklearn(model: Any, labels: Any = None) -> Exchanged:
    """The arrays of a fitted model with weights_, means_ and covariances_ of any of scikit-learn's types."""
    fitted = vars(model)
    try:
        means = model.means_
    except AttributeError as problem:
        raise ValueError(f"this {type(model).__name__} is not fitted: it has no means_") from problem
    k, d = means.shape
    given, eye = np.asarray(model.covariances_, dtype=np.float64), np.eye(d)
    kind = str(fitted.get("covariance_type", "full"))
    kind = SKLEARN.get(kind, kind)
    full = {
        "full": lambda: given,
        "tied": lambda: np.broadcast_to(given, (k, d, d)),
        "diag": lambda: given[:, :, None] * eye,
        "spherical": lambda: given[:, None, None] * eye,
    }.get(kind, lambda: given)()
    names = fitted.get("feature_names_in_") if labels is None else labels
    structure = {word: name for name, word in SKLEARN.items()}.get(kind, "full")
    return Exchanged(model.weights_, means, full, names, structure=structure)


def to_torch(given: Exchanged) -> torch.distributions.MixtureSameFamily:
    """The density of the true values as a distribution of PyTorch."""
    refuse_singular(given.covariances, "torch's MultivariateNormal")
    weights, means, covariances = (torch.from_numpy(np.array(array)) for array in given[:3])
    which = torch.distributions.Categorical(probs=weights)
    return torch.distributions.MixtureSameFamily(
        which, torch.distributions.MultivariateNormal(means, covariance_matrix=covariances)
    )


def to_numpyro(given: Exchanged) -> Any:
    """The density of the true values as a distribution of NumPyro."""
    try:
        from numpyro import distributions
    except ImportError as problem:
        raise ImportError("to_numpyro needs NumPyro: pip install numpyro") from problem
    refuse_singular(given.covariances, "NumPyro's MultivariateNormal")
    which = distributions.Categorical(probs=np.array(given.weights))
    each = distributions.MultivariateNormal(np.array(given.means), covariance_matrix=np.array(given.covariances))
    return distributions.MixtureSameFamily(which, each)


def export(given: Exchanged, path: str | os.PathLike[str]) -> None:
    """Write .npz or .fits, by the suffix; what was there stays whole until the new file is."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"cannot export to {path}: its name must end in {' or '.join(SUFFIXES)}")
    write_atomically(path, _npz(given) if suffix == ".npz" else _fits(given))


def _names(given: Exchanged) -> tuple[list[str], list[str]]:
    """Labels, or x0, x1, ..., and units, or nothing."""
    d = given.means.shape[1]
    return names_or_numbers(given.labels, d), list(given.units or ("",) * d)


def _npz(given: Exchanged) -> bytes:
    """weights, means, covariances, labels, units, and meta as JSON: no pickles."""
    labels, units = _names(given)
    file = io.BytesIO()
    np.savez(
        file, weights=given.weights, means=given.means, covariances=given.covariances,
        labels=np.array(labels), units=np.array(units), meta=np.array(json.dumps(dict(given.meta or {}))),
    )  # fmt: skip
    return file.getvalue()


def _fits(given: Exchanged) -> bytes:
    """Three tables: COMPONENTS (weight, mean, covariance), COORDINATES (label, unit), META (JSON)."""
    try:
        from astropy.io import fits
    except ImportError as problem:
        raise ImportError("FITS files need astropy: pip install 'xdeconv[tables]'") from problem
    k, d = given.means.shape
    labels, units = _names(given)
    other = next((name for name in (*labels, *units) if not (name.isascii() and name.isprintable())), None)
    if other is not None:
        raise ValueError(f"FITS holds no text but ASCII, and {other!r} is a label or a unit: write .npz, or give other "
                         "names by with_(labels=..., units=...)")  # fmt: skip
    text = json.dumps(dict(given.meta or {}))
    components = [
        fits.Column("weight", "D", array=given.weights),
        fits.Column("mean", f"{d}D", array=given.means),
        fits.Column("covariance", f"{d * d}D", dim=f"({d},{d})", array=given.covariances.reshape(k, d, d)),
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
