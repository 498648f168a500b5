"""What derived features are made of may be in any unit that the table tells: they come out the same."""

import numpy as np
import pytest

import xdeconv as xd
from xdeconv.catalog import sky
from xdeconv.catalog._open import open as open_catalog

FACTORS = {
    "rad": 180 / np.pi, "arcmin": 1 / 60, "arcsec": 1e3, "arcsec/yr": 1e3, "deg/yr": 3.6e6, "m/s": 1e-3, "uas": 1e-3,
}  # fmt: skip
DERIVED = {
    "velocities": ["U", "V", "W"],
    "galactic": ["l", "b", "pml", "pmb"],
    "tangent:100,20": ["xi", "eta"],
    "rotation:10,20,30,40": ["phi1", "phi2", "pm_phi1", "pm_phi2"],
}
CASES = [
    *((word, column, unit) for word in DERIVED for column, unit in (("ra", "rad"), ("dec", "rad"), ("dec", "arcmin"))),
    *((word, "pmra", "arcsec/yr") for word in DERIVED if "tangent" not in word),
    ("velocities", "pmdec", "deg/yr"),
    ("velocities", "parallax", "arcsec"),
    ("velocities", "parallax", "uas"),
    ("velocities", "radial_velocity", "m/s"),
]
ERRORS = {"ra_error": "mas", "dec_error": "mas", "parallax_error": "mas", "pmra_error": "mas/yr",
          "pmdec_error": "mas/yr", "radial_velocity_error": "km/s"}  # fmt: skip


def stars(n=50, seed=0):
    """Stars around (100, 20) degrees with errors of everything; units are not in the table."""
    rng = np.random.default_rng(seed)
    table = {"ra": rng.uniform(80, 120, n), "dec": rng.uniform(0, 40, n), "parallax": rng.uniform(5, 40, n)}
    table |= {"pmra": rng.normal(0, 200, n), "pmdec": rng.normal(0, 200, n), "radial_velocity": rng.normal(0, 30, n)}
    table |= {f"{name}_error": rng.uniform(0.1, 0.3, n) for name in list(table)}
    return table | {"parallax_pmra_corr": np.full(n, 0.3)}


def read(table, columns, derive=None, **units):
    batch = open_catalog(table, columns, derive=derive, unit={**ERRORS, **units}).load().batch
    return batch.x, batch.covariance(), batch.projection


def same(one, other):
    return all(a is b or np.allclose(a, b, rtol=1e-9, atol=1e-9) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(("derive", "column", "unit"), CASES)
def test_units_of_inputs_are_followed(derive, column, unit):
    table = stars()
    other = table | {column: table[column] / FACTORS[unit]}
    assert same(read(other, DERIVED[derive], derive, **{column: unit}), read(table, DERIVED[derive], derive))


def test_units_of_astropy_columns_are_followed():
    import astropy.units as u
    from astropy.table import QTable

    table = stars()
    columns = {name: table[name] for name in table}
    columns |= {"ra": table["ra"] * u.deg, "parallax": (table["parallax"] * u.mas).to(u.arcsec)}
    columns |= {"parallax_error": table["parallax_error"] * u.mas}
    columns |= {"radial_velocity": (table["radial_velocity"] * u.km / u.s).to(u.m / u.s)}
    columns |= {"radial_velocity_error": table["radial_velocity_error"] * u.km / u.s}
    columns["ra"] = columns["ra"].to(u.hourangle)
    found, right = sky.velocities(QTable(columns)), sky.velocities(table)
    assert same((found.x, found.noise, found.projection), (right.x, right.noise, right.projection))


def test_errors_of_longitudes_are_divided_by_the_cosine_of_latitudes_in_any_unit():
    table = stars()
    other = table | {"dec": np.radians(table["dec"])}
    assert same(read(other, ["ra"], dec="rad"), read(table, ["ra"]))


def test_units_that_are_none_of_an_input_are_refused():
    with pytest.raises(ValueError, match="parallax is in 'mag', which cannot be turned into 'mas'"):
        open_catalog(stars(), ["U", "V", "W"], derive="velocities", unit={"parallax": "mag"})


@pytest.mark.parametrize("made", [sky.tangent(100, 20), sky.galactic(proper_motions=False)])
def test_a_model_asks_for_them_too(made):
    """What it remembers of a transform tells what its inputs must be in."""
    table, columns = stars(), [name for part in np.atleast_1d(made) for name in part.outputs]
    mixture = xd.fit(xd.open(table, columns, derive=made, unit=ERRORS), 1, epochs=3).mixture
    from astropy.table import QTable

    other = QTable(table)
    for name in ("ra", "dec"):
        other[name] = np.radians(table[name])
        other[name].unit = "rad"
        other[f"{name}_error"].unit = "mas"
    assert mixture.score(other) == pytest.approx(mixture.score(table), rel=1e-9)


def test_names_of_hipparcos_at_vizier():
    """I/311 has positions in radians, I/239 in degrees."""
    table = stars()
    short = {"parallax": "Plx", "pmra": "pmRA", "pmdec": "pmDE"}
    moved = {new: table[name] for name, new in short.items()}
    moved |= {f"e_{new}": table[f"{name}_error"] for name, new in short.items()} | {
        "PlxpmRAcor": table["parallax_pmra_corr"]
    }
    plain = sky.velocities({name: values for name, values in table.items() if not name.startswith("radial")})
    for names, positions in {
        ("RAICRS", "DEICRS"): (table["ra"], table["dec"]),
        ("RArad", "DErad"): (np.radians(table["ra"]), np.radians(table["dec"])),
    }.items():
        found = sky.velocities(moved | dict(zip(names, positions, strict=True)))
        assert same((found.x[:, :2], found.projection), (plain.x[:, :2], plain.projection))
        assert np.allclose(found.noise[:, :2, :2], plain.noise[:, :2, :2])


def in_other_units(table):
    """The same stars as astropy's table in radians and arcseconds, errors in milliarcseconds, all said."""
    from astropy.table import Table

    other = Table({name: np.array(values) for name, values in table.items()})
    for name, factor, unit in (("ra", np.pi / 180, "rad"), ("dec", np.pi / 180, "rad"), ("parallax", 1e-3, "arcsec")):
        other[name] = other[name] * factor
        other[name].unit = unit
    for name, unit in {**ERRORS, "pmra": "mas / yr", "pmdec": "mas / yr", "radial_velocity": "km / s"}.items():
        other[name].unit = unit.replace("/", " / ").replace("  ", " ")
    return other


@pytest.mark.parametrize("word", DERIVED)
def test_units_of_files_are_followed_the_first_or_the_second_and_through_a_store(word, tmp_path):
    """Each file is in units of its own; a store keeps those that its columns are in."""
    from xdeconv.catalog.store import prepare

    table = stars()
    plain = in_other_units(table)
    for name in ("ra", "dec"):
        plain[name] = np.degrees(plain[name])
        plain[name].unit = "deg"
    plain["parallax"] = plain["parallax"] * 1e3
    plain["parallax"].unit = "mas"
    paths = [tmp_path / "a.fits", tmp_path / "b.fits"]
    for path, rows in zip(paths, (plain, in_other_units(table)), strict=True):
        rows.write(path)
    right = [None if part is None else part.numpy() for part in read(table, DERIVED[word], word)]
    for files in (paths[1:], paths, paths[::-1]):
        batch = open_catalog(files, DERIVED[word], derive=word).load().batch
        for part, once, axis in zip((batch.x, batch.covariance(), batch.projection), right, (-1, 0, -1), strict=True):
            assert part is None or np.allclose(part.numpy(), np.concatenate([once] * len(files), axis), 1e-6, 1e-6,
                                               equal_nan=True)  # fmt: skip
    store = prepare(paths[1], tmp_path / "store", reading={"columns": DERIVED[word], "derive": word})
    batch, order = open_catalog(store).load().batch, np.argsort(right[0][0])
    shuffled = np.argsort(batch.x[0].numpy())
    assert np.allclose(batch.x.numpy()[:, shuffled], right[0][:, order], 1e-6, 1e-6)
    assert np.allclose(batch.covariance().numpy()[shuffled], right[1][order], 1e-6, 1e-9)


def test_a_verdict_on_velocities_is_the_same_in_any_units():
    """It asks what errors stars would have at one velocity, through the units of the table too."""
    table = stars(400)
    mixture = xd.fit(xd.open(table, ["U", "V", "W"], derive="velocities", unit=ERRORS), 1, epochs=20).mixture
    one, other = (xd.check(rows, mixture).verdicts for rows in (xd.open(table, ["U", "V", "W"], derive="velocities"),
                                                                xd.open(in_other_units(table), ["U", "V", "W"],
                                                                        derive="velocities")))  # fmt: skip
    assert [verdict.text for verdict in one] == [verdict.text for verdict in other]
    assert all(a.statistic == pytest.approx(b.statistic, rel=1e-5) for a, b in zip(one, other, strict=True))
    assert all([g.sd for g in a.groups] == pytest.approx([g.sd for g in b.groups], rel=1e-5)
               for a, b in zip(one, other, strict=True))  # fmt: skip


def test_inverse_variances_are_of_the_column_as_it_is():
    """DESI's PARALLAX_IVAR belongs to the column's own unit, which is then brought to mas with its error."""
    table = stars()
    desi = {"RA": table["ra"], "DEC": table["dec"], "VRAD": table["radial_velocity"]}
    for name in ("parallax", "pmra", "pmdec"):
        desi |= {name.upper(): table[name], f"{name.upper()}_IVAR": table[f"{name}_error"] ** -2.0}
    desi["VRAD_ERR"] = table["radial_velocity_error"]
    other = desi | {"PARALLAX": desi["PARALLAX"] / 1e3, "PARALLAX_IVAR": desi["PARALLAX_IVAR"] * 1e6}
    right, found = sky.velocities(desi), sky.velocities(other, unit={"PARALLAX": "arcsec"})
    assert same((found.x, found.noise, found.projection), (right.x, right.noise, right.projection))
