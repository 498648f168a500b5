"""Posteriors on a GPU, without one: nothing is added up in the order in which threads come."""

import numpy as np
import torch

import xdeconv as xd
from elsewhere import GPU, Machine
from xdeconv import kernels
from xdeconv.kernels import reference
from xdeconv.mixture.computing import Computing
from xdeconv.mixture.posterior import Posterior


def test_posteriors_on_a_gpu_add_up_in_order(monkeypatch):
    monkeypatch.setattr(kernels, "posterior_moments", reference.posterior_moments)
    mixture = xd.Mixture([0.4, 0.6], [[0.0, 0.0], [1.0, 1.0]], [np.eye(2)] * 2)
    batch = mixture.batch(mixture.sample(9, seed=0), error=[0.5, 0.5])
    parameters = mixture._components()
    right = Posterior(parameters, batch)
    with Machine():
        there = Posterior(parameters, batch, where=Computing(parameters.to(GPU), GPU, torch.float64))
        mean, covariance = there.moments()
    np.testing.assert_allclose(mean, right.mean(), rtol=1e-12)
    np.testing.assert_allclose(covariance, right.covariance(), rtol=1e-12)
