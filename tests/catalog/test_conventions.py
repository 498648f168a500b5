"""Names of known catalogues: each column is recognised by itself, whatever else the table has."""

import json
import re
import warnings

import numpy as np
import pandas
import pyarrow.parquet as pq
import pytest

import xdeconv as xd
from catalogues import FEATURES, arrow_table, dense_noise, gaia_like
from xdeconv.catalog import gaia
from xdeconv.catalog._open import open as open_catalog
from xdeconv.catalog.conventions import MAGNITUDES
from xdeconv.catalog.store import prepare

RNG = np.random.default_rng(0)
N = 60


def sd(table, name, **options):
    """The standard deviation that is found for a feature."""
    source = open_catalog(table, [name], **options)
    return source.load().batch.noise[0].sqrt().numpy(), source


def test_photometry_needs_no_position():
    columns = gaia_like(missing=False)
    photometry = ["bp_rp", "phot_g_mean_mag"]
    few = {n: v for n, v in columns.items() if n in photometry or n.endswith("flux_over_error")}
    source = open_catalog(few, photometry)
    assert source.units == ("mag", "mag")
    assert source.unexplained == ()
    assert np.allclose(source.load().batch.noise, np.stack([dense_noise(columns)[:, a, a] for a in (5, 6)]), rtol=1e-12)


@pytest.mark.parametrize("features", [["parallax", "bp_rp", "phot_g_mean_mag"], ["ra", "dec"], ["parallax"], FEATURES])
def test_a_table_of_exactly_the_columns_of_the_query(features):
    columns = gaia_like(missing=False)
    columns |= dict.fromkeys(gaia.DR3.zero_point_columns, np.ones(500)) | {
        "phot_g_mean_mag": columns["phot_g_mean_mag"]
    }
    asked = gaia.adql(features).splitlines()[0].removeprefix("SELECT ").split(", ")
    whole, few = (open_catalog(t, features) for t in (columns, {name: columns[name] for name in asked}))
    assert few.recipe == whole.recipe
    assert few.unexplained == ()
    assert few.units == tuple({"ra": "deg", "dec": "deg", "parallax": "mas", "pmra": "mas/yr", "pmdec": "mas/yr"}.get(
        name, "mag") for name in features)  # fmt: skip
    assert np.array_equal(few.load().batch.noise, whole.load().batch.noise)


def test_fluxes_and_their_errors_serve_as_well():
    table = {"phot_g_mean_mag": RNG.normal(size=N), "phot_g_mean_flux": np.full(N, 50.0),
             "phot_g_mean_flux_error": np.full(N, 2.0)}  # fmt: skip
    assert np.allclose(sd(table, "phot_g_mean_mag")[0], MAGNITUDES * 2 / 50)


def vizier():
    table = {name: RNG.normal(size=N) for name in ("Plx", "pmRA", "pmDE", "Gmag", "BPmag", "RPmag", "BP-RP", "RV")}
    table |= {"RA_ICRS": RNG.uniform(10, 20, N), "DE_ICRS": np.full(N, 60.0)}
    table |= {f"e_{name}": RNG.uniform(0.1, 0.2, N) for name in table if name != "BP-RP"}
    return table | {"PlxpmRAcor": np.full(N, 0.3), "pmRApmDEcor": np.full(N, -0.2), "RADEcor": np.full(N, 0.1)}


def test_vizier():
    table = vizier()
    features = ["RA_ICRS", "DE_ICRS", "Plx", "pmRA", "pmDE", "Gmag", "BP-RP", "RV"]
    source = open_catalog(table, features)
    assert source.unexplained == ()
    assert source.units == ("deg", "deg", "mas", "mas/yr", "mas/yr", "mag", "mag", "km/s")
    assert "VizieR" in source.describe()
    S = source.load().batch.covariance().numpy()
    e = {name: table[f"e_{name}"] for name in features if name != "BP-RP"}
    assert np.allclose(S[:, 2, 3], 0.3 * e["Plx"] * e["pmRA"])
    assert np.allclose(S[:, 3, 4], -0.2 * e["pmRA"] * e["pmDE"])
    assert np.allclose(S[:, 2, 4], 0)
    assert np.allclose(S[:, 0, 1], 0.1 * e["RA_ICRS"] * e["DE_ICRS"] / 3.6e6**2 / np.cos(np.radians(60.0)))
    assert np.allclose(S[:, 6, 6], table["e_BPmag"] ** 2 + table["e_RPmag"] ** 2)
    assert np.allclose(S[:, 5, 5], e["Gmag"] ** 2)


def test_hipparcos_and_tycho_at_vizier():
    """I/239 writes its correlations with a colon; errors of right ascension are those of an arc, in mas, everywhere."""
    table = {name: RNG.uniform(1, 2, N) for name in ("RAICRS", "Plx", "pmRA", "BTmag")} | {"DEICRS": np.full(N, 60.0)}
    table |= {f"e_{name}": RNG.uniform(0.1, 0.2, N) for name in list(table)}
    table |= {"Plx:RA": np.full(N, 0.3), "pmRA:Plx": np.full(N, -0.2)}
    S = open_catalog(table, ["RAICRS", "Plx", "pmRA"]).load().batch.covariance().numpy()
    e = {name: table[f"e_{name}"] for name in ("RAICRS", "Plx", "pmRA")}
    assert np.allclose(S[:, 1, 2], -0.2 * e["Plx"] * e["pmRA"])
    assert np.allclose(S[:, 0, 1], 0.3 * e["RAICRS"] * e["Plx"] / 3.6e6 / 0.5)
    for ra, dec in (("RAmdeg", "DEmdeg"), ("RAdeg", "DEdeg"), ("_RAJ2000", "_DEJ2000")):
        other = {ra: table["RAICRS"], dec: table["DEICRS"], f"e_{ra}": e["RAICRS"], "pmRA": table["pmRA"]}
        assert np.allclose(sd(other, ra)[0], e["RAICRS"] / 3.6e6 / 0.5)
    assert open_catalog(table, ["BTmag"]).units == ("mag",)


def test_a_colour_of_vizier_shares_its_bands():
    S = open_catalog(vizier(), ["BP-RP", "BPmag"]).load().batch.covariance().numpy()
    table = vizier()
    assert S.shape == (N, 2, 2)
    assert (S[:, 0, 1] > 0).all()
    assert set(open_catalog(table, ["BP-RP", "BPmag"]).recipe.deviations) == {"BPmag", "RPmag"}


@pytest.mark.parametrize(
    ("name", "error"),
    [("psfMag_g", "psfMagErr_g"), ("modelMag_r", "modelMagErr_r"), ("cModelMag_i", "cModelMagErr_i"), ("u", "err_u"),
     ("g", "Err_g"), ("PSFMAG_G", "PSFMAGERR_G"),
     ("dered_z", "err_z"), ("dered_g", "modelMagErr_g"), ("j_m", "j_msigcom"), ("k_m", "k_cmsig"),
     ("ks_m", "ks_msigcom"), ("w1mpro", "w1sigmpro"), ("Z", "ZERR"), ("VRAD", "VRAD_ERR"), ("teff", "teff_err"),
     ("MAG_AUTO_G", "MAGERR_AUTO_G"), ("mag_psf_g", "magerr_psf_g"), ("gMeanPSFMag", "gMeanPSFMagErr"),
     ("Jmag", "e_Jmag"), ("psfmag_g", "psfmagerr_g"), ("PARALLAX", "PARALLAX_ERROR")],
)  # fmt: skip
def test_errors_by_the_names_of_surveys(name, error):
    table = {name: RNG.normal(size=N), error: RNG.uniform(0.1, 0.2, N)}
    found, source = sd(table, name)
    assert np.allclose(found, table[error])
    assert source.unexplained == ()


@pytest.mark.parametrize(("name", "ivar"), [("FLUX_G", "FLUX_IVAR_G"), ("PARALLAX", "PARALLAX_IVAR"),
                                            ("flux_w1", "flux_ivar_w1"), ("pmra", "pmra_ivar")])  # fmt: skip
def test_inverse_variances(name, ivar):
    table = {name: RNG.normal(size=N), ivar: np.full(N, 16.0)}
    assert np.allclose(sd(table, name)[0], 0.25)


def test_magnitudes_of_the_legacy_surveys():
    assert np.allclose(sd({"mag_g": np.ones(N), "snr_g": np.full(N, 20.0)}, "mag_g")[0], MAGNITUDES / 20)


def test_an_error_column_with_a_hyphen_is_a_column():
    table = {"a-b": np.ones(N), "e_a-b": np.full(N, 0.3), "e_a": np.zeros(N), "q": np.zeros(N)}
    assert np.allclose(sd(table, "a-b")[0], 0.3)
    assert np.allclose(sd(table, "q", error={"q": "e_a-b"})[0], 0.3)


# What a store remembers


@pytest.fixture
def path(tmp_path):
    pq.write_table(arrow_table(gaia_like(500, missing=False)), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


READINGS = {
    "photometry": {"columns": ["parallax", "bp_rp", "phot_g_mean_mag"]},
    "all": {"columns": FEATURES},
    "said": {"columns": ["parallax", "pmra"], "error": {"parallax": "2 * pmdec_error", "pmra": 0.3},
             "correlation": {("parallax", "pmra"): 0.25}, "unit": {"parallax": "arcsec"}},
    "derived": {"columns": ["l", "b", "L"], "derive": ["galactic", {"L": "parallax ** 2"}], "weight": "ruwe"},
    "inflated": {"columns": ["parallax", "bp_rp"], "inflate": {"parallax": 2}, "offset": {"parallax": "0.1 * ruwe"},
                 "fill": {"bp_rp": 0.5}, "missing": {"parallax": -999}},
    "patterns": {"columns": ["parallax"], "error_pattern": "{name}_pmra_corr"},
    "velocities": {"columns": ["U", "V", "W"], "derive": "velocities"},
}  # fmt: skip


@pytest.mark.parametrize("kind", READINGS)
@pytest.mark.filterwarnings("ignore:no error column was found")
def test_a_store_remembers_how_its_rows_are_read(kind, path, tmp_path):
    said = dict(READINGS[kind])
    if kind == "patterns":  # any positive column will do
        columns = gaia_like(500, missing=False)
        columns["parallax_pmra_corr"] = np.abs(columns["parallax_pmra_corr"])
        pq.write_table(arrow_table(columns), path)
    store = prepare(path, tmp_path / "store", reading=said)
    original, again = open_catalog(path, **said), open_catalog(store)
    assert again.recipe == original.recipe
    assert again.describe().splitlines()[1:] == original.describe().splitlines()[1:]
    a, b = original.load().batch, again.load().batch
    i, j = (np.argsort(batch.x[0].numpy()) for batch in (a, b))
    assert np.array_equal(a.x[:, i], b.x[:, j], equal_nan=True)
    assert np.array_equal(a.noise[:, i] if a.noise.shape[1] > 1 else a.noise, b.noise[:, j] if b.noise.shape[1] > 1
                          else b.noise)  # fmt: skip


def test_features_of_a_store_keep_what_was_said_of_them(path, tmp_path):
    store = prepare(path, tmp_path / "store", reading=READINGS["said"])
    one = open_catalog(store, ["parallax"])
    assert one.units == ("arcsec",)
    assert one.recipe.deviations["parallax"].text == "2 * pmdec_error"
    other = open_catalog(store, error={"parallax": 0.5})
    assert other.labels == ("parallax", "pmra")
    assert other.recipe.deviations["parallax"].text == "0.5"
    assert other.recipe.deviations["pmra"].text == "0.3"


def test_units_survive_in_a_store_without_the_columns_that_tell_them(path, tmp_path):
    store = prepare(path, tmp_path / "store", reading={"columns": ["ra", "dec"]})
    assert "source_id" not in open_catalog(store).table.columns
    assert open_catalog(store).recipe == open_catalog(path, ["ra", "dec"]).recipe


def test_what_cannot_be_remembered_is_refused(path, tmp_path):
    with pytest.raises(ValueError, match="cannot remember how its rows are read"):
        prepare(
            path, tmp_path / "store", reading={"columns": ["parallax"], "error": {"parallax": gaia.zero_point("dr3")}}
        )


@pytest.mark.slow
def test_the_command_needs_no_columns_for_a_store(path, tmp_path):
    from typer.testing import CliRunner

    from xdeconv.cli import app

    store, model = tmp_path / "store", tmp_path / "m.safetensors"
    columns = "parallax,bp_rp,phot_g_mean_mag"
    made = CliRunner().invoke(app, ["prepare", str(path), str(store), "--columns", columns])
    assert made.exit_code == 0, made.output
    fitted = CliRunner().invoke(app, ["fit", str(store), "-k", "2", "--epochs", "2", "-o", str(model)])
    assert fitted.exit_code == 0, fitted.output
    assert xd.load(model).labels == tuple(columns.split(","))
    assert "NO NOISE" not in fitted.output


# No noise


def test_values_without_an_error_are_warned_of_once_and_noted():
    table = {"x": RNG.normal(size=N), "y": RNG.normal(size=N), "y_error": np.full(N, 0.1)}
    with pytest.warns(xd.NoNoiseWarning, match=r"found for x .*error=\{'x': None\} or --error x=none"):
        source = open_catalog(table, ["x", "y"])
    assert source.unexplained == source.recipe.unexplained == ("x",)
    assert any("NO NOISE" in note and "x" in note for note in source.notes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_catalog(table, ["x", "y"], error={"x": None}).unexplained == ()
        assert open_catalog(table, ["x", "y"], error={"x": 0.0}).unexplained == ()


def test_derived_features_without_noise_are_declared_by_their_own_name():
    table = {"x": RNG.normal(size=N), "y": RNG.normal(size=N), "y_error": np.full(N, 0.1)}
    with pytest.warns(xd.NoNoiseWarning, match="found for z"):
        assert open_catalog(table, ["z", "y"], derive={"z": "x * 2"}).unexplained == ("z",)
    for declared in ("z", "x"):
        assert open_catalog(table, ["z", "y"], derive={"z": "x * 2"}, error={declared: None}).unexplained == ()
    assert open_catalog(table, ["z"], derive={"z": "x + y"}).unexplained == ()
    with pytest.raises(ValueError, match="not a column that a feature uses"):
        open_catalog(table, ["z", "y"], derive={"z": "x * 2"}, error={"z": 0.1})


# What is accepted and ignored


def test_what_would_be_ignored_is_refused():
    columns = gaia_like(40)
    with pytest.raises(ValueError, match=r"derive makes pmra_pmdec_corr, and columns names none of .*correlation="):
        open_catalog(columns, ["pmra", "pmdec"], derive={"pmra_pmdec_corr": "0.5 * ruwe"})
    with pytest.raises(ValueError, match="no column 'paralax'"):
        open_catalog(columns, ["parallax"], unit={"paralax": "mas"})
    with pytest.raises(ValueError, match=r"error_pattern 'sigma_\{name\}' finds no column"):
        open_catalog(columns, ["parallax"], error_pattern="sigma_{name}")


def test_names_that_transforms_make_are_in_the_errors():
    columns = gaia_like(40)
    with pytest.raises(ValueError, match=r"no column 'x'.*derive makes xi, eta"):
        open_catalog(columns, ["x", "xi"], derive="tangent:50,20")
    with pytest.raises(ValueError, match=r"no column 'pml': derive='galactic' or --derive galactic makes l, b, pml"):
        open_catalog(columns, ["pml"])
    with pytest.raises(ValueError, match=r"galactic \(makes l, b, pml, pmb\)"):
        open_catalog(columns, ["l"], derive="galaxy")


@pytest.mark.parametrize("pattern", ["{name:>2000000000}", "{name.__class__}", "{name}{name}", "error", "{other}",
                                     "{{name}}", "{name!r}", "{name}" + "x" * 300, "{", 5])  # fmt: skip
def test_patterns_are_names_with_a_place_in_them(pattern):
    with pytest.raises(ValueError, match="error_pattern"):
        open_catalog(gaia_like(40), ["parallax"], error_pattern=pattern)


def test_patterns_of_correlations_are_checked_too():
    with pytest.raises(ValueError, match="correlation_pattern"):
        open_catalog(gaia_like(40), ["parallax"], correlation_pattern="{a}{b:>2000000000}")


@pytest.mark.parametrize("kind", [kind for kind in READINGS if kind != "patterns"])
def test_a_source_says_how_other_rows_are_read_alike(kind, path, tmp_path):
    said = READINGS[kind]
    store = prepare(path, tmp_path / "store", reading=said)
    for source in (open_catalog(path, **said), open_catalog(store)):
        opening = json.loads(json.dumps(source.opening()))
        assert open_catalog(path, **opening).recipe == source.recipe


def test_a_model_of_a_store_reads_other_rows_as_the_store_was_read(path, tmp_path):
    from typer.testing import CliRunner

    from xdeconv.cli import app

    store, model = tmp_path / "store", str(tmp_path / "m.safetensors")
    prepare(path, store, reading={"columns": ["parallax", "pmra"], "error": {"parallax": 0.5}})
    fitted = CliRunner().invoke(app, ["fit", str(store), "-k", "1", "--epochs", "2", "-o", model])
    assert fitted.exit_code == 0, fitted.output
    a, b = (CliRunner().invoke(app, ["score", model, str(rows)]) for rows in (store, path))
    assert float(a.stdout.split()[-1]) == pytest.approx(float(b.stdout.split()[-1]), abs=2e-6)


def test_what_is_made_of_a_remembered_word_can_be_asked_for_alone(path, tmp_path):
    store = prepare(path, tmp_path / "store", reading=READINGS["derived"])
    assert open_catalog(store, ["l"]).labels == ("l",)
    assert (
        open_catalog(store, ["L"]).recipe.transforms
        == open_catalog(path, ["L"], derive={"L": "parallax ** 2"}).recipe.transforms
    )


# Positions


@pytest.mark.parametrize("pair", [("a", "b"), ("l", "m"), ("L", "x"), ("alpha", "beta"), ("gamma", "delta")])
def test_letters_are_positions_only_beside_their_partner(pair):
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({name: rng.normal(size=40) for name in pair} | {f"{name}_error": 0.5 for name in pair})
    source = open_catalog(table, list(pair))
    noise = source.load().batch.covariance().numpy()
    np.testing.assert_allclose(noise, np.broadcast_to(0.25 * np.eye(2), (40, 2, 2)))
    assert xd.fit(table, 2, columns=list(pair), epochs=2).mixture.labels == pair


@pytest.mark.parametrize("pair", [("l", "b"), ("alpha", "delta"), ("GLON", "GLAT"), ("ra", "x"), ("x", "dec")])
def test_positions_need_the_unit_of_their_errors(pair):
    table = pandas.DataFrame({name: np.full(5, 60.0) for name in pair} | {f"{name}_error": 0.5 for name in pair})
    with pytest.raises(ValueError, match=r"the unit of .*_error is not known"):
        open_catalog(table, list(pair))


def test_the_error_of_a_galactic_longitude_is_one_on_the_sky():
    table = pandas.DataFrame({"l": [10.0], "b": [60.0], "l_error": [0.5], "b_error": [0.5]})
    source = open_catalog(table, ["l", "b"], unit={"l_error": "deg", "b_error": "deg"})
    np.testing.assert_allclose(np.diag(source.load().batch.covariance().numpy()[0]), [1.0, 0.25])


def test_a_store_remembers_transforms_as_a_model_does(path, tmp_path):
    """Both keep what they read by in one form: our own transforms by name, functions not at all."""
    turn = xd.sky.rotation((30.0, 60.0), (10.0, 0.0))
    reading = {"columns": ["phi1", "phi2"], "derive": [turn]}
    prepare(path, tmp_path / "turned", reading=reading)
    stored, plain = xd.open(tmp_path / "turned"), xd.open(path, **reading)
    assert stored.labels == ("phi1", "phi2")
    ours, right = (np.sort(source.load().batch.x.numpy(), axis=1) for source in (stored, plain))
    np.testing.assert_array_equal(ours, right)
    assert stored.opening() == plain.opening()


# What joins, databases and other surveys make of names


def test_a_position_of_any_spelling_does_not_guess_the_unit_of_its_error():
    for ra, dec in (("raMean", "decMean"), ("gaia_ra", "gaia_dec"), ("ra_1", "dec_1"), ("ra", "de")):
        table = {ra: np.full(N, 10.0), dec: np.full(N, 60.0)}
        table |= {f"{name}_error": np.full(N, 36.0) for name in (ra, dec)}
        for name in (ra, dec):
            with pytest.raises(ValueError, match=rf"the unit of {name}_error is not known"):
                open_catalog(table, [name])
        said = {f"{name}_error": "arcsec" for name in (ra, dec)}
        assert np.allclose(sd(table, dec, unit=said)[0], 0.01)
        assert np.allclose(sd(table, ra, unit=said)[0], 0.02)
    motion = {"gaia_pm_ra": np.ones(N), "gaia_pm_ra_error": np.full(N, 0.5), "gaia_pm_dec": np.full(N, 60.0)}
    assert np.allclose(sd(motion, "gaia_pm_ra")[0], 0.5)


@pytest.mark.parametrize(("a", "b", "column"), [
    ("gaia_parallax", "gaia_pmra", "gaia_parallax_pmra_corr"), ("PARALLAX", "PMRA", "PARALLAX_PMRA_CORR"),
    ("parallax_1", "pmra_1", "parallax_pmra_corr_1"), ("g_parallax_x", "g_pmra_x", "g_pmra_parallax_corr_x"),
])  # fmt: skip
def test_correlations_follow_what_both_names_share(a, b, column):
    table = {name: np.ones(N) for name in (a, b)} | {column: np.full(N, 0.3)}
    table |= {f"{name}{'_ERROR' if name.isupper() else '_error'}": np.full(N, 2.0) for name in (a, b)}
    other = {"parallax_pmra_corr_2": np.full(N, 0.9)}
    assert np.allclose(open_catalog(table | other, [a, b]).load().batch.covariance()[:, 0, 1], 0.3 * 4)


def test_gaia_in_capitals():
    columns = gaia_like(missing=False)
    features = ["ra", "dec", "parallax", "pmra", "pmdec", "bp_rp", "phot_g_mean_mag"]
    plain = open_catalog(columns, features)
    capital = open_catalog({name.upper(): values for name, values in columns.items()}, [f.upper() for f in features])
    assert capital.units == plain.units
    assert capital.unexplained == ()
    assert np.array_equal(capital.load().batch.noise, plain.load().batch.noise)


def test_motions_of_catwise_are_not_in_the_units_of_desi():
    assert open_catalog({"PMRA": np.ones(N), "PMDec": np.ones(N)}, ["PMRA"], error={"PMRA": None}).units is None
    assert open_catalog({"PMRA": np.ones(N), "PMDEC": np.ones(N)}, ["PMRA"], error={"PMRA": None}).units == ("mas/yr",)


@pytest.mark.parametrize("errors", [("zErr", "err_z"), ("e_z", "z_err"), ("e_z", "E_z")])
def test_several_errors_of_one_column_are_refused(errors):
    table = {"z": RNG.normal(size=N)} | {name: np.full(N, i + 0.5) for i, name in enumerate(errors)}
    with pytest.raises(ValueError, match=f"{errors[0]}.*{errors[1]}"):
        open_catalog(table, ["z"])
    assert np.allclose(sd(table, "z", error={"z": errors[1]})[0], 1.5)
    assert np.allclose(sd(table, "z", error={"z": f"({errors[0]} + {errors[1]}) / 2"})[0], 1.0)


@pytest.mark.parametrize(
    ("name", "column", "formula"),
    [("teff_madera", "teff_error_madera", "teff_error_madera"),
     ("psfFlux_g", "psfFluxIvar_g", "1 / sqrt(psfFluxIvar_g)"),
     ("FEH", "E_FEH", "E_FEH"), ("nuv_mag", "nuv_magerr", "nuv_magerr"), ("pmra", "sigpmra", "sigpmra"),
     ("TEFF_ADOP", "TEFF_ADOP_UNC", "TEFF_ADOP_UNC"), ("x", "sigma_x", "sigma_x")],
)  # fmt: skip
def test_what_looks_like_an_error_is_offered_and_not_taken(name, column, formula):
    table = {name: RNG.normal(size=N), column: np.full(N, 4.0), "other_err": np.ones(N)}
    with pytest.warns(xd.NoNoiseWarning, match=re.escape(f"perhaps error={{{name!r}: {formula!r}}}")):
        source = open_catalog(table, [name])
    assert source.unexplained == (name,)
    assert np.allclose(sd(table, name, error={name: formula})[0], 0.5 if "sqrt" in formula else 4.0)
