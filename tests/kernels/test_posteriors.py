"""Posterior means and covariances: every backend is pinned to dense algebra in float64."""

import importlib.util

import numpy as np
import pytest
import torch

from problems import CASES, problem
from xdeconv import kernels
from xdeconv.kernels.options import Options
from xdeconv.rows.batch import Batch

HAS_TRITON = importlib.util.find_spec("triton") is not None
TRITON = [pytest.mark.interpreted, pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")]
BACKENDS = ["cpu", pytest.param("cuda", marks=TRITON)]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
REFERENCE = Options(backend="reference")


def home(backend: str, device: str) -> str:
    return "cpu" if backend == "cpu" else device


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_moments_equal_the_references(name, backend, dtype, device):
    p = CASES[name]
    batch = p.batch(dtype=dtype)  # the reference sees the values as rounded for the backend
    right = kernels.posterior_moments(*p.parameters(), batch.to(dtype=torch.float64), REFERENCE)
    ours = kernels.posterior_moments(*p.parameters(), batch.to(device=home(backend, device)), Options(backend=backend))
    for found, wanted in zip(ours, right, strict=True):
        assert found.dtype == dtype
        torch.testing.assert_close(found.cpu().double(), wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("backend", BACKENDS)
def test_little_noise_is_as_sure_as_it_says(backend, device):
    """Of values that are much surer than the mixture, in float32: covariances are the noise's, means stay at them."""
    p = problem(n=40, k=4, d=3, missing=0.2, seed=41)
    tiny = np.float32(p.noise * 1e-14).astype(float)
    batch = Batch.from_arrays(p.X, tiny, dtype=torch.float32).to(home(backend, device))
    distance, covariance = kernels.posterior_moments(*p.parameters(), batch, Options(backend=backend))
    seen = ~np.isnan(p.X)
    variance = covariance[:, [0, 2, 5]].cpu().numpy()
    np.testing.assert_allclose(variance[seen], np.einsum("naa->na", tiny)[seen], rtol=1e-4)
    assert (np.abs(distance.cpu().numpy()[seen]) < 1e-9).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_pair_that_failed_is_nan(backend, device):
    p = CASES["full"]
    log_weights, means, V = p.parameters()
    V = V.clone()
    V[1, 0, 0] = -50.0
    mean, covariance = kernels.posterior_moments(
        log_weights, means, V, p.batch(device=home(backend, device)), Options(backend=backend)
    )
    assert bool(mean.isnan().all())
    assert bool(covariance.isnan().all())


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_rows_have_no_moments(backend, device):
    p = CASES["full"]
    none = p.batch(device=home(backend, device)).rows(slice(0, 0))
    mean, covariance = kernels.posterior_moments(*p.parameters(), none, Options(backend=backend))
    assert (mean.shape, covariance.shape) == ((0, 3), (0, 6))
