"""Members: responsibilities of components and groups, and a fraction that is fitted when it is not given."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xdeconv as xd
from xdeconv.cli.members import fitted_fraction

CLUSTER = xd.Mixture([1.0], [[2.0, -1.0]], [0.04 * np.eye(2)], labels=["x", "y"])
FIELD = xd.Mixture([0.7, 0.3], [[0.0, 0.0], [1.0, 1.0]], [4.0 * np.eye(2), np.eye(2)], labels=["x", "y"])
FRACTION, ROWS, SD = 0.2, 4000, 0.1


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Rows of a cluster in a field, in a known order, and models of both and of all."""
    many = int(FRACTION * ROWS)
    X = np.concatenate([CLUSTER.sample(many, seed=1), FIELD.sample(ROWS - many, seed=2)])
    X += np.random.default_rng(3).normal(0, SD, X.shape)
    columns = {"x": X[:, 0], "y": X[:, 1], "x_error": np.full(ROWS, SD), "y_error": np.full(ROWS, SD)}
    pq.write_table(pa.table({"id": np.arange(ROWS), **columns}), tmp_path / "rows.parquet")
    weights = np.concatenate([[FRACTION], (1 - FRACTION) * FIELD.weights])
    means = np.concatenate([CLUSTER.means, FIELD.means])
    both = xd.Mixture(weights, means, np.concatenate([CLUSTER.covariances, FIELD.covariances]), labels=["x", "y"])
    for name, mixture in (("cluster", CLUSTER), ("field", FIELD), ("both", both)):
        mixture.save(tmp_path / f"{name}.safetensors")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def columns(path):
    table = pq.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names}


def batch():
    return xd.open("rows.parquet", ["x", "y"]).load().batch


@pytest.mark.parametrize("command", ["members", "posterior"])
def test_rows_that_show_nothing_are_counted(here, call, command):
    rows = pq.read_table("rows.parquet").to_pandas()
    rows.loc[[3, 5], ["x", "y"]] = np.nan
    rows.loc[7, "x"] = np.nan
    rows.to_parquet("gaps.parquet")
    code, _, err = call(command, "both.safetensors", "gaps.parquet", "-o", "m.parquet")
    assert (code, "2 of 4,000 rows have nothing observed: they get what the model says of any row" in err) == (0, True)
    _, _, err = call(command, "both.safetensors", "rows.parquet", "-o", "m.parquet")
    assert "nothing observed" not in err


def test_components_are_numbered(here, call):
    code, _, err = call("members", "both.safetensors", "rows.parquet", "-o", "m.parquet")
    assert code == 0, err
    found = columns("m.parquet")
    assert list(found) == ["id", "p_0", "p_1", "p_2"]
    expected = xd.load("both.safetensors").responsibilities(batch())
    for j in range(3):
        np.testing.assert_allclose(found[f"p_{j}"], expected[:, j], rtol=1e-12)


def test_components_in_groups(here, call):
    assert call("members", "both.safetensors", "rows.parquet", "-o", "m.parquet", "--group", "cluster=0")[0] == 0
    found = columns("m.parquet")
    assert list(found) == ["id", "p_cluster", "p_other"]
    np.testing.assert_allclose(found["p_cluster"] + found["p_other"], 1.0)
    assert max(found["p_cluster"].max(), found["p_other"].max()) <= 1.0
    words = ("--group", "cluster=0", "--group", "field=2,1", "--keep", "x,id")
    assert call("members", "both.safetensors", "rows.parquet", "-o", "m.parquet", *words)[0] == 0
    found = columns("m.parquet")
    assert list(found) == ["x", "id", "p_cluster", "p_field"]
    expected = xd.load("both.safetensors").responsibilities(batch())
    np.testing.assert_allclose(found["p_field"], expected[:, 1:].sum(axis=1))


@pytest.mark.parametrize(
    "words", [("--group", "a="), ("--group", "a=,"), ("--group", "=0"), ("--group", "a=0,0"), ("--group", "a=3"),
              ("--group", "a=x"), ("--group", "a=0", "--group", "b=0"), ("--group", "a"), ("--group", "other=0"),
              ("--fraction", "0.5"), ("--field", "field.safetensors", "--group", "a=0")],
)  # fmt: skip
def test_groups_that_make_no_sense(here, call, words):
    assert call("members", "both.safetensors", "rows.parquet", "-o", "m.parquet", *words)[0] == 2
    assert not (here / "m.parquet").exists()


def test_a_group_is_not_called_as_the_background_is(here, call):
    beside = xd.load("cluster.safetensors").with_(background=FIELD, background_weight=1 - FRACTION)
    beside.save("beside.safetensors")
    words = ("members", "beside.safetensors", "rows.parquet", "-o", "m.parquet", "--group")
    code, _, err = call(*words, "background=0")
    assert code == 2
    assert "the name of the model's background" in err
    assert call(*words, "cluster=0")[0] == 0
    assert list(columns("m.parquet")) == ["id", "p_cluster", "p_background"]


def test_denoising_computes_the_background_too_where_it_is_told(here, call):
    xd.load("cluster.safetensors").with_(background=FIELD, background_weight=1 - FRACTION).save("beside.safetensors")
    words = ("beside.safetensors", "rows.parquet", "--dtype", "float32", "-o")
    assert call("members", *words, "m.parquet")[0] == call("posterior", *words, "p.parquet")[0] == 0
    np.testing.assert_array_equal(columns("p.parquet")["p_background"], columns("m.parquet")["p_background"])


def test_a_field_takes_the_place_of_a_background(here, call):
    """The background counted as members: with the same field beside it, 99.8 % of all rows were."""
    beside = xd.load("cluster.safetensors").with_(background=FIELD, background_weight=1 - FRACTION)
    beside.save("beside.safetensors")
    outputs = {}
    for name in ("cluster", "beside"):
        words = ("--field", "field.safetensors", "-o", f"{name}.members.parquet")
        code, outputs[name], err = call("members", f"{name}.safetensors", "rows.parquet", *words)
        assert code == 0, err
        assert ("the background of MODEL is left out" in err) == (name == "beside")
    assert outputs["beside"] == outputs["cluster"]


def test_the_fraction_is_fitted_or_given(here, call):
    words = ("members", "cluster.safetensors", "rows.parquet", "--field", "field.safetensors", "-o", "m.parquet")
    code, out, err = call(*words)
    assert code == 0, err
    fraction, sd = (float(word) for word in out.removeprefix("fraction of members ").split(" +- "))
    assert 0 < sd < 0.02
    assert abs(fraction - FRACTION) < 4 * sd
    fitted = columns("m.parquet")["p_member"]
    assert fitted.mean() == pytest.approx(fraction, abs=1e-5)  # as at every maximum of this likelihood
    assert fitted[: int(FRACTION * ROWS)].mean() > 0.8
    assert fitted[int(FRACTION * ROWS) :].mean() < 0.06
    code, out, _ = call(*words, "--fraction", 0.5)
    assert (code, out) == (0, "")
    given = columns("m.parquet")["p_member"]
    odds = fitted / (1 - fitted) * (1 - fraction) / fraction
    np.testing.assert_allclose(given, odds / (1 + odds), atol=1e-5)


@pytest.mark.parametrize(
    ("log_ratios", "fraction"),
    [([1.0, 2.0], 1.0), ([-1.0, -2.0], 0.0), ([800.0, -800.0], 0.5), ([1e5] * 3 + [-1e5], 0.75),
     ([np.log(3.0), np.log(1 / 3)], 0.5)],
)  # fmt: skip
def test_fractions_that_are_known(log_ratios, fraction):
    assert fitted_fraction(np.array(log_ratios))[0] == pytest.approx(fraction, abs=1e-12)


def test_no_rows_have_no_fraction():
    with pytest.raises(ValueError, match="no rows"):
        fitted_fraction(np.empty(0))


def test_info_lists_components_by_weight(here, call):
    code, out, _ = call("info", "both.safetensors")
    assert code == 0
    lines = out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.split()[:2] == ["component", "weight"])
    assert lines[start].split() == ["component", "weight", "x", "y"]
    assert [line.split()[:2] for line in lines[start + 1 : start + 4]] == [["1", "0.5600"], ["2", "0.2400"],
                                                                         ["0", "0.2000"]]  # fmt: skip
    assert lines[start + 3].split()[2:] == ["2", "+-", "0.2", "-1", "+-", "0.2"]
    short = call("info", "both.safetensors", "--most", 1)[1]
    assert "and 2 more" in short


def test_a_field_in_another_order_is_the_same_field(here, call):
    FIELD.marginal(["y", "x"]).save("turned.safetensors")
    for field in ("field", "turned"):
        words = ("--field", f"{field}.safetensors", "-o", f"{field}.parquet")
        assert call("members", "cluster.safetensors", "rows.parquet", *words)[0] == 0
    np.testing.assert_allclose(columns("turned.parquet")["p_member"], columns("field.parquet")["p_member"], rtol=1e-9)


@pytest.mark.slow
def test_a_background_by_one_command(here, call):
    box = ("--background", "x=-8:8,y=-8:8")
    assert call("fit", "rows.parquet", "-c", "x,y", "-k", "1", "-o", "m.safetensors", *box)[0] == 0
    code, out, _ = call("info", "m.safetensors")
    assert code == 0
    assert "background: 0." in out
    assert call("members", "m.safetensors", "rows.parquet", "-o", "m.parquet")[0] == 0
    found = columns("m.parquet")
    np.testing.assert_allclose(found["p_0"] + found["p_background"], 1.0)
    assert call("posterior", "m.safetensors", "rows.parquet", "-o", "p.parquet")[0] == 0
    np.testing.assert_allclose(columns("p.parquet")["p_background"], found["p_background"])
    code, out, _ = call("score", "m.safetensors", "rows.parquet")
    assert float(out) == pytest.approx(xd.load("m.safetensors").score(batch()), abs=1e-6)
    held = ("--background", "field.safetensors")
    assert call("fit", "rows.parquet", "-c", "x,y", "-k", "1", "-o", "f.safetensors", *held)[0] == 0
    mixture = xd.load("f.safetensors")
    assert abs(mixture.background_weight - (1 - FRACTION)) < 0.02
    np.testing.assert_allclose(mixture.means, CLUSTER.means, atol=0.05)


@pytest.mark.parametrize("box", ["x=0:1", "x=0:1,z=0:1", "x=0:1,y=2", "x=0:1,y=2:1", "no.safetensors"])
def test_boxes_that_make_no_sense(here, call, box):
    words = ("fit", "rows.parquet", "-c", "x,y", "-k", "1", "-o", "m.safetensors", "--background", box)
    assert call(*words)[0] in (2, 3)
    assert not (here / "m.safetensors").exists()


@pytest.mark.slow
def test_inflation_by_one_command(here, call):
    words = ("fit", "rows.parquet", "-c", "x,y", "-k", "1", "-o", "m.safetensors", "--force")
    code, _, err = call(*words, "--inflation", "all")
    assert code != 0
    assert "the errors of x are all alike" in err
    table = pq.read_table("rows.parquet")
    own = pa.array(np.random.default_rng(4).uniform(0.5 * SD, 2 * SD, ROWS))
    pq.write_table(table.set_column(table.column_names.index("y_error"), "y_error", own), "rows.parquet")
    code, _, err = call(*words, "--inflation", "by=x:0 of=y")
    assert code == 0, err
    code, out, _ = call("info", "m.safetensors")
    assert code == 0
    assert "errors inflated, x < 0: y x" in out
    mixture = xd.load("m.safetensors")
    assert mixture.inflation.of == (1,)
    code, out, _ = call("score", "m.safetensors", "rows.parquet")
    assert float(out) == pytest.approx(mixture.score("rows.parquet"), abs=1e-6)
    assert call("posterior", "m.safetensors", "rows.parquet", "-o", "p.parquet")[0] == 0
    for wrong in ("some", "by=z", "of=z", "by=x:2,1", "jitter=1", "up=2"):
        assert call(*words, "--inflation", wrong)[0] in (1, 2), wrong


def test_tails_by_one_command(here, call):
    words = ("fit", "rows.parquet", "-c", "x,y", "-k", "1", "-o", "m.safetensors")
    assert call(*words, "--tails", "fit")[0] == 0
    assert "Student's t, nu = " in call("info", "m.safetensors")[1]
    assert call(*words, "--force", "--tails", "many")[0] == 2


@pytest.mark.slow
def test_cuts_are_words_of_the_command(call, tmp_path):
    """The model says what was cut, and the score is given that rows were kept."""
    rng = np.random.default_rng(0)
    error = rng.uniform(0.2, 1.0, size=2000)
    parallax = rng.normal(3.0, 1.0, size=2000) + error * rng.normal(size=2000)
    kept = parallax > 4 * error
    table, model = tmp_path / "stars.parquet", tmp_path / "model.safetensors"
    pq.write_table(pa.table({"parallax": parallax[kept], "parallax_error": error[kept]}), table)
    words = ("fit", table, "-c", "parallax", "-k", "1", "-o", model, "--validation", "0")
    code, told, _ = call(*words, "--selection", "parallax_over_error > 4")
    assert code == 0
    mixture = xd.load(model)
    assert abs(mixture.means[0, 0] - 3.0) < 0.15
    assert "selection: parallax / error > 4" in call("info", model)[1]
    score = float(call("score", model, table)[1].split()[-1])
    assert abs(score - float(told.split()[2])) < 1e-4
    call("score", model, table, "--per-row", tmp_path / "rows.parquet")
    assert abs(np.mean(pq.read_table(tmp_path / "rows.parquet")["log_likelihood"].to_numpy()) - score) < 1e-4
    code, _, said = call(*words, "--force", "--selection", "parallax_over_error = 4")
    assert code == 2
    assert "NAME > NUMBER" in said


def test_rows_of_a_store_that_nothing_names_are_said_to_be_shuffled(here, call):
    assert call("prepare", "rows.parquet", "bare", "-c", "x,y")[0] == 0
    assert call("prepare", "rows.parquet", "named", "-c", "x,y", "--keep", "id")[0] == 0
    _, _, err = call("members", "both.safetensors", "bare", "-o", "m.parquet")
    assert "the rows of bare are shuffled, and nothing tells which is which: prepare --keep" in err
    _, _, err = call("members", "both.safetensors", "named", "-o", "n.parquet")
    assert "shuffled" not in err
    found, right = columns("n.parquet"), xd.load("both.safetensors").responsibilities(batch())
    np.testing.assert_allclose(found["p_0"], right[found["id"].astype(int), 0], rtol=1e-9)


@pytest.mark.parametrize(
    ("box", "text"),
    {"x=1:0,y=0:1": "x=1:0 must have LOW < HIGH", "x=0:1,y=0": "y=0 is not COLUMN=LOW:HIGH",
     "x=0:1,y=0:1,x=0:3": "'x' is given twice"}.items(),
)  # fmt: skip
def test_a_box_that_is_none_is_refused_by_its_column(here, call, box, text):
    code, _, err = call("fit", "rows.parquet", "-c", "x,y", "-k", "1", "-o", "m.safetensors", "--background", box)
    assert code == 2
    assert text in " ".join(err.split())


def test_a_background_that_is_neither_a_box_nor_a_file_is_told_what_to_write(here, call):
    code, _, err = call("fit", "rows.parquet", "-c", "x,y", "-k", "1", "-o", "m.safetensors", "--background", "uniform")
    assert code == 2
    assert "there is no file uniform: give a model's file, or a box such as x=LOW:HIGH,y=LOW:HIGH" in " ".join(
        err.split()
    )


def test_a_jitter_of_a_group_of_numbers_by_one_command(here, call):
    rng, table = np.random.default_rng(5), pq.read_table("rows.parquet")
    for name in ("x_error", "y_error"):
        own = pa.array(rng.uniform(0.5 * SD, 2 * SD, ROWS))
        table = table.set_column(table.column_names.index(name), name, own)
    pq.write_table(table.append_column("field", pa.array(rng.choice([1.0, 2.5], ROWS))), "rows.parquet")
    words = ("fit", "rows.parquet", "-c", "x,y", "-k", "1", "-o", "m.safetensors", "--moves", "none", "--epochs", "2")
    code, _, err = call(*words, "--inflation", "by=field jitter=2.5")
    assert code == 0, err
    assert xd.load("m.safetensors").inflation.additive == (1,)
    assert call(*words, "--force", "--inflation", "by=field jitter=2")[0] == 1


def test_conditions_beside_a_background_say_its_share(here, call):
    box = xd.Uniform([-8.0, -8.0], [8.0, 8.0])
    mixture = FIELD.with_(background=box, background_weight=0.25)
    mixture.save("beside.safetensors")
    code, out, _ = call("condition", "beside.safetensors", "x=7")
    share = mixture.condition({"x": 7.0}).background_weight
    assert code == 0
    assert f"background: {share:.4f} of the rows with these values" in out
