"""The command bootstrap: standard errors that are those of theory, of the rows of the fit."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xdeconv as xd

ROWS, SD = 2000, 0.5


@pytest.fixture
def here(tmp_path, monkeypatch):
    """One Gaussian of unit width with noise, and a flag of rows that count."""
    rng = np.random.default_rng(0)
    good = rng.uniform(size=ROWS) < 0.5
    x = np.where(good, rng.normal(0, np.hypot(1, SD), ROWS), 100.0)
    pq.write_table(pa.table({"x": x, "x_error": np.full(ROWS, SD), "good": good}), tmp_path / "rows.parquet")
    monkeypatch.chdir(tmp_path)
    return int(good.sum())


@pytest.mark.slow
def test_errors_are_those_of_theory(here, call):
    fitted = ("fit", "rows.parquet", "-c", "x", "-k", "1", "--where", "good", "-o", "m.safetensors")
    assert call(*fitted)[0] == 0
    code, out, err = call("bootstrap", "m.safetensors", "rows.parquet", "--draws", "60", "-o", "draws.parquet")
    assert code == 0, err
    assert "rows where good, as in the fit" in err
    assert out.splitlines()[0] == "60 draws"
    assert "1.000 +- 0" not in out
    draws = pq.read_table("draws.parquet")
    assert draws.column_names == ["draw", "component", "weight", "mean_x", "cov_x_x"]
    assert draws.num_rows == 60
    variance = 1 + SD**2
    assert np.std(draws["mean_x"].to_numpy()) == pytest.approx(np.sqrt(variance / here), rel=0.25)
    assert np.std(draws["cov_x_x"].to_numpy()) == pytest.approx(variance * np.sqrt(2 / here), rel=0.25)


def test_a_file_is_read_as_the_fit_read_it(here):
    mixture = xd.fit(xd.open("rows.parquet", ["x"], where="good"), 1).mixture
    rows = xd.open("rows.parquet", ["x"], where="good")
    found, again = (xd.bootstrap(data, mixture, draws=3).means for data in (rows, rows.load().batch))
    assert np.array_equal(found, again)
    assert not np.allclose(xd.bootstrap("rows.parquet", mixture, draws=3).means, found)  # the rows that are not good


@pytest.mark.slow
def test_the_weight_of_a_background_has_an_error_too(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(5, 0.3, 300), rng.uniform(0, 10, 300)])
    pq.write_table(pa.table({"x": x, "x_error": np.full(600, 0.1)}), "rows.parquet")
    assert call("fit", "rows.parquet", "-c", "x", "-k", "1", "--background", "x=0:10", "-o", "m.safetensors")[0] == 0
    code, out, err = call("bootstrap", "m.safetensors", "rows.parquet", "--draws", "20", "-o", "draws.csv")
    assert code == 0, err
    ((value, error),) = re.findall(r"^background: (\S+) \+- (\S+) of all rows$", out, re.MULTILINE)
    assert float(value) == pytest.approx(0.5, abs=0.1)
    assert 0.01 < float(error) < 0.05
    assert "background" in Path("draws.csv").read_text().splitlines()[0]
