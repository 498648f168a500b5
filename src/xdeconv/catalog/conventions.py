"""What known catalogues call things, as data: units, errors, what a colour is made of. Columns are known one by one."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

MAGNITUDES = 1.0857362047581296  # 2.5 / ln 10: the error of a magnitude is this over the signal-to-noise ratio
ASTROMETRY = ("ra", "dec", "parallax", "pmra", "pmdec")
_MOTIONS = {
    "parallax": "mas", "pmra": "mas/yr", "pmdec": "mas/yr",
    "parallax_error": "mas", "pmra_error": "mas/yr", "pmdec_error": "mas/yr",
}  # fmt: skip
# Names that others use in other units too: known only beside a column that no other catalogue has.
_POSITIONS = {"ra_error": "mas", "dec_error": "mas", "l": "deg", "b": "deg", "ecl_lon": "deg", "ecl_lat": "deg"}


@dataclass(frozen=True)
class Convention:
    """The names of a catalogue.

    units   of columns, by their names alone
    others  units of columns that are known only when the table has one of ``marks`` too
    sd      noise sources: expressions of their standard deviation, of which the first that can be computed counts
    terms   columns whose noise is a sum of sources: {column: {source: coefficient}}
    short   what correlations call a column
    """

    name: str
    units: Mapping[str, str]
    others: Mapping[str, str] = field(default_factory=dict)
    marks: tuple[str, ...] = ()
    sd: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    terms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    short: Mapping[str, str] = field(default_factory=dict)

    def unit(self, name: str, columns: Collection[str]) -> str | None:
        """The unit of a column of a table with these columns, or None."""
        marked = name in self.others and any(mark in columns for mark in self.marks)
        return self.units.get(name) or (self.others[name] if marked else None)

    def in_capitals(self, *but: str) -> Convention:
        """The same in capital letters, as FITS files and databases have it, without the units of some columns."""
        terms = {name.upper(): parts for name, parts in self.terms.items()}
        units, others = (
            {name.upper(): unit for name, unit in known.items() if name.upper() not in but}
            for known in (self.units, self.others)
        )
        sd = {source: tuple(text.upper() for text in formulas) for source, formulas in self.sd.items()}
        return Convention(self.name, units, others, tuple(mark.upper() for mark in self.marks), sd, terms)


def _bands(stem: str, *bands: str) -> dict[str, tuple[str, ...]]:
    """Gaia's signal-to-noise ratios, or fluxes and their errors, of some bands."""
    return {
        band: (
            f"{MAGNITUDES} / {stem.format(band.lower())}_over_error",
            f"{MAGNITUDES} * {stem.format(band.lower())}_error / {stem.format(band.lower())}",
        )
        for band in bands
    }


GAIA = Convention(
    name="Gaia",
    units={
        **_MOTIONS, "ra": "deg", "dec": "deg",
        "phot_g_mean_mag": "mag", "phot_bp_mean_mag": "mag", "phot_rp_mean_mag": "mag",
        "bp_rp": "mag", "bp_g": "mag", "g_rp": "mag", "radial_velocity": "km/s", "radial_velocity_error": "km/s",
    },
    others=_POSITIONS,
    marks=("phot_g_mean_mag", "phot_bp_mean_mag", "phot_rp_mean_mag", "bp_rp", "phot_g_mean_flux_over_error",
           "astrometric_params_solved", "source_id", "random_index", "ruwe", "nu_eff_used_in_astrometry"),
    sd=_bands("phot_{}_mean_flux", "G", "BP", "RP"),
    terms={
        "phot_g_mean_mag": {"G": 1.0}, "phot_bp_mean_mag": {"BP": 1.0}, "phot_rp_mean_mag": {"RP": 1.0},
        "bp_rp": {"BP": 1.0, "RP": -1.0}, "bp_g": {"BP": 1.0, "G": -1.0}, "g_rp": {"G": 1.0, "RP": -1.0},
    },
)  # fmt: skip
TYCHO = Convention(
    name="Tycho-2",
    units={"bt_mag": "mag", "vt_mag": "mag", "bt_mag_error": "mag", "vt_mag_error": "mag"},
    others={"ra_error": "mas", "dec_error": "mas"},
    marks=("bt_mag", "vt_mag"),
)
_DEGREES = ("RA_ICRS", "DE_ICRS", "RAJ2000", "DEJ2000", "RAICRS", "DEICRS", "RAdeg", "DEdeg", "RAmdeg", "DEmdeg",
            "_RAJ2000", "_DEJ2000", "_RA", "_DE")  # fmt: skip
_BANDS = ("G", "BP", "RP", "J", "H", "K", "B", "V", "Hp", "BT", "VT")
VIZIER = Convention(
    name="VizieR",
    units={
        **dict.fromkeys((*_DEGREES, "GLON", "GLAT"), "deg"), "RArad": "rad", "DErad": "rad",
        "Plx": "mas", "e_Plx": "mas", "pmRA": "mas/yr", "e_pmRA": "mas/yr", "pmDE": "mas/yr", "e_pmDE": "mas/yr",
        **{f"{e}{name}": "km/s" for e in ("", "e_") for name in ("RV", "HRV", "RVDR2")},
        "BP-RP": "mag", "BP-G": "mag", "G-RP": "mag",
        **{f"{e}{band}mag": "mag" for e in ("", "e_") for band in _BANDS},
    },
    others={f"e_{name}": "mas" for name in (*_DEGREES, "RArad", "DErad")},
    marks=("Plx", "pmRA", "Gmag", "Source"),
    sd={f"{band}mag": (f"e_{band}mag",) for band in ("G", "BP", "RP")},
    terms={
        "BP-RP": {"BPmag": 1.0, "RPmag": -1.0}, "BP-G": {"BPmag": 1.0, "Gmag": -1.0},
        "G-RP": {"Gmag": 1.0, "RPmag": -1.0},
    },
    short={name: name.strip("_")[:2] for name in (*_DEGREES, "RArad", "DErad")},
)  # fmt: skip
TWOMASS = Convention(
    "2MASS", {f"{band}_{end}": "mag" for band in ("j", "h", "k", "ks") for end in ("m", "msigcom", "cmsig")}
)
SDSS = Convention(
    "SDSS", {f"{kind}{end}_{band}": "mag" for kind in ("psfMag", "modelMag", "cModelMag", "petroMag", "fiberMag")
             for end in ("", "Err") for band in "ugriz"}
)  # fmt: skip
DESI = Convention(
    name="DESI",
    units={"PARALLAX": "mas", "VRAD": "km/s", "VRAD_ERR": "km/s",
           **dict.fromkeys(("RA", "DEC", "TARGET_RA", "TARGET_DEC"), "deg")},
    others={"PMRA": "mas/yr", "PMDEC": "mas/yr"},  # beside PMDec, of CatWISE, PMRA is in arcsec/yr
    marks=("PMDEC",),
)  # fmt: skip
KNOWN = (GAIA, TYCHO, VIZIER, TWOMASS, SDSS, DESI, GAIA.in_capitals("PMRA", "PMDEC"))


@dataclass(frozen=True)
class Rule:
    """Where a catalogue keeps the error of a column: the name that ``pattern`` matches whole becomes ``error``.

    ``formula`` is the standard deviation, of the column {}; ``instead`` are other names of the same error.
    """

    catalogue: str
    pattern: str
    error: str
    formula: str = "{}"
    instead: tuple[str, ...] = ()

    def column(self, name: str, columns: Collection[str]) -> str | None:
        """The error column of a name that a table has, or None."""
        match = re.fullmatch(self.pattern, name)
        tried = () if match is None else (match.expand(error) for error in (self.error, *self.instead))
        return next((column for column in tried if column in columns), None)


INVERSE = "1 / sqrt({})"
RULES = (
    Rule("VizieR", r"(.+)", r"e_\1"),
    Rule("2MASS", r"([jhk]s?)_m", r"\1_msigcom", instead=(r"\1_cmsig",)),
    Rule("WISE", r"(w[1-4])mpro", r"\1sigmpro"),
    Rule("SDSS", r"(\w+Mag)_([ugriz])", r"\1Err_\2"),
    Rule("SDSS", r"(\w+mag)_([ugriz])", r"\1err_\2"),  # as databases without capitals have it
    Rule("SDSS", r"(\w+MAG)_([UGRIZ])", r"\1ERR_\2"),
    Rule("SDSS", r"([ugriz])", r"err_\1", instead=(r"Err_\1",)),
    Rule("SDSS", r"dered_([ugriz])", r"err_\1", instead=(r"Err_\1", r"modelMagErr_\1")),
    Rule("SDSS", r"(\w+)", r"\1Err"),
    Rule("DESI", r"(Z)", r"ZERR"),
    Rule("DESI", r"([A-Z]\w*)", r"\1_IVAR", INVERSE),
    Rule("DESI", r"([A-Z]\w*)_([A-Z0-9]+)", r"\1_IVAR_\2", INVERSE),
    Rule("DESI", r"([a-z]\w*)", r"\1_ivar", INVERSE),
    Rule("DESI", r"([a-z]\w*)_([a-z0-9]+)", r"\1_ivar_\2", INVERSE),
    Rule("DESI", r"mag_([a-z0-9]+)", r"snr_\1", f"{MAGNITUDES} / {{}}"),
    Rule("DES", r"(mag|MAG)_(\w+)", r"\1err_\2", instead=(r"\1ERR_\2",)),
    Rule("", r"(\w+)", r"\1_err", instead=(r"\1_ERR", r"\1_ERROR")),
)


def error_rules(name: str, columns: Collection[str]) -> dict[str, Rule]:
    """Columns of a table that are called as errors of a column are, and the rules that say so."""
    tried = ((rule.column(name, columns), rule) for rule in RULES)
    return {column: rule for column, rule in tried if column is not None}


def error_rule(name: str, columns: Collection[str]) -> tuple[Rule, str] | None:
    """The rule whose error column a table has, and that column; refused where several columns may be it."""
    rules = error_rules(name, columns)
    if f"e_{name}" in rules and f"E_{name}" in columns:  # at VizieR an error downwards and one upwards
        raise ValueError(f"e_{name} and E_{name} are errors of {name} downwards and upwards: say what counts, such as "
                         f"error={{{name!r}: '(`e_{name}` + `E_{name}`) / 2'}}")  # fmt: skip
    if len(rules) > 1:
        first = next(iter(rules))
        raise ValueError(f"{' and '.join(rules)} are both called as errors of {name} are: say which is, such as "
                         f"error={{{name!r}: {first!r}}} or --error {name}={first}")  # fmt: skip
    return next(((rule, column) for column, rule in rules.items()), None)


def known_unit(name: str, columns: Collection[str]) -> str | None:
    """The unit that a catalogue gives a column of a table with these columns, or None."""
    return next((unit for convention in KNOWN if (unit := convention.unit(name, columns))), None)


def known_units(columns: Collection[str], file_units: Mapping[str, str]) -> dict[str, str]:
    """Units of a table's columns: the file's own, else those of the catalogues whose names they have."""
    units = {name: known_unit(name, columns) for name in columns}
    return {**{name: unit for name, unit in units.items() if unit}, **file_units}


def catalogues(names: Collection[str], columns: Collection[str]) -> tuple[str, ...]:
    """The catalogues that know some of these columns of a table."""
    known = {c.name for c in KNOWN for name in names if c.unit(name, columns) or name in c.terms}
    known |= {rule.catalogue for name in names for rule in error_rules(name, columns).values()}
    return tuple(sorted(known - {""}))


def short_names(name: str) -> tuple[str, ...]:
    """What correlation columns call a column, beside its own name."""
    return tuple(convention.short[name] for convention in KNOWN if name in convention.short)


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
