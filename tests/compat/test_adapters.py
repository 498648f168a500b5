"""What users of astroML's and Holoien's XDGMM write runs, and does not have their faults."""

import numpy as np
import pytest
from sklearn.base import clone

import xdeconv as xd
from xdeconv.compat import astroml, tholoien

TRUTH = xd.Mixture([0.6, 0.4], [[0.0, 0.0], [4.0, 2.0]], [np.eye(2), [[0.5, 0.3], [0.3, 0.5]]], labels=["x", "y"])


@pytest.fixture(scope="module")
def rows():
    """X (n, 2) and Xerr (n, 2, 2)."""
    error = np.random.default_rng(0).uniform(0.1, 1.0, size=(800, 2))
    return TRUTH.sample(800, seed=1, error=error), error[:, :, None] ** 2 * np.eye(2)


def test_astroml(rows):
    X, Xerr = rows
    model = astroml.XDGMM(n_components=2, max_iter=200, random_state=0)
    assert model.fit(X, Xerr) is model
    order = np.argsort(-model.alpha)
    np.testing.assert_allclose(model.mu[order], TRUTH.means, atol=0.3)
    np.testing.assert_allclose(model.V[order], TRUTH.covariances, atol=0.3)
    joint = model.logprob_a(X, Xerr)
    assert joint.shape == (800, 2)
    assert model.logL(X, Xerr) == pytest.approx(np.logaddexp(*joint.T).sum(), abs=1e-9)
    assert model.logL(X, Xerr) == pytest.approx(model.mixture.log_prob(X, Xerr).sum(), abs=1e-9)


def test_astroml_samples_follow_their_seed(rows):
    model = astroml.XDGMM(1)
    model.mu, model.V, model.alpha = np.zeros((1, 2)), np.eye(2)[None], np.ones(1)
    assert (model.sample(5, random_state=3) == model.sample(5, random_state=3)).all()
    assert model.sample((4, 3), random_state=3).shape == (4, 3, 2)
    assert not (model.sample(5, random_state=3) == model.sample(5, random_state=4)).any()


def test_astroml_has_no_nan_from_an_outlier_and_takes_nan(rows):
    X, Xerr = rows[0].copy(), rows[1]
    X[0] = 1e5
    X[1::7, 0] = np.nan
    model = astroml.XDGMM(2, max_iter=20, random_state=0).fit(X, Xerr)
    assert np.isfinite(model.mu).all()
    assert np.isfinite(model.logL(X, Xerr))


def test_astroml_refusals(rows):
    with pytest.raises(ValueError, match="no model yet"):
        astroml.XDGMM(2).sample()
    with pytest.raises(ValueError, match=r"Xerr must be covariances \(800, 2, 2\), got \(800, 2\)"):
        astroml.XDGMM(2).fit(rows[0], np.ones((800, 2)))


def test_holoien(rows):
    X, Xerr = rows
    model = tholoien.XDGMM(n_components=2, n_iter=200, labels=["x", "y"], random_state=0).fit(X, Xerr)
    log_prob, responsibilities = model.score_samples(X, Xerr)
    assert log_prob.shape == (800,)
    assert np.allclose(responsibilities.sum(1), 1)
    assert model.score(X, Xerr) == pytest.approx(log_prob.mean(), abs=1e-12)
    assert model.logL(X, Xerr) == pytest.approx(log_prob.sum(), abs=1e-9)
    assert (model.predict(X, Xerr) == model.logprob_a(X, Xerr).argmax(1)).all()
    assert model.sample(7, random_state=1).shape == (7, 2)
    assert model.bic(X, Xerr) - model.aic(X, Xerr) == pytest.approx(11 * (np.log(800) - 2))


def test_holoien_conditions_with_an_error_that_is_an_error():
    model = tholoien.XDGMM(2, labels=["x", "y"], weights=TRUTH.weights, mu=TRUTH.means, V=TRUTH.covariances)
    expected = TRUTH.condition({"x": 1.0}, noise={"x": 0.3**2})
    by_array = model.condition(np.array([1.0, np.nan]), np.array([0.3, 0.0]))
    by_label = model.condition(X_dict={"x": (1.0, 0.3)})
    for found in (by_array, by_label):
        np.testing.assert_allclose(found.mu, expected.means)
        np.testing.assert_allclose(found.V, expected.covariances)
        np.testing.assert_allclose(found.weights, expected.weights)
        assert found.labels.tolist() == ["y"]
    exact = model.condition(X_dict={"y": 2})
    np.testing.assert_allclose(exact.mu, TRUTH.condition({"y": 2.0}).means)
    with pytest.raises(ValueError, match="pair"):
        model.condition(X_dict={"x": (1.0, 2.0, 3.0)})
    with pytest.raises(ValueError, match="give X_input or X_dict"):
        model.condition()
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        model.condition(np.array([1.0]))


def test_holoien_bic_test_data_frames_and_clones(rows):
    import pandas as pd

    X, Xerr = rows
    table = pd.DataFrame(X, columns=["a", "b"])
    model = tholoien.XDGMM(n_iter=30, random_state=0)
    scores, best, lowest = model.bic_test(table, Xerr, [1, 2])
    assert best == 2
    assert lowest == scores.min() == scores[1]
    assert model.labels.tolist() == ["a", "b"]
    assert model.mu.shape == (2, 2)
    again = clone(model).fit(table, Xerr)
    np.testing.assert_allclose(again.mu, model.mu)


def test_holoien_files(tmp_path):
    model = tholoien.XDGMM(2, n_iter=50, tol=1e-4, random_state=3, weights=TRUTH.weights, mu=TRUTH.means,
                           V=TRUTH.covariances, labels=["x", "y"])  # fmt: skip
    model.save_model(tmp_path / "model.fit")
    again = tholoien.XDGMM(filename=str(tmp_path / "model.fit"))
    for name in ("weights", "mu", "V", "labels"):
        assert (getattr(again, name) == getattr(model, name)).all()
    assert (again.n_components, again.n_iter, again.tol, again.random_state) == (2, 50, 1e-4, 3)
    assert (clone(again).mu == model.mu).all()
    (tmp_path / "other.fit").write_text("nothing\n")
    with pytest.raises(ValueError, match="not an XDGMM model file"):
        tholoien.XDGMM(filename=str(tmp_path / "other.fit"))
