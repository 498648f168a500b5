"""Gaia: what its releases need and offer. The query that fetches it, zero points, and the paper's presets.

Names and units are in :mod:`xdeconv.catalog.conventions`; xd.open applies them by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from .adql import in_adql
from .conventions import ASTROMETRY, GAIA, PAPER_COLUMNS, PRESETS
from .expressions import Condition, Expression
from .transforms import Hook

__all__ = ["ASTROMETRY", "DR2", "DR3", "PAPER_COLUMNS", "PRESETS", "Release", "adql", "filled", "zero_point"]

FILLED_VARIANCE = 1e12


@dataclass(frozen=True)
class Release:
    """A data release: its table, and how its parallax zero point is known.

    Parameters
    ----------
    name : str
        Such as DR3.
    table : str
        Its table in the archive.
    rows : int
        Rows of that table.
    zero_point : float or None
        One number in mas, corrected = parallax - zero point; None where a function of ``zero_point_columns`` gives
        it.
    zero_point_columns : tuple of str, optional
        Columns that the function of the zero point needs.
    lacks : tuple of str, optional
        Columns that later releases have and this one has not.
    quality : str, optional
        A customary condition on the quality of rows.
    notes : mapping of str to str, optional
        What to know about columns: {column: note}.
    """

    name: str
    table: str
    rows: int
    zero_point: float | None
    zero_point_columns: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    quality: str = ""
    notes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


DR2 = Release("DR2", "gaiadr2.gaia_source", 1_692_919_135, zero_point=-0.029, lacks=("ruwe",))
DR3 = Release(
    "DR3", "gaiadr3.gaia_source", 1_811_709_771, zero_point=None, quality="ruwe < 1.4",
    zero_point_columns=("phot_g_mean_mag", "nu_eff_used_in_astrometry", "pseudocolour", "ecl_lat",
                        "astrometric_params_solved"),
)  # fmt: skip
RELEASES = {"dr2": DR2, "dr3": DR3}


def release(name: str | Release) -> Release:
    """A release by its name.

    Parameters
    ----------
    name : str or Release
        Such as "dr3", in any case.

    Returns
    -------
    Release
        The release of that name.
    """
    if isinstance(name, Release):
        return name
    if name.lower() not in RELEASES:
        raise ValueError(f"there is no Gaia release {name!r}: choose from {', '.join(RELEASES)}")
    return RELEASES[name.lower()]


def needed_columns(columns: Sequence[str], of: str | Release = DR3, zero_point: bool = True) -> tuple[str, ...]:
    """Every archive column that features need: values, errors, correlations, signal-to-noise ratios, zero point.

    Parameters
    ----------
    columns : sequence of str
        The features of a fit.
    of : str or Release, optional
        The data release.
    zero_point : bool, default True
        Whether to add what the parallax zero point needs.

    Returns
    -------
    tuple of str
        Names of columns.

    Examples
    --------
    >>> needed_columns(["parallax", "pmra"], DR2)
    ('parallax', 'pmra', 'parallax_error', 'pmra_error', 'parallax_pmra_corr')
    """
    chosen = [name for name in ASTROMETRY if name in columns]
    needed = [*columns, *(f"{name}_error" for name in columns if name in ASTROMETRY or name == "radial_velocity")]
    needed += [f"{a}_{b}_corr" for i, a in enumerate(chosen) for b in chosen[i + 1 :]]
    sources = [s for name in columns for s in GAIA.terms.get(name, ())]
    needed += [name for s in sources for name in Expression(GAIA.sd[s][0]).names]
    needed += ["dec"] if "ra" in columns else []
    if zero_point and "parallax" in columns:
        needed += release(of).zero_point_columns
    return tuple(dict.fromkeys(needed))


def adql(
    columns: Sequence[str] = PAPER_COLUMNS,
    of: str | Release = DR3,
    *,
    cone: Sequence[float] | None = None,
    where: str | None = None,
    rows: int | None = None,
    keep: Sequence[str] = ("source_id",),
    zero_point: bool = True,
) -> str:
    """The query that fetches exactly the columns that a fit of some features needs.

    Parameters
    ----------
    columns : sequence of str, optional
        The features of the fit.
    of : str or Release, optional
        The data release.
    cone : sequence of float, optional
        Right ascension, declination and radius of a circle on the sky, in degrees.
    where : str, optional
        A condition on columns as in :func:`xdeconv.open`, such as "ruwe < 1.4 & parallax > 0".
    rows : int, optional
        Take that many at random, by random_index; all by default.
    keep : sequence of str, optional
        Other columns to fetch.
    zero_point : bool, default True
        Whether to fetch what the parallax zero point needs.

    Returns
    -------
    str
        The query.

    Examples
    --------
    >>> print(adql(["parallax"], "dr2", rows=1000))
    SELECT source_id, parallax, parallax_error
    FROM gaiadr2.gaia_source
    WHERE random_index < 1000
    >>> print(adql(["parallax"], "dr2", cone=(229.638, 2.081, 0.4), where="parallax > 0"))
    SELECT source_id, parallax, parallax_error
    FROM gaiadr2.gaia_source
    WHERE 1 = CONTAINS(POINT(ra, dec), CIRCLE(229.638, 2.081, 0.4)) AND parallax > 0
    """
    known = release(of)
    names = tuple(dict.fromkeys([*keep, *needed_columns(columns, known, zero_point)]))
    lost = [name for name in (*names, *(() if where is None else Condition(where).names)) if name in known.lacks]
    if lost:
        raise ValueError(f"Gaia {known.name} has no column {', '.join(lost)}")
    conditions = [f"random_index < {rows}"] if rows is not None else []
    conditions += [_within(*cone)] if cone is not None else []
    conditions += [in_adql(where, beside=bool(conditions))] if where else []
    text = f"SELECT {', '.join(names)}\nFROM {known.table}"
    return text + (f"\nWHERE {' AND '.join(conditions)}" if conditions else "")


def _within(ra: float, dec: float, radius: float) -> str:
    """A condition in ADQL: within a circle."""
    return f"1 = CONTAINS(POINT(ra, dec), CIRCLE({float(ra)!r}, {float(dec)!r}, {float(radius)!r}))"


def zero_point(of: str | Release = DR3) -> float | Hook:
    """What to give as ``offset={"parallax": ...}``: DR2's constant, or DR3's function of magnitude, colour, position.

    DR3's needs the package gaiadr3-zeropoint (pip install gaiadr3-zeropoint).

    Parameters
    ----------
    of : str or Release, optional
        The data release.

    Returns
    -------
    float or callable
        DR2's constant in mas, or DR3's function of columns.
    """
    known = release(of)
    if known.zero_point is not None:
        return known.zero_point
    return Hook(_dr3_zero_point, known.zero_point_columns)


def _dr3_zero_point(**columns: Any) -> np.ndarray:
    """The zero point of Lindegren et al. (2021), 0 where it is not defined (two-parameter solutions)."""
    try:
        from zero_point import zpt
    except ImportError as problem:
        raise ImportError("the zero point of DR3 needs a package: pip install gaiadr3-zeropoint") from problem
    zpt.load_tables()
    values = [np.asarray(columns[name], dtype=float) for name in DR3.zero_point_columns]
    solved = np.isin(values[4], (31, 95))
    zero_points = np.zeros(len(solved))
    zero_points[solved] = zpt.get_zpt(*(v[solved] for v in values), _warnings=False)
    return np.nan_to_num(zero_points)


def filled(loglik: float, missing: float, variance: float = FILLED_VARIANCE) -> float:
    """A mean log-likelihood as it would be had each missing value been filled in with a huge variance.

    The paper fills; this library marginalises.

    Parameters
    ----------
    loglik : float
        The mean log-likelihood per row, marginalised.
    missing : float
        The mean number of missing values per row.
    variance : float, optional
        The variance of a filled value.

    Returns
    -------
    float
        The mean log-likelihood per row with filled values.

    Examples
    --------
    >>> round(filled(-26.0, 0.1), 3)
    -27.473
    """
    return loglik - 0.5 * missing * math.log(2 * math.pi * variance)
