"""EM against the textbook, and what must hold for every step size, prior and held parameter."""

import numpy as np
import pytest
import torch

from problems import CASES, Problem, problem
from xdeconv import EM, Batch, Decaying, Fixed, Mixture, Prior, Stepped, kernels
from xdeconv.kernels.options import Options

REFERENCE = Options(backend="reference")


def mixture_of(p: Problem) -> Mixture:
    return Mixture(p.weights, p.means, p.covariances)


def sums(method, state, batch):
    return kernels.accumulate(*state.parameters(), batch, REFERENCE)


def em_steps(method, start: Mixture, batch, steps: int):
    state = method.init(start)
    total = float(batch.total_weight())
    for _ in range(steps):
        state = method.update(state, sums(method, state, batch), total)
    return state


def textbook_step(p: Problem, w: float | None = None):
    """Bovy's M step from sums of b and of b b^T + B, with m m^T and all."""
    mixture = mixture_of(p)
    posterior = mixture.posterior(p.X, p.noise, p.projection, log_prior=p.log_prior)
    r, b, B = posterior.weights, posterior.means, posterior.covariances
    r = r * (1.0 if p.weight is None else p.weight[:, None])
    q = r.sum(0)
    m = np.einsum("nk,nkd->kd", r, b) / q[:, None]
    away = b - m
    second = np.einsum("nk,nkd,nke->kde", r, away, away) + np.einsum("nk,nkde->kde", r, B)
    if w is None:
        return q / r.sum(), m, second / q[:, None, None]
    return q / r.sum(), m, (second + w * np.eye(p.means.shape[1])) / (q + 1)[:, None, None]


@pytest.mark.parametrize("name", [name for name in CASES if name != "label priors"])
def test_one_step_is_the_textbook(name):
    p = CASES[name]
    state = em_steps(EM(), mixture_of(p), p.batch(), 1)
    for ours, right in zip((state.weights, state.means, state.covariances), textbook_step(p), strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-10, atol=1e-10)


def test_one_step_with_a_prior_is_bovys():
    p = CASES["full"]
    state = em_steps(EM(prior=Prior(w=0.7)), mixture_of(p), p.batch(), 1)
    np.testing.assert_allclose(state.covariances, textbook_step(p, w=0.7)[2], rtol=1e-10)


def test_without_noise_it_is_scikit_learns_step():
    from sklearn.mixture import GaussianMixture

    p = problem(n=400, k=3, d=2, noise="none", seed=40)
    theirs = GaussianMixture(
        3, max_iter=1, weights_init=p.weights, means_init=p.means, reg_covar=0,
        precisions_init=np.linalg.inv(p.covariances),
    )  # fmt: skip
    with pytest.warns(Warning, match="did not converge"):
        theirs.fit(p.X)
    state = em_steps(EM(), mixture_of(p), p.batch(), 1)
    np.testing.assert_allclose(state.means, theirs.means_, rtol=1e-8)
    np.testing.assert_allclose(state.covariances, theirs.covariances_, rtol=1e-7)
    np.testing.assert_allclose(state.weights, theirs.weights_, rtol=1e-8)


def test_one_component_without_noise_is_the_sample_moments():
    p = problem(n=50, k=1, d=3, noise="none", seed=41)
    state = em_steps(EM(), mixture_of(p), p.batch(), 1)
    np.testing.assert_allclose(state.means[0], p.X.mean(0), rtol=1e-12)
    np.testing.assert_allclose(state.covariances[0], np.cov(p.X.T, bias=True), rtol=1e-10)


@pytest.mark.parametrize("name", ["full", "missing diagonal", "projection p < d", "weights"])
@pytest.mark.parametrize("prior", [None, Prior(w=0.5), Prior(w=0.1, c=3.0, concentration=2.0)])
def test_em_never_lowers_the_penalised_likelihood(name, prior):
    p, method = CASES[name], EM(prior=prior)
    batch = p.batch()
    state, values = method.init(mixture_of(p)), []
    for _ in range(30):
        stats = sums(method, state, batch)
        penalty = 0.0 if prior is None else float(prior.log_density(state.weights, state.covariances))
        values.append(float(stats.loglik) + penalty)
        state = method.update(state, stats, float(stats.rows))
    assert np.diff(values).min() >= -1e-9 * abs(values[-1])
    assert values[-1] > values[0]


@pytest.mark.slow
@pytest.mark.parametrize("step", [1.0, 0.3, 0.05])
@pytest.mark.parametrize("prior", [Prior(w=0.5), Prior(w=2.0, c=5.0, concentration=3.0)])
def test_the_prior_does_not_compound(step, prior):
    """Batch EM's fixed point is that of any step size, and it attracts."""
    p = problem(n=60, k=2, d=2, seed=42)
    right = em_steps(EM(prior=prior), mixture_of(p), p.batch(), 1500)
    method = EM(step=step, prior=prior)
    ours = em_steps(method, method.mixture(right), p.batch(), 20)
    torch.testing.assert_close(ours.covariances, right.covariances, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(ours.weights, right.weights, rtol=1e-7, atol=1e-9)
    off = Mixture(right.weights.numpy(), right.means.numpy(), 1.2 * right.covariances.numpy())
    back = em_steps(method, off, p.batch(), int(30 / step))
    torch.testing.assert_close(back.covariances, right.covariances, rtol=1e-2, atol=1e-2)


def test_inflation_is_added_once_a_step_and_removed_before_the_next():
    """The paper's own penalty: after any step, V is the running statistic plus w."""
    p, w, lam = CASES["full"], 0.3, 0.2
    method = EM(step=lam, inflate=w)
    batch = p.batch()
    state = method.init(mixture_of(p))
    eye = np.eye(3)
    running_mass = p.weights.copy()
    running_second = p.weights[:, None, None] * (p.covariances - w * eye + p.means[:, :, None] * p.means[:, None, :])
    running_first = p.weights[:, None] * p.means
    for _ in range(3):
        now = Mixture(state.weights.numpy(), state.means.numpy(), state.covariances.numpy())
        posterior = now.posterior(p.X, p.noise)
        r, b, B = posterior.weights / batch.n, posterior.means, posterior.covariances
        second = np.einsum("nk,nkd,nke->kde", r, b, b) + np.einsum("nk,nkde->kde", r, B)
        running_mass = (1 - lam) * running_mass + lam * r.sum(0)
        running_first = (1 - lam) * running_first + lam * np.einsum("nk,nkd->kd", r, b)
        running_second = (1 - lam) * running_second + lam * second
        state = method.update(state, sums(method, state, batch), float(batch.n))
        m = running_first / running_mass[:, None]
        V = running_second / running_mass[:, None, None] - m[:, :, None] * m[:, None, :] + w * eye
        np.testing.assert_allclose(state.means, m, rtol=1e-10)
        np.testing.assert_allclose(state.covariances, V, rtol=1e-9)


def test_fixed_parameters_stay_and_the_rest_moves():
    p = CASES["full"]
    fixed = Fixed(weights=[0], means=[1], covariances=[False, False, True, False, False])
    state = em_steps(EM(fixed=fixed), mixture_of(p), p.batch(), 3)
    assert float(state.weights[0]) == mixture_of(p).weights[0]
    assert float(state.weights.sum()) == pytest.approx(1.0)
    np.testing.assert_array_equal(state.means[1], p.means[1])
    np.testing.assert_array_equal(state.covariances[2], p.covariances[2])
    moved = (state.means.numpy() != p.means).all(axis=1)
    assert moved.tolist() == [True, False, True, True, True]
    assert (state.covariances.numpy()[[0, 1, 3, 4]] != p.covariances[[0, 1, 3, 4]]).all()


def test_covariance_about_a_fixed_mean_is_the_scatter_about_it():
    p = problem(n=80, k=1, d=2, noise="none", seed=43)
    state = em_steps(EM(fixed=Fixed(means=True)), mixture_of(p), p.batch(), 1)
    away = p.X - p.means[0]
    np.testing.assert_allclose(state.covariances[0], away.T @ away / 80, rtol=1e-10)


def test_dead_component_is_kept_as_it_is():
    p = CASES["full"]
    weights = p.weights.copy()
    weights[0] = 0.0
    start = Mixture(weights / weights.sum(), p.means, p.covariances)
    state = em_steps(EM(prior=Prior(w=1.0)), start, p.batch(), 2)
    assert float(state.weights[0]) == 0.0
    np.testing.assert_array_equal(state.means[0], p.means[0])
    np.testing.assert_array_equal(state.covariances[0], p.covariances[0])


@pytest.mark.parametrize("offset", [1e2, 1e3, 1e4])
@pytest.mark.parametrize("sd", [0.1, 0.01])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_float32_update_far_from_zero(offset, sd, backend):
    """Nothing large cancels: V after one float32 step against float64 on the same rounded inputs."""
    rng = np.random.default_rng(44)
    n, k, d = 2000, 3, 3
    means = np.float32(offset + 20 * sd * rng.normal(size=(k, d))).astype(float)
    V = np.float32(sd**2 * np.array([np.eye(d) + 0.3] * k)).astype(float)
    X = np.float32(means[rng.integers(k, size=n)] + sd * rng.normal(size=(n, d))).astype(float)
    noise = np.float32((0.5 * sd) ** 2 * rng.uniform(0.5, 1.5, size=(n, d))).astype(float)
    p = Problem(np.full(k, 1 / k), means, V, X, noise)
    method = EM()
    covariances = {}
    for dtype in (torch.float32, torch.float64):
        state = method.init(mixture_of(p))
        stats = kernels.accumulate(*state.parameters(), p.batch(dtype=dtype), Options(backend=backend))
        covariances[dtype] = method.update(state, stats, float(n)).covariances
    error = (covariances[torch.float32] - covariances[torch.float64]).norm() / covariances[torch.float64].norm()
    assert float(error) < 1e-5
    assert float(torch.linalg.eigvalsh(covariances[torch.float32]).min()) > 0


def test_schedules():
    stepped = Stepped(0.01, {10: 0.5, 15: 0.1})
    assert [stepped(e) for e in (0, 9.99, 10, 15)] == pytest.approx([0.01, 0.01, 0.005, 0.0005])
    assert float(stepped(torch.tensor(12.0))) == pytest.approx(0.005)
    decaying = Decaying(0.5, delay=2.0, power=1.0)
    assert decaying(2.0) == 0.25
    p = CASES["full"]
    half = em_steps(EM(step=lambda epoch: 0.5), mixture_of(p), p.batch(), 1)
    torch.testing.assert_close(half.means, em_steps(EM(step=0.5), mixture_of(p), p.batch(), 1).means)


@pytest.mark.parametrize("step", [0.0, -0.1, 1.5])
def test_bad_step_is_refused(step):
    with pytest.raises(ValueError, match="step must lie"):
        EM(step=step)


def test_bad_fixed_is_refused():
    p = CASES["full"]
    with pytest.raises(ValueError, match="outside 0"):
        em_steps(EM(fixed=Fixed(means=[5])), mixture_of(p), p.batch(), 1)
    with pytest.raises(ValueError, match="2 booleans for 5"):
        em_steps(EM(fixed=Fixed(means=[True, False])), mixture_of(p), p.batch(), 1)


def test_bad_prior_is_refused():
    with pytest.raises(ValueError, match="at least 0"):
        Prior(w=-1.0)


def test_a_covariance_of_condition_1e12_keeps_its_smallest_variance():
    """In a rotated frame V + V G V would lose the smallest variance to rounding."""
    rng = np.random.default_rng(3)
    Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    v = rng.normal(size=(5000, 3)) * [1.0, 0.5, 1e-6]
    batch = Batch.from_arrays(v @ Q.T)
    start = Mixture([1.0], [np.zeros(3)], [Q @ np.diag([2.0, 1.0, 2e-12]) @ Q.T])
    method = EM()
    state = method.init(start)
    state = method.update(state, kernels.accumulate(*state.parameters(), batch), 5000.0)
    found = np.linalg.eigvalsh(state.covariances[0].numpy())
    np.testing.assert_allclose(found, np.linalg.eigvalsh(np.cov(v.T, bias=True)), rtol=2e-3)
