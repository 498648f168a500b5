"""open(): any catalogue as a Source. What a user says about columns becomes a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import finding
from .conventions import PRESETS
from .expressions import Expression
from .readers import Table, open_table
from .remembering import as_json
from .stream import CatalogSource


def open(
    data: Any,
    columns: Sequence[str] | str | None = None,
    *,
    error: Mapping[str, Any] | None = None,
    correlation: Mapping[tuple[str, str], str | float] | None = None,
    unit: Mapping[str, str] | None = None,
    derive: Any = None,
    where: str | None = None,
    weight: str | None = None,
    offset: Mapping[str, Any] | None = None,
    inflate: Mapping[str, Any] | None = None,
    fill: Mapping[str, float] | None = None,
    preset: str | None = None,
    error_pattern: str = "{name}_error",
    correlation_pattern: str = "{a}_{b}_corr",
    cos_dec: bool = True,
    bad_rows: Literal["refuse", "drop"] = "refuse",
    skip_bad_files: bool = False,
    memory: bool | None = None,
) -> CatalogSource:
    """A catalogue as a Source: a path, a glob, a directory, a prepared store, or a table in memory.

    columns      the features: columns of the table, or names of derived ones
    error        {feature: column, expression, standard deviation or None}; by default NAME_error is looked for
    correlation  {(a, b): column or number}; by default A_B_corr or B_A_corr is looked for
    unit         {column: unit} where neither the file nor a known catalogue says it
    derive       {feature: expression of columns}, a transform of :mod:`xdeconv.catalog.sky`, or a list of them
    where        a condition such as "ruwe < 1.4": other rows are left out
    weight       the column of row weights
    offset       {column: what is subtracted}: a number, an expression or a Hook; -zero point of a parallax
    inflate      {column: what its error is multiplied by}
    fill         {column: value} for missing values that are to be known values instead
    preset       paper-2019, or paper-2019-code: the columns and errors of Ritchie & Murray (2019)
    bad_rows     refuse rows with impossible errors or correlations, or drop and count them
    memory       whether to hold the rows in memory; by default when they are few

    ``print(source.describe())`` tells what was found.

    >>> import numpy as np
    >>> table = {"x": np.arange(3.0), "x_error": np.full(3, 0.1), "y": np.array([1.0, np.nan, 2.0])}
    >>> print(open(table, ["x", "y"]).describe())
    3 rows of array in memory
      x  -        sd x_error
      y  -        NO NOISE: no error column was found, values are taken as exact
    """
    given: dict[str, Any] = {
        "error": error, "correlation": correlation, "unit": unit, "offset": offset, "inflate": inflate, "fill": fill,
        "cos_dec": cos_dec, "columns": [columns] if isinstance(columns, str) else columns,
    }  # fmt: skip
    given = _with_preset(given, preset)
    said = given | {"derive": derive, "weight": weight, "error_pattern": error_pattern,
                    "correlation_pattern": correlation_pattern}  # fmt: skip
    table = open_table(data, names=given["columns"], skip_bad_files=skip_bad_files)
    chosen = given.pop("columns") or default_columns(table)
    choices = finding.Choices(
        columns=tuple(chosen),
        derive=finding.as_transforms(derive),
        weight=weight,
        error_pattern=error_pattern,
        correlation_pattern=correlation_pattern,
        **{name: value for name, value in given.items() if value is not None},
    )
    recipe = finding.find_recipe(choices, table.columns, table.units, table.name)
    condition = Expression(where) if where else None
    for name in condition.names if condition else ():
        if name not in table.columns:
            raise finding.nearest(name, table.columns, table.name)
    remembered = as_json(said | {"columns": chosen})
    return CatalogSource(table, recipe, condition, bad_rows == "drop", skip_bad_files, memory, choices=remembered)


def _with_preset(given: dict[str, Any], preset: str | None) -> dict[str, Any]:
    if preset is None:
        return given
    if preset not in PRESETS:
        raise ValueError(f"there is no preset {preset!r}: choose from {', '.join(PRESETS)}")
    known = PRESETS[preset]
    merged = {name: {**known.get(name, {}), **(value or {})} for name, value in given.items()  # type: ignore[dict-item]
              if isinstance(value or {}, Mapping) and name not in ("columns", "cos_dec")}  # fmt: skip
    columns = given["columns"] or known["columns"]
    return {**given, **merged, "columns": columns, "cos_dec": known.get("cos_dec", given["cos_dec"])}


def default_columns(table: Table) -> tuple[str, ...]:
    """All columns of a table that has nothing but unnamed numbers; other tables must be told."""
    unnamed = all(name == f"x{i}" for i, name in enumerate(table.columns))
    return table.columns if unnamed else ()
