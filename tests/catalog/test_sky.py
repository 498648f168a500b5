"""Sky features: values against astropy, derivatives against differences and autograd, covariances against draws."""

import numpy as np
import pytest

import xdeconv as xd
from catalogues import gaia_like
from xdeconv.catalog import sky
from xdeconv.catalog._open import open as open_catalog


def rows(n=40, seed=0):
    rng = np.random.default_rng(seed)
    return {"ra": rng.uniform(0, 360, n), "dec": np.degrees(np.arcsin(rng.uniform(-0.99, 0.99, n))),
            "pmra": rng.normal(size=n), "pmdec": rng.normal(size=n)}  # fmt: skip


def test_galactic_coordinates_are_those_of_astropy():
    import astropy.units as u
    from astropy.coordinates import SkyCoord

    c = rows()
    there = SkyCoord(c["ra"] * u.deg, c["dec"] * u.deg, pm_ra_cosdec=c["pmra"] * u.mas / u.yr,
                     pm_dec=c["pmdec"] * u.mas / u.yr).galactic  # fmt: skip
    l, b, pml, pmb = (value for value, _ in sky.galactic()(c))
    assert np.allclose(l, there.l.deg, atol=1e-4)
    assert np.allclose(b, there.b.deg, atol=1e-4)
    assert np.allclose(pml, there.pm_l_cosb.value, atol=1e-4)
    assert np.allclose(pmb, there.pm_b.value, atol=1e-4)


TRANSFORMS = {
    "galactic": sky.galactic(),
    "stream": sky.rotation((34.5987, 29.7331), (200.0, 59.4504)),
    "positions": sky.galactic(proper_motions=False),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_jacobians_are_those_of_differences(name):
    transform, c, h = TRANSFORMS[name], rows(), 1e-5
    found = transform(c)
    for i, (_, partials) in enumerate(found):
        for column in transform.inputs:
            up, down = ({**c, column: c[column] + s} for s in (h, -h))
            change = transform(up)[i][0] - transform(down)[i][0]
            slope = (np.mod(change + 180, 360) - 180) / (2 * h) if i == 0 else change / (2 * h)
            assert np.allclose(partials.get(column, 0.0), slope, atol=2e-5, rtol=2e-5), (i, column)
            if column not in transform.needs(transform.outputs[i]):
                assert column not in partials


def test_great_circle_coordinates():
    stream = sky.rotation((10.0, 40.0), (100.0, 0.0))
    value = {"ra": np.array([10.0, 100.0]), "dec": np.array([40.0, 0.0]), "pmra": np.zeros(2), "pmdec": np.zeros(2)}
    phi1, phi2 = (v for v, _ in stream(value)[:2])
    assert phi2[0] == pytest.approx(90)
    assert (phi1[1], phi2[1]) == pytest.approx((0.0, 0.0), abs=1e-9)


def test_tangent_plane_offsets():
    import astropy.units as u
    from astropy.coordinates import SkyCoord
    from astropy.wcs import WCS

    centre = SkyCoord(56.75, 24.12, unit="deg")
    wcs = WCS(naxis=2)
    wcs.wcs.ctype, wcs.wcs.crval, wcs.wcs.cdelt, wcs.wcs.crpix = (
        ["RA---TAN", "DEC--TAN"],
        [56.75, 24.12],
        [1, 1],
        [0, 0],
    )
    rng = np.random.default_rng(0)
    c = {"ra": 56.75 + rng.normal(size=20), "dec": 24.12 + rng.normal(size=20)}
    xi, eta = sky.tangent(centre.ra.to_value(u.deg), centre.dec.to_value(u.deg))
    x, y = wcs.wcs_world2pix(c["ra"], c["dec"], 0)
    assert np.allclose(xi(c)[0][0], x + 1, atol=1e-9)
    assert np.allclose(eta(c)[0][0], y + 1, atol=1e-9)


def test_tangent_plane_across_zero():
    xi, _ = sky.tangent(0.0, 10.0)
    found = xi({"ra": np.array([359.9, 0.1]), "dec": np.array([10.0, 10.0])})[0][0]
    assert found[0] == pytest.approx(-found[1])


def test_far_side_is_refused():
    with pytest.raises(ValueError, match="xi is not defined"):
        open_catalog(gaia_like(), ["xi", "eta"], derive="tangent:230,-20").load()


@pytest.mark.slow
def test_covariances_of_sky_features_are_those_of_draws():
    columns = {name: v[:3] for name, v in gaia_like(missing=False).items()}
    names = ["ra", "dec", "pmra", "pmdec"]
    raw = open_catalog(columns, names).load().batch
    made = open_catalog(columns, ["l", "b", "pml", "pmb"], derive=sky.galactic()).load().batch
    rng = np.random.default_rng(0)
    for i in range(3):
        draws = rng.multivariate_normal(np.zeros(4), raw.covariance()[i].numpy(), size=200_000)
        value = dict(zip(names, (raw.x[:, i].numpy() + draws).T, strict=True))
        drawn = np.cov(np.stack([v for v, _ in sky.galactic()(value)]))
        size = np.sqrt(np.diag(drawn))
        assert np.allclose(
            made.covariance()[i].numpy() / np.outer(size, size), drawn / np.outer(size, size), atol=0.015
        )


def test_positions_are_there_without_proper_motions():
    columns = gaia_like()
    batch = open_catalog(columns, ["l", "b", "pml", "pmb"], derive="galactic").load().batch
    lost = np.isnan(columns["pmra"])
    assert not batch.x[:2].isnan().any()
    assert (batch.x[2].isnan().numpy() == lost).all()
    assert (batch.noise[:3] != 0).all()


def test_positions_without_errors_are_said_to_have_none_beside_motions_with_errors():
    table = {"ra": np.arange(5.0), "dec": np.arange(5.0), "pmra": np.ones(5), "pmdec": np.ones(5)}
    table |= {"pmra_error": np.full(5, 0.1), "pmdec_error": np.full(5, 0.1)}
    with pytest.warns(xd.NoNoiseWarning, match="found for l, b in"):
        source = xd.open(table, ["l", "b", "pml", "pmb"], derive="galactic")
    assert source.unexplained == ("l", "b")
    assert xd.open(table, ["pml", "pmb"], derive="galactic").unexplained == ()
    exact = xd.open(table, ["l", "b", "pml", "pmb"], derive="galactic", error={"ra": None, "dec": None})
    assert exact.unexplained == ()
    assert xd.fit(exact, 1, epochs=2).mixture.meta["errors"] == [False, False, True, True]


def test_words_for_transforms():
    assert sky.parse_transform("rotation:10,40,100,0").outputs == ("phi1", "phi2", "pm_phi1", "pm_phi2")
    for text in ("tangent:1", "nowhere", "tangent:a,b", "galactic:3"):
        with pytest.raises(ValueError, match=r"transform|cannot read"):
            sky.parse_transform(text)
    with pytest.raises(ValueError, match="orthogonal"):
        sky.Rotation(((1.0, 0, 0), (0, 2.0, 0), (0, 0, 1.0)), ("a", "b"), ("ra", "dec"))
