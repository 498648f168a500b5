"""Reading rows: every command has the same options for it, and a model reads other rows as its own were read."""

import inspect
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xdeconv as xd
from xdeconv.catalog import remembering

ROWS = 300


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Rows of x and y whose errors, correlations and log-priors have names of their own."""
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=ROWS) for name in ("x", "y")}
    columns |= {f"sd_{name}": rng.uniform(0.1, 0.5, ROWS) for name in ("x", "y")}
    columns |= {"r_x_y": rng.uniform(-0.9, 0.9, ROWS), "p0": np.zeros(ROWS), "p1": np.where(columns["x"] > 0, -9.0, 0)}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


NAMED = ("--error-pattern", "sd_{name}", "--correlation-pattern", "r_{a}_{b}")
FIT = ("fit", "rows.parquet", "-c", "x,y", "-k", "2", "--epochs", "2", "-o", "m.safetensors")


def test_a_model_of_the_command_is_asked_as_its_rows_were_read(here, call):
    assert call(*FIT, *NAMED)[0] == 0
    model = xd.load("m.safetensors")
    assert model.meta["open"] == {
        "columns": ["x", "y"],
        "error_pattern": "sd_{name}",
        "correlation_pattern": "r_{a}_{b}",
    }
    rows = xd.open("rows.parquet", ["x", "y"], error_pattern="sd_{name}", correlation_pattern="r_{a}_{b}")
    assert rows.recipe.kind == "full"
    code, out, err = call("score", "m.safetensors", "rows.parquet")
    assert (code, float(out)) == (0, pytest.approx(model.score(rows), abs=1e-6)), err
    assert model.score("rows.parquet") == pytest.approx(model.score(rows))
    assert call("posterior", "m.safetensors", "rows.parquet", "-o", "p.parquet")[0] == 0
    np.testing.assert_allclose(pq.read_table("p.parquet")["x_true"].to_numpy(), model.posterior(rows).mean()[:, 0])
    assert call("members", "m.safetensors", "rows.parquet", "-o", "r.parquet")[0] == 0
    np.testing.assert_allclose(pq.read_table("r.parquet")["p_0"].to_numpy(), model.responsibilities(rows)[:, 0])


def test_correlations_are_said_by_column_or_number(here, call):
    errors = ("--error", "x=sd_x", "--error", "y=sd_y")
    assert call(*FIT, *errors, "--correlation", "x,y=0.25")[0] == 0
    model = xd.load("m.safetensors")
    assert model.meta["open"]["correlation"] == {"x,y": 0.25}
    told = {"error": {"x": "sd_x", "y": "sd_y"}}
    for word in (0.25, "r_x_y"):
        rows = xd.open("rows.parquet", ["x", "y"], **told, correlation={("x", "y"): word})
        code, out, _ = call("score", "m.safetensors", "rows.parquet", "--correlation", f"x,y={word}")
        assert (code, float(out)) == (0, pytest.approx(model.score(rows), abs=1e-6))


@pytest.mark.parametrize("more", [(), ("--stream",)])
def test_log_priors_name_components(here, call, more):
    words = (*FIT, *NAMED, "--log-prior", "p0,p1", *more)
    assert call(*words)[0] == 0
    assert xd.load("m.safetensors").meta["open"]["log_prior"] == ["p0", "p1"]
    code, _, err = call(*words, "--moves", "auto")
    assert code == 1
    assert "log_prior" in err
    assert call("members", "m.safetensors", "rows.parquet", "-o", "r.parquet")[0] == 0
    away = pq.read_table("r.parquet")["p_1"].to_numpy()[pq.read_table("rows.parquet")["x"].to_numpy() > 0]
    assert away.max() < 0.05


def test_rows_without_log_priors_are_asked_about_all_the_same(here, call):
    """As the unlabelled rows are that a fit to labelled ones is for."""
    assert call(*FIT, *NAMED, "--log-prior", "p0,p1")[0] == 0
    pq.write_table(pq.read_table("rows.parquet").drop_columns(["p0", "p1"]), "other.parquet")
    code, _, err = call("members", "m.safetensors", "other.parquet", "-o", "r.parquet")
    assert code == 1
    assert "no column 'p0'" in err
    assert "--log-prior none" in err
    assert call("members", "m.safetensors", "other.parquet", "--log-prior", "none", "-o", "r.parquet")[0] == 0
    told = {"error_pattern": "sd_{name}", "correlation_pattern": "r_{a}_{b}"}
    right = xd.load("m.safetensors").responsibilities(xd.open("rows.parquet", ["x", "y"], **told))
    np.testing.assert_allclose(pq.read_table("r.parquet")["p_0"].to_numpy(), right[:, 0])
    assert call("prepare", "rows.parquet", "store", "-c", "x,y", *NAMED, "--log-prior", "p0,p1")[0] == 0
    assert call("fit", "store", "-k", "2", "--epochs", "2", "--log-prior", "none", "-o", "n.safetensors")[0] == 0
    assert "log_prior" not in xd.load("n.safetensors").meta["open"]


def test_a_store_remembers_the_options(here, call):
    assert call("prepare", "rows.parquet", "store", "-c", "x,y", *NAMED)[0] == 0
    assert call(*FIT, *NAMED)[0] == 0
    by_file = xd.load("m.safetensors")
    assert call("score", "m.safetensors", "store")[1] == call("score", "m.safetensors", "rows.parquet")[1]
    assert xd.open("store").opening()["error_pattern"] == "sd_{name}"
    assert by_file.score("store") == pytest.approx(by_file.score("rows.parquet"))
    code, _, err = call("prepare", "rows.parquet", "other", *NAMED)
    assert code == 1  # what would say nothing is not ignored
    assert "name the columns" in err


def test_a_store_of_the_command_remembers_zero_points_factors_and_weights(here, call):
    more = ("--offset", "x=0.1 * p0", "--inflate", "y=2", "--weight", "r_x_y", "--missing", "y=-999")
    table = pq.read_table("rows.parquet")
    table = table.set_column(table.column_names.index("r_x_y"), "r_x_y", [np.linspace(0.1, 0.9, ROWS)])
    pq.write_table(table, "rows.parquet")
    assert call("prepare", "rows.parquet", "store", "-c", "x,y", "--error-pattern", "sd_{name}", *more)[0] == 0
    right = xd.open("rows.parquet", ["x", "y"], error_pattern="sd_{name}", offset={"x": "0.1 * p0"}, inflate={"y": 2.0},
                    weight="r_x_y", missing={"y": -999})  # fmt: skip
    assert xd.open("store").recipe == right.recipe


def test_an_error_of_plain_ra_can_be_said(here, call):
    sky = {"ra": [1.0, 2.0, 3.0], "dec": [60.0, 60.0, 60.0], "ra_error": [36.0] * 3, "dec_error": [36.0] * 3}
    pq.write_table(pa.table(sky), "sky.parquet")
    for word, sd in (("--cos-dec", 2e-5), ("--no-cos-dec", 1e-5)):
        code, _, err = call("prepare", "sky.parquet", f"store{word}", "-c", "ra", "--unit", "ra_error=mas", word)
        assert code == 0, err
        np.testing.assert_allclose(xd.open(f"store{word}").load().batch.noise.numpy(), sd**2)


def test_what_looks_like_an_error_is_offered_where_none_was_found(here, call):
    code, _, err = call(*FIT[:4], "-k", "1", "-o", "m.safetensors")
    assert code == 1
    assert "no errors were found for x, y: name them, such as --error x=COLUMN or =NUMBER, or say" in err
    table = pq.read_table("rows.parquet").rename_columns(["x", "y", "sigma_x", "ivar_y", "r", "p0", "p1"])
    pq.write_table(table, "rows.parquet")
    err = call(*FIT[:4], "-k", "1", "-o", "m.safetensors")[2]
    assert "such as --error x=sigma_x --error 'y=1 / sqrt(ivar_y)', or say that its values are exact" in err


def test_the_command_knows_all_that_a_model_may_remember():
    said = set(inspect.signature(xd.open).parameters) - {
        "data",
        "where",
        "bad_rows",
        "empty",
        "skip_bad_files",
        "memory",
    }
    assert set(remembering.KINDS) == said | {remembering.FUNCTIONS, "group"}  # whose groups a fit was told


def test_what_transforms_a_model_remembers_is_read_by_the_command(tmp_path, call):
    rng = np.random.default_rng(1)
    sky = {"ra": rng.uniform(10, 11, 50), "dec": rng.uniform(5, 6, 50), "e": np.full(50, 0.1)}
    pq.write_table(pa.table(sky), tmp_path / "sky.parquet")
    told = {
        "error": {"ra": "e", "dec": "e"},
        "unit": {"e": "deg"},
        "derive": [xd.sky.galactic(False), {"s": "ra + dec"}],
    }
    source = xd.open(tmp_path / "sky.parquet", ["l", "b", "s"], **told)
    assert any(isinstance(part, list) for part in source.opening()["derive"])
    result = xd.fit(source, 1)
    result.mixture.save(tmp_path / "m.safetensors")
    code, out, err = call("score", tmp_path / "m.safetensors", tmp_path / "sky.parquet")
    assert (code, float(out)) == (0, pytest.approx(result.mixture.score(source), abs=1e-6)), err


@pytest.mark.parametrize(
    "derive", [[["Rotation", 1]], [["Formulated"]], [[]], [["Formulated", "x", 3, None]], [["no"]]]
)
def test_a_model_whose_transforms_are_damaged_is_refused(here, call, derive):
    forged = {"open": {"columns": ["x"], "derive": [derive]}}
    xd.Mixture([1.0], [[0.0]], [[[1.0]]], labels=["x"], meta=forged).save("forged.safetensors")
    code, _, err = call("score", "forged.safetensors", "rows.parquet")
    assert code == 1
    assert err.count("\n") == 1


def test_errors_that_a_fit_did_not_have_are_not_used_and_said(here, call):
    with pytest.warns(xd.NoNoiseWarning):
        result = xd.fit("rows.parquet", 1, columns=["x", "y"])
    result.mixture.save("bare.safetensors")
    code, out, err = call("score", "bare.safetensors", "rows.parquet")
    assert (code, float(out)) == (0, pytest.approx(result.loglik, abs=1e-6)), err
    code, noisy, err = call("score", "bare.safetensors", "rows.parquet", *NAMED)
    assert (code, noisy) == (0, out)
    assert "the rows have errors of x, y, which are not used: the model was fitted without them" in err
    assert call("score", "bare.safetensors", "rows.parquet", "--error", "x=sd_x", "--error", "y=sd_y")[1] != out


@pytest.mark.processes
def test_a_warning_of_the_library_is_one_line(here, call):
    assert call(*FIT, *NAMED)[0] == 0

    exact = ["--error", "x=none", "--error", "y=none"]
    line = [sys.executable, "-m", "xdeconv", "posterior", "m.safetensors", "rows.parquet", *exact, "-o", "p.parquet"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stderr.startswith("warning: the model was fitted with errors of x, y, and these rows have none")
    assert "UserWarning" not in done.stderr


def test_two_errors_in_one_word_are_refused_with_what_to_write(here, call):
    """It was "cannot read the expression 'none,y=none'"."""
    code, _, err = call(*FIT, "--error", "x=none,y=none")
    assert code == 2
    assert "say --error once for x and once for y" in " ".join(err.replace("|", " ").split())
    assert call(*FIT, "--error", "x=maximum(sd_x, sd_y)", "--error", "y=sd_y")[0] == 0
