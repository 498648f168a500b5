"""Tables that users hand over in memory: their kind, the names and units of their columns, and the numbers in them.

Other libraries' tables are known by what they have, so that none of these libraries must be there: this is the one file
that asks an object what it has.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from . import units

Array = np.ndarray
ERROR_NAMES = ("{}_error", "{}_err", "{}_ERROR", "{}_ERR", "{}Err", "e_{}", "err_{}", "sigma_{}", "{}_sigma", "{}_ivar")
EXACT = 2**53  # the largest whole number below which a float64 holds every other
DATES = "has dates or times, which are not numbers: give years, days or seconds as numbers"


Kind = Literal["dask", "lazy", "arrow", "astropy", "columns", "array"]


def kind_of(data: Any) -> Kind | None:
    """What sort of table an object is, by what it has; None for no table."""
    if hasattr(data, "to_delayed"):
        return "dask"
    if _is_lazy(data):
        return "lazy"
    if hasattr(data, "__arrow_c_stream__"):
        return "arrow"
    if hasattr(data, "colnames"):
        return "astropy"
    if isinstance(data, Mapping) or (hasattr(data, "columns") and hasattr(data, "to_numpy")):
        return "columns"
    return "array" if hasattr(data, "dtype") else None


def is_pandas(data: Any) -> bool:
    """Whether it is a table or a column of pandas."""
    return type(data).__module__.partition(".")[0] == "pandas"


def _is_lazy(data: Any) -> bool:
    """Whether it is a LazyFrame of polars, which has no rows until it is collected."""
    return hasattr(data, "collect_schema") and hasattr(data, "collect")


def is_sparse(values: Any) -> bool:
    """Whether it is a sparse matrix."""
    return hasattr(values, "toarray")


def is_masked(values: Any) -> bool:
    """Whether values may be hidden by a mask."""
    return hasattr(values, "filled") and hasattr(values, "mask")


def dask_frame(catalogue: Any) -> Any:
    """A Dask DataFrame, or the one inside an LSDB catalogue."""
    return catalogue.to_dask_dataframe() if hasattr(catalogue, "to_dask_dataframe") else catalogue


def astropy_column(column: Any) -> Any:
    """A column of an astropy table as an array, masked where it has gaps; a Quantity without its unit."""
    if hasattr(column, "unmasked") and hasattr(column, "unit"):  # a masked Quantity
        return np.ma.array(column.unmasked.value, mask=column.mask)
    if hasattr(column, "mask"):
        return np.ma.array(np.ma.getdata(column), mask=np.ma.getmaskarray(column))
    return getattr(column, "value", column)


def is_flat(column: Any) -> bool:
    """Whether a column of an astropy table has one value per row: neither arrays nor coordinates of the sky."""
    return getattr(column, "ndim", 1) == 1 and not hasattr(column, "frame")


def unit_of(column: Any) -> str:
    """The unit that a column or an array says, "" where it says none."""
    return str(getattr(column, "unit", None) or "")


class Inexact(ValueError):
    """Values that are not numbers that a float can hold: ``what`` has them, ``row`` is the first, where it is known."""

    def __init__(self, what: str, why: str, row: int | None = None) -> None:
        self.what, self.why, self.row = what, why, row
        super().__init__(f"{what} {why}" + ("" if row is None else f" (row {row})"))

    def later(self, rows: int) -> Inexact:
        """The same where so many rows come before those that were looked at."""
        return Inexact(self.what, self.why, None if self.row is None else self.row + rows)


def exact_floats(values: Any, what: str) -> Array:
    """Numbers as float64; dates, and whole numbers that would change, are refused."""
    array = np.asarray(values)
    if array.dtype.kind in "Mm":
        raise Inexact(what, DATES)
    if array.dtype.kind == "O":
        _refuse_large_objects(array, what)
    floats = array.astype(np.float64) if array.dtype != np.float64 else array
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size:
        _refuse_rounded(array, floats, what)
    return floats


def _refuse_rounded(whole: Array, floats: Array, what: str) -> None:
    """Refuse whole numbers that a float64 would change."""
    if whole.max() <= EXACT and whole.min() >= -EXACT:
        return
    top = 2.0**63 if whole.dtype.kind == "i" else 2.0**64
    fits = floats < top
    back = np.where(fits, floats, 0.0).astype(whole.dtype)
    changed = np.argwhere(~fits | (back != whole))
    if len(changed):
        value = whole[tuple(changed[0])]
        raise Inexact(what, f"has the whole number {value}, which a float would change: subtract a constant, or is it "
                      "an identifier?", int(changed[0][0]))  # fmt: skip


def _refuse_large_objects(array: Array, what: str) -> None:
    for i, value in enumerate(array.ravel()):
        if isinstance(value, int) and abs(value) > EXACT and (abs(value) >= 2**1000 or int(float(value)) != value):
            raise Inexact(what, f"has the whole number {value} at place {i}, which a float would change")
        if isinstance(value, (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)):
            raise Inexact(what, DATES)


def aligned(values: Any, table: Any, what: str) -> Any:
    """Rows of pandas in the order of another pandas table's index; refused where the two do not have the same rows."""
    ours, theirs = _index(table), _index(values)
    if ours is None or theirs is None or len(ours) != len(theirs) or ours.equals(theirs):
        return values
    if not (ours.is_unique and theirs.is_unique and ours.isin(theirs).all()):
        raise ValueError(f"the index of {what} is not that of the rows: give {what} the same index, or give arrays, "
                         f"which are paired by position ({what}.to_numpy())")  # fmt: skip
    return values.loc[ours]


def aligned_columns(columns: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """A dict of columns of which those of pandas are in the order of the first one's index."""
    first = next((column for column in columns.values() if _index(column) is not None), None)
    if first is None:
        return columns
    return {name: aligned(column, first, f"column {name}") for name, column in columns.items()}


def _index(values: Any) -> Any:
    """The index of a pandas table or column, else None."""
    return values.index if is_pandas(values) else None


def streamed(data: Any) -> Any:
    """What has nothing but a stream of Arrow, such as a reader of record batches, as a table; all else as it is."""
    if not hasattr(data, "__arrow_c_stream__") or hasattr(data, "to_numpy") or names(data) is not None:
        return data
    import pyarrow as pa

    return pa.table(data)


def names(table: Any) -> list[str] | None:
    """Names of a table's columns: pandas, polars, Arrow, astropy, a structured array or a dict; None for no table."""
    if is_sparse(table):  # some of which are mappings
        return None
    if isinstance(table, Mapping):
        columns = list(table)
    elif _is_lazy(table):
        columns = table.collect_schema().names()
    elif getattr(getattr(table, "dtype", None), "names", None) and not hasattr(table, "colnames"):
        columns = list(table.dtype.names)
    else:
        kinds = (getattr(table, kind, None) for kind in ("colnames", "column_names", "columns"))
        columns = next((list(given) for given in kinds if given is not None), [])
    return columns if columns and all(isinstance(name, str) for name in columns) else None


def in_order(table: Any, wanted: Sequence[str]) -> Any:
    """A table's columns in the order of some names, where it has columns of those names or named after them."""
    columns, ordered = names(table), named_after(table, wanted)
    if ordered is None or ordered == columns:
        return table
    if isinstance(table, Mapping):
        return {name: table[name] for name in ordered}
    return table.select(ordered) if hasattr(table, "column_names") else table[ordered]


def named_after(table: Any, wanted: Sequence[str]) -> list[str] | None:
    """A table's columns of some names, in their order, or all of them where they are named after these in one way.

    Errors of x and y may be called x and y, x_error and y_error, or e_x and e_y. None where they are not all there.
    """
    columns = names(table)
    if columns is None or not wanted:
        return None
    if set(wanted) <= set(columns):
        return list(wanted)
    first = wanted[0]
    places = (
        (name[:i], name[i + len(first) :]) for name in columns for i in range(len(name)) if name.startswith(first, i)
    )
    ways = ([before + name + after for name in wanted] for before, after in places)
    return next((ordered for ordered in ways if sorted(ordered) == sorted(columns)), None)


def errors_among(columns: Sequence[str]) -> dict[str, str]:
    """Columns whose names say that they are errors of others, by the names of those others."""
    every = set(columns)
    made = ((name, way.format(name)) for name in columns for way in ERROR_NAMES)
    return {name: error for name, error in made if error in every}


def numbers(table: Any, what: str = "X") -> Any:
    """The columns of a table of any kind as (n, p), masked where missing; errors name the column."""
    titles = names(table)
    if titles is None:
        return table
    if len(set(titles)) < len(titles):
        raise ValueError(f"{what} has columns of the same name, which must be unique: {titles}")
    table = aligned_columns(table) if isinstance(table, Mapping) else table.collect() if _is_lazy(table) else table
    columns = [_column(table[name], name, what) for name in titles]
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"the columns have different lengths: {dict(zip(titles, map(len, columns), strict=True))}")
    return np.ma.stack(columns, axis=-1)


def _column(values: Any, name: str, what: str) -> Any:
    """A column as float64, masked where missing."""
    column = np.ma.asarray(_plain(values))
    if column.ndim != 1:
        raise ValueError(f"column {name} must be one number per row, got shape {column.shape}")
    if np.iscomplexobj(column):
        return column
    data, mask = np.ma.getdata(column), np.ma.getmaskarray(column)
    try:
        return np.ma.array(exact_floats(np.where(mask, 0, data) if mask.any() else data, f"column {name}"), mask=mask)
    except Inexact:
        raise
    except (TypeError, ValueError) as problem:
        raise ValueError(f"{what} cannot be read as numbers: column {name}: {problem}") from problem


def _plain(values: Any) -> Any:
    """A column of any library as a NumPy array, masked where it has gaps; whole numbers stay so."""
    kind = type(values).__module__.partition(".")[0]
    if kind == "pandas":
        gaps = values.isna().to_numpy()
        plain = values.dtype.kind in "iub" and gaps.any()
        return np.ma.array(values.fillna(0).to_numpy(), mask=gaps) if plain else values.to_numpy()
    if kind == "polars":
        values = values.to_arrow()
    if hasattr(values, "null_count"):  # Arrow
        gaps = values.is_null().to_numpy(zero_copy_only=False) if kind == "polars" else np.asarray(values.is_null())
        plain = str(values.type).startswith(("int", "uint")) and gaps.any()
        return np.ma.array(np.asarray(values.fill_null(0)), mask=gaps) if plain else np.asarray(values)
    if hasattr(values, "unmasked"):  # a masked Quantity
        return np.ma.array(values.unmasked.value, mask=values.mask)
    return getattr(values, "value", values)


def column_units(table: Any) -> tuple[str, ...] | None:
    """The unit of each column, "" where it has none; None when no column has one."""
    if _is_lazy(table):  # which would be worked out
        return None
    columns = names(table)
    if columns is None:
        unit = getattr(table, "unit", None)
        return (units.tidy(str(unit)),) * np.shape(table)[-1] if unit is not None and np.ndim(table) == 2 else None
    if hasattr(table, "schema") and hasattr(table, "column_names"):  # Arrow
        texts = [(table.schema.field(name).metadata or {}).get(b"unit", b"").decode() for name in columns]
    else:
        texts = [unit_of(_get(table, name)) for name in columns]
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


def _factor(given: str, wanted: str, power: int, what: str) -> float:
    if not given or not wanted:
        return 1.0
    if power == 1:
        return units.factor(given, wanted, what)
    try:
        return float(_unit(given).to(_unit(wanted) ** power))
    except ValueError as problem:
        raise ValueError(f"{what} is in {given!r}, which is not the square of {wanted!r}") from problem
