"""Checks of errors and models: right ones pass, wrong ones are named with their factor."""

import numpy as np
import pytest

import xdeconv as xd

TRUTH = xd.Mixture(
    [0.6, 0.4], [[-2.0, 0.0], [2.0, 1.0]], [[[0.5, 0.1], [0.1, 1.0]], np.diag([0.3, 0.5])], labels=["a", "b"]
)
N = 4000
NOISE = np.random.default_rng(1).uniform(0.1, 2.0, size=(N, 2)) ** 2
X = TRUTH.sample(N, seed=0, noise=NOISE)


def texts(rows, mixture=TRUTH, **given):
    return {verdict.coordinate: verdict.text for verdict in xd.check(rows, mixture, **given).verdicts}


def test_right_errors_and_a_right_model_pass():
    found = xd.check(X, TRUTH, noise=NOISE)
    assert [v.text for v in found.verdicts] == ["errors and model are right"] * 2
    for verdict in found.verdicts:
        assert verdict.p_value > 0.01
        assert verdict.rows == N
        assert abs(verdict.errors.factor - 1) < 4 * verdict.errors.standard_error
        assert [group.rows for group in verdict.groups] == [N // 5] * 5


@pytest.mark.slow
def test_p_values_are_uniform_over_data_sets():
    seeds, low = range(60), []
    for seed in seeds:
        rows = TRUTH.sample(400, seed=seed + 10, noise=NOISE[:400])
        found = xd.check(rows, TRUTH, noise=NOISE[:400])
        low += [p < 0.1 for v in found.verdicts for p in (v.p_value, v.errors.p_value, v.widths.p_value)]
    assert 0.04 < np.mean(low) < 0.17


@pytest.mark.parametrize(("factor", "said"), [(1.5, "too small by about a factor of 1.5"), (0.7, "too large")])
def test_wrong_errors_of_one_coordinate_are_named(factor, said):
    wrong = NOISE / [1.0, factor**2]
    found = texts(X, noise=wrong)
    assert found["a"] == "errors and model are right"
    assert said in found["b"]


@pytest.mark.parametrize(("factor", "said"), [(0.8, "the model is too narrow"), (1.3, "the model is too wide")])
def test_a_wrong_model_is_named(factor, said):
    wrong = xd.Mixture(TRUTH.weights, TRUTH.means, factor**2 * TRUTH.covariances, labels=["a", "b"])
    for text in texts(X, wrong, noise=NOISE).values():
        assert said in text
        assert "errors" not in text


def test_a_fit_with_wrong_errors_does_not_hide_them():
    wrong = NOISE / 1.44
    fitted = xd.fit(X, 2, noise=wrong, labels=["a", "b"]).mixture
    for text in texts(X, fitted, noise=wrong).values():
        assert "errors are too small" in text


def test_shifted_rows_and_rows_of_some_column():
    assert texts(X + np.array([0.3, 0.0]), noise=NOISE)["a"] == "the model is off in place or shape"
    magnitude = np.random.default_rng(2).uniform(10, 20, N)
    rows = X.copy()
    bad = magnitude > 18
    rows[bad, 1] += np.random.default_rng(3).normal(0, 1.5, bad.sum())
    found = xd.check(rows, TRUTH, by={"G": magnitude}, bins=5, noise=NOISE)
    groups = [group for group in found.verdicts[1].groups if group.quantity == "G"]
    assert groups[-1].p_value < 1e-6
    assert groups[-1].sd > 1.1
    assert min(group.p_value for group in groups[:3]) > 1e-3
    assert "G 18" in repr(found) or "G 17.9" in repr(found)


def test_gaps_projections_and_rows_without_errors():
    gaps = X.copy()
    gaps[::3, 1] = np.nan
    assert [v.rows for v in xd.check(gaps, TRUTH, noise=NOISE).verdicts] == [N, N - len(X[::3])]
    R = np.random.default_rng(0).normal(size=(N, 1, 2))
    seen = TRUTH.sample(N, seed=5, noise=NOISE[:, :1], projection=R)
    assert texts(seen, noise=NOISE[:, :1], projection=R) == {"x0": "errors and model are right"}
    assert set(texts(TRUTH.sample(N, seed=7)).values()) == {"the model is right"}


def test_refusals():
    with pytest.raises(ValueError, match="by='G' has shape"):
        xd.check(X, TRUTH, noise=NOISE, by={"G": [1.0]})
    with pytest.raises(ValueError, match="no rows"):
        xd.check(np.zeros((0, 2)), TRUTH)
    with pytest.raises(ValueError, match="bins"):
        xd.check(X, TRUTH, noise=NOISE, bins=0)
