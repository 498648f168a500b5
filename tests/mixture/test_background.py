"""A mixture beside a background: every question knows it, and the box is convolved with each row's noise."""

import pickle

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from scipy.stats import multivariate_normal, norm

import xdeconv as xd
from xdeconv.mixture import boxes
from xdeconv.mixture.background import Rows
from xdeconv.mixture.boxes import log_box, log_interval
from xdeconv.rows.batch import Batch

BOX = xd.Uniform([0.0, -5.0], [10.0, 5.0])


def cluster(background=BOX, b=0.3, **more):
    V = [[[0.5, 0.2], [0.2, 0.4]], [[0.3, 0.0], [0.0, 0.3]]]
    return xd.Mixture([0.6, 0.4], [[3.0, 1.0], [7.0, -2.0]], V, background=background, background_weight=b, **more)


def components():
    return cluster().with_(background=None)


def test_a_box_convolved_with_diagonal_noise_is_exact():
    X = np.array([[0.5, 0.0], [-1.0, 4.0], [5.0, np.nan], [30.0, 0.0]])
    noise = np.array([[0.25, 1.0], [4.0, 0.01], [1.0, 1.0], [0.5, 0.5]])
    found = BOX.log_density(Batch.from_arrays(X, noise))
    s = np.sqrt(noise)
    inside = norm.cdf((BOX.high - X) / s) - norm.cdf((BOX.low - X) / s)
    right = np.nansum(np.log(inside[:3] / 10.0), axis=1)
    np.testing.assert_allclose(found[:3], right, rtol=1e-12)
    assert -420 < float(found[3]) < -400  # 28 standard deviations outside is not -inf


def test_a_box_of_exact_rows():
    found = BOX.log_density(Batch.from_arrays([[0.0, 5.0], [11.0, 0.0]]))
    np.testing.assert_allclose(found, [-np.log(100.0), -np.inf])


@pytest.mark.sampled
@pytest.mark.parametrize(("d", "accuracy"), [(2, 1e-6), (3, 1e-6), (4, 1e-3)])
def test_a_box_convolved_with_correlated_noise(d, accuracy):
    rng = np.random.default_rng(d)
    A = rng.normal(size=(12, d, d))
    S = A @ A.transpose(0, 2, 1) + 0.1 * np.eye(d)
    X = rng.normal(size=(12, d))
    X[3, 0] = np.nan
    box = xd.Uniform(-np.arange(1.0, d + 1), np.arange(1.0, d + 1))
    found = box.log_density(Batch.from_arrays(X, S)).exp().numpy()
    for x, s, density in zip(X, S, found, strict=True):
        seen = np.flatnonzero(~np.isnan(x))
        low, high = np.array(box.low)[seen], np.array(box.high)[seen]
        inside = multivariate_normal(x[seen], s[np.ix_(seen, seen)], abseps=1e-9, releps=1e-9, maxpts=10**6)
        assert density * np.prod(high - low) == pytest.approx(inside.cdf(high, lower_limit=low), abs=accuracy)


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("own", [0.3, 0.05, 1e-2, 1e-4, 1e-6])
def test_a_box_seen_through_noise_that_is_almost_one_number(d, own):
    """Noise s z + own e with one z for all coordinates: given z they are independent. It was off by up to 10 %."""
    rng = np.random.default_rng(d)
    s, e = np.array([1.0, 0.7, -1.3])[:d], own * np.array([1.0, 2.0, 0.5])[:d]
    X = rng.normal(size=(8, d))
    box = xd.Uniform([-1.0, -0.5, -1.0][:d], [1.0, 2.0, 0.5][:d])
    found = box.log_density(Batch.from_arrays(X, np.broadcast_to(np.outer(s, s) + np.diag(e**2), (8, d, d)))).exp()
    t, w = np.polynomial.legendre.leggauss(40)
    for x, density in zip(X, found.numpy(), strict=True):
        low, high = (np.array(edge) - x for edge in (box.low, box.high))
        steps = np.r_[low / s, high / s][:, None] + np.tile(abs(e / s), 2)[:, None] * np.linspace(-9, 9, 19)
        ends = np.unique(np.r_[np.linspace(-9, 9, 19), steps.ravel().clip(-9, 9)])
        z = (ends[:-1, None] + np.diff(ends)[:, None] * (t + 1) / 2)[..., None]
        inside = (norm.cdf((high - s * z) / e) - norm.cdf((low - s * z) / e)).prod(-1)
        exact = ((norm.pdf(z[..., 0]) * inside) @ w @ np.diff(ends)) / 2
        assert density * np.prod(np.subtract(box.high, box.low)) == pytest.approx(exact, rel=1e-7, abs=1e-12)


def test_intervals_far_away():
    low = torch.tensor([40.0, -1.0, 3.0, 2.0], dtype=torch.float64)
    found = log_interval(low, torch.tensor([torch.inf, 1.0, 3.0, torch.inf], dtype=torch.float64))
    np.testing.assert_allclose(found, [norm.logsf(40), np.log(1 - 2 * norm.sf(1)), -np.inf, norm.logsf(2)], rtol=1e-9)


def test_boxes_have_gradients():
    low, high = torch.tensor([[-1.0, -0.5]]).double(), torch.tensor([[torch.inf, 2.0]]).double()
    V = torch.tensor([[[1.0, 0.4], [0.4, 2.0]]]).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda v: log_box(low, high, (v + v.mT) / 2), V, atol=1e-7)


def test_the_density_is_the_sum():
    X, noise = np.array([[3.0, 1.0], [5.0, 0.0], [np.nan, 0.0]]), np.full((3, 2), 0.1)
    box = BOX.log_density(Batch.from_arrays(X, noise)).numpy()
    right = np.log(0.7 * np.exp(components().log_prob(X, noise)) + 0.3 * np.exp(box))
    np.testing.assert_allclose(cluster().log_prob(X, noise), right, rtol=1e-12)
    assert cluster().score(X, noise) == pytest.approx(right.mean())
    share = cluster().background_probability(X, noise)
    np.testing.assert_allclose(share, 0.3 * np.exp(box - right), rtol=1e-9)
    np.testing.assert_allclose(cluster().responsibilities(X, noise).sum(1), 1 - share, rtol=1e-9)


def test_the_posterior_is_that_of_the_components():
    X, noise = np.array([[3.0, 1.0], [5.0, 0.0]]), np.full((2, 2), 0.1)
    np.testing.assert_array_equal(cluster().posterior(X, noise).mean(), components().posterior(X, noise).mean())
    np.testing.assert_array_equal(cluster().outlier(X, noise), components().outlier(X, noise))


def test_marginal_and_condition():
    mixture = cluster(labels=["x", "y"])
    line = mixture.marginal(["y"])
    assert line.background == xd.Uniform(-5.0, 5.0)
    assert line.background_weight == 0.3
    grid = np.stack(np.meshgrid(np.linspace(-2, 12, 1401), [1.0]), -1).reshape(-1, 2)
    density = np.exp(mixture.log_prob(grid)).sum() * 0.01
    assert density == pytest.approx(float(np.exp(line.log_prob([[1.0]]))[0]), rel=2e-3)
    given = mixture.condition({"y": 1.0}, noise={"y": 0.2})
    points, noise = np.array([[2.5, 1.0], [9.0, 1.0]]), np.array([[0.0, 0.2], [0.0, 0.2]])
    joint = mixture.log_prob(points, noise) - line.log_prob([[1.0]], [[0.2]])
    np.testing.assert_allclose(given.log_prob(points[:, :1]), joint, rtol=1e-9)


def test_draws_come_from_both():
    drawn = cluster().sample(20_000, seed=1)
    far = (components().outlier(drawn[:2000]) < 1e-4).mean()
    assert 0.17 < far < 0.25
    mean = 0.7 * components().mean() + 0.3 * np.array([5.0, 0.0])
    np.testing.assert_allclose(drawn.mean(0), mean, atol=0.06)


@pytest.mark.parametrize("background", [BOX, components(), Rows(), cluster()], ids=["box", "field", "rows", "nested"])
def test_files_and_copies(tmp_path, background):
    mixture = cluster(background, labels=["x", "y"])
    mixture.save(tmp_path / "m")
    for copy in (xd.load(tmp_path / "m"), pickle.loads(pickle.dumps(mixture))):
        assert copy.background_weight == 0.3
        assert type(copy.background) is type(background)
        if not isinstance(background, Rows):
            np.testing.assert_array_equal(copy.log_prob([[1.0, 2.0]]), mixture.log_prob([[1.0, 2.0]]))


def test_log_densities_of_rows_have_none_elsewhere():
    mixture = cluster(Rows())
    X = np.array([[3.0, 1.0], [9.0, 4.0]])
    np.testing.assert_allclose(mixture.log_prob(X, background=np.full(2, -np.log(100.0))), cluster().log_prob(X))
    for ask in (mixture.log_prob, mixture.score, mixture.responsibilities, mixture.background_probability):
        with pytest.raises(ValueError, match="give background=, the log-densities of these rows"):
            ask(X)
    for ask in (lambda: mixture.marginal([0]), lambda: mixture.condition({0: 1.0}), lambda: mixture.sample(5)):
        with pytest.raises(ValueError, match=r"take with_\(background=None\)"):
            ask()
    alone = mixture.with_(background=None)
    assert alone.sample(5, seed=0).shape == (5, 2)
    np.testing.assert_array_equal(mixture.outlier(X), alone.outlier(X))  # which is of the components
    np.testing.assert_array_equal(mixture.component_tail(X), alone.component_tail(X))
    rows, cut = xd.Batch.from_arrays(X, background=np.zeros(2)), xd.Cut(0, above=0.0)
    for ask in (mixture.score, mixture.kept_probability):
        with pytest.raises(ValueError, match="how much of the background was kept"):
            ask(rows, selection=cut)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: xd.Uniform([0.0, 1.0], [1.0, 1.0]), "low < high: coordinate 1 goes from 1 to 1"),
        (lambda: xd.Uniform([0.0], [1.0, 1.0]), "of one length"),
        (lambda: xd.Uniform([0.0], [np.inf]), "low < high"),
        (lambda: cluster(xd.Uniform(0.0, 1.0)), "background has 1 dimensions and the mixture 2"),
        (lambda: cluster(b=1.5), "background_weight must lie between 0 and 1"),
        (lambda: cluster(3.0), "must be an xd.Uniform or an xd.Mixture"),
        (lambda: cluster(None), "there is no background"),
        (lambda: cluster().log_prob([[0.0, 0.0]], background=[0.0, 1.0]), r"of shape \(1,\), one per row"),
        (lambda: cluster().to_sklearn(), r"with_\(background=None\)"),
        (lambda: cluster().log_prob([[0.0, 0.0]], projection=np.eye(2)[None]), "no density for projected rows"),
    ],
)  # fmt: skip
def test_mistakes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("d", [4, 5, 7, 10])
def test_a_correlated_box_is_right_to_a_thousandth_where_it_is_improbable(d):
    """Gaussians that share one factor have a probability that is an integral over that factor alone."""
    rng = np.random.default_rng(d)
    low = rng.uniform(-6.0, 2.2, size=(25, d))
    high, own = low + rng.uniform(3.0, 12.0, size=low.shape), rng.uniform(0.2, 1.0, size=d)
    shared = np.sqrt(1 - own**2) * rng.choice([-1, 1], size=d)
    z, weights = np.polynomial.hermite_e.hermegauss(180)
    ends = ((edge[:, None] - shared * z[:, None]) / own for edge in (high, low))
    top, bottom = next(ends), next(ends)
    flipped = bottom > 0
    inside = ndtr(np.where(flipped, -bottom, top)) - ndtr(np.where(flipped, -top, bottom))
    right = (inside.prod(2) * weights).sum(1) / np.sqrt(2 * np.pi)
    S = torch.from_numpy(np.outer(shared, shared) + np.diag(own**2)).expand(25, d, d)
    found = log_box(torch.from_numpy(low), torch.from_numpy(high), S).exp().numpy()
    rare = right > 1e-6
    assert right[rare].min() < 0.02
    np.testing.assert_allclose(found[rare], right[rare], rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("d", [4, 10])
def test_a_box_seen_through_correlated_noise_is_known_to_a_thousandth(d, monkeypatch):
    rng = np.random.default_rng(d + 7)
    A = rng.normal(size=(20, d, d)) / np.sqrt(d)
    centre, width = 1.2 * rng.normal(size=(20, d)), rng.uniform(0.5, 4.0, size=(20, d))
    given = [
        torch.from_numpy(t)
        for t in (centre - width / 2, centre + width / 2, A @ A.transpose(0, 2, 1) + 0.05 * np.eye(d))
    ]
    found = boxes.log_box(*given)
    for name in ("LATTICE", "LARGER"):
        monkeypatch.setattr(boxes, name, 1 << 17)
    right = boxes.log_box(*given)
    assert (found - right).abs()[right.exp() > 1e-6].max() < 1e-3
