"""Questions take what a fit takes, and read it as the fit read its own rows."""

import warnings

import numpy as np
import pandas
import pytest

import xdeconv as xd
from xdeconv.catalog import remembering, stream
from xdeconv.catalog.transforms import Hook
from xdeconv.mixture.asking import remembered

RNG = np.random.default_rng(0)
N = 400
E = RNG.uniform(0.5, 2.0, size=(N, 2))
X = RNG.normal(size=(N, 2)) + E * RNG.normal(size=(N, 2))
TABLE = pandas.DataFrame(
    {"id": np.arange(N), "y": X[:, 1], "y_error": E[:, 1], "x": X[:, 0], "x_error": E[:, 0], "name": "star"}
)
COLUMNS = ["x", "y"]


def fitted(source, **settings):
    """A fit's mixture, with what fit is to remember."""
    mixture = xd.fit(source, 2, epochs=3, **settings).mixture
    return mixture.with_(meta={**mixture.meta, **remembered(source)})


@pytest.fixture(scope="module")
def model():
    return fitted(xd.open(TABLE, COLUMNS))


@pytest.fixture
def path(tmp_path):
    TABLE.to_parquet(tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def forms(path):
    import astropy.table
    import polars
    import pyarrow as pa

    yield TABLE
    yield polars.from_pandas(TABLE)
    yield pa.Table.from_pandas(TABLE)
    yield astropy.table.Table.from_pandas(TABLE)
    yield {name: TABLE[name].to_numpy() for name in TABLE.columns if name != "name"}
    yield str(path)
    yield path
    yield [path]
    yield xd.open(path, COLUMNS)
    yield xd.Batch.from_arrays(X, error=E)


def test_every_form_of_rows_has_the_errors_of_the_fit(model, path):
    right = model.score(X, error=E)
    assert abs(model.score(X, error=np.zeros((N, 2))) - right) > 0.1
    for rows in forms(path):
        assert model.score(rows) == pytest.approx(right, rel=1e-12), type(rows)
        np.testing.assert_allclose(model.log_prob(rows), model.log_prob(X, error=E))
    np.testing.assert_allclose(model.responsibilities(TABLE), model.responsibilities(X, error=E))
    np.testing.assert_allclose(model.posterior(TABLE).mean(), model.posterior(X, error=E).mean())
    np.testing.assert_allclose(model.outlier(TABLE), model.outlier(X, error=E))
    np.testing.assert_allclose(model.component_tail(path), model.component_tail(X, error=E))
    assert np.abs(model.posterior(TABLE).mean() - X).mean() > 0.3


def test_what_only_streams_arrow_is_asked_about(model):
    import pyarrow as pa

    table = pa.Table.from_pandas(TABLE)
    for question in (model.score, model.log_prob):
        reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=100))
        np.testing.assert_allclose(question(reader), question(X, error=E))


def test_a_saved_model_and_its_marginals_remember(model, tmp_path):
    model.save(tmp_path / "m.safetensors")
    again = xd.load(tmp_path / "m.safetensors")
    assert again.score(TABLE) == model.score(TABLE)
    np.testing.assert_allclose(
        again.marginal(["y"]).log_prob(TABLE), again.marginal(["y"]).log_prob(X[:, 1:], error=E[:, 1:])
    )
    left = again.condition({"x": 0.3}, error={"x": 0.5})
    assert left.score(TABLE) == pytest.approx(left.score(X[:, 1:], error=E[:, 1:]))


def test_what_open_was_told_is_told_again():
    told = {
        "error": {"x": "sx", "y": 0.5}, "correlation": {("x", "y"): 0.3}, "offset": {"x": 0.1}, "inflate": {"y": 2.0},
        "derive": {"z": "x - y"},
    }  # fmt: skip
    table = TABLE.rename(columns={"x_error": "sx"})
    source = xd.open(table, ["x", "y", "z"], **told)
    model = xd.Mixture([1.0], np.zeros((1, 3)), [np.diag([1.0, 2.0, 3.0])], ["x", "y", "z"], meta=remembered(source))
    np.testing.assert_allclose(model.log_prob(table), model.log_prob(source))
    two = model.marginal(["z"])
    np.testing.assert_allclose(two.log_prob(table), two.log_prob(xd.open(table, ["z"], **told)))
    sky = pandas.DataFrame({"ra": [10.0, 11.0], "dec": [5.0, 6.0]})
    derive = [xd.sky.tangent(10.0, 5.0), xd.sky.galactic(False)]
    made = xd.open(sky, ["xi", "l"], derive=derive, error={"ra": None, "dec": None})
    model = xd.Mixture([1.0], np.zeros((1, 2)), [1e4 * np.eye(2)], ["xi", "l"], meta=remembered(made))
    np.testing.assert_allclose(model.log_prob(sky), model.log_prob(made))
    one = model.marginal(["l"])
    np.testing.assert_allclose(one.log_prob(sky), one.log_prob(made.load().batch.x.numpy()[1:].T))


def test_functions_cannot_be_remembered_and_are_named():
    source = xd.open(TABLE, ["x"], error={"x": Hook(lambda x_error: 2 * x_error, ("x_error",))})
    model = xd.Mixture([1.0], [[0.0]], [[[1.0]]], ["x"], meta=remembered(source))
    with pytest.raises(ValueError, match=r"a model cannot hold \(error of x is <lambda>\(x_error\)\): give xd.open"):
        model.score(TABLE)
    assert np.isfinite(model.score(source))


def test_rows_without_errors_are_warned_of_once(model):
    exact = xd.open(TABLE[["x", "y"]], COLUMNS, error={"x": None, "y": None})
    for rows in (X, TABLE[["x", "y"]], xd.Batch.from_arrays(X), exact):
        for question in (
            model.log_prob,
            model.score,
            model.responsibilities,
            model.outlier,
            model.posterior,
            model.batch,
        ):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                question(rows)
            assert [str(w.message)[:44] for w in said] == ["the model was fitted with errors of x, y, an"]
            assert said[0].category is UserWarning
    with pytest.warns(UserWarning, match="with errors of y, and these rows have none"):
        model.score(TABLE.drop(columns="y_error"))
    model.score(X, error=np.zeros((N, 2)))  # zero was meant


def test_values_that_are_missing_are_not_taken_as_exact(model):
    rows = xd.Batch.from_arrays(np.where([True, False], np.nan, X), error=np.where([True, False], np.nan, E))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.posterior(rows)


def test_files_without_rows_are_named(model, path, tmp_path):
    TABLE[:0].to_parquet(tmp_path / "none.parquet")
    for rows in (tmp_path / "none.parquet", xd.open(path, COLUMNS, where="x > 1e9")):
        with pytest.raises(ValueError, match=r"there are no rows to score in .*(none|rows)\.parquet"):
            model.score(rows)


def test_a_model_of_bare_arrays_finds_errors_by_name():
    made = xd.Mixture([1.0], [[0.0, 0.0]], [np.eye(2)], labels=COLUMNS)
    assert made.score(TABLE) == pytest.approx(made.score(X, error=E))
    exact = fitted(xd.data.as_source(X), labels=COLUMNS)
    with pytest.warns(UserWarning, match="errors of x, y, which are not used: the model was fitted without them"):
        assert exact.score(TABLE) == pytest.approx(exact.score(X))


def test_a_long_file_is_never_held_whole(model, path, monkeypatch):
    monkeypatch.setitem(stream.PASS_ROWS, "cpu", 50)
    monkeypatch.setattr("xdeconv.catalog.readers.parquet.BLOCK_ROWS", 50)
    whole, seen = model.log_prob(X, error=E), []
    from xdeconv import kernels

    right = kernels.log_prob
    monkeypatch.setattr(kernels, "log_prob", lambda *a: (seen.append(a[-1].n), right(*a))[1])
    monkeypatch.setattr(stream.CatalogSource, "load", None)
    np.testing.assert_allclose(model.log_prob(path), whole)
    assert model.score(path) == pytest.approx(whole.mean())
    assert max(seen) <= 100
    assert sum(seen) == 2 * N


def test_weights_and_priors_beside_a_table(model):
    weight, log_prior = RNG.uniform(size=N), np.log(RNG.uniform(0.1, 1.0, size=(N, 2)))
    assert model.score(TABLE, weight=weight) == pytest.approx(model.score(X, error=E, weight=weight))
    np.testing.assert_allclose(
        model.responsibilities(TABLE, log_prior=log_prior), model.responsibilities(X, error=E, log_prior=log_prior)
    )


def test_what_stands_beside_a_table_of_pandas_is_paired_by_its_index(model):
    weight, log_prior = RNG.uniform(size=N), np.log(RNG.uniform(0.1, 1.0, size=(N, 2)))
    other = TABLE.sample(frac=1, random_state=0).index
    own, prior = pandas.Series(weight, TABLE.index), pandas.DataFrame(log_prior, TABLE.index)
    assert model.score(TABLE, weight=own.loc[other]) == pytest.approx(model.score(TABLE, weight=weight))
    found = model.responsibilities(TABLE, log_prior=prior.loc[other])
    np.testing.assert_allclose(found, model.responsibilities(TABLE, log_prior=log_prior))
    with pytest.raises(ValueError, match="the index of weight is not that of the rows"):
        model.score(TABLE, weight=own.set_axis(TABLE.index + 1))
    one, two = np.exp(log_prior.T)
    asked = xd.Classifier({"one": model, "two": model.with_()})
    found = asked.predict_proba(TABLE, priors={"one": pandas.Series(one, TABLE.index).loc[other], "two": two})
    np.testing.assert_allclose(found[:, 0], one / (one + two))


def test_rows_of_something_else_are_refused(model, path):
    with pytest.raises(ValueError, match="no column 'y'"):
        model.score(TABLE.drop(columns=["y", "y_error"]))
    with pytest.raises(ValueError, match=r"the rows are of \['y', 'x'\], the mixture of \['x', 'y'\]"):
        model.score(xd.open(path, ["y", "x"]))
    with pytest.raises(ValueError, match="carries its own noise"):
        model.score(xd.open(path, COLUMNS), error=E)
    with pytest.raises(ValueError, match="error cannot be given beside it"):
        model.score(path, error=E)
    with pytest.raises(ValueError, match="does not know its columns"):
        xd.Mixture([1.0], [[0.0, 0.0]], [np.eye(2)]).score(path)
    in_mas = model.with_(units=["mas", "mas"])
    with pytest.raises(ValueError, match="x is in 'deg' in the table and in 'mas' in the mixture"):
        in_mas.score(xd.open(path, COLUMNS, unit={"x": "deg"}))


def test_choices_are_json():
    source = xd.open(TABLE, COLUMNS, error={"x": np.float32(0.5)}, correlation={("x", "y"): 0.1}, weight="id")
    assert source.opening() == {
        "error": {"x": 0.5}, "correlation": {"x,y": 0.1}, "columns": ["x", "y"], "weight": "id",
    }  # fmt: skip
    assert remembering.arguments(source.opening(), COLUMNS) == {
        "error": {"x": 0.5}, "correlation": {"x,y": 0.1}, "columns": ["x", "y"],
    }  # fmt: skip
