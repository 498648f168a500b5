"""The reference against a direct transcription of the model's equations, row by row, and against autograd."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from problems import CASES, Problem, problem
from xdeconv import kernels
from xdeconv.kernels import reference
from xdeconv.kernels.options import Options

REFERENCE = Options(backend="reference")


def textbook(p: Problem):
    """Bovy's r, b, B for every row and component, by plain loops over the equations."""
    n, k, d = len(p.X), len(p.weights), p.means.shape[1]
    log_joint, b, B = np.zeros((n, k)), np.zeros((n, k, d)), np.zeros((n, k, d, d))
    for i in range(n):
        seen = ~np.isnan(p.X[i])
        x = p.X[i][seen]
        R = (np.eye(d) if p.projection is None else p.projection[i])[seen]
        S = noise_of_row(p, i)[np.ix_(seen, seen)]
        for j in range(k):
            T = R @ p.covariances[j] @ R.T + S
            gain = p.covariances[j] @ R.T @ np.linalg.inv(T) if len(x) else np.zeros((d, 0))
            b[i, j] = p.means[j] + gain @ (x - R @ p.means[j])
            B[i, j] = p.covariances[j] - gain @ R @ p.covariances[j]
            density = multivariate_normal(R @ p.means[j], T, allow_singular=False).logpdf(x) if len(x) else 0.0
            log_joint[i, j] = np.log(p.weights[j]) + density
    if p.log_prior is not None:
        log_joint += p.log_prior if p.label is None else p.log_prior[p.label]
    return log_joint, b, B


def noise_of_row(p: Problem, i: int) -> np.ndarray:
    width = p.X.shape[1]
    if p.noise is None:
        return np.zeros((width, width))
    if p.noise.ndim == 1:
        return np.diag(p.noise)
    row = p.noise[i % len(p.noise)]
    return np.diag(row) if row.ndim == 1 else row


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CASES)
def test_reference_is_the_textbook(name):
    p = CASES[name]
    log_joint, b, B = textbook(p)
    weight = np.ones(len(p.X)) if p.weight is None else p.weight
    log_prob = logsumexp(log_joint, axis=1)
    r = np.exp(log_joint - log_prob[:, None]) * weight[:, None]

    stats = kernels.accumulate(*p.parameters(), p.batch(), REFERENCE)
    V = p.covariances
    moved = b - p.means
    first = np.einsum("nk,nkd->kd", r, moved)
    second = np.einsum("nk,nkd,nke->kde", r, moved, moved) + np.einsum("nk,nkde->kde", r, B)
    np.testing.assert_allclose(stats.rows, weight.sum(), rtol=1e-12)
    np.testing.assert_allclose(stats.loglik, (weight * log_prob).sum(), rtol=1e-10)
    np.testing.assert_allclose(stats.q, r.sum(0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.einsum("kde,ke->kd", V, stats.g), first, rtol=1e-8, atol=1e-9)
    q = stats.q.numpy()[:, None, None]
    np.testing.assert_allclose(q * V + V @ stats.G.numpy() @ V, second, rtol=1e-8, atol=1e-9)

    joint = kernels.log_joint(*p.parameters(), p.batch(), REFERENCE)
    np.testing.assert_allclose(joint, log_joint, rtol=1e-9, atol=1e-9)
    total = kernels.log_prob(*p.parameters(), p.batch(), REFERENCE)
    np.testing.assert_allclose(total, log_prob, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_the_sums_are_gradients(name):
    p = CASES[name]
    parameters = [t.clone().requires_grad_() for t in p.parameters()]
    batch = p.batch()
    log_prob = kernels.log_prob(*parameters, batch, REFERENCE)
    weight = torch.ones(batch.n, dtype=torch.float64) if batch.weight is None else batch.weight
    (weight * log_prob).sum().backward()
    stats = kernels.accumulate(*p.parameters(), batch, REFERENCE)
    alpha, m, V = (t.grad for t in parameters)
    torch.testing.assert_close(stats.q, alpha, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(stats.g, m, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(stats.G / 2, (V + V.mT) / 2, rtol=1e-7, atol=1e-8)


def test_a_row_with_nothing_observed_says_nothing():
    p = CASES["missing full"]
    batch = p.batch().rows(slice(0, 1))
    assert bool(batch.x.isnan().all())
    stats = kernels.accumulate(*p.parameters(), batch, REFERENCE)
    np.testing.assert_allclose(stats.q, p.weights, rtol=1e-12)
    assert abs(float(stats.loglik)) < 1e-12
    assert not stats.g.any()
    assert not stats.G.any()


def test_a_failed_factor_is_nan_and_not_minus_infinity():
    p = CASES["no noise"]
    log_weights, means, V = p.parameters()
    V = V.clone()
    V[0, 0, 0] = -1.0
    assert kernels.accumulate(log_weights, means, V, p.batch(), REFERENCE).loglik.isnan()


def test_likelihoods_stay_in_the_users_units():
    p = CASES["missing full"]
    shift, scale = torch.tensor([1.0, -2.0, 3.0, 0.5]).double(), torch.tensor([0.1, 10.0, 3.0, 7.0]).double()
    log_weights, means, V = p.parameters()
    scaled = log_weights, (means - shift) / scale, V / scale[:, None] / scale
    direct = kernels.log_prob(log_weights, means, V, p.batch(), REFERENCE)
    torch.testing.assert_close(kernels.log_prob(*scaled, p.batch().standardized(shift, scale), REFERENCE), direct)


class Largest(TorchDispatchMode):
    """Notes how many numbers the largest (n, k, d, d) array has that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        sizes = [t.numel() for t in tree_leaves(made) if torch.is_tensor(t) and t.ndim == 4]
        self.numbers = max([self.numbers, *sizes])
        return made


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [{"missing": 0.2}, {"p": 10, "projection": "dense"}, {"prior": "rows", "weight": True}]
)
def test_many_dimensions_never_hold_all_pairs(kind, monkeypatch):
    """As many numbers at a time as one is told, however many rows and components there are, and the same result."""
    p = problem(n=40, k=12, d=30, seed=80, **kind)
    theta, batch = p.parameters(), p.batch()
    functions = (kernels.log_joint, kernels.log_prob, lambda *a: kernels.accumulate(*a).packed)
    whole = [f(*theta, batch, REFERENCE) for f in functions]
    for numbers in (5 * 12 * 900, 5 * 900):  # some rows at a time; one row and some components
        monkeypatch.setattr(reference, "PAIR_NUMBERS", numbers)
        with Largest() as largest:
            parts = [f(*theta, batch, REFERENCE) for f in functions]
        assert 0 < largest.numbers <= numbers
        for a, b in zip(parts, whole, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
