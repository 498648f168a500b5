"""Galactic velocities with noise and projection: against astropy, against draws, with and without radial velocities."""

import astropy.units as u
import numpy as np
import pytest
import torch
from astropy.coordinates import SkyCoord

import xdeconv as xd
from xdeconv import kernels
from xdeconv.catalog import sky
from xdeconv.catalog._open import open as open_catalog
from xdeconv.catalog.velocities import MOTIONS, POSITIONS

NAMES = ("ra", "dec", "parallax", "pmra", "pmdec", "radial_velocity")


def stars(n=300, seed=0, without=0.0):
    """Gaia-like astrometry of nearby stars with correlated errors; a fraction without radial velocity."""
    rng = np.random.default_rng(seed)
    table = {"ra": rng.uniform(0, 360, n), "dec": np.degrees(np.arcsin(rng.uniform(-1, 1, n)))}
    table |= {"parallax": rng.uniform(5, 40, n), "pmra": rng.normal(0, 200, n), "pmdec": rng.normal(0, 200, n)}
    table |= {"radial_velocity": rng.normal(0, 30, n)}
    table |= {"parallax_error": rng.uniform(0.02, 0.1, n), "pmra_error": rng.uniform(0.05, 0.3, n)}
    table |= {"pmdec_error": rng.uniform(0.05, 0.3, n), "radial_velocity_error": rng.uniform(0.2, 3, n)}
    table |= {"parallax_pmra_corr": rng.uniform(-0.5, 0.5, n), "parallax_pmdec_corr": rng.uniform(-0.5, 0.5, n)}
    table |= {"pmra_pmdec_corr": rng.uniform(-0.4, 0.4, n)}
    table["radial_velocity"][rng.uniform(size=n) < without] = np.nan
    return table


def astropy_velocity(ra, dec, parallax, pmra, pmdec, radial_velocity):
    there = SkyCoord(ra * u.deg, dec * u.deg, distance=(parallax * u.mas).to(u.kpc, u.parallax()),
                     pm_ra_cosdec=pmra * u.mas / u.yr, pm_dec=pmdec * u.mas / u.yr,
                     radial_velocity=radial_velocity * u.km / u.s).galactic  # fmt: skip
    return there.velocity.d_xyz.to_value(u.km / u.s).T


def test_velocities_are_those_of_astropy():
    table = stars()
    found = sky.velocities(table)
    right = astropy_velocity(*(table[name] for name in NAMES))
    assert np.allclose(np.einsum("npd,np->nd", found.projection, found.x), right, rtol=0, atol=2e-4)
    assert np.allclose(found.projection @ found.projection.transpose(0, 2, 1), np.eye(3), atol=1e-9)
    assert found.units == ("km/s",) * 3


def test_noise_is_that_of_draws_through_astropy():
    table = stars(4)
    found = sky.velocities(table)
    rng = np.random.default_rng(1)
    for i in range(4):
        e = np.array([table[f"{name}_error"][i] for name in NAMES[2:]])
        C = np.eye(4)
        C[0, 1] = C[1, 0] = table["parallax_pmra_corr"][i]
        C[0, 2] = C[2, 0] = table["parallax_pmdec_corr"][i]
        C[1, 2] = C[2, 1] = table["pmra_pmdec_corr"][i]
        draws = rng.multivariate_normal([table[name][i] for name in NAMES[2:]], C * np.outer(e, e), size=40_000)
        position = [np.full(len(draws), table[name][i]) for name in NAMES[:2]]
        drawn = np.cov(astropy_velocity(*position, *draws.T).T)
        R = found.projection[i]
        S = R.T @ found.noise[i] @ R
        size = np.sqrt(np.diag(drawn))
        assert np.allclose(S / np.outer(size, size), drawn / np.outer(size, size), atol=0.04)


def test_without_a_radial_velocity_a_row_is_a_view_of_two_dimensions():
    table = stars(200, without=0.6)
    lost = np.isnan(table["radial_velocity"])
    found = sky.velocities(table)
    assert np.array_equal(np.isnan(found.x), np.stack([0 * lost, 0 * lost, lost], 1).astype(bool))
    mixture = xd.Mixture([0.6, 0.4], [[0, 0, 0], [-20, -30, 5]], [np.diag([400, 300, 200]), np.diag([900, 500, 300])])
    log_prob = mixture.log_prob(found.x, noise=found.noise, projection=found.projection)
    two = mixture.log_prob(found.x[lost, :2], noise=found.noise[lost, :2, :2], projection=found.projection[lost, :2])
    assert np.allclose(log_prob[lost], two, rtol=1e-10)
    whole = sky.velocities({name: v[~lost] for name, v in table.items()})
    assert np.allclose(
        log_prob[~lost], mixture.log_prob(whole.x, noise=whole.noise, projection=whole.projection), rtol=1e-10
    )


def test_a_table_without_the_column_is_a_table_without_values():
    table = stars(50)
    never = {**table, "radial_velocity": np.full(50, np.nan)}
    absent = {name: v for name, v in table.items() if not name.startswith("radial")}
    a, b = sky.velocities(never), sky.velocities(absent)
    assert np.array_equal(a.x, b.x, equal_nan=True)
    assert np.array_equal(a.noise, b.noise)


def test_velocities_across_the_sky_are_proper_motions_over_parallaxes():
    parallax, pmra, pmdec = (stars(20)[name] for name in NAMES[2:5])
    assert np.allclose(sky.velocities(stars(20)).x[:, :2], sky.KM_S * np.stack([pmra, pmdec], 1) / parallax[:, None])


def test_other_names():
    table = stars(30)
    short = dict(zip(NAMES, ("RA_ICRS", "DE_ICRS", "Plx", "pmRA", "pmDE", "RV"), strict=True))
    vizier = {new: table[name] for name, new in short.items()}
    vizier |= {f"e_{new}": table[f"{name}_error"] for name, new in short.items() if f"{name}_error" in table}
    vizier |= {"PlxpmRAcor": table["parallax_pmra_corr"], "PlxpmDEcor": table["parallax_pmdec_corr"],
               "pmRApmDEcor": table["pmra_pmdec_corr"]}  # fmt: skip
    a, b = sky.velocities(table), sky.velocities(vizier)
    assert np.array_equal(a.x, b.x)
    assert np.allclose(a.noise, b.noise, rtol=1e-12)
    with pytest.raises(ValueError, match="velocities need a position, a parallax and proper motions"):
        sky.velocities({"ra": np.zeros(3), "dec": np.zeros(3)})


@pytest.mark.parametrize("position", POSITIONS)
def test_any_position_goes_with_any_motions(position):
    table = stars(30)
    right = sky.velocities(table)
    turn = np.pi / 180 if position[0] == "RArad" else 1.0
    for motions, velocities in MOTIONS.items():
        for velocity in velocities:
            names = dict(zip(NAMES[2:], (*motions, velocity), strict=True))
            other = {new: table[name] for name, new in names.items()}
            other |= {f"{new}_error": table[f"{name}_error"] for name, new in names.items()}
            other |= {position[0]: turn * table["ra"], position[1]: turn * table["dec"]}
            found = sky.velocities(other, correlation={motions[:2]: table["parallax_pmra_corr"][0]})
            assert np.allclose(found.x, right.x, rtol=1e-12)
            assert np.allclose(found.projection, right.projection)


@pytest.mark.parametrize("lost", NAMES[2:])
def test_what_is_measured_without_an_error_is_warned_of(lost):
    table = stars(30)
    del table[f"{lost}_error"]
    with pytest.warns(xd.NoNoiseWarning, match=rf"no error column was found for {lost} in .*error=\{{'{lost}': None"):
        source = open_catalog(table, ["U", "V", "W"], derive="velocities")
    assert source.unexplained == (lost,)
    assert f"NO NOISE of {lost}" in source.describe()
    for said in ({lost: None}, {lost: 0.5}, {"U": None, "V": None, "W": None}):
        assert open_catalog(table, ["U", "V", "W"], derive="velocities", error=said).unexplained == ()
    del table[lost]
    if lost == "radial_velocity":
        assert open_catalog(table, ["U", "V", "W"], derive="velocities").unexplained == ()


def test_stars_without_a_distance_are_refused():
    table = stars(30)
    table["parallax"][7] = -0.1
    with pytest.raises(ValueError, match="row 7: U is not defined"):
        sky.velocities(table)
    assert len(sky.velocities(table, where="parallax > 0").x) == 29
    table["parallax"][7] = np.nan
    assert np.isnan(sky.velocities(table).x[7, :2]).all()


def test_as_a_feature_among_others():
    table = stars(40) | {"ruwe": np.linspace(0.9, 1.3, 40), "ruwe_error": np.full(40, 0.1)}
    batch = open_catalog(table, ["ruwe", "U", "V", "W"], derive="velocities").load().batch
    alone = open_catalog(table, ["U", "V", "W"], derive="velocities").load().batch
    assert batch.projection.shape == (4, 4, 40)
    assert torch.equal(batch.projection[1:, 1:], alone.projection)
    assert (batch.projection[0, 0] == 1).all()
    assert (batch.projection[0, 1:] == 0).all()
    assert np.allclose(batch.x[0], table["ruwe"])
    with pytest.raises(ValueError, match="U, V, W belong together"):
        open_catalog(table, ["U", "V"], derive="velocities")


@pytest.mark.slow
@pytest.mark.parametrize("memory", [True, False])
def test_a_fit_of_a_table_is_that_of_arrays(memory):
    table = stars(600, without=0.5)
    found = sky.velocities(table)
    source = open_catalog(table, ["U", "V", "W"], derive="velocities", memory=memory)
    options = {"epochs": 5, "tol": 0, "method": xd.EM(), "seed": 1}
    start = xd.fit(found.x, 2, **found.arrays, **{**options, "epochs": 1}).mixture
    options |= {"mixture": start}
    a, b = xd.fit(source, **options), xd.fit(found.x, **found.arrays, **options)
    assert a.mixture.labels == b.mixture.labels == ("U", "V", "W")
    assert a.mixture.units == ("km/s",) * 3
    assert a.loglik == pytest.approx(b.loglik, rel=1e-10)
    assert np.allclose(a.mixture.means, b.mixture.means, rtol=1e-8)
    total = sum(float(kernels.log_prob(*a.mixture.tensors(), batch).sum()) for batch in source.batches(0))
    assert total / 600 == pytest.approx(a.mixture.score(found.x, noise=found.noise, projection=found.projection))


def test_standardised_rows_are_those_of_the_batch():
    source = open_catalog(stars(100, without=0.4), ["U", "V", "W"], derive="velocities", memory=False)
    shift, scale = torch.tensor([3.0, -4.0, 5.0]).double(), torch.tensor([10.0, 20.0, 30.0]).double()
    there = next(iter(source.standardized(shift, scale, torch.device("cpu"), torch.float64).batches(0)))
    here = next(iter(source.batches(0))).standardized(shift, scale)
    for name in ("x", "noise", "projection"):
        assert torch.allclose(getattr(there, name), getattr(here, name), equal_nan=True)


def test_a_model_of_velocities_reads_other_tables_itself(tmp_path):
    table = stars(200, without=0.5)
    mixture = xd.fit(xd.open(table, ["U", "V", "W"], derive="velocities"), 1, seed=0).mixture
    mixture.save(tmp_path / "uvw.safetensors")
    found = sky.velocities(table)
    expected = mixture.score(found.x, noise=found.noise, projection=found.projection)
    assert xd.load(tmp_path / "uvw.safetensors").score(table) == pytest.approx(expected, rel=1e-12)
