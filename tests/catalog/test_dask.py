"""Catalogues in partitions: sums are made where the rows live, and a fit is that of the same rows in a file."""

import numpy as np
import pytest

import xdeconv as xd
from xdeconv.catalog.readers.dask import DaskTable
from xdeconv.catalog.stream import CatalogSource
from xdeconv.simulate import _gaia as simulate

dask = pytest.importorskip("dask")
COLUMNS = ["parallax", "pmra", "pmdec"]


@pytest.fixture(scope="module")
def stars():
    return simulate.gaia(3000, seed=4, missing=False).to_table()


@pytest.fixture
def frame(stars):
    import dask.dataframe as dd

    return dd.from_pandas(stars.to_pandas(), npartitions=5)


def close(one, other):
    return all(
        np.allclose(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-9)
        for name in ("weights", "means", "covariances")
    )


@pytest.mark.slow
def test_a_fit_equals_that_of_the_same_rows(stars, frame):
    first = xd.fit(stars, columns=COLUMNS, components=3, method=xd.EM(), epochs=1, device="cpu").mixture
    settings = {"mixture": first, "columns": COLUMNS, "method": xd.EM(), "epochs": 4, "tol": 0, "device": "cpu"}
    there, here = xd.fit(frame, cache="none", **settings), xd.fit(stars, **settings)
    assert close(there.mixture, here.mixture)
    assert abs(there.loglik - here.loglik) < 1e-10


@pytest.mark.slow
def test_no_pass_fetches_rows(frame, monkeypatch):
    source = xd.open(frame, columns=COLUMNS, where="ruwe < 1.1", memory=False)
    start = xd.fit(source, 2, method=xd.EM(), epochs=1, device="cpu").mixture
    held_out = source.split(0.2, 0)[0]
    drawn = held_out.sample(1000, 0)
    monkeypatch.setattr(CatalogSource, "sample", lambda self, size, seed: drawn)  # for the frame, once: not a pass
    monkeypatch.setattr(DaskTable, "read", lambda *args: pytest.fail("rows were fetched"))
    fit = xd.fit(held_out, mixture=start, method=xd.EM(), epochs=2, standardize=False, device="cpu")
    assert 0 < held_out.rows < source.rows < 3000
    assert fit.history[1].loglik > fit.history[0].loglik


@pytest.mark.slow
def test_defaults_with_moves_and_validation(frame):
    fit = xd.fit(frame, columns=COLUMNS, components=3, validation=0.2, epochs=6, cache="none", device="cpu")
    assert np.isfinite(fit.validation)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of LSDB, in making the catalogue
def test_lsdb(stars):
    lsdb = pytest.importorskip("lsdb")
    catalog = lsdb.from_dataframe(stars.to_pandas(), partition_rows=1000, ra_column="ra", dec_column="dec")
    found = xd.open(catalog, columns=COLUMNS)
    assert found.rows == 3000
    assert "lsdb catalogue" in found.describe()
    assert np.isfinite(xd.fit(catalog, columns=COLUMNS, components=2, epochs=2, cache="none", device="cpu").loglik)
