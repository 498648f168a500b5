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


@pytest.fixture
def cut(tmp_path, monkeypatch):
    """Two Gaussians of which only rows above 1.5 are left, and 30 % of a uniform background."""
    truth = xd.Mixture([0.7, 0.3], [[2.0], [6.0]], [[[0.4]], [[0.5]]], background=xd.Uniform([-5], [15]),
                       background_weight=0.3)  # fmt: skip
    error = np.full((2000, 1), 0.3)
    X = truth.sample(2000, 0, error=error)
    kept = X[:, 0] > 1.5
    pq.write_table(pa.table({"x": X[kept, 0], "x_error": error[kept, 0]}), tmp_path / "rows.parquet")
    monkeypatch.chdir(tmp_path)
    return X[kept], error[kept]


@pytest.mark.slow
def test_a_number_of_components_is_chosen_beside_what_fit_knows(cut, call):
    X, error = cut
    words = ("select", "rows.parquet", "-c", "x", "-k", "1,2", "--criterion", "bic", "--selection", "x > 1.5")
    code, out, err = call(*words, "--background", "x=-5:15", "--model", "best.safetensors")
    assert code == 0, err
    known = {"background": xd.Uniform([-5], [15]), "selection": xd.Cut("x", above=1.5)}
    expected = xd.select(X, [1, 2], "bic", error=error, labels=["x"], **known)
    told = [line.split()[:3] for line in out.strip().splitlines()]  # without seconds
    assert told == [line.split()[:3] for line in str(expected).splitlines()]
    told = call("info", "best.safetensors")[1]
    assert "selection: x > 1.5" in told
    assert "background:" in told
    code, _, err = call(*words, "--tails", "nu")
    assert code == 2
    assert "'nu' is neither fit nor a number of degrees of freedom from 0.5 to 1000" in err
    call("select", "rows.parquet", "-c", "x", "-k", "1", "--criterion", "bic", "--model", "one.safetensors")
    assert call("info", "one.safetensors")[1].startswith("mixture of 1 Gaussian in 1 dimension\n")
