"""Catalogues as sources: covariances by name and by choice, units, derived features, bad rows, order, hold-out."""

import logging
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import xdeconv as xd
from catalogues import ASTROMETRY, FEATURES, arrow_table, dense_noise, gaia_like
from xdeconv.catalog import stream
from xdeconv.catalog._open import open as open_catalog
from xdeconv.catalog.transforms import Differenced, Hook
from xdeconv.rows.data import Source
from xdeconv.rows.prefetch import prefetched
from xdeconv.system import threads as workers


def loaded(data, columns=FEATURES, **options):
    return open_catalog(data, columns, **options).load().batch


def plain(n=50, **more):
    rng = np.random.default_rng(1)
    table = {"x": rng.normal(size=n), "y": rng.normal(size=n)}
    table |= {"x_error": np.full(n, 0.1), "y_error": np.full(n, 0.2), "x_y_corr": np.full(n, 0.5)}
    return table | more


# Covariances


def test_errors_and_correlations_are_found_by_name():
    columns = gaia_like()
    batch = loaded(columns)
    assert np.allclose(batch.covariance(), dense_noise(columns), rtol=1e-12, atol=0)
    assert np.allclose(batch.x.T, np.stack([columns[c] for c in FEATURES], 1), equal_nan=True)
    assert batch.missing
    assert batch.x.dtype == torch.float64
    assert batch.x.is_contiguous()


def test_the_order_of_features_does_not_matter():
    columns = gaia_like(missing=False)
    flipped = loaded(columns, FEATURES[::-1]).covariance()
    assert np.allclose(flipped, dense_noise(columns)[:, ::-1, ::-1], rtol=1e-12, atol=0)


def test_correlations_are_found_in_either_order():
    table = plain()
    table["y_x_corr"] = table.pop("x_y_corr")
    assert np.allclose(loaded(table, ["x", "y"]).covariance()[:, 0, 1], 0.5 * 0.1 * 0.2)


def test_patterns_are_configurable():
    table = plain()
    table = {
        "x": table["x"],
        "y": table["y"],
        "e_x": table["x_error"],
        "e_y": table["y_error"],
        "xyCor": table["x_y_corr"],
    }
    S = loaded(table, ["x", "y"], error_pattern="e_{name}", correlation_pattern="{a}{b}Cor").covariance()
    assert np.allclose(S[0], [[0.01, 0.01], [0.01, 0.04]])


def test_a_correlation_may_be_said_not_to_be():
    table = plain(x_y_corr=np.full(50, 0.5))
    assert loaded(table, ["x", "y"]).full
    source = open_catalog(table, ["x", "y"], correlation={("y", "x"): None})
    assert source.recipe.kind == "diagonal"
    assert source.opening()["correlation"] == {"y,x": None}
    with pytest.raises(ValueError, match="not two features with errors"):
        open_catalog(table, ["x", "y"], correlation={("x", "z"): None})


def test_a_source_shows_itself_as_what_was_found():
    source = open_catalog(plain(), ["x"], where="x > 0")
    assert repr(source) == source.describe()
    assert len(repr(source)) < 200


def test_given_errors():
    table = plain(sigma=np.full(50, 0.3))
    given = {"x": "sigma", "y": "2 * y_error"}
    assert np.allclose(loaded(table, ["x", "y"], error=given).noise[[0, 2], 0], [0.09, 0.16])
    S = loaded(table, ["x", "y"], error=given, correlation={("y", "x"): 0.0}).covariance()
    assert np.allclose(S[0], np.diag([0.09, 0.16]))
    doubled = Hook(lambda sigma: 2 * sigma, ("sigma",))
    assert np.allclose(loaded(table, ["x"], error={"x": doubled}).noise[0], 0.36)
    assert np.allclose(loaded(table, ["x"], inflate={"x": "1 + sigma"}).noise[0], 0.13**2)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
def test_values_that_stand_for_missing_ones(dtype):
    value = -999 if dtype == "int32" else 99.999
    table = {"x": np.array([1, value, 3], dtype), "x_error": np.array([0.1, -1.0, 0.1])}
    source = open_catalog(table, ["x", "double"], derive={"double": "2 * x"}, missing={"x": value}, where="x != 3")
    np.testing.assert_array_equal(source.load().batch.x, [[1, np.nan], [2, np.nan]])
    assert f"{value} -> missing; sd x_error" in source.describe()
    with pytest.raises(ValueError, match="missing must be the number"):
        open_catalog(table, ["x"], missing={"x": "NA"})
    with pytest.raises(ValueError, match="missing is given for"):
        open_catalog(table, ["x"], missing={"y": value})


def test_kinds_of_noise():
    table = plain()
    assert loaded(table, ["x", "y"]).full
    del table["x_y_corr"]
    assert loaded(table, ["x", "y"]).noise.shape == (2, 50)
    assert loaded(table, ["x", "y"], error={"x": 0.1, "y": 0.2}).noise.flatten().tolist() == [0.1**2, 0.2**2]
    assert loaded(table, ["x", "y"], error={"x": None, "y": None}).noise is None
    assert loaded(table, ["x", "y"], error={"x": None}).noise[:, 0].tolist() == [0.0, 0.2**2]


def test_colours_share_their_bands():
    columns = gaia_like(missing=False)
    columns["g_rp"], columns["bp_g"] = columns["bp_rp"], columns["bp_rp"]
    S = loaded(columns, ["bp_rp", "g_rp", "phot_g_mean_mag", "bp_g"]).covariance()
    per = 2.5 / np.log(10)
    g, bp, rp = ((per / columns[f"phot_{b}_mean_flux_over_error"].astype(float)) ** 2 for b in ("g", "bp", "rp"))
    assert np.allclose(S[:, 0, 1], rp)
    assert np.allclose(S[:, 1, 2], g)
    assert np.allclose(S[:, 0, 3], bp)
    assert np.allclose(S[:, 2, 3], -g)
    assert np.allclose(S[:, 0, 0], bp + rp)


def test_missing_is_missing_however_it_is_written():
    columns = gaia_like()
    nulls, nans = loaded(arrow_table(columns)), loaded(arrow_table(columns, nulls=False))
    assert torch.equal(nulls.x.isnan(), nans.x.isnan())
    assert torch.equal(nulls.noise, nans.noise)
    assert nulls.noise.isfinite().all()


# What is said


def test_the_description_tells_where_noise_comes_from():
    with pytest.warns(xd.NoNoiseWarning, match="no error column was found for z in array in memory"):
        source = open_catalog(plain(z=np.zeros(50)), ["x", "z"])
    assert "sd x_error" in source.describe()
    assert "z  -        NO NOISE" in source.describe()
    assert source.unexplained == ("z",)
    assert source.notes[0].startswith("NO NOISE: no error column was found for z")
    meant = open_catalog(plain(z=np.zeros(50)), ["x", "z"], error={"z": None})
    assert (meant.unexplained, meant.notes) == ((), ())
    assert "z  -        no noise: values are taken as exact, as was said" in meant.describe()
    text = open_catalog(gaia_like(), FEATURES).describe()
    assert "Gaia names" in text
    assert "mas -> deg, of ra cos dec" in text
    assert "correlated with ra, parallax" in text


def test_unknown_columns_list_the_nearest():
    with pytest.raises(ValueError, match=r"no column 'paralax': did you mean parallax"):
        open_catalog(gaia_like(), ["paralax"])
    with pytest.raises(ValueError, match=r"'rume'.*did you mean ruwe"):
        open_catalog(gaia_like(), FEATURES, where="rume < 1")
    with pytest.raises(ValueError, match="named twice"):
        open_catalog(plain(), ["x", "x"])
    with pytest.raises(ValueError, match="name the columns to fit"):
        open_catalog(plain())
    with pytest.raises(ValueError, match="not a column that a feature uses"):
        open_catalog(plain(), ["x"], error={"y": 0.1})


# Units


def positions(**more):
    rng = np.random.default_rng(0)
    return {"ra": rng.uniform(10, 20, 9), "dec": rng.uniform(50, 60, 9), "ra_error": np.full(9, 2.0),
            "dec_error": np.full(9, 2.0)} | more  # fmt: skip


def test_positions_with_errors_of_unknown_unit_are_refused():
    with pytest.raises(ValueError, match=r"unit of ra_error is not known.*--unit ra_error=mas"):
        open_catalog(positions(), ["ra", "dec"])
    with pytest.raises(ValueError, match="unit of dec_error"):
        open_catalog(positions(), ["dec"])


def test_units_by_word_convert():
    table = positions()
    unit = {"ra": "deg", "dec": "deg", "ra_error": "arcsec", "dec_error": "mas"}
    sd = loaded(table, ["ra", "dec"], unit=unit).noise.sqrt()
    assert np.allclose(sd[0], 2 / 3600 / np.cos(np.radians(table["dec"])))
    assert np.allclose(sd[1], 2 / 3.6e6)
    assert np.allclose(loaded(table, ["ra"], unit=unit, cos_dec=False).noise.sqrt(), 2 / 3600)


def test_units_of_the_file_convert(tmp_path):
    from astropy.table import Table

    table = Table(positions())
    for name, unit in {"ra": "deg", "dec": "deg", "ra_error": "mas", "dec_error": "mas"}.items():
        table[name].unit = unit
    table.write(tmp_path / "rows.fits")
    source = open_catalog(tmp_path / "rows.fits", ["ra", "dec"])
    assert source.units == ("deg", "deg")
    assert np.allclose(source.load().batch.noise[1].sqrt(), 2 / 3.6e6)


def test_units_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="cannot be turned into"):
        open_catalog(plain(), ["x"], unit={"x": "mag", "x_error": "km/s"})


def test_plain_ra_that_wraps_or_nears_a_pole_is_warned_of(caplog):
    table = positions(bt_mag=np.zeros(9), vt_mag=np.zeros(9), pmra=np.zeros(9))
    table["ra"][:2] = 1.0, 359.0
    table["dec"][3] = 89.0
    with caplog.at_level(logging.WARNING):
        source = open_catalog(table, ["ra", "dec"])
        source.load()
        source.load()
    assert sum("straddles 0/360" in m for m in caplog.messages) == 1
    assert sum("near a pole" in m for m in caplog.messages) == 1


# Derived features


@pytest.mark.slow
def test_derived_features_carry_every_cross_term():
    """J C J^T against a Monte Carlo of the raw columns for features that share their inputs."""
    n = 3
    rng = np.random.default_rng(2)
    table = {"f": np.array([5.0, -0.2, 3.0]), "g": np.array([4.0, 6.0, 2.0]), "h": np.array([1.0, 2.0, 3.0])}
    table |= {f"{name}_error": np.full(n, 1e-4) for name in "fgh"} | {"f_g_corr": np.array([0.3, -0.5, 0.9])}
    made = {"ratio": "f / g", "sum": "f + 2 * g", "power": "f * 10 ** (0.2 * h - 2)"}
    batch = loaded(table, ["ratio", "sum", "power", "h"], derive=made)
    for i in range(n):
        C = np.eye(3) * 1e-8
        C[0, 1] = C[1, 0] = table["f_g_corr"][i] * 1e-8
        f, g, h = rng.multivariate_normal([table[name][i] for name in "fgh"], C, size=400_000).T
        drawn = np.cov(np.stack([f / g, f + 2 * g, f * 10 ** (0.2 * h - 2), h]))
        size = np.sqrt(np.diag(drawn))
        assert np.allclose(
            batch.covariance()[i].numpy() / np.outer(size, size), drawn / np.outer(size, size), atol=0.01
        )


def test_luminosity_against_magnitude():
    columns = gaia_like(missing=False)
    batch = loaded(columns, ["L", "phot_g_mean_mag"], derive={"L": "parallax * 10 ** (0.2 * phot_g_mean_mag - 2)"})
    c = {name: v.astype(float) for name, v in columns.items()}
    factor, variance = (
        10 ** (0.2 * c["phot_g_mean_mag"] - 2),
        (2.5 / np.log(10) / c["phot_g_mean_flux_over_error"]) ** 2,
    )
    slope = c["parallax"] * factor * 0.2 * np.log(10)
    assert np.allclose(batch.noise[0], (factor * c["parallax_error"]) ** 2 + slope**2 * variance)
    assert np.allclose(batch.noise[1], slope * variance)


def test_a_users_function():
    table = plain()
    made = Differenced(lambda x, y: (x * y, x - y), ("x", "y"), ("product", "difference"), ("", ""))
    found = loaded(table, ["product", "difference"], derive=made)
    exact = loaded(table, ["product", "difference"], derive={"product": "x * y", "difference": "x - y"})
    assert np.allclose(found.noise, exact.noise, rtol=1e-7)


def test_a_derived_feature_is_missing_when_an_input_is():
    columns = gaia_like()
    batch = loaded(columns, ["L", "ra"], derive={"L": "parallax * 2"})
    assert (batch.x[0].isnan().numpy() == np.isnan(columns["parallax"])).all()
    assert (batch.noise[:2, batch.x[0].isnan()] == 0).all()


def test_a_feature_that_is_not_defined_is_refused():
    table = plain()
    table["x"][7] = -1.0
    table["x"][:7] = 1.0
    with pytest.raises(ValueError, match="row 7: log_x is not defined"):
        loaded(table, ["log_x"], derive={"log_x": "log(x)"})


# Rows


def test_row_filter():
    columns = gaia_like()
    batch = loaded(columns, where="ruwe < 1 and parallax > 1")
    with np.errstate(invalid="ignore"):
        keep = (columns["ruwe"] < 1) & (columns["parallax"] > 1)
    assert batch.n == keep.sum()
    assert np.allclose(batch.x[0], columns["ra"][keep])
    with pytest.raises(ValueError, match="no rows where ruwe > 99"):
        loaded(columns, where="ruwe > 99")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [("parallax_error", -1.0, "parallax_error is negative"),
     ("pmra_error", np.nan, "pmra_error is missing or infinite although pmra is observed"),
     ("ra_dec_corr", 1.5, "ra_dec_corr is not a correlation"),
     ("ra_dec_corr", np.nan, "ra_dec_corr is not a correlation"),
     ("parallax", np.inf, "parallax is infinite"),
     ("phot_g_mean_flux_over_error", -3.0, "phot_g_mean_flux_over_error is negative"),
     ("phot_g_mean_flux_over_error", 0.0, "phot_g_mean_flux_over_error is missing or infinite")],
)  # fmt: skip
def test_impossible_rows_are_refused_or_dropped(column, value, message, tmp_path):
    columns = gaia_like(300, missing=False)
    columns[column][217] = value
    path = tmp_path / "rows.parquet"
    pq.write_table(arrow_table(columns, nulls=False), path, row_group_size=100)
    with pytest.raises(ValueError, match=rf"rows\.parquet, row 217 in row group 2: {message}"):
        loaded(path)
    source = open_catalog(path, FEATURES, bad_rows="drop", memory=False)
    assert source.rows == 299
    assert sum(b.n for b in source.batches(0)) == 299
    assert source.notes == ("1 rows with impossible errors were dropped",)


def test_correlations_that_contradict_each_other_are_refused():
    columns = gaia_like(30, missing=False)
    columns["ra_dec_corr"][4], columns["ra_parallax_corr"][4], columns["dec_parallax_corr"][4] = 0.95, 0.95, -0.95
    with pytest.raises(ValueError, match="row 4: errors have correlations that no covariance can have"):
        loaded(columns)
    assert loaded(columns, bad_rows="drop").n == 29


def test_weights():
    table = plain(w=np.arange(50.0))
    assert loaded(table, ["x"], weight="w").weight.tolist() == list(range(50))
    table["w"][3] = -1
    with pytest.raises(ValueError, match="row 3: w is not a weight"):
        loaded(table, ["x"], weight="w")


# The source


@pytest.fixture
def streamed(tmp_path, monkeypatch):
    """A source of many small pieces, with a pool much smaller than the table."""
    monkeypatch.setattr(stream, "POOL_ROWS", 256)
    pq.write_table(arrow_table(gaia_like(1000)), tmp_path / "rows.parquet", row_group_size=64)
    return open_catalog(tmp_path / "rows.parquet", FEATURES, memory=False)


def ids(batches):
    return np.concatenate([b.x[0].numpy() for b in batches])


def test_it_is_a_source(streamed):
    assert isinstance(streamed, Source)
    assert (streamed.rows, streamed.dim, streamed.labels) == (1000, 7, tuple(FEATURES))
    assert streamed.units == ("deg", "deg", "mas", "mas/yr", "mas/yr", "mag", "mag")


def test_order_is_a_pure_function_of_seed_and_epoch(streamed, caplog):
    shuffled = streamed.arranged(32, seed=3)
    with caplog.at_level(logging.WARNING):
        first = ids(shuffled.batches(0))
    assert any("shuffle" in m or "pool" in m for m in caplog.messages)
    assert (first == ids(shuffled.batches(0))).all()
    assert (first != ids(shuffled.batches(1))).any()
    assert (first != ids(streamed.arranged(32, seed=4).batches(0))).any()
    assert sorted(first) == sorted(gaia_like(1000)["ra"])
    sizes = [b.n for b in shuffled.batches(0)]
    assert set(sizes[:-1]) == {32}
    assert sum(sizes) == 1000
    assert (ids(streamed.batches(5)) == gaia_like(1000)["ra"]).all()


def test_pools_mix_pieces(streamed):
    """A batch of rows that come sorted must not come from one piece."""
    order = np.argsort(gaia_like(1000)["ra"])
    places = {ra: i for i, ra in enumerate(gaia_like(1000)["ra"])}
    first = next(iter(streamed.arranged(64, 0).batches(0)))
    pieces = {places[ra] // 64 for ra in first.x[0].tolist()}
    assert len(order) == 1000
    assert len(pieces) >= 3


@pytest.mark.parametrize("world", [2, 3, 16])
@pytest.mark.parametrize("batch_rows", [None, 32])
def test_ranks_get_disjoint_parts(streamed, world, batch_rows):
    source = streamed.arranged(batch_rows, 1)
    parts = [ids(source.batches(2, rank=r, world=world)) for r in range(world)]
    assert sorted(np.concatenate(parts)) == sorted(gaia_like(1000)["ra"])


def test_hold_out_is_fair_disjoint_and_complete(streamed):
    train, held = streamed.split(0.2, seed=1)
    a, b = ids(train.batches(0)), ids(held.batches(0))
    assert sorted([*a, *b]) == sorted(gaia_like(1000)["ra"])
    assert train.rows == len(a)
    assert held.rows == len(b)
    assert 150 < len(b) < 250
    assert (ids(streamed.split(0.2, seed=1)[1].batches(0)) == b).all()
    assert (ids(streamed.split(0.2, seed=2)[1].batches(0))[:50] != b[:50]).any()


def test_samples(streamed):
    sample = streamed.sample(100, seed=0)
    assert sample.n == 100
    assert len(set(sample.x[0].tolist())) == 100
    assert torch.equal(sample.x, streamed.sample(100, seed=0).x) or sample.missing
    assert streamed.sample(5000, seed=0).n == 1000


def test_standardised_at_once_or_afterwards(streamed):
    shift, scale = torch.arange(7.0).double(), torch.arange(1.0, 8.0).double()
    direct = next(iter(streamed.standardized(shift, scale, torch.device("cpu"), torch.float64).batches(0)))
    later = next(iter(streamed.batches(0))).standardized(shift, scale)
    assert np.allclose(direct.x, later.x, equal_nan=True)
    assert np.allclose(direct.noise, later.noise, rtol=1e-12)
    assert torch.equal(direct.scale, later.scale)


def test_small_sources_are_held_in_memory(streamed):
    assert isinstance(open_catalog(gaia_like(), FEATURES).held(), xd.data.ArraySource)
    assert streamed.held() is streamed


def test_a_streamed_fit_is_the_fit_in_memory(streamed):
    options = {"components": 3, "epochs": 4, "seed": 1, "start": "random", "validation": None, "tol": 0}
    mixture = xd.fit(streamed.load(), **options).mixture
    started = xd.Mixture(mixture.weights, mixture.means, mixture.covariances, mixture.labels)
    options |= {"components": None, "mixture": started, "standardize": False}
    a, b = xd.fit(streamed.load(), **options), xd.fit(streamed, **options)
    assert np.allclose(a.mixture.means, b.mixture.means, rtol=1e-9)
    assert a.loglik == pytest.approx(b.loglik, rel=1e-12)
    assert b.mixture.labels == tuple(FEATURES)


@pytest.mark.slow
def test_a_streamed_fit_repeats(streamed):
    options = {"components": 3, "epochs": 2, "seed": 1, "batch_rows": 100, "method": xd.EM(step=0.1), "validation": 0.2}
    a, b = xd.fit(streamed, **options), xd.fit(streamed, **options)
    assert (a.mixture.means == b.mixture.means).all()
    assert a.validation == b.validation


# The reader thread


def readers_at_work():
    alive = [t for t in threading.enumerate() if t.name == "xdeconv reader" and t.is_alive()]
    return len(alive) - len(workers._idle["reader"])


def test_closing_stops_the_reader(streamed):
    batches = streamed.arranged(16, 0).batches(0)
    next(batches)
    assert readers_at_work()
    batches.close()
    assert not readers_at_work()


def test_exceptions_of_the_reader_arrive():
    def broken():
        yield 1
        raise OSError("disk")

    items = prefetched(broken())
    assert next(items) == 1
    with pytest.raises(OSError, match="disk"):
        next(items)
    assert not readers_at_work()


def test_the_reader_stays_ahead_only_a_little():
    made = []
    items = prefetched((made.append(i) or i for i in range(100)), ahead=2)
    next(items)
    threading.Event().wait(0.2)
    assert len(made) <= 5
    items.close()


def test_astrometry_alone():
    assert loaded(gaia_like(), ASTROMETRY).noise.shape == (15, 500)


def test_samples_of_rows_held_out_of_many_pieces_and_of_the_rest(tmp_path):
    columns = {"x": np.arange(40_000.0), "x_error": np.full(40_000, 0.1)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=1000)
    source = open_catalog(tmp_path / "a.parquet", ["x"], memory=False)
    for seed in (0, 1, 2):
        for part in source.split(0.2, 0):
            sample = part.sample(500, seed)
            assert sample.n == 500
            assert abs(float(sample.x.mean()) / 20_000 - 1) < 0.15
    train, held = source.split(0.2, 0)
    both = [set(part.sample(500, 0).x[0].tolist()) for part in (train, held)]
    assert not both[0] & both[1]


def test_a_sample_of_very_many_small_files_has_rows(tmp_path):
    for i in range(80):
        pq.write_table(arrow_table(gaia_like(5, seed=i)), tmp_path / f"part{i}.parquet")
    source = open_catalog(str(tmp_path / "*.parquet"), ["pmra", "pmdec"], memory=False)
    assert source.sample(1000, seed=0).n == 400
    assert 80 <= source.sample(100, seed=0).n <= 100
