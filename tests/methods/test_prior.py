"""The prior in other coordinates."""

import numpy as np
import pytest
import torch

from problems import problem
from xdeconv import EM, SGD, Mixture, Prior, fit


@pytest.mark.parametrize("method", [EM(prior=Prior(w=0.5)), EM(inflate=0.2), EM(prior=Prior(w=[0.1, 2.0], c=4.0))])
def test_standardisation_changes_nothing(method):
    p = problem(n=200, k=2, d=2, seed=60)
    units = np.array([1e3, 1e-2])
    start = Mixture(p.weights, p.means * units, p.covariances * units[:, None] * units)
    noise = p.noise * units[:, None] * units
    on, off = (
        fit(p.X * units, mixture=start, noise=noise, method=method, epochs=5, tol=0, standardize=s)
        for s in (True, False)
    )
    np.testing.assert_allclose(on.mixture.means, off.mixture.means, rtol=1e-8)
    np.testing.assert_allclose(on.mixture.covariances, off.mixture.covariances, rtol=1e-7)
    assert on.loglik == pytest.approx(off.loglik, rel=1e-9)
    assert [e.loglik for e in on.history] == pytest.approx([e.loglik for e in off.history], rel=1e-9)


@pytest.mark.parametrize("kind", ["prior", "trace"])
def test_standardisation_keeps_the_gradients_penalty(kind):
    p = problem(n=50, k=2, d=2, seed=61)
    scale = torch.tensor([3.0, 0.2]).double()
    method = SGD(prior=Prior(w=0.7)) if kind == "prior" else SGD(trace_penalty=5.0)
    V = torch.from_numpy(p.covariances)
    plain = method._penalty(V, torch.tensor(1.0))
    scaled_V = V / scale[:, None] / scale
    scaled = method.standardized(scale.tolist())._penalty(scaled_V, torch.tensor(1.0))
    torch.testing.assert_close(scaled, plain * scale[:, None] * scale)
