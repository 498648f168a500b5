"""Linear combinations of true values, and mixtures in one dimension."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from problems import CASES
from xdeconv import Mixture

TWO = Mixture(
    [0.4, 0.6], [[0.0, 1.0], [2.0, -1.0]], [[[1.0, 0.4], [0.4, 0.8]], [[0.5, -0.2], [-0.2, 1.5]]], labels=["x", "y"]
)
ROWS, NOISE = np.array([[0.5, 0.2], [3.0, np.nan], [-1.0, 4.0]]), np.array([[0.5, 0.2]])
LINE = Mixture([0.3, 0.7], [[-1.0], [2.0]], [[[0.25]], [[4.0]]])


def test_along_is_the_marginal_of_turned_coordinates():
    """u = 2 x - y is a coordinate of a mixture that is turned, and its posterior a marginal there."""
    turn = np.array([[2.0, -1.0], [0.0, 1.0]])
    turned = Mixture(TWO.weights, TWO.means @ turn.T, turn @ TWO.covariances @ turn.T)
    R = np.broadcast_to(np.linalg.inv(turn), (3, 2, 2))
    right = turned.posterior(ROWS, np.tile(NOISE, (3, 1)), R).marginal([0])
    ours = TWO.posterior(ROWS, np.tile(NOISE, (3, 1))).along({"x": 2.0, "y": -1.0})
    np.testing.assert_allclose(ours.mean(), right.mean()[:, 0])
    np.testing.assert_allclose(ours.sd() ** 2, right.covariance()[:, 0, 0])
    np.testing.assert_allclose(ours.quantile([0.1, 0.5]), right.quantile([0.1, 0.5])[..., 0])
    np.testing.assert_allclose(ours.cdf(ours.quantile(0.3)), 0.3)
    plain = TWO.posterior(ROWS)
    np.testing.assert_allclose(plain.along([2.0, -1.0]).mean(), plain.along({0: 2, 1: -1}).mean())


def test_along_densities():
    p = CASES["missing full"]
    mixture = Mixture(p.weights, p.means, p.covariances)
    along = mixture.posterior(p.X[:4], p.noise[:4]).along([1.0, -2.0, 0.0, 0.5])
    grid = np.linspace(-60, 60, 4001)[None]
    density = along.pdf(grid)
    assert density.shape == (4, 4001)
    np.testing.assert_allclose(np.trapezoid(density, grid, axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(np.trapezoid(density * grid, grid, axis=1), along.mean(), rtol=1e-5, atol=1e-6)
    mean = along.mean()
    assert along.pdf(mean).shape == (4,)
    np.testing.assert_allclose(along.pdf(mean), [along.pdf(m)[i] for i, m in enumerate(mean)])
    np.testing.assert_allclose(along.cdf(np.stack([mean, mean], 1))[:, 0], along.cdf(mean))


def test_along_each_row_has_a_direction_of_its_own(monkeypatch):
    """As the lines of sight of stars have: each row is as if it were asked alone."""
    noise, directions = np.tile(NOISE, (3, 1)), np.array([[2.0, -1.0], [0.0, 1.0], [1.0, 3.0]])
    monkeypatch.setattr("xdeconv.mixture.posterior.CHUNK_NUMBERS", 8)  # one row in a chunk
    ours = TWO.posterior(ROWS, noise).along(directions)
    alone = [TWO.posterior(ROWS[[i]], noise[[i]]).along(directions[i]) for i in range(3)]
    for ask in ("mean", "sd"):
        np.testing.assert_allclose(getattr(ours, ask)(), [getattr(one, ask)()[0] for one in alone])
    for ask, value in (("pdf", 0.5), ("cdf", 0.5), ("quantile", 0.2)):
        np.testing.assert_allclose(getattr(ours, ask)(value), [getattr(one, ask)(value)[0] for one in alone])


def test_along_works_in_chunks_and_on_marginals(monkeypatch):
    posterior = TWO.posterior(ROWS, NOISE[0])
    right = posterior.along({"y": 1.0})
    expected = right.pdf(0.5), right.cdf([0.1, 0.2, 0.3]), right.quantile(0.2)
    monkeypatch.setattr("xdeconv.mixture.posterior.CHUNK_NUMBERS", 8)
    alone = posterior.marginal(["y"]).along([1.0])
    for ours, wanted in zip((alone.pdf(0.5), alone.cdf([0.1, 0.2, 0.3]), alone.quantile(0.2)), expected, strict=True):
        np.testing.assert_allclose(ours, wanted)


def test_along_refuses():
    posterior = TWO.posterior(ROWS)
    with pytest.raises(ValueError, match="direction must be 2 numbers"):
        posterior.along([1.0])
    with pytest.raises(ValueError, match=r"of shape \(3, 2\), one per row; got shape \(2, 2\)"):
        posterior.along(np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"not all zero, got \[0.0, 0.0\] \(row 1\)"):
        posterior.along([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match="no coordinate 'z'"):
        posterior.along({"z": 1.0})
    with pytest.raises(ValueError, match="not all zero"):
        posterior.along({"x": 0.0})
    with pytest.raises(ValueError, match=r"x must be one value, 3 values, or of shape \(1, m\) or \(3, m\)"):
        posterior.along({"x": 1.0}).cdf([0.0, 1.0])
    with pytest.raises(ValueError, match="no density"):
        posterior.along({"x": 1.0}).pdf(0.5)  # known without noise


def test_one_dimension():
    x = np.array([[-2.0, 0.0], [1.0, 7.0]])
    right = 0.3 * norm.cdf(x, -1, 0.5) + 0.7 * norm.cdf(x, 2, 2)
    np.testing.assert_allclose(LINE.cdf(x), right)
    np.testing.assert_allclose(LINE.quantile(right), x, rtol=1e-9, atol=1e-9)
    assert LINE.cdf(0.0).shape == ()
    with pytest.raises(ValueError, match="cdf is of one dimension and the mixture has 2: take marginal"):
        TWO.cdf(0.0)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        LINE.quantile([0.5, 1.0])


def test_mean_and_covariance_of_the_whole():
    draws = TWO.sample(200_000, seed=1)
    np.testing.assert_allclose(TWO.mean(), draws.mean(0), atol=0.02)
    np.testing.assert_allclose(TWO.covariance(), np.cov(draws.T), atol=0.03)
    mean = quad(lambda v: v * np.exp(LINE.log_prob([[v]])[0]), -30, 30)[0]
    assert LINE.mean()[0] == pytest.approx(mean)
    assert TWO.n_parameters == 11
