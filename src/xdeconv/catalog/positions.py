"""Positions: which columns are longitudes and latitudes on the sky, by their names and by what else a table has."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .velocities import POSITIONS

# Of a longitude the latitudes that may stand beside it.
PARTNERS: dict[str, tuple[str, ...]] = {
    **{ra.lower(): (dec.lower(),) for ra, dec in POSITIONS}, "ra": ("dec", "de"), "alpha": ("delta",), "l": ("b",),
    "alpha_j2000": ("delta_j2000",), "right_ascension": ("declination",), "glon": ("glat",), "ecl_lon": ("ecl_lat",),
}  # fmt: skip
LATITUDES = frozenset(name for names in PARTNERS.values() for name in names)
COMMON = frozenset(("l", "b", "alpha", "delta"))  # names of other things too: positions only beside their partner
# What joins and surveys write around ra and dec: gaia_ra, ra_1, raMean, coord_ra, ra_dr2.
_AROUND = re.compile(r"((?:\w+_)?)(ra|dec|de)((?:_?(?:mean|stack|j?2000|icrs|deg|rad|e?dr\d|gaia|x|y|\d))?)")
_MOVING = re.compile(r"(?:.*_)?(?:pm|mu|v|vel|velocity|speed|d|delta|offset|shift|sig|sigma|e|err|error)_")


def _parts(name: str) -> tuple[str, str, str] | None:
    """What stands before, in place of and after ra or dec in the name of a position; None of another name."""
    match = _AROUND.fullmatch(name.lower())
    return None if match is None or _MOVING.fullmatch(match[1]) else (match[1], match[2], match[3])


def _partners(name: str) -> tuple[str, ...]:
    """What the latitude beside a longitude may be called, in small letters; nothing for what is not a longitude."""
    parts, low = _parts(name), name.lower()
    if low in PARTNERS or parts is None or parts[1] != "ra":
        return PARTNERS.get(low, ())
    return tuple(f"{parts[0]}{word}{parts[2]}" for word in PARTNERS["ra"])


def is_longitude(name: str, columns: Iterable[str]) -> bool:
    """Whether a column is a longitude on the sky, by its name and by what else the table has.

    >>> is_longitude("l", ["l", "b"]), is_longitude("l", ["l", "m"]), is_longitude("ra", ["ra"])
    (True, False, True)
    >>> [is_longitude(name, []) for name in ("gaia_ra", "raMean", "pm_ra", "extra")]
    [True, True, False, False]
    """
    beside = name.lower() not in COMMON or latitude_of(name, columns) is not None
    return bool(_partners(name)) and beside


def is_position(name: str, columns: Iterable[str]) -> bool:
    """Whether a column is a longitude or a latitude on the sky.

    >>> is_position("b", ["l", "b"]), is_position("b", ["a", "b"]), is_position("dec", ["dec"])
    (True, False, True)
    """
    low, known = name.lower(), {c.lower() for c in columns}
    beside = low not in COMMON or any(lon in known for lon, partners in PARTNERS.items() if low in partners)
    return is_longitude(name, known) or (beside and (low in LATITUDES or _parts(name) is not None))


def latitude_of(name: str, columns: Iterable[str]) -> str | None:
    """The column of latitudes that belongs to one of longitudes, if a table has it.

    >>> latitude_of("raMean", ["raMean", "decMean", "dec"])
    'decMean'
    """
    wanted = _partners(name)
    return next((c for c in columns if c.lower() in wanted), None)


def latitude_name(name: str) -> str:
    """What a column of latitudes beside one of longitudes would be called.

    >>> latitude_name("gaia_ra")
    'gaia_dec'
    """
    return _partners(name)[0]
