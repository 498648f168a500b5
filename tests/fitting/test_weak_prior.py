"""Columns without noise of their own: components must not shrink onto single values."""

import numpy as np
import pytest

import xdeconv as xd
from xdeconv.fitting.weak_prior import weak_prior
from xdeconv.rows.batch import Batch
from xdeconv.rows.data import ArraySource


def prior_of(X, noise=None):
    return weak_prior(ArraySource(Batch.from_arrays(X, noise)))


def smooth(n, rng):
    a = rng.gamma(3.0, 0.7, n)
    return np.stack([a, np.sin(a) + rng.normal(0, 0.6, n)], 1)


def test_a_column_with_noise_gets_none():
    X = np.random.default_rng(0).normal(size=(500, 2))
    assert prior_of(X, np.full((500, 2), 0.1)) is None
    only_one = prior_of(X, np.broadcast_to([0.1, 0.0], (500, 2)))
    assert only_one.w[0] == 0
    assert only_one.w[1] > 0


def test_rounding_is_measured_by_the_step_and_the_rows_that_share_a_value():
    X = np.random.default_rng(1).uniform(0, 10, size=(4000, 1)).round(1)
    rows = 4000 / 100
    assert prior_of(X).w[0] == pytest.approx(rows * 0.1**2 / 12, rel=0.1)


def test_noise_below_the_rounding_does_not_count():
    X = np.random.default_rng(2).uniform(0, 10, size=(4000, 1)).round(1)
    assert prior_of(X, np.full((4000, 1), 1e-6)).w[0] == pytest.approx(prior_of(X).w[0])
    assert prior_of(X, np.full((4000, 1), 1e-2)) is None


def test_values_that_differ_get_a_millionth_of_their_spread():
    X = np.random.default_rng(3).normal(0, 5, size=(1000, 3))
    np.testing.assert_allclose(prior_of(X).w, 5e-12 * X.var(0))


def test_units_do_not_matter():
    X = np.random.default_rng(4).uniform(0, 10, size=(1000, 1)).round(1)
    assert prior_of(1e-7 * X + 3.0).w[0] == pytest.approx(1e-14 * prior_of(X).w[0], rel=1e-3)


def test_a_sample_speaks_for_all_rows():
    X = np.random.default_rng(5).uniform(0, 10, size=(60_000, 1)).round(1)
    assert prior_of(X).w[0] == pytest.approx(600 * 0.1**2 / 12, rel=0.1)


@pytest.mark.slow
def test_rounded_values_do_not_attract_components():
    rng = np.random.default_rng(6)
    X, unseen = smooth(3000, rng).round(1), smooth(20_000, rng).round(1)
    found = xd.fit(X, 8, seed=0)
    assert np.sqrt(np.linalg.eigvalsh(found.mixture.covariances)).min() > 0.1 / 12**0.5
    plain = np.median([xd.fit(X, 8, moves="none", seed=s).mixture.score(unseen) for s in range(1, 6)])
    assert found.mixture.score(unseen) > plain - 0.005
    assert any("no noise to speak of" in note for note in found.notes)


@pytest.mark.slow
def test_the_estimator_has_it_too():
    X = smooth(3000, np.random.default_rng(7)).round(1)
    model = xd.XDGMM(8, random_state=0).fit(X)
    assert np.sqrt(np.linalg.eigvalsh(model.covariances_)).min() > 0.1 / 12**0.5


def test_a_prior_of_the_user_is_left_alone():
    X = np.random.default_rng(8).normal(size=(500, 1))
    result = xd.fit(X, 1, method=xd.EM())
    assert result.mixture.covariances[0, 0, 0] == pytest.approx(X.var(), rel=1e-9)
    assert not any("no noise" in note for note in result.notes)


def test_repeated_rows_are_still_rescued():
    X = np.concatenate([np.random.default_rng(9).normal(size=(300, 2)), np.tile([[0.5, 0.5]], (100, 1))])
    assert np.isfinite(xd.fit(X, 3, seed=0).loglik)


def test_a_row_that_weighs_as_much_as_some_is_taken_as_those():
    rng = np.random.default_rng(5)
    X, weight = rng.normal(size=(60, 2)), rng.integers(0, 4, 60)
    weighed = weak_prior(ArraySource(Batch.from_arrays(X, weight=weight)))
    repeated = weak_prior(ArraySource(Batch.from_arrays(np.repeat(X, weight, axis=0))))
    np.testing.assert_allclose(weighed.w, repeated.w, rtol=1e-6)


def test_rounded_columns_are_known_whatever_the_scale_of_weights():
    X = np.random.default_rng(1).uniform(0, 10, size=(4000, 1)).round(1)
    light = weak_prior(ArraySource(Batch.from_arrays(X, weight=np.full(4000, 1e-3))))
    assert light.w[0] == pytest.approx(1e-3 * prior_of(X).w[0])
