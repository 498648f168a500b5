"""Columns of log-priors, one per component."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xdeconv as xd
from xdeconv.catalog._open import open as open_catalog

RNG = np.random.default_rng(0)
N = 500


def table():
    x = np.concatenate([RNG.normal(-2, 1, N // 2), RNG.normal(2, 1, N // 2)])
    prior = np.log(RNG.dirichlet([2, 2], size=N))
    prior[:20] = [0, -np.inf]
    return {"x": x, "x_error": np.full(N, 0.3), "first": prior[:, 0], "second": prior[:, 1]}


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("batch_rows", [None, 100])
def test_a_fit_of_a_table_is_that_of_arrays(memory, batch_rows, tmp_path):
    columns = table()
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    prior = np.stack([columns["first"], columns["second"]], 1)
    source = open_catalog(tmp_path / "rows.parquet", ["x"], log_prior=["first", "second"], memory=memory)
    start = xd.Mixture([0.5, 0.5], [[-1.0], [1.0]], [[[1.0]], [[1.0]]], labels=["x"])
    options = {"mixture": start, "epochs": 4, "tol": 0, "method": xd.EM(), "seed": 1}
    if batch_rows:
        found = xd.fit(source, **options, batch_rows=batch_rows)
        assert found.mixture.means[0, 0] < found.mixture.means[1, 0]
        return
    a = xd.fit(source, **options)
    b = xd.fit(columns["x"][:, None], error=columns["x_error"][:, None], log_prior=prior, **options)
    assert a.loglik == pytest.approx(b.loglik, rel=1e-12)
    assert np.allclose(a.mixture.means, b.mixture.means, rtol=1e-10)
    without = xd.fit(open_catalog(columns, ["x"]), **options)
    assert abs(without.loglik - a.loglik) > 1e-3


def test_impossible_priors_are_refused():
    columns = table()
    columns["first"][7] = np.nan
    with pytest.raises(ValueError, match="row 7: first is not a log-prior"):
        open_catalog(columns, ["x"], log_prior=["first", "second"]).load()
    columns["first"][7] = columns["second"][7] = -np.inf
    with pytest.raises(ValueError, match="row 7: first, second are -inf for every component"):
        open_catalog(columns, ["x"], log_prior=["first", "second"]).load()
    with pytest.raises(ValueError, match="no column 'third'"):
        open_catalog(columns, ["x"], log_prior=["first", "third"])


def test_splits_and_samples_keep_their_priors():
    columns = table()
    source = open_catalog(columns, ["x"], log_prior=["first", "second"], memory=False)
    sample = source.sample(50, 0)
    assert sample.log_prior.shape == (50, 2)
    by_value = dict(zip(columns["x"], columns["first"], strict=True))
    assert all(by_value[x] == p for x, p in zip(sample.x[0].tolist(), sample.log_prior[:, 0].tolist(), strict=True))
    train, held = source.split(0.2, 0)
    assert sum(b.log_prior.shape[0] for b in train.batches(0)) == train.rows
    assert held.load().batch.log_prior.shape == (held.rows, 2)
