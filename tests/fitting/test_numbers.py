"""Extreme numbers: log-densities stay finite and right, responsibilities sum to 1, fits end somewhere sensible."""

import mpmath
import numpy as np
import pytest

import xdeconv as xd
from xdeconv import kernels

mpmath.mp.dps = 60


def exact_log_prob(mixture, x, S):
    """log sum_j alpha_j N(x | m_j, V_j + S) of one row in 60 digits."""
    terms = []
    for a, m, V in zip(mixture.weights, mixture.means, mixture.covariances, strict=True):
        if a == 0:
            continue
        T = mpmath.matrix(V.tolist()) + mpmath.matrix(S.tolist())
        away = mpmath.matrix([mpmath.mpf(float(p)) - mpmath.mpf(float(q)) for p, q in zip(x, m, strict=True)])
        square = (away.T * mpmath.lu_solve(T, away))[0]
        terms.append(
            mpmath.log(float(a)) - (square + len(x) * mpmath.log(2 * mpmath.pi) + mpmath.log(mpmath.det(T))) / 2
        )
    largest = max(terms)
    return float(largest + mpmath.log(sum(mpmath.exp(t - largest) for t in terms)))


def rotated(rng, values):
    Q = np.linalg.qr(rng.normal(size=(len(values), len(values))))[0]
    V = (Q * values) @ Q.T
    return (V + V.T) / 2


def check(mixture, X, S, rel=1e-9, absolute=1e-9):
    """Both CPU kernels against 60 digits; responsibilities sum to 1."""
    right = np.array([exact_log_prob(mixture, x, s) for x, s in zip(X, S, strict=True)])
    batch = xd.Batch.from_arrays(X, S)
    for backend in ("cpu", "reference"):
        options = kernels.Options(backend=backend)
        found = kernels.log_prob(*mixture.tensors(), batch, options).numpy()
        np.testing.assert_allclose(found, right, rtol=rel, atol=absolute)
        joint = kernels.log_joint(*mixture.tensors(), batch, options).numpy()
        assert not np.isnan(joint).any()
    np.testing.assert_allclose(mixture.responsibilities(X, S).sum(1), 1.0, rtol=1e-12)
    assert not np.isnan(mixture.posterior(X, S).mean()).any()


def some_mixture(rng, d=3, k=3, spread=1.0):
    V = np.array([rotated(rng, spread * rng.uniform(0.3, 2.0, size=d)) for _ in range(k)])
    return xd.Mixture(rng.dirichlet(np.ones(k)), rng.normal(size=(k, d)), V)


def test_noise_over_24_decades_in_one_table():
    rng = np.random.default_rng(0)
    mixture = some_mixture(rng)
    sizes = 10.0 ** np.linspace(-12, 12, 13)
    S = np.array([rotated(rng, size * rng.uniform(0.5, 2.0, size=3)) for size in sizes])
    X = rng.normal(size=(13, 3)) * np.sqrt(1 + sizes)[:, None]
    check(mixture, X, S)


def test_noise_over_24_decades_between_the_columns_of_a_row():
    rng = np.random.default_rng(1)
    S = np.array([np.diag(10.0 ** rng.permutation([-12.0, 0.0, 12.0])) for _ in range(10)])
    X = rng.normal(size=(10, 3)) * np.sqrt(1 + np.einsum("naa->na", S))
    check(some_mixture(rng), X, S)


@pytest.mark.parametrize("condition", [1e6, 1e12])
@pytest.mark.parametrize("which", ["V", "S", "both"])
def test_condition_numbers(which, condition):
    """Axes that differ by 1e12; away from the thin axis the answer must be that of its rounded matrix."""
    rng = np.random.default_rng(2)
    thin = np.array([1.0, condition**-0.5, 1 / condition])
    V = np.array([rotated(rng, thin if which != "S" else np.ones(3)) for _ in range(2)])
    S = np.array([rotated(rng, 0.1 * (thin if which != "V" else np.ones(3))) for _ in range(8)])
    mixture = xd.Mixture([0.4, 0.6], rng.normal(size=(2, 3)), V)
    X = mixture.sample(8, seed=3, noise=S)
    check(mixture, X, S, rel=1e-16 * condition * 20 + 1e-10, absolute=1e-16 * condition * 100 + 1e-10)


@pytest.mark.parametrize("standardize", [True, False])
def test_means_at_1e8(standardize):
    rng = np.random.default_rng(4)
    truth = xd.Mixture([0.5, 0.5], [[0.0, 0.0], [4.0, 4.0]], [np.eye(2), np.eye(2)])
    X = np.round(truth.sample(1500, seed=5) * 1024) / 1024  # exact after the shift, too
    S = rng.uniform(0.1, 1.0, size=(1500, 2))
    far = truth.transformed(np.full(2, 1e8), np.ones(2))
    check(far, X[:5] + 1e8, np.array([np.diag(s) for s in S[:5]]))
    settings = {"noise": S, "epochs": 10, "tol": 0, "standardize": standardize, "method": xd.EM()}
    near, moved = xd.fit(X, mixture=truth, **settings), xd.fit(X + 1e8, mixture=far, **settings)
    np.testing.assert_allclose(moved.mixture.means - 1e8, near.mixture.means, atol=1e-6)
    np.testing.assert_allclose(moved.mixture.covariances, near.mixture.covariances, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_float32_at_1e8_is_saved_by_centring():
    X = np.random.default_rng(6).normal(size=(800, 2))
    settings = {"error": [0.5, 0.5], "epochs": 10, "tol": 0, "dtype": "float32", "seed": 0}
    near, far = xd.fit(X, 2, **settings), xd.fit(X + 1e8, 2, **settings)
    assert far.loglik == pytest.approx(near.loglik, abs=1e-4)


@pytest.mark.slow
def test_duplicated_points_without_noise():
    X = np.repeat(np.array([[0.0, 0.0], [5.0, 5.0], [9.0, 1.0]]), 30, axis=0)
    X = np.vstack([X, np.random.default_rng(7).normal(4.0, 3.0, size=(60, 2))])
    assert np.isfinite(xd.fit(X, 4, epochs=30).loglik)  # the weak prior of columns without noise is enough
    result = xd.fit(X, 4, epochs=30, method=xd.EM())
    assert np.isfinite(result.loglik)
    assert any("small prior" in note for note in result.notes)
    with_prior = xd.fit(X, 4, epochs=30, method=xd.EM(prior=xd.Prior(w=1e-4)))
    assert np.isfinite(with_prior.loglik)
    assert np.linalg.eigvalsh(with_prior.mixture.covariances).min() > 0


def test_constant_columns():
    X = np.random.default_rng(8).normal(size=(200, 3))
    X[:, 1] = 7.0
    noisy = xd.fit(X, 2, error=np.full((200, 3), 0.1), epochs=20)
    np.testing.assert_allclose(noisy.mixture.means[:, 1], 7.0, atol=1e-6)
    exact = xd.fit(X, 2, epochs=20)
    np.testing.assert_allclose(exact.mixture.means[:, 1], 7.0, atol=1e-6)
    assert any("needs a prior" in note for note in exact.notes)


def test_one_row_and_one_dimension():
    one = xd.fit([[3.0, 4.0]], 1, error=[[0.1, 0.2]], epochs=5)
    np.testing.assert_allclose(one.mixture.means[0], [3.0, 4.0], atol=1e-9)
    rng = np.random.default_rng(9)
    x = rng.normal(size=(6, 1))
    check(some_mixture(rng, d=1), x, np.full((6, 1, 1), 1e-12))
    assert np.isfinite(xd.fit(x, 2, error=[[0.1]] * 6, epochs=5).loglik)


def test_two_thousand_components():
    rng = np.random.default_rng(10)
    k = 2000
    mixture = xd.Mixture(np.full(k, 1 / k), rng.normal(size=(k, 2)), np.tile(0.01 * np.eye(2), (k, 1, 1)))
    X = mixture.sample(300, seed=11)
    S = np.full((300, 2), 0.01)
    found = [kernels.log_prob(*mixture.tensors(), xd.Batch.from_arrays(X, S), kernels.Options(backend=b)).numpy()
             for b in ("cpu", "reference")]  # fmt: skip
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    np.testing.assert_allclose(mixture.responsibilities(X, S).sum(1), 1.0, rtol=1e-12)
    after = xd.fit(X, mixture=mixture, noise=S, epochs=2, tol=0, method=xd.EM())
    assert after.history[1].loglik > after.history[0].loglik


def test_weights_over_12_decades():
    rng = np.random.default_rng(12)
    X, S = rng.normal(size=(500, 2)), rng.uniform(0.1, 1.0, size=(500, 2))
    weight = 10.0 ** rng.uniform(-6, 6, size=500)
    start = xd.Mixture([0.5, 0.5], [[-1.0, 0.0], [1.0, 0.0]], [np.eye(2), np.eye(2)])
    settings = {"mixture": start, "noise": S, "epochs": 10, "tol": 0, "method": xd.EM()}
    one, light = (xd.fit(X, weight=weight * unit, **settings) for unit in (1.0, 1e-9))
    np.testing.assert_allclose(light.mixture.means, one.mixture.means, rtol=1e-9)
    assert one.loglik == pytest.approx(one.mixture.score(X, S, weight=weight), rel=1e-9)
    heavy = weight > 1e-9 * weight.max()
    assert one.loglik == pytest.approx(one.mixture.score(X[heavy], S[heavy], weight=weight[heavy]), rel=1e-6)


def test_weights_of_components_over_12_decades():
    rng = np.random.default_rng(13)
    weights = np.array([1.0, 1e-4, 1e-8, 1e-12])
    mixture = xd.Mixture(weights / weights.sum(), 3 * rng.normal(size=(4, 2)), np.tile(np.eye(2), (4, 1, 1)))
    check(mixture, mixture.means + 0.1, np.tile(0.1 * np.eye(2), (4, 1, 1)))


def test_outliers_at_1e6_standard_deviations():
    rng = np.random.default_rng(14)
    mixture = some_mixture(rng)
    X = 1e6 * rng.normal(size=(6, 3))
    check(mixture, X, np.array([rotated(rng, np.full(3, 0.1)) for _ in range(6)]))
    for dtype in ("float64", "float32"):
        rows = np.vstack([mixture.sample(300, seed=15), X[:2]])
        result = xd.fit(rows, 2, error=np.full((302, 3), 0.3), dtype=dtype, epochs=10, seed=0)
        assert np.isfinite(result.mixture.log_prob(rows, error=[0.3] * 3)).all()


def test_no_row_is_dropped_when_float32_fails():
    """Rows that agree to 1e-5 of each other, in float32: the fit says so and its likelihood counts every row."""
    rng = np.random.default_rng(16)
    v = rng.normal(size=(300, 1))
    X = np.hstack([v, v + 1e-5 * rng.normal(size=(300, 1))])
    result = xd.fit(X, 1, dtype="float32")
    assert result.loglik == pytest.approx(result.mixture.score(X), rel=1e-6)
    assert any("float64" in note for note in result.notes)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_component_without_width_that_noise_hides_stays_in_its_number_type(dtype):
    """A singular covariance left float32, whose rows had nothing to do with it."""
    rng = np.random.default_rng(0)
    line = rng.normal(size=(2000, 1)) * np.array([[1.0, 0.3, -0.7]])
    error = rng.uniform(0.3, 1.0, size=line.shape)
    singular = np.outer([1.0, 0.3, -0.7], [1.0, 0.3, -0.7])
    start = xd.Mixture([0.5, 0.5], [[0.1] * 3, [-0.1] * 3], [singular, singular])
    result = xd.fit(line + error * rng.normal(size=line.shape), mixture=start, error=error, dtype=dtype, epochs=5)
    assert not [note for note in result.notes if "float64" in note]
    assert len(result.history) > 1
    assert np.isfinite(result.loglik)
