"""The prior in other coordinates."""

import numpy as np
import pytest
import torch

from problems import problem
from xdeconv import EM, SGD, Decaying, Mixture, Prior, Start, Stepped, fit


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


@pytest.mark.parametrize("name", ["w", "c", "concentration"])
@pytest.mark.parametrize("value", [np.inf, np.nan, -1.0, "a", None, True, [[1.0]], [], [1.0, np.inf]])
def test_a_prior_that_is_no_number_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} of a prior must be (a finite number|a number, or one)|above 0"):
        Prior(**{name: value})


def test_a_prior_takes_arrays():
    assert Prior(w=np.array([1.0, 2.0])) == Prior(w=[1.0, 2.0]) == Prior(w=torch.tensor([1.0, 2.0]))
    assert Prior(w=np.float32(0.5)).w == 0.5
    X = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(ValueError, match="w of the prior has 3 variances and the rows have 2 dimensions"):
        fit(X, 1, method=EM(prior=Prior(w=[1.0, 1.0, 1.0])))


@pytest.mark.parametrize(
    "make",
    [
        lambda: EM(inflate=np.inf), lambda: EM(inflate=[np.nan]), lambda: EM(inflate="a"), lambda: EM(inflate=None),
        lambda: SGD(optimizer="adam"), lambda: SGD(options=[1]), lambda: SGD(trace_penalty=np.inf),
        lambda: SGD(trace_penalty=None), lambda: Decaying(np.nan), lambda: Decaying(0.1, delay=0.0),
        lambda: Decaying(0.1, power=np.inf), lambda: Stepped(np.inf), lambda: Stepped(0.1, {3: np.nan}),
        lambda: Start(epochs=0), lambda: Start(epochs=1.5), lambda: Start(batch_rows="many"),
    ],
)  # fmt: skip
def test_settings_that_are_no_numbers_are_refused_at_once(make):
    with pytest.raises(ValueError, match="must be"):
        make()
