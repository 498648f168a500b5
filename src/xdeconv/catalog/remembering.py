"""How a catalogue was opened, as JSON: a model remembers it, and reads other rows in the same way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .coordinates import Rotation
from .expressions import Expression
from .finding import as_transforms
from .recipe import Recipe
from .transforms import Formulated, Hook, Transform
from .velocities import NAMES

PER_COLUMN = ("error", "offset", "inflate", "fill")
DEFAULTS = {"error_pattern": "{name}_error", "correlation_pattern": "{a}_{b}_corr", "cos_dec": True}
FUNCTIONS = "functions"  # what no file can hold, in words


def as_json(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of :func:`xdeconv.open` about columns as JSON; functions among them are named, not kept.

    >>> as_json({"columns": ("x",), "error": {"x": np.float64(0.5)}, "correlation": {("x", "y"): "r"}, "derive": None})
    {'columns': ['x'], 'error': {'x': 0.5}, 'correlation': {'x,y': 'r'}}
    """
    lost: list[str] = []
    kept: dict[str, Any] = {}
    for name, value in given.items():
        if value is None or (name in DEFAULTS and value == DEFAULTS[name]):
            continue
        if name == "derive":
            kept[name] = list(_derived(value, lost))
        elif name == "correlation":
            kept[name] = {
                _pair(pair): _plain(r, f"the correlation of {_pair(pair)}", lost) for pair, r in value.items()
            }
        elif isinstance(value, Mapping):
            kept[name] = {key: _plain(part, f"{name} of {key}", lost) for key, part in value.items()}
        else:
            kept[name] = list(value) if isinstance(value, (list, tuple)) else value
    if lost:
        kept[FUNCTIONS] = lost
    return {name: value for name, value in kept.items() if value not in ([], {})}


def _pair(pair: Any) -> str:
    """Two features as one word, a,b."""
    return pair if isinstance(pair, str) else ",".join(pair)


def _plain(value: Any, what: str, lost: list[str]) -> Any:
    if isinstance(value, Hook):
        lost.append(f"{what} is {value.text}")
        return None
    if isinstance(value, Expression):
        return value.text
    return value.item() if isinstance(value, np.generic) else value


def _derived(derive: Any, lost: list[str]) -> Iterable[Any]:
    """Words and {feature: expression} as they are, our own transforms as lists that begin with their name."""
    if isinstance(derive, str):
        yield derive
    elif isinstance(derive, Mapping):
        for name, value in derive.items():
            yield from ({name: value},) if isinstance(value, str) else _derived(value, lost)
    elif isinstance(derive, (list, tuple)):
        for part in derive:
            yield from _derived(part, lost)
    elif isinstance(derive, Formulated):
        yield ["Formulated", derive.name, derive.expression.text, derive.unit]
    elif isinstance(derive, Rotation):
        yield ["Rotation", [list(row) for row in derive.matrix], list(derive.outputs), list(derive.inputs), derive.wrap]
    else:
        lost.append(f"{', '.join(derive.outputs)} is made by a {type(derive).__name__}")


def arguments(remembered: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """Arguments of :func:`xdeconv.open` for some of the features, from what :func:`as_json` made.

    Row weights are left out: they say how much a row counted in the fit, not what it is.
    """
    if FUNCTIONS in remembered:
        lost = "; ".join(remembered[FUNCTIONS])
        raise ValueError(f"the model was fitted to rows read by functions, which a model cannot hold ({lost}): "
                         "give xd.open(rows, ...) with them")  # fmt: skip
    known = {name: value for name, value in remembered.items() if name not in ("weight", "columns")}
    made = [_transform(part) for part in known.pop("derive", [])]
    derive = [part for part in made if any(set(t.outputs) & set(columns) for t in _possible(part))]
    used = _raw(columns, [t for part in derive for t in _possible(part)])
    for name in PER_COLUMN:
        known[name] = {key: value for key, value in known.get(name, {}).items() if key in used}
    pairs = {pair: r for pair, r in known.pop("correlation", {}).items() if set(pair.split(",")) <= used}
    found = {**known, "columns": list(columns), "derive": derive, "correlation": pairs}
    return {name: value for name, value in found.items() if value not in ([], {})}


def _transform(part: Any) -> Any:
    if not isinstance(part, list):
        return part
    kind, *fields = part
    if kind == "Formulated":
        return Formulated(fields[0], Expression(fields[1]), fields[2])
    if kind == "Rotation":
        matrix, outputs, inputs, wrap = fields
        return Rotation(tuple(tuple(row) for row in matrix), tuple(outputs), tuple(inputs), wrap)
    raise ValueError(f"the model makes features by {kind!r}, which this version of xdeconv does not know")


def _possible(part: Any) -> tuple[Transform, ...]:
    """The transforms that a part of ``derive`` may stand for: what a word is made of depends on the table's names."""
    return tuple(transform for names in NAMES for transform in as_transforms(part, names))


def _raw(columns: Iterable[str], transforms: Sequence[Transform]) -> set[str]:
    """The raw columns that features are made of."""
    wanted, made = set(columns), {name for t in transforms for name in t.outputs}
    return (wanted - made) | {raw for t in transforms if wanted & set(t.outputs) for raw in t.inputs}


def noisy(recipe: Recipe) -> dict[str, tuple[str, ...]]:
    """Of each feature, the raw columns that give it noise."""
    inputs = {name: tuple(sorted(_raw([name], recipe.transforms))) for name in recipe.features}
    return {name: tuple(raw for raw in raws if recipe.quantities[raw].terms) for name, raws in inputs.items()}
