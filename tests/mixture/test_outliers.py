"""outlier() is the density's own p-value: uniform for rows of the mixture, and right far out."""

import numpy as np
import pytest
from scipy.stats import chi2, kstest, norm

from problems import random_covariances
from xdeconv import Batch, Mixture
from xdeconv.mixture.outliers import p_value


def mixture(k: int, d: int, spread: float, seed: int = 0) -> Mixture:
    rng = np.random.default_rng(seed)
    means = spread * rng.normal(size=(k, d))
    return Mixture(rng.dirichlet(np.full(k, 2.0)), means, random_covariances(rng, k, d))


MODELS = {
    "one": mixture(1, 3, 0.0),
    "apart": mixture(4, 2, 20.0),
    "60 that overlap": mixture(60, 2, 0.5),
    "narrow in wide": Mixture([0.3, 0.7], np.zeros((2, 2)), [0.01 * np.eye(2), 4 * np.eye(2)]),
    "five dimensions": mixture(8, 5, 1.5),
}


def views(n: int, d: int, kind: str, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    if kind == "own noise":
        return {"noise": 0.2 * rng.lognormal(size=(n, 1, 1)) * random_covariances(rng, n, d)}
    if kind == "shared noise":
        return {"noise": random_covariances(rng, 1, d, 0.3)}
    p = max(1, d - 1)
    return {"noise": 0.2 * rng.lognormal(size=(n, p)), "projection": rng.normal(size=(n, p, d))}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["own noise", "shared noise", "projection"])
def test_uniform_with_gaps(name, kind):
    model, n = MODELS[name], 1200
    given = views(n, model.d, kind, 1)
    X = model.sample(n, seed=2, **given)
    gaps = np.random.default_rng(3).random(X.shape) < 0.25
    gaps[gaps.all(1)] = False
    X[gaps] = np.nan
    p = model.outlier(X, **given)
    assert kstest(p, "uniform").pvalue > 1e-3
    assert (p < 0.05).mean() == pytest.approx(0.05, abs=0.02)


@pytest.mark.slow
def test_one_value_is_exact():
    """Rows that show one number: the integral of f where it is no higher, on a fine grid, whatever the widths."""
    rng = np.random.default_rng(0)
    for spread, narrowest in ((0.5, 0.3), (5.0, 0.3), (5.0, 1e-3)):
        model = mixture(20, 3, spread)
        R, S = rng.normal(size=(30, 1, 3)), narrowest * rng.uniform(0.5, 1.0, size=(30, 1, 1))
        X = model.sample(30, seed=1, noise=S, projection=R)
        X[:3] += 8.0
        p = model.outlier(X, S, R)
        for i in range(30):
            mean = model.means @ R[i, 0]
            sd = np.sqrt(np.einsum("d,kde,e->k", R[i, 0], model.covariances, R[i, 0]) + S[i, 0, 0])
            grid = np.linspace(
                min((mean - 12 * sd).min(), X[i, 0] - 1), max((mean + 12 * sd).max(), X[i, 0] + 1), 40_001
            )
            f, level = (norm.pdf(np.atleast_1d(t)[:, None], mean, sd) @ model.weights for t in (grid, X[i, 0]))
            assert p[i] == pytest.approx((f * (f <= level)).sum() * (grid[1] - grid[0]), rel=0.01, abs=1e-9)
    one = Mixture([1.0], [[0.0]], [[[1.0]]])
    assert one.outlier([[0.0], [1.5], [21.0]]) == pytest.approx(2 * norm.sf([0.0, 1.5, 21.0]), rel=3e-3)
    within = Mixture([0.5, 0.5], [[0.0], [0.0]], [[[1.0]], [[1e-12]]])
    assert within.outlier([[1.0]])[0] == pytest.approx(norm.sf(1.0), rel=1e-3)


def test_the_old_tail_is_not_uniform_where_components_overlap():
    model = MODELS["60 that overlap"]
    X = model.sample(4000, seed=4)
    assert (model.component_tail(X) < 0.01).mean() < 0.004
    assert (model.outlier(X) < 0.01).mean() == pytest.approx(0.01, abs=0.005)


@pytest.mark.parametrize("own", [True, False])
def test_one_gaussian_is_chi_square(own):
    """Down to 1e-100, by draws of each row's own and by the table."""
    model = MODELS["one"]
    radius = np.sqrt(np.concatenate([chi2.isf(np.logspace(-6, -0.01, 400), 3), chi2.isf([1e-20, 1e-100], 3)]))
    rng = np.random.default_rng(5)
    u = rng.normal(size=(len(radius), 3))
    u *= (radius / np.linalg.norm(u, axis=1))[:, None]
    S = np.diag([0.3, 0.1, 0.5])
    X = model.means[0] + u @ np.linalg.cholesky(model.covariances[0] + S).T
    p = model.outlier(X, np.tile(S, (len(X), 1, 1)) if own else S[None])
    np.testing.assert_allclose(p, chi2.sf(radius**2, 3), rtol=1e-3 if own else 0.06)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["60 that overlap", "narrow in wide", "five dimensions"])
@pytest.mark.parametrize("own", ["few", "many", False])
def test_ten_per_cent_down_to_1e_4(name, own):
    """Against 4 million draws: 400 below the least probability that is asked for."""
    model, S = MODELS[name], 0.2
    noisy = Mixture(model.weights, model.means, model.covariances + S * np.eye(model.d))
    drawn = np.sort(np.concatenate([noisy.log_prob(noisy.sample(1_000_000, seed=s)) for s in range(4)]))
    X = noisy.sample(3000, seed=9)
    X = np.concatenate([X[:60], noisy.mean() + 1.9 * (X[60:] - noisy.mean())])
    right = np.searchsorted(drawn, noisy.log_prob(X), side="right") / len(drawn)
    some = np.concatenate([np.flatnonzero((right > low) & (right < 10 * low))[:12] for low in (1e-4, 1e-3, 1e-2, 1e-1)])
    assert len(some) == 48
    if own == "few":
        p = model.outlier(X[some], np.full((len(some), model.d), S))
    elif own == "many":  # rows among others whose noise differs by factors
        rng = np.random.default_rng(0)
        noise = S * rng.lognormal(0.0, 0.5, size=(len(X), 1, 1)) * random_covariances(rng, len(X), model.d)
        noise[some] = S * np.eye(model.d)
        p = model.outlier(X, noise)[some]
    else:
        p = model.outlier(X, np.full(model.d, S))[some]
    error = np.log(p / right[some])
    assert np.sqrt((error**2).mean()) < 0.06
    assert np.mean(np.abs(error) < 0.1) > 0.9


def test_it_does_not_depend_on_where_a_row_stands():
    model = MODELS["five dimensions"]
    X, noise = model.sample(300, seed=1), np.random.default_rng(0).uniform(0.1, 1.0, size=(300, 5))
    whole = model.outlier(X, noise)
    np.testing.assert_array_equal(model.outlier(X[250:], noise[250:]), whole[250:])


def test_views_of_few_rows_and_of_none():
    model = MODELS["apart"]
    X = np.full((2600, 2), np.nan)
    X[:2400, 0] = 1.0
    X[:3, 1] = 2.0
    p = model.outlier(X)
    assert (p[2400:] == 1).all()
    assert [len(part) for part in p_value._views(Batch.from_arrays(X))] == [2397]
    alone = model.marginal([0]).outlier(X[3:4, :1])[0]
    np.testing.assert_allclose(p[3:2400], alone, rtol=0.1)


def test_priors_of_rows_are_weights():
    model = MODELS["apart"]
    X, only = model.sample(20, seed=3), np.array([[0.0, -np.inf, -np.inf, -np.inf]])
    alone = Mixture([1.0], model.means[:1], model.covariances[:1])
    found = model.posterior(X, log_prior=np.repeat(only, 20, 0)).outlier()
    np.testing.assert_allclose(found, alone.outlier(X), rtol=1e-3, atol=1e-300)


@pytest.mark.slow
@pytest.mark.parametrize("seen", [2, 3])
def test_projected_rows_are_right_to_ten_per_cent(seen):
    """60 components that overlap, each row by a projection of its own, against draws of each row's view."""
    rng = np.random.default_rng(0)
    model, n = mixture(60, 5, 0.5), 2500
    R, noise = rng.normal(size=(n, seen, 5)), 0.2 * random_covariances(rng, n, seen)
    X = 1.6 * model.sample(n, seed=1, noise=noise, projection=R)
    p = model.outlier(X, noise, R)
    for low in (1e-3, 1e-2, 1e-1):
        errors = []
        for i in np.flatnonzero((p > low) & (p < 10 * low))[:8]:
            view = Mixture(model.weights, model.means @ R[i].T, R[i] @ model.covariances @ R[i].T + noise[i])
            drawn, level = view.log_prob(view.sample(300_000, seed=int(i))), view.log_prob(X[i : i + 1])
            errors.append(p[i] / (drawn <= level).mean() - 1)
        assert len(errors) == 8
        assert np.sqrt(np.mean(np.square(errors))) < 0.1


def test_likely_rows_have_p_values_that_differ():
    """As many draws as there are may all be less likely than a row: p is its rank among them, not 1."""
    model, n = MODELS["60 that overlap"], 1500
    noise = views(n, model.d, "own noise", 1)["noise"]
    p = model.outlier(model.sample(n, seed=2, noise=noise), noise)
    assert len(np.unique(p)) == n
    assert (p < 1).all()


@pytest.mark.slow
def test_errors_are_the_rows_own():
    """The error of each p-value differs from row to row, so that many of them together are uniform."""
    rng = np.random.default_rng(0)
    model, n = mixture(30, 2, 0.5), 60_000
    noise = 0.2 * rng.lognormal(size=(n, 1, 1)) * random_covariances(rng, n, 2)
    p = model.outlier(model.sample(n, seed=3, noise=noise), noise)
    assert kstest(p, "uniform").pvalue > 1e-3
    same = np.repeat(model.sample(1, seed=4), 4000, 0) + 1e-9 * rng.normal(size=(4000, 2))
    p = model.outlier(same, np.repeat(noise[:1], 4000, 0))
    assert 1e-3 < p.std() / p.mean() < 0.05


@pytest.mark.slow
def test_draws_that_rows_share_lie_evenly():
    """p-values of rows with one noise are off by less than what 300,000 rows would show."""
    model, S = MODELS["one"], np.diag([0.3, 0.1, 0.5])
    X = model.sample(5000, seed=1, noise=S[None])
    away = np.einsum("na,nb,ab->n", X, X, np.linalg.inv(model.covariances[0] + S))
    assert np.abs(model.outlier(X, S[None]) - chi2.sf(away, 3)).max() < 1e-3


@pytest.mark.slow
def test_more_values_than_loops_are_unrolled_for():
    """Twelve values: one Gaussian is chi-square, and so are two equal ones, where draws have to find it."""
    rng = np.random.default_rng(0)
    V = random_covariances(rng, 1, 12)[0]
    one, halves = Mixture([1.0], np.zeros((1, 12)), [V]), Mixture([0.5, 0.5], np.zeros((2, 12)), [V, V])
    X = 1.3 * one.sample(200, seed=1)
    right = chi2.sf(np.einsum("na,nb,ab->n", X, X, np.linalg.inv(V)), 12)
    np.testing.assert_allclose(one.outlier(X), right, rtol=2e-3)
    errors = halves.outlier(X) / right - 1
    assert np.sqrt((errors**2).mean()) < 0.06
