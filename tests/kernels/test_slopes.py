"""Derivatives by the logarithms of errors: the reference is the derivative, and fast backends are the reference."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from problems import CASES, problem
from xdeconv import kernels
from xdeconv.kernels.options import Options

REFERENCE = Options(backend="reference")
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-4}
NOISY = [name for name in CASES if "no noise" not in name and "p > d" not in name]


def inflated(batch, a, h):
    """The batch with the errors of one coordinate multiplied by exp(h)."""
    f = torch.ones(batch.p, dtype=torch.float64)
    f[a] = np.exp(h)
    i, j = torch.tril_indices(batch.p, batch.p)
    return replace(batch, noise=batch.noise * (f[i] * f[j] if batch.full else f * f)[:, None])


@pytest.mark.parametrize("name", NOISY)
def test_slopes_are_derivatives_of_the_log_likelihood(name):
    p = CASES[name]
    batch = p.batch()
    stats = kernels.accumulate_slopes(*p.parameters(), batch, REFERENCE)
    weight = torch.ones(batch.n, dtype=torch.float64) if batch.weight is None else batch.weight
    for a in range(batch.p):
        up, down = (weight @ kernels.log_prob(*p.parameters(), inflated(batch, a, h), REFERENCE) for h in (1e-5, -1e-5))
        assert float(stats.slopes[a]) == pytest.approx(float(up - down) / 2e-5, rel=1e-6, abs=1e-6 * batch.n)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", CASES)
def test_numba_equals_the_reference(name, dtype):
    p = CASES[name]
    batch = p.batch(dtype=dtype)
    truth = kernels.accumulate_slopes(*p.parameters(), batch.to(dtype=torch.float64), REFERENCE)
    ours = kernels.accumulate_slopes(*p.parameters(), batch, Options(backend="cpu"))
    assert ours.extra == truth.extra == batch.p
    assert float((ours.packed - truth.packed).abs().max()) <= TOLERANCE[dtype] * max(
        batch.n, float(truth.packed.abs().max())
    )


def test_a_background_takes_its_share():
    p = CASES["missing full"]
    batch = replace(p.batch(), background=torch.linspace(-9.0, -2.0, 50, dtype=torch.float64))
    log_weights, *rest = p.parameters()
    parameters = (log_weights + np.log(0.7), *rest)
    truth = kernels.accumulate_slopes(*parameters, batch, REFERENCE)
    torch.testing.assert_close(kernels.accumulate_slopes(*parameters, batch).packed, truth.packed, rtol=0, atol=1e-10)


def test_certainty_counts_rows_that_observe_a_coordinate_with_an_error():
    p = problem(n=6, d=2, noise="diagonal", seed=3)
    X, noise = p.X.copy(), p.noise.copy()
    X[:2, 0], noise[3:, 1] = np.nan, 0.0
    batch = replace(p, X=X, noise=noise, weight=np.full(6, 2.0)).batch()
    stats = kernels.accumulate_slopes(*p.parameters(), batch)
    np.testing.assert_allclose(stats.certainty, [2 * 8.0, 2 * 6.0])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", [{}, {"missing": 0.3}, {"noise": "diagonal"}, {"noise": "diagonal", "missing": 0.9}])
@pytest.mark.parametrize("d", [16, 17, 18, 19, 33, 63, 128])
def test_many_dimensions_equal_the_reference(d, kind, dtype, caplog):
    p = problem(n=21, k=3, d=d, weight=True, seed=d, **kind)
    batch = p.batch(dtype=dtype)
    truth = kernels.accumulate_slopes(*p.parameters(), batch.to(dtype=torch.float64), REFERENCE)
    for options in (Options(backend="cpu"), Options(backend="cpu", skip=False)):
        ours = kernels.accumulate_slopes(*p.parameters(), batch, options)
        for name in ("slopes", "packed"):
            right = getattr(truth, name)
            error = float((getattr(ours, name) - right).abs().max())
            assert error <= TOLERANCE[dtype] * max(batch.n, float(right.abs().max()))
    assert "slower reference" not in caplog.text


def test_projections_of_many_dimensions_fall_back_to_the_reference_and_say_so(caplog):
    p = problem(n=20, k=2, d=17, p=18, projection="dense", noise="diagonal", seed=4)
    ours = kernels.accumulate_slopes(*p.parameters(), p.batch())
    assert "have no fast kernel for projections of 18 dimensions" in caplog.text
    truth = kernels.accumulate_slopes(*p.parameters(), p.batch(), REFERENCE)
    torch.testing.assert_close(ours.packed, truth.packed, rtol=0, atol=1e-8)
