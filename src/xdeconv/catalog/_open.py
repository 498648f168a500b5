"""open(): any catalogue as a Source. What a user says about columns becomes a recipe."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..rows.checks import NoNoiseWarning
from . import describing, finding
from .conventions import PRESETS
from .expressions import Condition
from .readers import Table, open_table
from .remembering import TABLES, completed
from .stream import CatalogSource


def open(
    data: Any,
    columns: Sequence[str] | str | None = None,
    *,
    error: Mapping[str, Any] | None = None,
    correlation: Mapping[Any, str | float | None] | None = None,
    unit: Mapping[str, str] | None = None,
    derive: Any = None,
    where: str | None = None,
    weight: str | None = None,
    log_prior: Sequence[str] | None = None,
    offset: Mapping[str, Any] | None = None,
    inflate: Mapping[str, Any] | None = None,
    fill: Mapping[str, float] | None = None,
    missing: Mapping[str, float] | None = None,
    preset: str | None = None,
    error_pattern: str | None = None,
    correlation_pattern: str | None = None,
    cos_dec: bool | None = None,
    bad_rows: Literal["refuse", "drop"] = "refuse",
    empty: Literal["refuse", "keep"] = "refuse",
    skip_bad_files: bool = False,
    memory: bool | None = None,
) -> CatalogSource:
    """A catalogue as a Source: a path, a glob, a directory, a prepared store, or a table in memory.

    ``print(source.describe())`` tells what was found. A feature for which no error is found is warned of
    (:class:`xdeconv.NoNoiseWarning`) unless ``error={feature: None}`` says that it has none.

    Parameters
    ----------
    data : path, glob, directory, list of these, table or array
        What to read. A prepared store remembers all that was said when it was made. A table of a FITS file is chosen
        by its name or number behind the file's: ``sky.fits[STARS]``.
    columns : sequence of str, optional
        The features: columns of the table, or names of derived ones.
    error : mapping, optional
        {feature: column, expression, standard deviation or None}; by default NAME_error, and what known catalogues
        call an error, is looked for.
    correlation : mapping, optional
        {(a, b): column, number or None for no correlation}; by default A_B_corr or B_A_corr is looked for. "a,b" is
        read as (a, b).
    unit : mapping, optional
        {column: unit} where neither the file nor a known catalogue says it.
    derive : mapping, str, transform or list, optional
        {feature: expression of columns}, a transform of :mod:`xdeconv.sky` or a word for one: "galactic" makes l, b,
        pml, pmb; "tangent:RA,DEC" makes xi, eta; "velocities" makes U, V, W.
    where : str, optional
        A condition such as "ruwe < 1.4 & parallax > 0": other rows are left out.
    weight : str, optional
        The column of row weights.
    log_prior : sequence of str, optional
        Columns of log-priors, one per component, that are added to the log-weights in each row.
    offset : mapping, optional
        {column: what is subtracted}: a number, an expression or a Hook; -zero point of a parallax.
    inflate : mapping, optional
        {column: what its error is multiplied by}.
    fill : mapping, optional
        {column: value} for missing values that are to be known values instead.
    missing : mapping, optional
        {column: value that stands for a missing one}, such as -999; ``where`` sees it as it is.
    preset : str, optional
        paper-2019, or paper-2019-code: the columns and errors of Ritchie & Murray (2019).
    error_pattern, correlation_pattern : str, optional
        What error and correlation columns are called: "{name}_error" and "{a}_{b}_corr" by default.
    cos_dec : bool, optional
        Whether an error of ra (any longitude) is one of ra cos dec, as it is by default.
    bad_rows : {"refuse", "drop"}
        Refuse rows with impossible errors or correlations, or drop and count them.
    empty : {"refuse", "keep"}
        Refuse a feature that has no value in any row, once all were read, or keep it as missing.
    skip_bad_files : bool
        Leave damaged files out, and count them.
    memory : bool, optional
        Whether to hold the rows in memory; by default when they are few.

    Returns
    -------
    CatalogSource
        Rows for :func:`xdeconv.fit`.

    Examples
    --------
    >>> import numpy as np
    >>> table = {"x": np.arange(3.0), "x_error": np.full(3, 0.1), "y": np.array([1.0, np.nan, 2.0])}
    >>> print(open(table, ["x", "y"], error={"y": None}).describe())
    3 rows of array in memory
      x  -        sd x_error
      y  -        no noise: values are taken as exact, as was said
    """
    source = open_source(
        data, columns, error=error, correlation=correlation, unit=unit, derive=derive, where=where, weight=weight,
        log_prior=log_prior, offset=offset, inflate=inflate, fill=fill, missing=missing, preset=preset,
        error_pattern=error_pattern, correlation_pattern=correlation_pattern, cos_dec=cos_dec, bad_rows=bad_rows,
        empty=empty, skip_bad_files=skip_bad_files, memory=memory,
    )  # fmt: skip
    warn_of_guesses(source, stacklevel=3)
    return source


def warn_of_guesses(source: CatalogSource, stacklevel: int) -> None:
    """Warn of features for which no error was found, and of units that some files do not say."""
    unsaid = source.unsaid_units
    if unsaid:
        warnings.warn(unsaid, UserWarning, stacklevel=stacklevel)
    exact = describing.unexplained(source.recipe, source.table)
    if exact:
        warnings.warn(exact, NoNoiseWarning, stacklevel=stacklevel)


def open_source(
    data: Any, columns: Sequence[str] | str | None = None, *, where: str | None = None, preset: str | None = None,
    bad_rows: str = "refuse", empty: str = "refuse", skip_bad_files: bool = False, memory: bool | None = None,
    **said: Any,
) -> CatalogSource:  # fmt: skip
    """As :func:`open`, without the warning: ``source.unexplained`` tells of features without noise."""
    given = with_preset({"columns": [columns] if isinstance(columns, str) else columns, **said}, preset)
    table = open_table(data, names=given["columns"], skip_bad_files=skip_bad_files)
    given = completed(table, given)
    arguments = _arguments(given, table)
    choices = finding.Choices(**arguments)
    recipe = finding.find_recipe(choices, table.columns, table.units, "; ".join([table.name, *table.notes]))
    condition = None if where is None else Condition(where)
    finding.require(condition.names if condition else (), table.columns, table.name)
    reading = {**given, "columns": list(choices.columns)}
    return CatalogSource(
        table, recipe, condition, bad_rows == "drop", skip_bad_files, memory, empty == "keep", reading=reading
    )


def _arguments(given: Mapping[str, Any], table: Table) -> dict[str, Any]:
    """What was said, as :class:`finding.Choices` has it."""
    said = {name: value for name, value in given.items() if value is not None}
    said["columns"] = tuple(said.get("columns") or default_columns(table))
    said["derive"] = finding.as_transforms(said.get("derive"), table.columns)
    said["correlation"] = {_pair(pair): value for pair, value in said.get("correlation", {}).items()}
    prior = said.get("log_prior", ())
    said["log_prior"] = (prior,) if isinstance(prior, str) else tuple(prior)
    return said


def _pair(pair: Any) -> tuple[str, str]:
    parts = tuple(part.strip() for part in pair.split(",")) if isinstance(pair, str) else tuple(pair)
    if len(parts) != 2:
        raise ValueError(f"a correlation is of two features, got {pair!r}: write (a, b), or a,b in text")
    return parts[0], parts[1]


def with_preset(given: dict[str, Any], preset: str | None) -> dict[str, Any]:
    """What was said, completed by what a preset says."""
    if preset is None:
        return given
    if preset not in PRESETS:
        raise ValueError(f"there is no preset {preset!r}: choose from {', '.join(PRESETS)}")
    known = PRESETS[preset]
    kept = {name for name in (*given, *known) if name in TABLES}
    merged = {name: {**known.get(name, {}), **(given.get(name) or {})} for name in kept}  # type: ignore[dict-item]
    columns = given.get("columns") or known["columns"]
    return {**given, **merged, "columns": columns, "cos_dec": known.get("cos_dec", given.get("cos_dec"))}


def default_columns(table: Table) -> tuple[str, ...]:
    """All columns of a table that has nothing but unnamed numbers; other tables must be told."""
    unnamed = all(name == f"x{i}" for i, name in enumerate(table.columns))
    return table.columns if unnamed else ()
