"""The most important tests there are: every fast backend is pinned to the float64 reference."""

import importlib.util
from dataclasses import replace

import numpy as np
import pytest
import torch

from problems import CASES, Problem, problem
from xdeconv import kernels
from xdeconv.kernels.options import Options
from xdeconv.rows.batch import Batch

HAS_TRITON = importlib.util.find_spec("triton") is not None
TRITON = [pytest.mark.interpreted, pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")]
BACKENDS = ["cpu", pytest.param("cuda", marks=TRITON)]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4}
REFERENCE = Options(backend="reference")


def home(backend: str, device: str) -> str:
    """The CPU backend wants rows on the CPU; Triton's interpreter takes them there, its compiler on the device."""
    return "cpu" if backend == "cpu" else device


def assert_close(stats, truth, n: float, dtype: torch.dtype) -> None:
    """Errors relative to the size of each sum over all rows, not relative to nearly dead components."""
    for name in ("rows", "loglik", "q", "g", "G"):
        ours, right = getattr(stats, name).cpu(), getattr(truth, name).cpu()
        assert bool(ours.isfinite().all()), name
        size = max(n, float(right.abs().max()))
        assert float((ours - right).abs().max()) <= TOLERANCE[dtype] * size, name


def check(p: Problem, backend: str, dtype: torch.dtype, device: str, **options) -> None:
    batch = p.batch(dtype=dtype)  # the reference sees the values as rounded for the backend
    truth = kernels.accumulate(*p.parameters(), batch.to(dtype=torch.float64), REFERENCE)
    ours = batch.to(device=home(backend, device))
    choice = Options(backend=backend, **options)
    assert_close(kernels.accumulate(*p.parameters(), ours, choice), truth, batch.n, dtype)

    right = kernels.log_joint(*p.parameters(), batch.to(dtype=torch.float64), REFERENCE)
    joint = kernels.log_joint(*p.parameters(), ours, choice).cpu().double()
    torch.testing.assert_close(joint, right, rtol=TOLERANCE[dtype], atol=10 * TOLERANCE[dtype])
    log_prob = kernels.log_prob(*p.parameters(), ours, choice).cpu().double()
    torch.testing.assert_close(log_prob, right.logsumexp(1), rtol=TOLERANCE[dtype], atol=10 * TOLERANCE[dtype])


@pytest.mark.sampled(7)
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_backend_equals_reference(name, backend, dtype, skip, device):
    check(CASES[name], backend, dtype, device, skip=skip)


@pytest.mark.parametrize("backend", BACKENDS)
def test_strided_rows(backend, device):
    p = problem(n=90, k=3, d=2, missing=0.2, weight=True, seed=31)
    whole = p.batch(device=home(backend, device))
    part = whole.rows(slice(17, 60))
    copy = whole.rows(torch.arange(17, 60, device=whole.device))
    ours = kernels.accumulate(*p.parameters(), part, Options(backend=backend))
    torch.testing.assert_close(
        ours.packed, kernels.accumulate(*p.parameters(), copy, Options(backend=backend)).packed, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_rows_is_zero(backend, device):
    p = problem(n=4, k=3, d=2)
    none = p.batch(device=home(backend, device)).rows(slice(0, 0))
    stats = kernels.accumulate(*p.parameters(), none, Options(backend=backend))
    assert not stats.packed.any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failed_factor_is_nan(backend, device):
    p = CASES["full"]
    log_weights, means, V = p.parameters()
    V = V.clone()
    V[1, 0, 0] = -50.0
    batch = p.batch(device=home(backend, device))
    assert kernels.accumulate(log_weights, means, V, batch, Options(backend=backend)).loglik.isnan()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("backend", BACKENDS)
def test_extreme_rows_stay_finite_and_right(backend, dtype, device):
    """Rows a million sd away, noise over 12 decades, weights over 12 decades, a dead component."""
    p = problem(n=24, k=4, d=3, seed=33)
    X = p.X.copy()
    X[3] = 1e6
    X[4, 1] = -1e6
    noise = p.noise * np.logspace(-6, 6, 24)[:, None, None]
    weights = np.array([0.0, 1e-12, 0.3, 0.7 - 1e-12])
    with np.errstate(divide="ignore"):
        extreme = Problem(weights, p.means, p.covariances, X, noise)
        log_weights, means, V = extreme.parameters()
    batch = Batch.from_arrays(X, noise, dtype=dtype)
    right = kernels.log_prob(log_weights, means, V, batch.to(dtype=torch.float64), REFERENCE)
    ours = kernels.log_prob(log_weights, means, V, batch.to(device=home(backend, device)), Options(backend=backend))
    assert bool(ours.isfinite().all())
    torch.testing.assert_close(ours.cpu().double(), right, rtol=20 * TOLERANCE[dtype], atol=20 * TOLERANCE[dtype])
    stats = kernels.accumulate(log_weights, means, V, batch.to(device=home(backend, device)), Options(backend=backend))
    assert bool(stats.packed.isfinite().all())
    assert float(stats.q[0]) == 0.0
    assert float(stats.q.sum()) == pytest.approx(24, rel=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_skipping_loses_at_most_its_bound(backend, device):
    """Far apart components, so that most pairs are skipped: loglik and q differ by at most 2^-24 of each row."""
    p = problem(n=200, k=20, d=3, missing=0.1, seed=34)
    far = Problem(p.weights, 8 * p.means, p.covariances, p.X * 8, p.noise)
    batch = far.batch(device=home(backend, device))
    on = kernels.accumulate(*far.parameters(), batch, Options(backend=backend, skip=True))
    off = kernels.accumulate(*far.parameters(), batch, Options(backend=backend, skip=False))
    assert abs(float(on.loglik - off.loglik)) <= batch.n * 2.0**-23
    assert float((on.q - off.q).abs().sum()) <= batch.n * 2.0**-22


@pytest.mark.parametrize("backend", BACKENDS)
def test_same_bits_twice(backend, device):
    p = CASES["seven dimensions"]
    batch = p.batch(dtype=torch.float32, device=home(backend, device))
    options = Options(backend=backend)
    first, second = (kernels.accumulate(*p.parameters(), batch, options).packed for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
def test_a_component_that_failed_leaves_rows_alone_that_a_prior_keeps_from_it(backend, dtype, skip, device):
    p = problem(n=70, k=4, d=3, seed=35)
    log_weights, means, V = p.parameters()
    rows = p.batch(dtype=dtype, device=home(backend, device))
    own = torch.tensor([[0.0, 0.0, -torch.inf, -torch.inf], [-torch.inf, -torch.inf, 0.0, 0.0]], dtype=dtype)
    label = (torch.arange(70) % 3 == 2).long()
    weight = (1 - label).to(rows.x)  # rows of the second kind count for nothing, and meet NaN
    batch = replace(rows, log_prior=own.to(rows.device), label=label.to(rows.device), weight=weight)
    bad = V.clone()
    bad[2:] = -torch.eye(3)
    options = Options(backend=backend, skip=skip)
    right = kernels.accumulate(log_weights, means, V, batch, options)
    found = kernels.accumulate(log_weights, means, bad, batch, options)
    log_prob = kernels.log_prob(log_weights, means, bad, batch, options).cpu()
    assert torch.equal(log_prob.isnan(), label == 1)
    for name in ("q", "g", "G"):
        torch.testing.assert_close(getattr(found, name)[:2], getattr(right, name)[:2])
    assert float(found.rows) == float(right.rows)
