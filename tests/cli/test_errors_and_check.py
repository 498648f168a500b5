"""The commands errors and check: what the library finds, printed, written and drawn."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import xdeconv as xd

N = 2000
TRUTH = xd.Mixture(
    [0.6, 0.4], [[-2.0, 0.0], [3.0, 1.0]], [[[0.5, 0.1], [0.1, 1.0]], np.diag([0.3, 0.5])], labels=["a", "b"]
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    noise = np.random.default_rng(1).uniform(0.1, 1.0, size=(N, 2)) ** 2
    X = TRUTH.sample(N, seed=0, noise=noise)
    columns = {"a": X[:, 0], "b": X[:, 1], "a_error": np.sqrt(noise[:, 0]), "b_error": np.sqrt(noise[:, 1]),
               "G": np.linspace(10, 20, N), "name": [f"star {i}" for i in range(N)],
               "survey": ["north", "south"] * (N // 2)}  # fmt: skip
    pq.write_table(pa.table(columns), "rows.parquet")
    pq.write_table(pa.table({**columns, "b_error": columns["b_error"] / 1.5}), "wrong.parquet")
    xd.fit(xd.open("rows.parquet", ["a", "b"]), mixture=TRUTH).mixture.save("m.safetensors")
    return tmp_path


def test_errors_are_printed_written_and_drawn(folder, call):
    pytest.importorskip("matplotlib")
    code, out, err = call("errors", "m.safetensors", "rows.parquet", "-o", "e.csv", "--picture", "bands.png")
    assert code == 0, err
    mixture = xd.load("m.safetensors")
    found = xd.errors(xd.open("rows.parquet", ["a", "b"]), mixture)
    assert out.splitlines()[0].split() == ["component", "weight", "mean", "of", "a", "mean", "of", "b"]
    assert f"{found.means[0, 0]:.3f}" in out
    table = pa.csv.read_csv("e.csv").to_pydict()
    np.testing.assert_allclose(table["mean_a_error"], found.means[:, 0], rtol=1e-6)
    np.testing.assert_allclose(table["cov_a_b_error"], found.covariances[:, 0, 1], rtol=1e-6)
    assert (folder / "bands.png").stat().st_size > 5000
    assert call("errors", "m.safetensors", "rows.parquet", "--picture", "bands.txt")[0] == 2


def test_what_rows_leave_undetermined_is_said_once(folder, call, caplog):
    """On a terminal each note stood there twice: on standard error, and below the table."""
    fitted = xd.load("m.safetensors")
    again = [0, 1, 1]
    fitted.with_(weights=[0.6, 0.2, 0.2], means=fitted.means[again], covariances=fitted.covariances[again]).save(
        "twins.safetensors"
    )
    code, out, err = call("errors", "twins.safetensors", "rows.parquet")
    assert code == 0, err
    assert "the rows leave undetermined the mean of component 1" in caplog.text
    assert "undetermined" not in out + err


@pytest.mark.slow
def test_check_prints_one_verdict_per_coordinate(folder, call):
    code, out, err = call("check", "m.safetensors", "rows.parquet", "--bins", "2")
    assert code == 0, err
    verdicts = [line for line in out.splitlines() if not line.startswith(" ")]
    assert [line.split(" (")[0] for line in verdicts] == [f"{c}: errors and model are right" for c in "ab"]
    code, out, _ = call("check", "m.safetensors", "wrong.parquet", "--by", "G", "--bins", "3")
    assert code == 0
    assert "b: errors are too small by about a factor of 1." in out
    assert sum(line.startswith("    G ") for line in out.splitlines()) == 6
    assert call("check", "m.safetensors", "rows.parquet", "--by", "H")[0] == 1
    code, _, err = call("check", "m.safetensors", "rows.parquet", "--by", "name")
    assert code == 1
    assert "2,000 different texts: at most 20" in err
    code, out, err = call("check", "m.safetensors", "rows.parquet", "--by", "survey")
    assert code == 0, err
    assert sum(line.startswith("    survey = north: 1,000 rows") for line in out.splitlines()) == 2


def test_check_of_what_other_values_predict(folder, call):
    code, out, err = call("check", "m.safetensors", "rows.parquet", "--predicted")
    assert code == 0, err
    verdicts = [line for line in out.splitlines() if not line.startswith(" ")]
    assert [line.split(" (")[0] for line in verdicts] == [f"{c}: errors and model are right" for c in "ab"]
    by = call("check", "m.safetensors", "rows.parquet", "--predicted", "--by", "G")
    assert by[0] == 0
    assert "    G " in by[1]
