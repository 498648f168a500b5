"""What known catalogues call things, as data: units, errors that must be computed, and what a colour is made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

MAGNITUDES = 1.0857362047581296  # 2.5 / ln 10: the error of a magnitude is this over the signal-to-noise ratio
ASTROMETRY = ("ra", "dec", "parallax", "pmra", "pmdec")
_ASTROMETRIC_UNITS = {
    "ra": "deg", "dec": "deg", "parallax": "mas", "pmra": "mas/yr", "pmdec": "mas/yr",
    "ra_error": "mas", "dec_error": "mas", "parallax_error": "mas", "pmra_error": "mas/yr", "pmdec_error": "mas/yr",
}  # fmt: skip


@dataclass(frozen=True)
class Convention:
    """The names of a catalogue.

    all_of, any_of  columns by which it is known
    units           of columns
    sd              noise sources that are not NAME_error: the expression of their standard deviation
    terms           columns whose noise is a sum of sources: {column: {source: coefficient}}
    """

    name: str
    all_of: tuple[str, ...]
    any_of: tuple[str, ...]
    units: Mapping[str, str]
    sd: Mapping[str, str] = field(default_factory=dict)
    terms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def fits(self, columns: Collection[str]) -> bool:
        """Whether a table has these names."""
        return all(c in columns for c in self.all_of) and any(c in columns for c in self.any_of)


GAIA = Convention(
    name="Gaia",
    all_of=("ra", "dec"),
    any_of=("phot_g_mean_mag", "astrometric_params_solved", "phot_g_mean_flux_over_error"),
    units={
        **_ASTROMETRIC_UNITS,
        "phot_g_mean_mag": "mag", "phot_bp_mean_mag": "mag", "phot_rp_mean_mag": "mag",
        "bp_rp": "mag", "bp_g": "mag", "g_rp": "mag", "l": "deg", "b": "deg", "ecl_lon": "deg", "ecl_lat": "deg",
        "radial_velocity": "km/s", "radial_velocity_error": "km/s",
    },
    sd={
        "G": f"{MAGNITUDES} / phot_g_mean_flux_over_error",
        "BP": f"{MAGNITUDES} / phot_bp_mean_flux_over_error",
        "RP": f"{MAGNITUDES} / phot_rp_mean_flux_over_error",
    },
    terms={
        "phot_g_mean_mag": {"G": 1.0}, "phot_bp_mean_mag": {"BP": 1.0}, "phot_rp_mean_mag": {"RP": 1.0},
        "bp_rp": {"BP": 1.0, "RP": -1.0}, "bp_g": {"BP": 1.0, "G": -1.0}, "g_rp": {"G": 1.0, "RP": -1.0},
    },
)  # fmt: skip
TYCHO = Convention(
    name="Tycho-2",
    all_of=("ra", "dec", "bt_mag", "vt_mag"),
    any_of=("ra_error", "dec_error", "pmra", "pmdec"),
    units={
        **{name: unit for name, unit in _ASTROMETRIC_UNITS.items() if not name.startswith("parallax")},
        "bt_mag": "mag", "vt_mag": "mag", "bt_mag_error": "mag", "vt_mag_error": "mag",
    },
)  # fmt: skip
KNOWN = (GAIA, TYCHO)


def recognise(columns: Collection[str]) -> Convention | None:
    """The catalogue whose names a table has, or None."""
    return next((convention for convention in KNOWN if convention.fits(columns)), None)


def known_units(columns: Collection[str], file_units: Mapping[str, str]) -> dict[str, str]:
    """Units of a table's columns: the file's own, else those of the catalogue whose names it has."""
    convention = recognise(columns)
    found = {name: unit for name, unit in convention.units.items() if name in columns} if convention else {}
    return {**found, **file_units}


PAPER_COLUMNS = (*ASTROMETRY, "bp_rp", "phot_g_mean_mag")
PRESETS: Mapping[str, Mapping[str, object]] = {
    # Ritchie & Murray (2019) as their text says: photometry has no error, so a constant variance of 1e-2.
    "paper-2019": {
        "columns": PAPER_COLUMNS,
        "error": {"bp_rp": 0.1, "phot_g_mean_mag": 0.1},
    },
    # As their released code does: variance 1e-4, positions' errors in mas taken for degrees, no colour means colour 0.
    "paper-2019-code": {
        "columns": PAPER_COLUMNS,
        "error": {"bp_rp": 0.01, "phot_g_mean_mag": 0.01},
        "unit": {"ra_error": "deg", "dec_error": "deg"},
        "cos_dec": False,
        "fill": {"bp_rp": 0.0},
    },
}
