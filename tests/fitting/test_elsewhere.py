"""Whole fits of rows that are on a GPU, without one: what meets whom, and that the mixtures are those of a CPU."""

import numpy as np
import pytest
import torch

import xdeconv as xd
from elsewhere import GPU, Elsewhere, Machine
from xdeconv import kernels
from xdeconv.kernels import cpu

TRUTH = xd.Mixture([0.5, 0.3, 0.2], [[0.0, 0.0], [4.0, 1.0], [-3.0, 3.0]], [np.eye(2), 0.3 * np.eye(2), 2 * np.eye(2)])


def there(tensors):
    return [t if t is None else Elsewhere(t) for t in tensors]


class OnPretence:
    """Kernels of the GPU of pretence: parameters and rows must be on it, and results are."""

    refuses = staticmethod(lambda *_: None)

    @staticmethod
    def _at_home(parameters):
        assert all(isinstance(t, Elsewhere) for t in parameters), "parameters are not where the rows are"
        return [t.inner for t in parameters]

    def accumulate(self, log_weights, means, covariances, batch, options):
        parameters = self._at_home([log_weights, means, covariances])
        return cpu.accumulate(*parameters, batch.to("cpu"), options).to(GPU)

    def log_prob(self, log_weights, means, covariances, batch, options):
        return Elsewhere(cpu.log_prob(*self._at_home([log_weights, means, covariances]), batch.to("cpu"), options))

    def log_joint(self, log_weights, means, covariances, batch, options):
        return Elsewhere(cpu.log_joint(*self._at_home([log_weights, means, covariances]), batch.to("cpu"), options))

    def for_groups(self, batch, d):
        return cpu.for_groups(batch.to("cpu"), d)

    def accumulate_groups(self, log_weights, means, covariances, rows, groups):
        parameters = self._at_home([log_weights, means, covariances])
        return cpu.accumulate_groups(*parameters, rows, groups.to(torch.device("cpu"))).to(GPU)


@pytest.fixture
def gpu(monkeypatch):
    real = kernels._backend
    pretence = OnPretence()
    monkeypatch.setattr(
        kernels, "_backend", lambda m, batch, o: pretence if batch.device.type == "cuda" else real(m, batch, o)
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (1 << 34, 1 << 34))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)


def rows(n=900):
    error = np.random.default_rng(0).uniform(0.1, 0.8, size=(n, 2))
    X = TRUTH.sample(n, seed=1, error=error)
    X[::7, 1] = np.nan
    return X, error


WORDS = {
    "plain": {},
    "tied, with a prior": {"method": xd.EM(prior=xd.Prior(w=0.01)), "covariance": "tied"},
    "beside a background": {"background": xd.Uniform([-9, -9], [9, 9]), "mixture": TRUTH},
    "selected": {"selection": xd.Cut("x0", above=-9.0), "labels": ["x0", "x1"], "moves": None},
    "tails": {"tails": xd.StudentT(5.0), "components": 2},
    "low rank": {"covariance": "low-rank:1", "moves": None},
    "held": {"method": xd.EM(fixed=xd.Fixed(weights=[True, False, False])), "mixture": TRUTH, "moves": None},
}


@pytest.mark.parametrize("name", [n if n == "plain" else pytest.param(n, marks=pytest.mark.slow) for n in WORDS])
def test_a_fit_there_is_a_fit_here(gpu, name):
    X, error = rows()
    words = {"components": 3, "seed": 0, "verbose": False, "dtype": "float64"} | WORDS[name]
    here = xd.fit(X, error=error, device="cpu", **words)
    with Machine():
        far = xd.fit(X, error=error, device="cuda", **words)
    assert far.converged
    scores = [fit.mixture.score(X, error=error) for fit in (here, far)]
    assert abs(scores[0] - scores[1]) < 1e-4
