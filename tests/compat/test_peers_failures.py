"""Failures that were seen in other codes for extreme deconvolution, each as a test that this one passes."""

import threading
import tracemalloc

import numpy as np
import pytest

import xdeconv as xd
from xdeconv import kernels

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 2)) + RNG.choice([-3.0, 3.0], size=(400, 1))
S = RNG.uniform(0.1, 0.5, size=(400, 2))
EVERY_METHOD = [(xd.EM(), None), (xd.EM(step=0.2), 50), (xd.SGD(rate=0.02), 50)]


def finite(mixture):
    return all(np.isfinite(getattr(mixture, name)).all() for name in ("weights", "means", "covariances"))


# jobovy/extreme-deconvolution


def test_a_singular_total_covariance_is_an_error_not_an_abort():
    point = xd.Mixture([1.0], [[0.0, 0.0]], [np.diag([1.0, 0.0])])
    with pytest.raises(ValueError, match="row 0 has no density"):
        point.log_prob([[0.0, 0.0]])
    with pytest.raises(ValueError, match="row 0 has no posterior"):
        point.posterior([[0.0, 0.0]]).mean()


def test_tolerance_zero_iterates():
    result = xd.fit(X, 2, noise=S, tol=0, epochs=7, method=xd.EM(), moves="none")
    assert len(result.history) == 7
    assert result.history[-1].loglik > result.history[0].loglik


@pytest.mark.parametrize(("method", "batch_rows"), EVERY_METHOD)
def test_the_likelihood_is_of_the_mixture_that_is_returned(method, batch_rows):
    result = xd.fit(X, 2, noise=S, epochs=3, method=method, batch_rows=batch_rows)
    assert result.loglik == pytest.approx(result.mixture.score(X, S), rel=1e-10)


def test_missing_values_are_not_contagious():
    holes = X.copy()
    holes[::3, 0] = np.nan
    holes[1::5, 1] = np.nan
    result = xd.fit(holes, 2, noise=S, epochs=5)
    assert finite(result.mixture)
    alone = holes[0, 1:], S[0, 1:]
    assert result.mixture.log_prob(holes[:1], S[:1])[0] == pytest.approx(
        result.mixture.marginal([1]).log_prob(alone[0][None], alone[1][None])[0], rel=1e-12
    )


@pytest.mark.parametrize("far", [1e7, 1e8])
@pytest.mark.parametrize("standardize", [True, False])
def test_variance_one_far_from_zero(far, standardize):
    rows = np.random.default_rng(1).normal(size=(2000, 1))
    near = xd.fit(rows, 1, error=[0.5], standardize=standardize, epochs=20, tol=0)
    moved = xd.fit(rows + far, 1, error=[0.5], standardize=standardize, epochs=20, tol=0)
    np.testing.assert_allclose(moved.mixture.covariances, near.mixture.covariances, rtol=1e-6)
    assert moved.loglik == pytest.approx(near.loglik, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("moves", ["auto", "bovy"])
def test_moves_with_diagonal_errors_of_projected_rows(moves):
    rng = np.random.default_rng(3)
    R = rng.normal(size=(300, 1, 2))
    x = np.einsum("npd,nd->np", R, X[:300])
    result = xd.fit(x, 3, noise=np.full((300, 1), 0.1), projection=R, moves=moves, epochs=14, tol=0, method=xd.EM())
    assert finite(result.mixture)
    assert any(record.moved is not None for record in result.history)


def test_dead_components_come_back_to_life():
    start = xd.Mixture([1.0, 0.0], [[0.0, 0.0], [50.0, 50.0]], [10 * np.eye(2), np.eye(2)])
    frozen = xd.fit(X, mixture=start, noise=S, method=xd.EM(), epochs=15, tol=0)
    revived = xd.fit(X, mixture=start, noise=S, moves="auto", method=xd.EM(), epochs=15, tol=0)
    assert frozen.mixture.weights.min() == 0
    assert revived.mixture.weights.min() > 0.3


@pytest.mark.slow
def test_fits_in_threads_do_not_mix():
    alone = [xd.fit(X, 2, noise=S, seed=seed, epochs=4, tol=0).mixture.means for seed in range(4)]
    found: dict[int, np.ndarray] = {}

    def work(seed):
        found[seed] = xd.fit(X, 2, noise=S, seed=seed, epochs=4, tol=0).mixture.means

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        np.testing.assert_array_equal(found[seed], alone[seed])


def test_a_pass_holds_no_matrix_of_rows_and_components():
    rng = np.random.default_rng(4)
    n, k = 40_000, 256
    batch = xd.Batch.from_arrays(rng.normal(size=(n, 2)), error=np.full((n, 2), 0.5))
    mixture = xd.Mixture(np.full(k, 1 / k), rng.normal(size=(k, 2)), np.tile(np.eye(2), (k, 1, 1)))
    tracemalloc.start()
    kernels.accumulate(*mixture.tensors(), batch)
    kernels.log_prob(*mixture.tensors(), batch)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * k * 8 / 4


# bayesiains/scalable_xd and density-deconvolution


@pytest.mark.sampled
@pytest.mark.parametrize(("method", "batch_rows"), EVERY_METHOD)
def test_one_component(method, batch_rows):
    result = xd.fit(X, 1, noise=S, method=method, batch_rows=batch_rows, epochs=100)
    np.testing.assert_allclose(result.mixture.means[0], X.mean(0), atol=0.3)


def test_the_tolerance_stops():
    result = xd.fit(X, 1, noise=S, tol=1e-3, epochs=200)
    assert result.converged
    assert len(result.history) < 200


def test_step_sizes_start_anew_with_every_restart():
    settings = {"noise": S, "method": xd.EM(step=xd.Decaying(0.5)), "batch_rows": 400, "epochs": 3, "tol": 0}
    several = xd.fit(X, 2, restarts=2, seed=5, start="random", **settings).history
    for restart, seed in enumerate((5, 5 + 7919)):
        alone = xd.fit(X, 2, seed=seed, start="random", **settings).history
        found = [record.loglik for record in several if record.restart == restart]
        np.testing.assert_allclose(found, [record.loglik for record in alone], rtol=1e-10)


@pytest.mark.parametrize(("method", "batch_rows"), [(xd.EM(), None), (xd.EM(step=0.1), 50)])
def test_float32_at_mean_100_and_sd_a_tenth(method, batch_rows):
    rows = 100 + 0.1 * np.random.default_rng(6).normal(size=(500, 2))
    result = xd.fit(
        rows, 1, error=[0.05, 0.05], dtype="float32", method=method, batch_rows=batch_rows, epochs=30, tol=0,
        patience=30, standardize=False, validation={"X": rows, "error": [0.05, 0.05]},
    )  # fmt: skip
    np.testing.assert_allclose(np.diagonal(result.mixture.covariances[0]), 0.1**2 - 0.05**2, rtol=0.2)
    best = max(record.validation for record in result.history)
    assert result.validation == pytest.approx(best, rel=1e-7)  # in float32, of a mixture that went through float64


# astrozot/xnicer: NaN silently when a factorisation fails


def test_a_failed_factor_is_never_silent():
    with pytest.raises(ValueError, match="not positive semi-definite"):
        xd.Mixture([1.0], [[0.0, 0.0]], [[[1.0, 2.0], [2.0, 1.0]]])
    bad = np.tile(np.eye(2), (5, 1, 1))
    bad[3] = [[1.0, 2.0], [2.0, 1.0]]
    with pytest.raises(ValueError, match="noise of row 3 is not positive semi-definite"):
        xd.fit(X[:5], 1, noise=bad)


# pmelchior/pygmmis and astroML


@pytest.mark.parametrize("moves", ["none", "auto"])
@pytest.mark.parametrize("far", [1e3, 1e6])
def test_one_far_outlier(far, moves):
    rows = np.vstack([X, [[far, -far]]])
    result = xd.fit(rows, 2, error=np.full((401, 2), 0.3), epochs=15, tol=0, moves=moves, method=xd.EM())
    assert finite(result.mixture)
    log_prob = result.mixture.log_prob(rows, error=np.full((401, 2), 0.3))
    assert np.isfinite(log_prob).all()
    np.testing.assert_allclose(result.mixture.responsibilities(rows, error=[0.3, 0.3]).sum(1), 1.0, rtol=1e-12)


def test_parameters_can_be_held():
    start = xd.Mixture([0.5, 0.5], [[-3.0, -3.0], [2.0, 2.0]], [np.eye(2), np.eye(2)])
    for method in (xd.EM(fixed=xd.Fixed(means=[0])), xd.SGD(fixed=xd.Fixed(means=[0]))):
        result = xd.fit(X, mixture=start, noise=S, method=method, epochs=5, tol=0)
        np.testing.assert_allclose(result.mixture.means[0], [-3.0, -3.0], rtol=1e-12)
        assert not np.allclose(result.mixture.means[1], [2.0, 2.0])


def test_samples_obey_their_seed():
    mixture = xd.fit(X, 2, noise=S, epochs=2).mixture
    np.testing.assert_array_equal(mixture.sample(50, seed=1), mixture.sample(50, seed=1))
    assert not np.array_equal(mixture.sample(50, seed=1), mixture.sample(50, seed=2))
    model = xd.XDGMM(2, random_state=3, max_iter=2, tol=0).fit(X, noise=S)
    np.testing.assert_array_equal(model.sample(20)[0], model.sample(20)[0])


@pytest.mark.parametrize("variance", [1e-20, 1e20])
def test_determinants_of_thirty_dimensions_do_not_underflow(variance):
    d = 30
    mixture = xd.Mixture([1.0], np.zeros((1, d)), variance * np.eye(d)[None])
    right = -0.5 * d * np.log(2 * np.pi * variance)
    assert mixture.log_prob(np.zeros((1, d)))[0] == pytest.approx(right, rel=1e-12)


# tholoien/XDGMM


def test_an_error_is_not_a_variance():
    mixture = xd.Mixture([1.0], [[0.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]]], labels=["x", "y"])
    given = mixture.condition({"x": 1.0}, error={"x": 2.0})
    assert given.means[0, 0] == pytest.approx(0.5 / (1 + 4))
    assert given.covariances[0, 0, 0] == pytest.approx(1 - 0.25 / (1 + 4))


def test_criteria_data_frames_and_clones():
    import pandas
    from sklearn.base import clone

    table = pandas.DataFrame(X, columns=["a", "b"])
    models = [xd.XDGMM(k, random_state=0).fit(table, noise=S) for k in (1, 2)]
    assert models[1].bic(table, noise=S) < models[0].bic(table, noise=S)
    twin = clone(models[1]).fit(table, noise=S)
    np.testing.assert_array_equal(twin.means_, models[1].means_)


# What users complain about: outputs that mean different things in different methods


@pytest.mark.parametrize("method", ["em", "minibatch-em", "sgd"])
def test_one_meaning_of_likelihood(method):
    model = xd.XDGMM(2, method=method, random_state=0, max_iter=3, tol=0).fit(X, noise=S)
    each = model.score_samples(X, noise=S)
    assert model.score(X, noise=S) == pytest.approx(each.mean(), rel=1e-12)
    assert model.lower_bound_ == pytest.approx(each.mean(), rel=1e-9)
    np.testing.assert_array_equal(model.mixture_.log_prob(X, S), each)


def test_row_weights_count_as_copies():
    twice = xd.fit(X, 2, noise=S, weight=np.full(400, 2.0), epochs=5, tol=0)
    doubled = xd.fit(np.vstack([X, X]), mixture=twice.mixture, noise=np.vstack([S, S]), epochs=1)
    assert doubled.history[0].loglik == pytest.approx(twice.loglik, rel=1e-10)
