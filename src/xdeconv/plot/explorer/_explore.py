"""The explorer: one HTML file with a model and the code that slices it, for any browser, with no server or network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ...fitting.history import columns, remembered
from ...mixture._mixture import Mixture
from ...mixture.background import Uniform
from ...mixture.coordinates import names_or_numbers
from ...system.files import write_atomically
from ..viewing import view

Array = np.ndarray
SCRIPTS = ("mixture.js", "picture.js", "explorer.js", "components.js", "controls.js", "training.js", "start.js")


def explore(mixture: Mixture, path: str | os.PathLike[str], *, title: str = "Mixture") -> Path:
    """Write a page in which a mixture can be explored: choose two coordinates, fix others, and see the density change.

    The file is complete: it opens from disk, asks nothing of a network, and computes conditionals in closed form in the
    browser. It shows the components, a background's share, the history of the fit and what the mixture's ``meta`` says
    of data and settings; numbers have the digits that their widths deserve, and all when pointed at.

    Parameters
    ----------
    mixture : Mixture
        The density of the true values.
    path : str or path
        The page to be written.
    title : str, default "Mixture"
        Its title.

    Returns
    -------
    pathlib.Path
        The page.

    Examples
    --------
    >>> import tempfile
    >>> mixture = Mixture([1.0], [[0.0, 1.0]], [[[1.0, 0.5], [0.5, 1.0]]], labels=["x", "y"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     explore(mixture, Path(folder) / "page.html").name
    'page.html'
    """
    target = Path(path)
    write_atomically(target, page(mixture, title).encode())
    return target


def page(mixture: Mixture, title: str = "Mixture") -> str:
    """The text of the page. Nothing of the model can become markup or code: it is data, and the script is pinned."""
    style, script = _text("style.css"), "\n".join(_text(name) for name in SCRIPTS)
    parts = {
        "title": html.escape(title),
        "policy": html.escape(_policy(style, script)),
        "style": style,
        "script": script,
        "data": embedded(facts(mixture, title)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _text("page.html"))


def facts(mixture: Mixture, title: str = "Mixture") -> dict[str, Any]:
    """What the page knows, as JSON: arrays are float64 in base64, covariances as packed lower triangles."""
    history = remembered(mixture.meta or {})
    meta = {name: value for name, value in (mixture.meta or {}).items() if not history or name != "history"}
    ranges = [view(mixture, a) for a in range(mixture.d)]
    background, beside, k = _background(mixture), _beside(mixture), mixture.k
    structure = mixture.structure
    mixture = mixture.with_(background=None).gaussians()
    a, b = np.tril_indices(mixture.d)
    return {
        "title": title,
        "k": mixture.k,
        "d": mixture.d,
        "labels": names_or_numbers(mixture.labels, mixture.d),
        "named": mixture.labels is not None,
        "units": list(mixture.units or [""] * mixture.d),
        "ranges": ranges,
        "weights": packed(mixture.weights),
        "means": packed(mixture.means),
        "covariances": packed(mixture.covariances[:, a, b]),
        "structure": structure,
        "scales": mixture.k // k,
        "beside": beside,
        "background": background,
        "history": columns(history) if history else None,
        "meta": meta,
    }


def packed(array: Array) -> str:
    """Numbers as base64 of little-endian float64."""
    return base64.b64encode(np.ascontiguousarray(array, dtype="<f8").tobytes()).decode()


def embedded(value: Any) -> str:
    """JSON that cannot leave a script element, whatever its strings say.

    >>> embedded({"label": "</script><b>&"})
    '{"label": "\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e\\\\u0026"}'
    """
    text = json.dumps(_finite(value), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _finite(value: Any) -> Any:
    """The same with null for what JSON has no number for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _finite(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(part) for part in value]
    return value


def _background(mixture: Mixture) -> dict[str, Any] | None:
    """The weight of what else makes rows, and its box where it is one; or null."""
    beside = mixture.background
    if beside is None:
        return None
    box = {"low": list(beside.low), "high": list(beside.high)} if isinstance(beside, Uniform) else {}
    return {"weight": mixture.background_weight, **box}


def _beside(mixture: Mixture) -> list[str]:
    """What the mixture has beside Gaussians and a background, in words."""
    words = []
    if mixture.tails is not None and mixture.tails.nu is not None:
        words.append(f"tails of Student's t with nu = {mixture.tails.nu:.3g}")
    if mixture.inflation is not None:
        words.append("fitted factors on errors")
    if mixture.selection is not None:
        words.append("a selection of rows: the density is that of all rows, kept or not")
    return words


def _policy(style: str, script: str) -> str:
    """Only this very script and style may run; nothing may be loaded or sent."""
    pins = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)]
    return (
        f"default-src 'none'; script-src 'sha256-{pins[0]}'; style-src 'sha256-{pins[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _text(name: str) -> str:
    return (resources.files(__package__) / "page" / name).read_text(encoding="utf-8")
