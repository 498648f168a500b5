"""Errors that are too small: fitted factors on them are found, kept, applied, and refused where rows cannot tell."""

import numpy as np
import pandas as pd
import pytest
import torch

import xdeconv as xd
from xdeconv.mixture.inflated import Inflated
from xdeconv.rows.grouping import Grouping

MEANS, WIDTHS = np.array([[0.0, 0.0], [3.0, 1.0]]), np.array([[0.5, 0.3], [0.4, 0.6]])


def rows(n=6000, seed=0, f=(1.3, 1.3), correlation=0.0):
    """Values, and the errors that they are quoted with, between 0.2 and 1: too small by f."""
    rng = np.random.default_rng(seed)
    z = rng.choice(2, size=n, p=[0.6, 0.4])
    s = rng.uniform(0.2, 1.0, size=(n, 2))
    e = rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], size=n)
    return MEANS[z] + WIDTHS[z] * rng.normal(size=(n, 2)) + np.asarray(f) * s * e, s


def full(s, correlation):
    R = np.array([[1, correlation], [correlation, 1]])
    return s[:, :, None] * R * s[:, None, :]


@pytest.mark.slow
def test_errors_understated_by_30_percent_are_found_to_2():
    for seed in range(3):
        X, s = rows(20_000, seed)
        result = xd.fit(X, 2, error=s, inflation=xd.Inflation())
        assert result.converged
        found = result.mixture.inflation
        np.testing.assert_allclose(found.factors, [[1.3, 1.3]], rtol=0.02)
        assert (np.abs(found.factors - 1.3) < 4 * found.standard_errors).all()
        assert result.mixture.score(X, error=s) == pytest.approx(result.loglik, rel=1e-12)
        widths = np.sqrt(np.einsum("kaa->ka", result.mixture.covariances))
        order = np.argsort(result.mixture.means[:, 0])
        np.testing.assert_allclose(widths[order], WIDTHS, atol=0.04)


@pytest.mark.slow
def test_standard_errors_are_the_scatter_over_data_sets():
    found = []
    for seed in range(30):
        X, s = rows(600, seed)
        start = xd.Mixture([0.6, 0.4], MEANS, [np.diag(w**2) for w in WIDTHS])
        found.append(xd.fit(X, mixture=start, error=s, inflation=xd.Inflation()).mixture.inflation)
    scatter = np.std([np.log(one.factors[0]) for one in found], axis=0, ddof=1)
    said = np.mean([one.standard_errors[0] / one.factors[0] for one in found], axis=0)
    np.testing.assert_allclose(scatter / said, 1.0, atol=0.4)  # of 30 data sets: 13 % of itself, 3 sigma


def test_correlated_errors_and_gaps_and_weights():
    X, s = rows(6000, 1, (1.4, 1.1), 0.6)
    X[::5, 0] = np.nan
    result = xd.fit(X, 2, noise=full(s, 0.6), weight=np.full(6000, 0.5), inflation=xd.Inflation())
    assert result.converged
    np.testing.assert_allclose(result.mixture.inflation.factors, [[1.4, 1.1]], rtol=0.05)


def test_the_fit_is_a_maximum_in_the_factors():
    X, s = rows(1500, 2)
    mixture = xd.fit(X, 2, error=s, inflation=xd.Inflation(), tol=1e-6).mixture
    for h in (0.02, -0.02):
        for a in range(2):
            other = mixture.inflation.at(mixture.inflation.numbers + h * torch.eye(2, dtype=torch.float64)[a])
            assert mixture.with_(inflation=other).score(X, error=s) < mixture.score(X, error=s)


def test_plain_em_never_falls_with_diagonal_errors():
    X, s = rows(800)
    how = {"method": xd.EM(accelerate=False), "epochs": 60, "tol": 0, "moves": "none"}
    result = xd.fit(X, 2, error=s, inflation=xd.Inflation(), **how)
    assert np.diff([e.loglik for e in result.history]).min() > -1e-12


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"batch_rows": 500, "epochs": 40},
        {"method": xd.SGD(), "batch_rows": 500, "epochs": 80},
        {"tails": xd.StudentT(50.0)},
        {"background": xd.Uniform([-20.0, -20.0], [20.0, 20.0])},
        {"validation": 0.1, "restarts": 2},
        {"covariance": "diagonal"},
        {"dtype": "float32"},
    ],
    ids=["minibatches", "SGD", "tails", "background", "restarts", "diagonal", "float32"],
)
def test_it_works_with_everything_else(settings):
    X, s = rows(6000, 3, (1.4, 1.2))
    mixture = xd.fit(X, 2, error=s, inflation=xd.Inflation(), **settings).mixture
    np.testing.assert_allclose(mixture.inflation.factors, [[1.4, 1.2]], rtol=0.08)


@pytest.mark.slow
def test_projections_have_factors_of_their_observed_values():
    rng = np.random.default_rng(4)
    n = 6000
    R = rng.normal(size=(n, 1, 2))
    v = rng.normal(size=(n, 2)) * [0.5, 0.8] + [1.0, -1.0]
    s = rng.uniform(0.2, 1.2, size=(n, 1))
    X = np.einsum("npd,nd->np", R, v) + 1.4 * s * rng.normal(size=(n, 1))
    mixture = xd.fit(X, 1, error=s, projection=R, inflation=xd.Inflation()).mixture
    assert mixture.inflation.factors[0, 0] == pytest.approx(1.4, rel=0.05)
    mixture.posterior(X, error=s, projection=R).mean()
    with pytest.raises(ValueError, match="do not fit rows of 2 values"):
        mixture.score(v, error=np.ones((n, 2)))


@pytest.mark.slow
def test_groups_by_an_array_a_coordinate_and_a_column(tmp_path):
    f = np.where(np.arange(6000) % 2, 1.5, 1.0)
    X, s = rows(6000, 5, f=(1, 1))
    rng = np.random.default_rng(6)
    X = X + np.sqrt(f[:, None] ** 2 - 1) * s * rng.normal(size=X.shape)
    survey = np.where(f > 1, "bad", "good")
    by_array = xd.fit(X, 2, error=s, inflation=xd.Inflation(by=survey)).mixture
    assert by_array.inflation.groups == ("by = bad", "by = good")
    np.testing.assert_allclose(by_array.inflation.factors, [[1.5, 1.5], [1.0, 1.0]], rtol=0.06)
    rows_ = xd.Batch.from_arrays(X, error=s, group=(f == 1).astype(int))
    assert by_array.score(rows_) == pytest.approx(by_array.meta["loglik"], rel=1e-10)
    with pytest.raises(ValueError, match="errors are inflated by by, and these rows do not have it"):
        by_array.score(X, error=s)
    by_array.log_prob(X, error=np.zeros_like(s))  # exact values need no group

    table = pd.DataFrame({"x": X[:, 0], "x_error": s[:, 0], "y": X[:, 1], "y_error": s[:, 1], "survey": survey})
    table.to_parquet(tmp_path / "t.parquet")
    mixture = xd.fit(tmp_path / "t.parquet", 2, columns=["x", "y"], inflation=xd.Inflation(by="survey")).mixture
    np.testing.assert_allclose(mixture.inflation.factors, by_array.inflation.factors, rtol=1e-3)
    mixture.save(tmp_path / "m")
    again = xd.load(tmp_path / "m")
    assert again.inflation == mixture.inflation
    assert again.score(table) == pytest.approx(mixture.meta["loglik"], rel=1e-9)
    with pytest.raises(ValueError, match="row 0 has survey = 'other'"):
        again.score(table.assign(survey="other"))
    stream = xd.open(tmp_path / "t.parquet", ["x", "y"], memory=False)
    streamed = xd.fit(stream, 2, inflation=xd.Inflation(by="survey")).mixture
    np.testing.assert_allclose(streamed.inflation.factors, mixture.inflation.factors, rtol=1e-2)

    bright = xd.Inflation(by="x", bins=[1.5])
    for data in (table[["x", "y"]], stream):
        more = {} if data is stream else {"error": table[["x_error", "y_error"]].to_numpy()}
        mixture = xd.fit(data, 2, inflation=bright, **more).mixture
        assert mixture.inflation.groups == ("x < 1.5", "1.5 <= x", "x missing")
        assert mixture.inflation.rows[2] == 0
        assert np.isnan(mixture.inflation.standard_errors[2]).all()
        assert mixture.score(data, **more) == pytest.approx(mixture.meta["loglik"], rel=1e-9)
    with pytest.raises(ValueError, match="errors are inflated by x, and these rows do not have it"):
        mixture.marginal(["y"]).log_prob(table[["y"]].to_numpy(), error=table[["y_error"]].to_numpy())
    assert mixture.marginal(["x"]).inflation.factors.shape == (3, 1)


@pytest.mark.slow
def test_jitter_of_a_group_is_found():
    X, s = rows(8000, 7, (1.0, 1.0))
    survey = np.arange(8000) % 2
    X = X + np.where(survey, 0.5, 0.0)[:, None] * np.random.default_rng(8).normal(size=X.shape)
    found = xd.fit(X, 2, error=s, inflation=xd.Inflation(by=survey, jitter=[1])).mixture.inflation
    np.testing.assert_allclose(found.jitters, [[0, 0], [0.5, 0.5]], atol=0.06)
    np.testing.assert_allclose(found.factors, [[1, 1], [1, 1]], atol=0.08)
    assert (found.standard_errors[1] < 0.06).all()


def test_every_question_takes_errors_as_inflated():
    X, s = rows(40, 9)
    box = xd.Uniform([-9.0, -9.0], [9.0, 9.0])
    plain = xd.Mixture([0.6, 0.4], MEANS, [np.diag(w**2) for w in WIDTHS], ["a", "b"])
    wide = plain.with_(inflation=Inflated(((1.3, 1.1),), (0, 1)))
    more = s * [1.3, 1.1]
    for ask in ("log_prob", "responsibilities", "outlier", "component_tail"):
        np.testing.assert_allclose(getattr(wide, ask)(X, error=s), getattr(plain, ask)(X, error=more), rtol=1e-10)
    np.testing.assert_allclose(wide.posterior(X, error=s).mean(), plain.posterior(X, error=more).mean(), rtol=1e-12)
    np.testing.assert_allclose(xd.plot.pit(wide, X, error=s), xd.plot.pit(plain, X, error=more), rtol=1e-12)
    ours, theirs = wide.condition({"a": 1.0}, error={"a": 0.5}), plain.condition({"a": 1.0}, error={"a": 0.65})
    np.testing.assert_allclose(ours.means, theirs.means, rtol=1e-12)
    assert ours.inflation.factors.tolist() == [[1.1]]
    drawn = wide.sample(40_000, 0, error=np.full((40_000, 2), 3.0))
    np.testing.assert_allclose(drawn.var(0), np.diag(plain.covariance()) + 9 * np.array([1.69, 1.21]), rtol=0.03)
    beside = wide.with_(background=box, background_weight=0.2)
    np.testing.assert_allclose(
        beside.responsibilities(X, error=s).sum(1) + beside.background_probability(X, error=s), 1
    )
    assert wide.n_parameters == plain.n_parameters + 2


@pytest.mark.slow
def test_checkpoints_bootstrap_and_select(tmp_path):
    X, s = rows(900, 10)
    how = {"error": s, "inflation": xd.Inflation(by=np.arange(900) % 2)}
    whole = xd.fit(X, 2, **how, moves="none")
    part = xd.fit(X, 2, **how, moves="none", epochs=12, checkpoint=tmp_path / "c")
    assert not part.converged
    resumed = xd.fit(X, 2, **how, moves="none", checkpoint=xd.Checkpoint(tmp_path / "c", resume=True))
    assert resumed.mixture.inflation.values == whole.mixture.inflation.values
    with pytest.raises(ValueError, match="inflation"):
        xd.fit(X, 2, error=s, moves="none", checkpoint=xd.Checkpoint(tmp_path / "c", resume=True))
    batch = xd.Batch.from_arrays(X, error=s, group=np.arange(900) % 2)
    draws = xd.bootstrap(batch, whole.mixture, draws=3)
    spread = np.std([m.inflation.factors for m in draws.mixtures], axis=0)
    assert (spread > 0).all()
    assert (spread < 0.3).all()
    chosen = xd.select(X, [1, 2], error=s, inflation=xd.Inflation(by=np.arange(900) % 2), folds=3)
    assert chosen.best == 2
    assert chosen.result.mixture.inflation.groups == ("by = 0", "by = 1")


@pytest.mark.parametrize(
    ("inflation", "error", "text"),
    [
        (xd.Inflation(), None, "x has no errors, and nothing to inflate"),
        (xd.Inflation(), "one", "the errors of x are all alike"),
        (xd.Inflation(of=["z"]), "own", "z"),
        (xd.Inflation(by=[1, 2]), "own", "one value per row"),
        (xd.Inflation(by="mag"), "own", "by='mag'.* is not one of the coordinates"),
        (xd.Inflation(by=np.arange(60) % 2, jitter=[0, 1]), "own", "all groups have a jitter"),
        (xd.Inflation(by=np.arange(60) % 2, jitter=[7]), "own", "names no group"),
        (xd.Inflation(by=np.arange(60)), "own", "alike within each of the 60 groups"),
        ("yes", "own", "must be an xd.Inflation"),
    ],
)
def test_what_rows_cannot_tell_is_refused_before_any_work(inflation, error, text, monkeypatch):
    X, s = rows(60)
    monkeypatch.setattr("xdeconv.fitting._fit.run", None)
    errors = {None: None, "one": [0.3, 0.3], "own": s}[error]
    with pytest.raises(ValueError, match=text):
        xd.fit(X, 2, error=errors, labels=["x", "y"], inflation=inflation)


def test_words_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="no row can tell the two apart: give by="):
        xd.Inflation(jitter=["a"])
    with pytest.raises(ValueError, match="needs by="):
        xd.Inflation(bins=[1.0])
    with pytest.raises(ValueError, match="ascending"):
        xd.Inflation(by="x", bins=[2.0, 1.0])
    with pytest.raises(ValueError, match=r"a list of coordinates, such as \['pmra'\]"):
        xd.Inflation(of="pmra")


def test_groupings():
    by = Grouping("m", (1.0, 2.0))
    np.testing.assert_array_equal(by.index([0.5, 1.0, 1.5, 2.0, np.nan]), [0, 1, 1, 2, 3])
    assert Grouping.from_json(by.as_json()) == by


def test_xdgmm_takes_inflation():
    X, s = rows(2000, 11)
    model = xd.XDGMM(2, inflation=xd.Inflation()).fit(X, error=s)
    np.testing.assert_allclose(model.mixture_.inflation.factors, [[1.3, 1.3]], rtol=0.12)


def test_jitter_is_a_list_of_groups():
    with pytest.raises(ValueError, match="jitter must be a list of groups"):
        xd.Inflation(by="survey", jitter=True)


def test_groups_of_pandas_are_paired_by_their_index():
    X, s = rows(400)
    table = pd.DataFrame(X, columns=["x", "y"])
    groups = pd.Series(np.where(np.arange(400) < 150, "a", "b"))
    how = {"error": s, "moves": "none"}
    straight, turned = (xd.fit(table, 1, **how, inflation=xd.Inflation(by=by)) for by in (groups, groups[::-1]))
    assert turned.mixture.inflation.values == straight.mixture.inflation.values
    with pytest.raises(ValueError, match="the index of by is not that of the rows"):
        xd.fit(table, 1, **how, inflation=xd.Inflation(by=groups.set_axis(np.arange(400) + 7)))
    chosen = (xd.select(table, [1], "bic", error=s, inflation=xd.Inflation(by=by)) for by in (groups, groups[::-1]))
    assert len({one.result.mixture.inflation.values for one in chosen}) == 1


def test_groups_by_a_coordinate_that_is_left_out_or_given():
    """Of the marginal no row tells its group, and of what is conditioned on it all rows have one."""
    inflation = Inflated(((1.5, 1.0), (2.0, 1.0), (1.0, 1.0)), (0,), (), Grouping("m", (0.0,), coordinate=1))
    mixture = xd.Mixture([1.0], [[0.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]]], ["x", "m"], inflation=inflation)
    alone, given = mixture.marginal(["x"]), mixture.condition({"m": 3.0})
    assert np.isfinite(alone.log_prob([[0.0]])).all()
    with pytest.raises(ValueError, match="errors are inflated by m, and these rows do not have it"):
        alone.log_prob([[0.0]], error=[[1.0]])
    bright = xd.Batch.from_arrays([[0.0]], error=[[1.0]], group=[0])
    np.testing.assert_allclose(alone.log_prob(bright), -0.5 * np.log(2 * np.pi * (1 + 1.5**2)))
    np.testing.assert_allclose(given.inflation.factors, [[2.0]])
    expected = -0.5 * np.log(2 * np.pi * (0.75 + 2.0**2))
    np.testing.assert_allclose(given.log_prob([[1.5]], error=[[1.0]]), expected)


def test_rows_of_a_group_that_the_fit_did_not_have_are_warned_of():
    grouping = Grouping("m", (0.0,), coordinate=1)
    inflation = Inflated(((1.5, 1.0), (2.0, 1.0), (1.0, 1.0)), (0,), (), grouping, rows=(9.0, 9.0, 0.0))
    mixture = xd.Mixture([1.0], [[0.0, 0.0]], [np.eye(2)], ["x", "m"], inflation=inflation)
    with pytest.warns(UserWarning, match="rows are of m missing, and no row of the fit was: their errors are taken"):
        mixture.log_prob([[0.0, np.nan]], error=[[1.0, 1.0]])
    X, s = rows(60)
    with pytest.raises(ValueError, match="a jitter is asked for of x < -99, and no row is of it"):
        xd.fit(X, 1, error=s, labels=["x", "y"], inflation=xd.Inflation(by="x", bins=[-99.0], jitter=[0]))
