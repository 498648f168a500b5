"""How a catalogue was opened, as JSON: models and stores remember it, and rows are read again in the same way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..rows.grouping import Grouping
from ..system.files import MALFORMED
from .coordinates import Rotation
from .expressions import Expression
from .finding import CORRELATION_PATTERN, ERROR_PATTERN, as_transforms
from .readers import ReadError, Table
from .recipe import Recipe
from .transforms import Formulated, Hook, Transform
from .velocities import NAMES

PER_COLUMN = ("error", "offset", "inflate", "fill", "missing")
TABLES = (*PER_COLUMN, "correlation", "unit")
KINDS: dict[str, type] = {**dict.fromkeys(TABLES, dict), **dict.fromkeys(("columns", "derive", "log_prior"), list),
                          **dict.fromkeys(("weight", "error_pattern", "correlation_pattern"), str), "cos_dec": bool,
                          "preset": str, "functions": list, "group": dict}  # fmt: skip
DEFAULTS = {"error_pattern": ERROR_PATTERN, "correlation_pattern": CORRELATION_PATTERN, "cos_dec": True}
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
        yield ["Formulated", derive.name, derive.expression.text, derive.unit, list(derive.angles)]
    elif isinstance(derive, Rotation):
        yield ["Rotation", [list(row) for row in derive.matrix], list(derive.outputs), list(derive.inputs), derive.wrap]
    else:
        lost.append(f"{', '.join(derive.outputs)} is made by a {type(derive).__name__}")


def for_store(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a store, which is read without the functions that made it: they are refused."""
    kept = as_json(given)
    if FUNCTIONS in kept:
        raise ValueError("a store cannot remember how its rows are read: functions and transforms must be given by "
                         f"their names ({'; '.join(kept[FUNCTIONS])})")  # fmt: skip
    return kept


def checked(known: Any, whose: str) -> dict[str, Any]:
    """What a file remembers, as far as it can be trusted: only what a user of :func:`xdeconv.open` could have said."""
    if not isinstance(known, Mapping):
        raise ValueError(f"{whose} is damaged: how its rows are read is {known!r}, which is not a table of options")
    unknown = [str(name) for name in known if name not in KINDS]
    if unknown:
        raise ValueError(f"the rows of {whose} are read with {', '.join(unknown)}, which this xdeconv does not know")
    for name, given in known.items():
        if not (isinstance(given, KINDS[name]) and _is_plain(name, given)):
            raise ValueError(f"{whose} is damaged: the {name} of its rows is {str(given)[:80]!r}")
    return dict(known)


def _is_plain(name: str, given: Any) -> bool:
    """Whether all is text or numbers; what features are derived by may be a list of these, or of such lists."""
    if name == "group":
        return _is_group(given)
    if isinstance(given, Mapping):
        return all(isinstance(v, (str, int, float, type(None))) for v in given.values())
    if name == "derive":
        return all(isinstance(v, (str, list)) or (isinstance(v, Mapping) and _is_plain(name, v)) for v in given)
    return not isinstance(given, list) or all(isinstance(v, str) for v in given)


def _is_group(given: Mapping[str, Any]) -> bool:
    try:
        Grouping.from_json(given)
    except MALFORMED:
        return False
    return True


def completed(table: Table, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was said now, completed by what a table remembers of the features asked for."""
    said = {name: value for name, value in given.items() if value is not None}
    if not table.reading:
        return said
    try:
        known = checked(_listed(table.reading), table.name)
    except ValueError as problem:
        raise ReadError(f"{table.name} does not say how its rows are read: {problem}") from problem
    derive = said.get("derive")
    asked = known if derive is None else {**known, "derive": derive if isinstance(derive, list) else [derive]}
    columns = said.get("columns") or known.get("columns")
    known = _of_features(asked, columns, [table.columns]) if columns else _decoded(asked)
    tables = {name: {**known[name], **said[name]} for name in TABLES if name in known and name in said}
    return {**known, **said, **tables}


def _listed(known: Mapping[str, Any]) -> dict[str, Any]:
    """Version 0.1 kept ``derive`` as it was said."""
    derive = known.get("derive", [])
    return {**known, "derive": derive if isinstance(derive, list) else [derive]}


def arguments(remembered: Any, columns: Sequence[str]) -> dict[str, Any]:
    """Arguments of :func:`xdeconv.open` for some of the features, from what a model remembers.

    Row weights are left out: they say how much a row counted in the fit, not what it is.
    """
    known = checked(remembered, "the model")
    if FUNCTIONS in known:
        lost = "; ".join(known[FUNCTIONS])
        raise ValueError(f"the model was fitted to rows read by functions, which a model cannot hold ({lost}): "
                         "give xd.open(rows, ...) with them")  # fmt: skip
    return _of_features({name: value for name, value in known.items() if name != "weight"}, columns, NAMES)


def _of_features(known: Mapping[str, Any], columns: Sequence[str], names: Iterable[Sequence[str]]) -> dict[str, Any]:
    """The part of what is remembered that some features use, in tables that may have some sets of names."""

    def possible(part: Any) -> list[Transform]:  # what a word is made of depends on the table's names
        return [transform for known in names for transform in as_transforms(part, known)]

    derive = [
        part for part in _decoded(known).get("derive", []) if any(set(t.outputs) & set(columns) for t in possible(part))
    ]
    used = _raw(columns, [t for part in derive for t in possible(part)])
    tables = {name: {key: value for key, value in known.get(name, {}).items() if set(key.split(",")) <= used}
              for name in (*PER_COLUMN, "correlation")}  # fmt: skip
    kept = {**known, **tables, "columns": list(columns), "derive": derive}
    return {name: value for name, value in kept.items() if value not in ([], {})}


def _decoded(known: Mapping[str, Any]) -> dict[str, Any]:
    return {**known, "derive": [_transform(part) for part in known.get("derive", [])]}


def _transform(part: Any) -> Any:
    """Words and {feature: expression} as they are, of a list the transform that it spells."""
    if not isinstance(part, list):
        return part
    kind = part[0] if part else ""
    if kind not in ("Formulated", "Rotation"):
        raise ValueError(f"features are made by {str(kind)[:80]!r}, which this version of xdeconv does not know")
    try:
        return _formulated(*part[1:]) if kind == "Formulated" else _rotation(*part[1:])
    except MALFORMED as problem:
        raise ValueError(f"features are derived by {str(part)[:80]}, which is damaged") from problem


def _formulated(name: Any, text: Any, unit: Any, angles: Any = ()) -> Formulated:  # models of before have no angles
    name, unit = _texts([name, unit])
    return Formulated(name, Expression(text), unit, _texts(angles))


def _rotation(matrix: Any, outputs: Any, inputs: Any, wrap: Any) -> Rotation:
    return Rotation(tuple(tuple(row) for row in matrix), _texts(outputs), _texts(inputs), float(wrap))


def _texts(given: Any) -> tuple[str, ...]:
    if not all(isinstance(text, str) for text in given):
        raise TypeError(f"{given!r} are not names")
    return tuple(given)


def _raw(columns: Iterable[str], transforms: Sequence[Transform]) -> set[str]:
    """The raw columns that features are made of."""
    wanted, made = set(columns), {name for t in transforms for name in t.outputs}
    return (wanted - made) | {raw for t in transforms if wanted & set(t.outputs) for raw in t.inputs}


def noisy(recipe: Recipe) -> dict[str, tuple[str, ...]]:
    """Of each feature, the raw columns that give it noise."""
    inputs = {name: sorted(recipe.inputs(name)) for name in recipe.features}
    return {name: tuple(raw for raw in raws if recipe.quantities[raw].terms) for name, raws in inputs.items()}
