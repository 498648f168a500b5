"""Units of columns: the factor from one to another, or a refusal. Nothing is guessed."""

from __future__ import annotations

import math
from collections.abc import Sequence

_FAMILIES: tuple[dict[str, float], ...] = (
    {"deg": 1.0, "degree": 1.0, "arcmin": 1 / 60, "arcsec": 1 / 3600, "mas": 1 / 3.6e6, "uas": 1 / 3.6e9,
     "rad": 180 / math.pi},
    {"deg/yr": 3.6e6, "arcsec/yr": 1e3, "mas/yr": 1.0, "uas/yr": 1e-3},
    {"mag": 1.0, "mmag": 1e-3},
    {"kpc": 1.0, "pc": 1e-3, "Mpc": 1e3, "mpc": 1e-6},
    {"km/s": 1.0, "m/s": 1e-3},
)  # fmt: skip
ANGLES = frozenset(_FAMILIES[0])


def tidy(unit: str) -> str:
    """One spelling of a unit.

    >>> tidy("mas.yr**-1"), tidy("Angle[deg]")
    ('mas/yr', 'deg')
    """
    text = unit.strip()
    if text.lower().startswith("angle["):
        text = text[6:-1]
    for old, new in (
        ("**-1", "-1"),
        ("^-1", "-1"),
        (" yr-1", "/yr"),
        (".yr-1", "/yr"),
        (" / ", "/"),
        (" s-1", "/s"),
        (".s-1", "/s"),
        ("year", "yr"),
    ):
        text = text.replace(old, new)
    return {"degrees": "deg", "degree": "deg", "'deg'": "deg", "milliarcsec": "mas", '"': "arcsec"}.get(text, text)


def factor(given: str, wanted: str, what: str) -> float:
    """The number that turns a value in ``given`` into one in ``wanted``."""
    a, b = tidy(given), tidy(wanted)
    if a == b:
        return 1.0
    for family in _FAMILIES:
        if a in family and b in family:
            return family[a] / family[b]
    return _by_astropy(a, b, what)


def refuse_others(given: Sequence[str] | None, wanted: Sequence[str] | None, labels: Sequence[str] | None) -> None:
    """Refuse a table whose columns, by their ``labels`` or numbers, are in other units than those of a mixture."""
    for a, (theirs, ours) in enumerate(zip(given or (), wanted or (), strict=False)):
        if theirs and ours and tidy(ours) != theirs:
            name = labels[a] if labels else f"column {a}"
            raise ValueError(f"{name} is in {theirs!r} in the table and in {ours!r} in the mixture: convert the table")


def _by_astropy(a: str, b: str, what: str) -> float:
    try:
        from astropy import units

        return float(units.Unit(a).to(units.Unit(b)))
    except (ImportError, ValueError, TypeError) as problem:
        raise ValueError(f"{what} is in {a!r}, which cannot be turned into {b!r}: say its unit with unit=") from problem
