"""Charts that count what noise hides: their algebra, and fits that once stopped because they did not."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import xdeconv as xd
from xdeconv import kernels
from xdeconv.kernels.sight import mean_information
from xdeconv.methods.accelerated import TRIES, WARM_UP, Accelerated, AcceleratedState
from xdeconv.methods.chart import Chart
from xdeconv.methods.em import EMState
from xdeconv.methods.fixed import Fixed
from xdeconv.methods.structures import FULL, ThroughNoise
from xdeconv.methods.structures.through_noise import LEAST
from xdeconv.rows.batch import Batch

TRUTH = xd.Mixture(
    [0.5, 0.3, 0.2],
    [[0, 0], [4, 1], [-1, 5]],
    [np.eye(2), [[1, 0.5], [0.5, 1]], [[0.5, -0.2], [-0.2, 1.5]]],
)


def rows(widths: float, seed: int, n: int) -> Batch:
    """Rows whose noise is so many times the width of a component."""
    noise = widths**2 * np.random.default_rng(seed).uniform(0.7, 1.3, size=(n, 2))
    return Batch.from_arrays(TRUTH.sample(n, seed=seed, noise=noise), noise)


def chart_at(mixture: xd.Mixture, batch: Batch) -> tuple[Chart, kernels.stats.Stats]:
    log_weights, means, V = mixture.tensors()
    stats = kernels.accumulate(log_weights, means, V, batch)
    state = EMState(log_weights.exp(), means, V, torch.tensor(0.0))
    return Chart.around_state(state, stats, None, FULL, lambda V: mean_information(V, batch)), stats


def test_the_gradient_is_that_of_the_log_likelihood():
    batch = rows(3.0, 0, 500)
    chart, _ = chart_at(TRUTH, batch)
    x = 0.3 * torch.randn(chart.size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def value(y: torch.Tensor) -> float:
        return float(kernels.accumulate(*chart.parameters(y, Fixed()), batch).loglik)

    there = chart.state(x, Fixed(), 0.0)
    stats = kernels.accumulate(*there.parameters(), batch)
    gradient = chart.gradient(x, there.weights, stats, None, Fixed())
    steps = 1e-4 * torch.eye(chart.size, dtype=torch.float64)
    slopes = [(value(x + step) - value(x - step)) / 2e-4 for step in steps]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-5, atol=1e-6)


def test_steps_are_as_long_as_rows_know_little():
    """One Gaussian far narrower than its noise: EM's step along the logarithm of its width is too short."""
    rng = np.random.default_rng(0)
    batch = Batch.from_arrays(rng.normal(size=(4000, 1)) * np.sqrt(1 + 9), np.array([9.0]))
    chart, stats = chart_at(xd.Mixture([1.0], [[0.0]], [[[1.0]]]), batch)
    information = 2 * (4000 * 0.1**2 + abs(float(stats.G)))  # 0.1 of the variance is the component's
    assert float(chart.shape.roots.square()) == pytest.approx(information)
    assert chart.shape.condition == pytest.approx(100)


def test_a_covariance_without_a_factor_is_a_failure():
    """NaN, which the loop sees, and no error of an eigensolver."""
    L = torch.tensor([[[torch.nan]], [[1.0]]], dtype=torch.float64)
    ones = torch.ones(2, 1, 1, dtype=torch.float64)
    shape = ThroughNoise.around(L, 0.5 * ones, torch.ones(2, dtype=torch.float64), ones)
    assert shape.basis.isnan().flatten().tolist() == [True, False]


def test_widths_end_above_nothing():
    """A covariance that should vanish stays positive definite."""
    batch = rows(5.0, 1, 1000)
    thin = xd.Mixture([0.5, 0.5], [[0, 0], [3, 1]], [1e-12 * np.eye(2), np.diag([2.0, 1e-10])])
    chart, _ = chart_at(thin, batch)
    assert chart.shape.share.amin() < LEAST
    _, _, V = chart.parameters(torch.full((chart.size,), -50.0, dtype=torch.float64), Fixed())
    assert bool((torch.linalg.eigvalsh(V) > 0).all())


def test_the_origin_of_a_chart_is_the_mixture_however_narrow():
    """Widths below a limit were raised to it: what few rows see precisely lost 0.5 nats, and no step could gain."""
    thin = xd.Mixture([0.5, 0.5], [[0, 0], [3, 1]], [1e-12 * np.eye(2), np.diag([2.0, 1e-10])])
    chart, _ = chart_at(thin, rows(5.0, 1, 1000))
    there = chart.state(torch.zeros(chart.size, dtype=torch.float64), Fixed(), 0.0)
    np.testing.assert_allclose(there.covariances, thin.covariances, rtol=1e-9, atol=1e-21)


def test_a_chart_in_which_no_step_gains_is_given_up_before_the_fit_is_said_to_be_done():
    """Where few rows see much, steps of such charts are too long: fits ended 3 nats below what EM had yet to gain."""
    batch = rows(3.0, 0, 500)
    method = Accelerated(xd.EM()).through(lambda V: mean_information(V, batch))
    state = method.init(TRUTH)

    def after(fall: float) -> AcceleratedState:
        stats = kernels.accumulate(*state.parameters(), batch)
        return method.update(state, replace(stats, packed=stats.packed - fall * (torch.arange(len(stats.packed)) == 1)),
                             500.0)  # fmt: skip

    for _ in range(WARM_UP + 1):
        state = after(0.0)
    assert state.chart.shape.condition > 10
    for _ in range(TRIES):
        state = after(1e3)
    assert state.chart.shape.condition == pytest.approx(1)
    assert method.left(state) > 0.1
    assert state.progress.objective < float(kernels.accumulate(*state.parameters(), batch).loglik)
    for _ in range(TRIES):
        state = after(1e3)
    assert method.left(state) == 0


def test_a_chart_is_left_where_a_width_vanishes():
    batch = rows(3.0, 0, 500)
    shape = chart_at(TRUTH, batch)[0].shape
    away = torch.zeros(shape.size, dtype=torch.float64)
    away[0] = -3 * shape.roots[0, 0]
    assert shape.strayed(away)
    assert not shape.strayed(-away)


def test_covariances_that_are_held_are_held_to_the_bit():
    """Also those that are narrower than a chart through noise lets others become."""
    batch = rows(1.0, 0, 500)
    thin = xd.Mixture(TRUTH.weights, TRUTH.means, [1e-10 * np.eye(2), np.eye(2), np.eye(2)])
    held = xd.EM(fixed=xd.Fixed(covariances=[True, False, False]))
    found = xd.fit(batch, mixture=thin, method=held, moves="none", standardize=False)
    np.testing.assert_array_equal(found.mixture.covariances[0], thin.covariances[0])
    assert found.converged


@pytest.mark.slow
def test_a_fit_does_not_end_on_its_way_off_a_saddle():
    """Gains that fell to 1e-5 nat rise again on such a way: this fit once said converged 3.5 nats below its maximum."""
    rng = np.random.default_rng([205, 1000])
    noise = rng.uniform(0.7, 1.3, size=(1000, 2))
    X = TRUTH.sample(1000, seed=205, noise=noise)
    X[rng.random(X.shape) < 1 / 3] = np.nan
    found = xd.fit(X, 3, noise=noise, seed=205)
    further = xd.fit(X, mixture=found.mixture, noise=noise, moves="none", tol=0, epochs=200)
    assert found.converged
    assert len(X) * (further.loglik - found.loglik) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("width", [1e-3, 1e-6])
def test_a_width_that_noise_hides_grows_again(width):
    """EM's step is the square of what rows see of a width: such fits said that they had converged where they began."""
    batch = rows(3.0, 0, 5000)
    thin = xd.Mixture(TRUTH.weights, TRUTH.means, [width * np.eye(2)] * 3)
    found = xd.fit(batch, mixture=thin, moves="none")
    assert found.converged
    assert batch.n * (found.mixture.score(batch) - TRUTH.score(batch)) > 0


def test_one_gaussian_behind_heavy_noise_takes_few_passes():
    rng = np.random.default_rng(0)
    noise = rng.uniform(9, 49, size=(20_000, 1))
    X = rng.normal(size=(20_000, 1)) * np.sqrt(1 + noise)
    found = xd.fit(X, 1, noise=noise)
    assert found.converged
    assert len(found.history) <= 60  # 944 in coordinates of complete data


@pytest.mark.slow
def test_a_fit_behind_noise_resumes_to_the_bit(tmp_path):
    batch, path = rows(3.0, 0, 1000), tmp_path / "state.safetensors"
    whole = xd.fit(batch, 3, seed=0, moves="none")
    xd.fit(batch, 3, seed=0, moves="none", epochs=20, checkpoint=xd.Checkpoint(path, every=0))
    resumed = xd.fit(batch, 3, seed=0, moves="none", epochs=1000, checkpoint=xd.Checkpoint(path, every=0, resume=True))
    assert len(whole.history) > 20
    np.testing.assert_array_equal(resumed.mixture.means, whole.mixture.means)
    np.testing.assert_array_equal(resumed.mixture.covariances, whole.mixture.covariances)


def test_what_no_row_that_was_looked_at_sees_keeps_its_width():
    """The origin of a chart is the mixture that it is around, whatever few rows see of it: widths grew by 1e146."""
    batch = rows(0.5, 0, 500)
    blind = Batch.from_arrays(np.column_stack([batch.x[0], np.full(500, np.nan)]), np.full(2, 0.25))
    same_way = Batch.from_arrays(batch.x[0][:, None], np.array([0.25]), projection=np.array([[[1.0, 1.0]]]))
    for some in (blind, same_way):
        chart, _ = chart_at(TRUTH, some)
        there = chart.state(torch.zeros(chart.size, dtype=torch.float64), Fixed(), 0.0)
        np.testing.assert_allclose(there.covariances, TRUTH.covariances, rtol=1e-12, atol=1e-12)
        assert chart.shape.condition < 1e6


@pytest.mark.parametrize("seen", [1, 5, 40])
def test_a_coordinate_that_few_rows_show_is_fitted_as_well_as_by_plain_em(seen):
    """Fits ended at variances of 1e290, 1,000 nats below where they had been, and called that converged."""
    rng = np.random.default_rng(seen)
    X = rng.normal(2.0, 1.0, size=(20_000, 2))
    X[seen:, 1] = np.nan
    found, plain = (xd.fit(X, 1, error=np.full(2, 0.5), method=xd.EM(accelerate=fast)) for fast in (True, False))
    assert found.converged
    assert found.loglik >= plain.loglik - 0.1 / len(X)
    assert found.mixture.covariances[0, 1, 1] < 10


def test_a_direction_that_no_row_shows_is_left_alone():
    """Rows that all show the sum of two coordinates say nothing of their difference."""
    rng = np.random.default_rng(0)
    x = rng.normal(0.0, np.sqrt(2.0 + 0.09), size=(2000, 1))
    found = xd.fit(x, 1, error=np.array([0.3]), projection=np.array([[[1.0, 1.0]]])).mixture
    assert found.covariances[0].sum() == pytest.approx(2.0, rel=0.1)
    assert np.abs(found.covariances).max() < 10
