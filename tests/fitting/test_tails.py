"""Fits of Student's t: its nu is found, and one component does what many Gaussian ones cannot."""

import numpy as np
import pytest
from scipy.stats import multivariate_t

import xdeconv as xd
from xdeconv.kernels import accumulate, log_prob
from xdeconv.mixture.tails import scales

V = np.array([[1.0, 0.5, 0.0], [0.5, 2.0, 0.3], [0.0, 0.3, 0.5]])


def heavy(n=2000, nu=3.0, seed=0):
    return multivariate_t([1.0, -2.0, 0.0], V, df=nu, seed=seed).rvs(n)


def test_the_density_is_nearly_that_of_student():
    X = heavy(4000, seed=3)
    mixture = xd.Mixture([1.0], [[1.0, -2.0, 0.0]], [V], tails=xd.StudentT(3.0))
    right = multivariate_t([1.0, -2.0, 0.0], V, df=3.0).logpdf(X)
    assert abs(mixture.score(X) - right.mean()) < 0.003
    assert mixture.gaussians().score(X) == pytest.approx(mixture.score(X), rel=1e-12)


def test_slopes_are_derivatives():
    rng = np.random.default_rng(0)
    batch = xd.Batch.from_arrays(heavy(300), rng.uniform(0.1, 1.0, (300, 3)))
    mixture = xd.Mixture([0.4, 0.6], [[1.0, -2.0, 0.0], [0.0, 0.0, 0.0]], [V, np.eye(3)])
    tails, own = xd.StudentT(4.0, fitted=True), mixture.tensors()
    stats = tails.pulled_back(accumulate(*tails.expanded(own), batch), own.covariances)

    def value(nu=4.0, **changes):
        return float(log_prob(*xd.StudentT(nu).expanded(own._replace(**changes)), batch).sum())

    h = 1e-5
    slope = (value(tails.at(tails.numbers + h).nu) - value(tails.at(tails.numbers - h).nu)) / (2 * h)
    assert float(stats.slopes[0]) == pytest.approx(slope, rel=1e-5)
    up, down = own.means.clone(), own.means.clone()
    up[1, 2] += h
    down[1, 2] -= h
    assert float(stats.g[1, 2]) == pytest.approx((value(means=up) - value(means=down)) / (2 * h), rel=1e-6)
    up, down = own.covariances.clone(), own.covariances.clone()
    up[0, 1, 1] += h
    down[0, 1, 1] -= h
    half = (value(covariances=up) - value(covariances=down)) / (2 * h)
    assert float(stats.G[0, 1, 1]) / 2 == pytest.approx(half, rel=1e-6)


def test_em_never_falls_with_nu_given():
    X = heavy(500)
    result = xd.fit(X, 2, tails=3.0, method=xd.EM(accelerate=False), epochs=60, tol=0)
    assert np.diff([e.loglik for e in result.history]).min() > -1e-12


@pytest.mark.slow
def test_one_component_beats_eight_gaussians():
    X, unseen = heavy(), heavy(20_000, seed=9)
    result = xd.fit(X, 1, tails=xd.StudentT())
    assert result.converged
    assert 2.5 < result.mixture.tails.nu < 3.6
    np.testing.assert_allclose(result.mixture.covariances[0], V, atol=0.25)
    gaussian = xd.fit(X, 8).mixture
    assert result.mixture.score(unseen) > gaussian.score(unseen) + 0.03


@pytest.mark.sampled
@pytest.mark.parametrize(
    "settings",
    [
        {"method": xd.EM(accelerate=False), "epochs": 150},
        {"batch_rows": 500, "epochs": 15},
        {"method": xd.SGD(), "batch_rows": 500, "epochs": 40},
        {"background": xd.Uniform([-200.0] * 3, [200.0] * 3)},
        {"validation": 0.1, "restarts": 2},
    ],
    ids=["plain EM", "minibatches", "SGD", "background", "restarts"],
)
def test_every_method_finds_nu(settings):
    noise = np.random.default_rng(1).uniform(0.05, 0.5, (4000, 3)) ** 2
    X = heavy(4000) + np.random.default_rng(2).normal(size=(4000, 3)) * np.sqrt(noise)
    mixture = xd.fit(X, 1, noise=noise, tails=xd.StudentT(), **settings).mixture
    assert 2.3 < mixture.tails.nu < 4.2


def test_gaussian_rows_give_a_large_nu():
    X = np.random.default_rng(0).normal(size=(3000, 2))
    assert xd.fit(X, 1, tails=xd.StudentT()).mixture.tails.nu > 15


def test_questions_and_files(tmp_path):
    noise = np.full((50, 3), 0.1)
    X = heavy(50)
    box = xd.Uniform([-50.0] * 3, [50.0] * 3)
    mixture = xd.Mixture([0.5, 0.5], [[1.0, -2.0, 0.0], [3.0, 3.0, 3.0]], [V, V], labels=["a", "b", "c"],
                         tails=xd.StudentT(3.0), background=box, background_weight=0.2)  # fmt: skip
    mixture.save(tmp_path / "m")
    again = xd.load(tmp_path / "m")
    assert again.tails == xd.StudentT(3.0)
    assert again.score(X, noise) == mixture.score(X, noise)
    same = mixture.gaussians()
    np.testing.assert_allclose(mixture.log_prob(X, noise), same.log_prob(X, noise), rtol=1e-12)
    np.testing.assert_allclose(mixture.posterior(X, noise).mean(), same.posterior(X, noise).mean(), rtol=1e-9)
    shares = same.responsibilities(X, noise).reshape(50, 2, 6).sum(2)
    np.testing.assert_allclose(mixture.responsibilities(X, noise), shares, rtol=1e-9)
    for pair in (
        (mixture.marginal(["a"]), same.marginal(["a"])),
        (mixture.condition({"b": 1.0}), same.condition({"b": 1.0})),
    ):
        points = np.linspace(-9.0, 9.0, 7)[:, None] * np.ones((1, pair[0].d))
        np.testing.assert_allclose(pair[0].log_prob(points), pair[1].log_prob(points), rtol=1e-9)
    np.testing.assert_allclose(mixture.covariance(), same.covariance(), rtol=1e-12)
    line, plain = (m.marginal(["a"]).with_(background=None) for m in (mixture, same))
    np.testing.assert_allclose(line.cdf([0.0, 5.0]), plain.cdf([0.0, 5.0]), rtol=1e-9)
    drawn = mixture.with_(background=None).sample(40_000, 0)
    assert np.mean(np.abs(drawn[:, 0] - 2) > 15) == pytest.approx(1 - np.diff(line.cdf([-13.0, 17.0]))[0], rel=0.2)
    allowed = np.log(np.full((50, 2), 0.5))
    np.testing.assert_allclose(mixture.posterior(X, noise, log_prior=allowed).mean(), same.posterior(X, noise).mean())
    with pytest.raises(ValueError, match="have no tails"):
        mixture.with_(background=None).to_sklearn()


def test_shares_sum_to_one():
    for nu in (0.5, 3.0, 1000.0):
        assert float(scales(np.log(nu)).p.sum()) == pytest.approx(1.0)
    assert float(scales(np.log(1000.0)).c.max()) < 1.2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tails": "t"}, "tails must be an xd.StudentT"),
        ({"tails": 0.0}, r"nu must be a number from 0.5 to 1000"),
    ],
)
def test_mistakes_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        xd.fit(heavy(50), 1, **settings)
    with pytest.raises(ValueError, match=message):
        xd.Mixture([1.0], [[0.0]], [[[1.0]]], **settings)


def test_a_mixture_takes_nu_alone_as_a_fit_does():
    mixture = xd.Mixture([1.0], [[0.0]], [[[1.0]]], tails=3)
    assert mixture.tails == xd.StudentT(3.0)
    assert mixture.with_(tails=4.0).log_prob([[9.0]]) < mixture.log_prob([[9.0]])


@pytest.mark.parametrize("noisy", [False, True])
def test_rows_without_tails_are_told_soon(noisy):
    """A nu held at its end by a clip kept a slope: 180 to 270 passes, and some fits never ended."""
    rng = np.random.default_rng([0, 300])
    X = rng.normal(size=(300, 3))
    error = rng.uniform(0.2, 1.0, size=(300, 3)) if noisy else None
    X = X + error * rng.normal(size=X.shape) if noisy else X
    result = xd.fit(X, 1, error=error, tails=xd.StudentT())
    assert result.converged
    assert len(result.history) < 100
    assert result.mixture.tails.nu > 900


@pytest.mark.parametrize("nu", [0.5, 0.7, 30.0, 1000.0])
def test_a_fit_comes_back_from_any_nu(nu):
    X = multivariate_t(np.zeros(2), np.eye(2), df=4, seed=1).rvs(3000)
    begun = xd.Mixture([1.0], [[0.0, 0.0]], [np.eye(2)], tails=xd.StudentT(nu, fitted=True))
    result = xd.fit(X, mixture=begun)
    assert result.converged
    assert abs(result.mixture.tails.nu - 3.5055) < 1e-3


@pytest.mark.parametrize("nu", [0.51, 0.9, 1.3, 5.0, 900.0])
def test_a_nu_is_what_its_number_says(nu):
    """Below 1.5 it was moved there: its standard error was 0.30 where refits give 0.13."""
    tails = xd.StudentT(nu, fitted=True)
    assert tails.at(tails.numbers).nu == pytest.approx(nu, rel=1e-12)
