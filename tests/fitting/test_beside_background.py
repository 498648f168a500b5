"""Fits beside a background: its weight is found, and every way to fit knows it."""

import numpy as np
import pandas
import pytest

import xdeconv as xd
from xdeconv.mixture.background import Rows

BOX = xd.Uniform([0.0, 0.0], [10.0, 10.0])
V = np.array([[[0.5, 0.2], [0.2, 0.4]], [[0.3, -0.1], [-0.1, 0.6]]])
TRUTH = xd.Mixture([0.5, 0.5], [[3.0, 3.0], [7.0, 6.0]], V, background=BOX, background_weight=0.3)


def rows(n=3000, seed=0):
    noise = np.random.default_rng(seed).uniform(0.05, 0.3, size=(n, 2)) ** 2
    return TRUTH.sample(n, seed, noise=noise), noise


def check(mixture, weight=0.02, width=0.1):
    order = np.argsort(mixture.means[:, 0])
    assert abs(mixture.background_weight - 0.3) < weight
    assert mixture.background == BOX
    assert mixture.weights.sum() == pytest.approx(1.0)
    found = mixture.covariances[order][:, [0, 1], [0, 1]]
    np.testing.assert_allclose(found / V[:, [0, 1], [0, 1]], 1.0, atol=width)


@pytest.mark.slow
def test_two_clusters_in_a_uniform_background():
    found = [xd.fit(X, 2, noise=S, background=BOX).mixture for X, S in (rows(seed=seed) for seed in range(4))]
    for mixture in found:
        check(mixture)
    ratios = [m.covariances[np.argsort(m.means[:, 0])][:, [0, 1], [0, 1]] / V[:, [0, 1], [0, 1]] for m in found]
    np.testing.assert_allclose(np.mean(ratios, axis=0), 1.0, atol=0.05)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "settings",
    [
        {"method": xd.EM(accelerate=False), "moves": "none", "epochs": 200},
        {"batch_rows": 256, "epochs": 12},
        {"method": xd.SGD(), "batch_rows": 256, "epochs": 40, "moves": "none"},
        {"method": xd.EM(prior=xd.Prior(w=1e-3, concentration=1.1))},
        {"dtype": "float32"},
        {"validation": 0.1, "patience": 3},
    ],
    ids=["plain EM", "minibatches", "SGD", "prior", "float32", "patience"],
)
def test_every_method_finds_it(settings):
    X, S = rows()
    result = xd.fit(X, 2, noise=S, background=BOX, **settings)
    check(result.mixture, weight=0.03, width=0.2)
    if "validation" not in settings:
        assert result.mixture.score(X, S) == pytest.approx(result.loglik, abs=1e-5)


def test_rows_that_the_box_cannot_reach_are_told(caplog):
    X, S = rows(500)
    assert xd.fit(X, 2, noise=S, background=BOX, moves="none").notes == ()
    X[:5], X[5, 1] = [30.0, 5.0], np.nan
    result = xd.fit(X, 2, noise=S, background=BOX, moves="none")
    assert any(note.startswith("5 of 500 rows lie outside the background's box") for note in result.notes)
    assert "5 of 500 rows" in caplog.text


@pytest.mark.slow
def test_the_search_sees_it():
    means = [[2.0, 2.0], [2.0, 8.0], [8.0, 2.0], [8.0, 8.0], [5.0, 5.0]]
    truth = xd.Mixture(
        np.full(5, 0.2), means, np.full((5, 1, 1), 0.05) * np.eye(2), background=BOX, background_weight=0.5
    )
    X = truth.sample(2000, 1)
    found = xd.fit(X, 5, background=BOX, seed=3)
    assert found.converged
    assert found.loglik > truth.score(X)
    assert abs(found.mixture.background_weight - 0.5) < 0.03


@pytest.mark.slow
def test_log_densities_per_row_are_the_same_fit():
    X, S = rows(1000)
    density = BOX.log_density(xd.Batch.from_arrays(X, S)).numpy()
    box, bare = (xd.fit(X, 2, noise=S, background=b, validation=0.2) for b in (BOX, density))
    assert bare.mixture.background == Rows()
    assert bare.loglik == box.loglik
    assert bare.validation == box.validation
    np.testing.assert_array_equal(bare.mixture.means, box.mixture.means)


def test_a_field_model_is_held():
    field = xd.Mixture([1.0], [[5.0, 5.0]], [np.eye(2) * 9.0])
    truth = xd.Mixture([1.0], [[6.0, 4.0]], [np.eye(2) * 0.2], background=field, background_weight=0.6)
    result = xd.fit(truth.sample(4000, 0), 1, background=field)
    assert abs(result.mixture.background_weight - 0.6) < 0.02
    np.testing.assert_allclose(result.mixture.means, [[6.0, 4.0]], atol=0.05)
    assert result.mixture.background is field


@pytest.mark.slow
def test_streams_and_files(tmp_path):
    X, S = rows(4000)
    table = pandas.DataFrame({"x": X[:, 0], "y": X[:, 1], "x_error": np.sqrt(S[:, 0]), "y_error": np.sqrt(S[:, 1])})
    table.to_parquet(tmp_path / "t.parquet")
    settings = {"columns": ["x", "y"], "background": BOX, "epochs": 30, "moves": "none"}
    held = xd.fit(tmp_path / "t.parquet", 2, **settings)
    streamed = xd.fit(tmp_path / "t.parquet", 2, cache="none", **settings)
    np.testing.assert_allclose(np.sort(streamed.mixture.means, 0), np.sort(held.mixture.means, 0), rtol=1e-5)
    check(streamed.mixture, weight=0.03, width=0.2)
    batches = xd.fit(
        tmp_path / "t.parquet", 2, cache="none", columns=["x", "y"], background=BOX, batch_rows=500, epochs=6
    )
    check(batches.mixture, weight=0.05, width=0.3)


@pytest.mark.slow
def test_resuming_ends_at_the_same_bits(tmp_path):
    X, S = rows(800)
    whole = xd.fit(X, 2, noise=S, background=BOX, epochs=12, tol=0)
    xd.fit(X, 2, noise=S, background=BOX, epochs=6, tol=0, checkpoint=tmp_path / "c")
    resumed = xd.fit(
        X, 2, noise=S, background=BOX, epochs=12, tol=0, checkpoint=xd.Checkpoint(tmp_path / "c", resume=True)
    )
    np.testing.assert_array_equal(resumed.mixture.means, whole.mixture.means)
    assert resumed.mixture.background_weight == whole.mixture.background_weight
    other = xd.Uniform([0.0, 0.0], [11.0, 10.0])
    with pytest.raises(ValueError, match=r"belongs to another fit.*background"):
        xd.fit(X, 2, noise=S, background=other, checkpoint=xd.Checkpoint(tmp_path / "c", resume=True))


@pytest.mark.slow
def test_studies(tmp_path):
    X, S = rows(1500)
    chosen = xd.select(X, [1, 2, 3], "bic", noise=S, background=BOX, results=tmp_path / "r")
    assert chosen.best == 2
    check(chosen.result.mixture, weight=0.05, width=0.3)
    again = xd.select(X, [1, 2, 3], "bic", noise=S, background=BOX, results=tmp_path / "r")
    assert [r.score for r in again.table] == [r.score for r in chosen.table]
    density = BOX.log_density(xd.Batch.from_arrays(X, S)).numpy()
    bare = xd.select(X, [1, 2], "cv", folds=2, noise=S, background=density)
    assert bare.best == 2
    draws = xd.bootstrap(X, chosen.result.mixture, draws=4, noise=S)
    shares = [m.background_weight for m in draws.mixtures]
    assert 0.002 < np.std(shares) < 0.05


@pytest.mark.slow
def test_the_estimator():
    X, S = rows()
    model = xd.XDGMM(2, background=BOX, random_state=0).fit(X, noise=S)
    check(model.mixture_)
    assert model.predict_proba(X[:5], noise=S[:5]).sum(1).max() <= 1
    drawn, component = model.sample(1000)
    assert 0.2 < (component == -1).mean() < 0.4
    assert drawn.shape == (1000, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"background": xd.Uniform(0.0, 1.0)}, "background has 1 dimensions and the data 2"),
        ({"background": np.zeros(7)}, r"of shape \(800,\), one per row, got \(7,\)"),
        ({"background": np.full(800, np.nan)}, "NaN"),
        ({"background": "box"}, "background must be an xd.Uniform, an xd.Mixture, or log-densities"),
        ({"background": BOX, "projection": np.broadcast_to(np.eye(2), (800, 2, 2))}, "no density for projected rows"),
        ({"background": np.zeros(800), "validation": {"X": np.zeros((3, 2))}}, "validation=dict"),
    ],
)  # fmt: skip
def test_mistakes_are_named_before_any_work(settings, message):
    with pytest.raises(ValueError, match=message):
        xd.fit(rows(800)[0], 2, **settings)


@pytest.mark.parametrize("named", [{"labels": ["y", "x"]}, {"labels": ["x", "y"], "units": ["mas", "kpc"]}])
def test_a_field_of_other_names_or_units_is_refused_whoever_says_them(named, monkeypatch):
    """Labels of arrays are said to the fit, not by the rows."""
    X, noise = rows(100)
    monkeypatch.setattr("xdeconv.fitting._fit.run", lambda *_: pytest.fail("work was done"))
    field = xd.Mixture([1.0], [[5.0, 5.0]], [np.eye(2)], labels=["x", "y"], units=["mas", "mas"])
    with pytest.raises(ValueError, match="the background is"):
        xd.fit(X, 2, noise=noise, background=field, **named)


def test_log_priors_name_components_of_the_fit_and_none_of_the_background():
    X, S = rows(400)
    log_prior = np.random.default_rng(1).normal(size=(400, 2))
    field = xd.Mixture([0.5, 0.5], [[2.0, 5.0], [8.0, 5.0]], [np.eye(2) * 9.0] * 2)
    known = {"noise": S, "log_prior": log_prior}
    result = xd.fit(X, 2, **known, background=field)
    bare = xd.fit(X, 2, **known, background=field.log_prob(X, S))
    assert result.loglik == pytest.approx(bare.loglik, abs=1e-10)
    asked = xd.Batch.from_arrays(X, **known)
    assert result.mixture.score(asked) == pytest.approx(result.loglik, abs=1e-10)
    shares = result.mixture.responsibilities(asked).sum(1) + result.mixture.background_probability(asked)
    np.testing.assert_allclose(shares, 1.0)
