"""Tables that users hand over in memory: the names and units of their columns, and the numbers in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import units

Array = np.ndarray


def names(table: Any) -> list[str] | None:
    """Names of a table's columns: pandas, polars, Arrow, astropy, a structured array or a dict; None for no table."""
    if hasattr(table, "toarray"):  # sparse, and some of these are mappings
        return None
    if isinstance(table, Mapping):
        found = list(table)
    elif getattr(getattr(table, "dtype", None), "names", None) and not hasattr(table, "colnames"):
        found = list(table.dtype.names)
    else:
        kinds = (getattr(table, kind, None) for kind in ("colnames", "column_names", "columns"))
        found = next((list(given) for given in kinds if given is not None), [])
    return found if found and all(isinstance(name, str) for name in found) else None


def in_order(table: Any, wanted: Sequence[str]) -> Any:
    """A table's columns in the order of some names, when it has them all; anything else as it is."""
    found = names(table)
    if found is None or found == list(wanted) or not set(wanted) <= set(found):
        return table
    if isinstance(table, Mapping):
        return {name: table[name] for name in wanted}
    return table.select(list(wanted)) if hasattr(table, "column_names") else table[list(wanted)]


def numbers(table: Any) -> Any:
    """The columns of a dict, a structured array, an Arrow or an astropy table as (n, p), masked where missing."""
    found = names(table)
    if found is None or type(table).__module__.partition(".")[0] in ("pandas", "polars"):
        return table
    columns = [_column(table[name], name) for name in found]
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"the columns have different lengths: {dict(zip(found, map(len, columns), strict=True))}")
    return np.ma.stack(columns, axis=-1)


def _column(values: Any, name: str) -> Any:
    if hasattr(values, "to_numpy"):  # Arrow, or a column of pandas or polars
        values = values.to_numpy()
    if hasattr(values, "unmasked"):  # a masked Quantity
        values = np.ma.array(values.unmasked.value, mask=values.mask)
    column = np.ma.asarray(getattr(values, "value", values))
    if column.ndim != 1:
        raise ValueError(f"column {name} must be one number a row, got shape {column.shape}")
    return column


def column_units(table: Any) -> tuple[str, ...] | None:
    """The unit of each column, "" where it has none; None when no column has one."""
    found = names(table)
    if found is None:
        unit = getattr(table, "unit", None)
        return (units.tidy(str(unit)),) * np.shape(table)[-1] if unit is not None and np.ndim(table) == 2 else None
    if hasattr(table, "schema") and hasattr(table, "column_names"):  # Arrow
        texts = [(table.schema.field(name).metadata or {}).get(b"unit", b"").decode() for name in found]
    else:
        texts = [str(getattr(_get(table, name), "unit", None) or "") for name in found]
    return tuple(units.tidy(text) for text in texts) if any(texts) else None


def _get(table: Any, name: str) -> Any:
    return table[name] if isinstance(table, Mapping) or hasattr(table, "colnames") else None


def in_units_of(values: Any, X: Any, power: int, what: str) -> Any:
    """Errors (power 1) or variances (2) with units, in the units of X when it has any."""
    ours = column_units(X)
    if ours is None or values is None:
        return values
    unit = getattr(values, "unit", None)
    if unit is not None:
        if len(set(ours)) > 1:
            raise ValueError(f"{what} is in {str(unit)!r} and the columns of X in {list(ours)}: give a table of {what}")
        return values.to(_unit(ours[0]) ** power)
    theirs = column_units(values)
    if theirs is None:
        return values
    if len(theirs) != len(ours):
        raise ValueError(f"{what} has {len(theirs)} columns and X {len(ours)}")
    factors = [_factor(a, b, power, what) for a, b in zip(theirs, ours, strict=True)]
    return np.ma.asarray(numbers(values)) * np.array(factors)


def _unit(text: str) -> Any:
    from astropy.units import Unit

    return Unit(text)


def _factor(found: str, wanted: str, power: int, what: str) -> float:
    if not found or not wanted:
        return 1.0
    if power == 1:
        return units.factor(found, wanted, what)
    try:
        return float(_unit(found).to(_unit(wanted) ** power))
    except ValueError as problem:
        raise ValueError(f"{what} is in {found!r}, which is no square of {wanted!r}") from problem


def refuse_other_units(X: Any, labels: Sequence[str] | None, wanted: Sequence[str] | None) -> None:
    """Refuse a table whose columns are in other units than those wanted."""
    found = column_units(X)
    for a, (theirs, ours) in enumerate(zip(found or (), wanted or (), strict=False)):
        if theirs and ours and units.tidy(ours) != theirs:
            name = labels[a] if labels else f"column {a}"
            raise ValueError(f"{name} is in {theirs!r} in the table and in {ours!r} in the mixture: convert the table")
