"""Gaia: queries, zero points, presets."""

import numpy as np
import pytest

from catalogues import ASTROMETRY, FEATURES, gaia_like
from xdeconv.catalog import gaia
from xdeconv.catalog._open import open as open_catalog
from xdeconv.catalog.transforms import Hook


def test_the_query_fetches_what_a_fit_reads():
    query = gaia.adql(FEATURES, where="ruwe < 1.4", rows=2_000_000)
    assert query.startswith("SELECT source_id, ra, dec, parallax")
    assert "WHERE random_index < 2000000 AND ruwe < 1.4" in query
    columns = gaia_like(10)
    for name in open_catalog(columns, FEATURES).recipe.columns:
        assert name in query
    assert sum(name.endswith("_corr") for name in gaia.needed_columns(FEATURES)) == 10
    assert "nu_eff_used_in_astrometry" in query
    assert "nu_eff" not in gaia.adql(FEATURES, zero_point=False)


def test_dr2_lacks_ruwe():
    with pytest.raises(ValueError, match="DR2 has no column ruwe"):
        gaia.adql(ASTROMETRY, "dr2", where="ruwe < 1.4")
    assert "gaiadr2.gaia_source" in gaia.adql(ASTROMETRY, gaia.DR2)
    with pytest.raises(ValueError, match="no Gaia release"):
        gaia.adql(ASTROMETRY, "dr9")


@pytest.mark.parametrize(
    ("where", "asked"),
    [
        ("ruwe < 1.4 & parallax > 0", "ruwe < 1.4 AND parallax > 0"),
        ("ruwe < 1.4 | parallax > 0", "(ruwe < 1.4 OR parallax > 0)"),
        ("ruwe < 1.4 and (parallax > 0 or pmra == 0)", "ruwe < 1.4 AND (parallax > 0 OR pmra = 0)"),
        ("0 < bp_rp <= 1.5", "0 < bp_rp AND bp_rp <= 1.5"),
        ("not (ruwe != 1)", "NOT (ruwe <> 1)"),
        ("~has_xp_continuous & phot_variable_flag == \"IT'S\"",
         "NOT (has_xp_continuous = 'true') AND phot_variable_flag = 'IT''S'"),
        ("isnan(radial_velocity) | isfinite(bp_rp)", "(radial_velocity IS NULL OR bp_rp IS NOT NULL)"),
        ("phot_bp_n_blended_transits / phot_bp_n_obs < 0.1", "1.0 * phot_bp_n_blended_transits / phot_bp_n_obs < 0.1"),
        ("(pmra - 4) ** 2 + hypot(pmdec, 3) < arctan2(2, pi) * -(1 - l)",
         "POWER(pmra - 4, 2) + SQRT(POWER(pmdec, 2) + POWER(3, 2)) < ATAN2(2, PI()) * (-(1 - l))"),
        ("`BP-RP` > 1", '"BP-RP" > 1'),
    ],
)  # fmt: skip
def test_conditions_are_those_of_open(where, asked):
    """Alternatives took the place of the circle, and chains and powers are not ADQL."""
    query = gaia.adql(["parallax"], rows=10, where=where)
    assert query.endswith(f"WHERE random_index < 10 AND {asked}")


@pytest.mark.parametrize(
    "where", ["parallax % 2 > 1", "where(ruwe > 1, 1, 2) > 1", "isnan(pmra + pmdec)", "ruwe < inf"]
)
def test_what_adql_does_not_know_is_refused(where):
    with pytest.raises(ValueError, match="ADQL does not know"):
        gaia.adql(["parallax"], where=where)


def test_zero_points_are_subtracted():
    columns = gaia_like(missing=False)
    fixed = open_catalog(columns, ["parallax"], offset={"parallax": gaia.zero_point("dr2")}).load().batch
    assert np.allclose(fixed.x[0], columns["parallax"].astype(float) + 0.029)
    by_magnitude = Hook(lambda phot_g_mean_mag: -0.001 * phot_g_mean_mag, ("phot_g_mean_mag",))
    moved = open_catalog(columns, ["parallax"], offset={"parallax": by_magnitude})
    assert "minus" in moved.describe()
    assert np.allclose(moved.load().batch.x[0], columns["parallax"] + 0.001 * columns["phot_g_mean_mag"])


def test_dr3_zero_point_needs_its_columns_and_its_package():
    hook = gaia.zero_point("dr3")
    with pytest.raises(ValueError, match="no column 'nu_eff_used_in_astrometry'"):
        open_catalog(gaia_like(), ["parallax"], offset={"parallax": hook})
    try:
        import zero_point  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="pip install gaiadr3-zeropoint"):
            hook.value(dict.fromkeys(hook.columns, np.zeros(3)))


def test_the_papers_text():
    columns = gaia_like()
    batch = open_catalog(columns, preset="paper-2019").load().batch
    assert batch.p == 7
    assert np.allclose(batch.covariance()[:, 6, 6], 1e-2)
    seen = ~np.isnan(columns["bp_rp"])
    assert np.allclose(batch.covariance()[seen, 5, 5], 1e-2)
    assert batch.x[5].isnan().any()
    plain = open_catalog(columns, FEATURES).load().batch
    assert np.allclose(batch.covariance()[:, :5, :5], plain.covariance()[:, :5, :5])


def test_the_papers_code():
    columns = gaia_like()
    batch = open_catalog(columns, preset="paper-2019-code").load().batch
    assert np.allclose(batch.noise[0], columns["ra_error"].astype(float) ** 2)
    assert np.allclose(batch.covariance()[:, 5, 5], 1e-4)
    assert (batch.x[5][np.isnan(columns["bp_rp"])] == 0).all()
    with pytest.raises(ValueError, match="no preset"):
        open_catalog(columns, preset="paper")


def test_errors_can_be_inflated():
    columns = gaia_like(missing=False)
    a = open_catalog(columns, FEATURES).load().batch.covariance()
    b = open_catalog(columns, FEATURES, inflate={"parallax": 2, "bp_rp": 3}).load().batch.covariance()
    assert np.allclose(b[:, 2, 2], 4 * a[:, 2, 2])
    assert np.allclose(b[:, 0, 2], 2 * a[:, 0, 2])
    assert np.allclose(b[:, 5, 5], 9 * a[:, 5, 5])


def test_filling_costs_a_constant():
    assert gaia.filled(0.0, 1.0) == pytest.approx(-14.73, abs=0.01)
