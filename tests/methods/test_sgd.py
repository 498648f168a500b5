"""Gradients against autograd, and SGD against EM's fixed point."""

import numpy as np
import pytest
import torch

from problems import CASES, Problem, problem
from xdeconv import EM, SGD, Fixed, Mixture, Prior, kernels
from xdeconv.kernels.options import Options
from xdeconv.methods import Averaged, Method

REFERENCE = Options(backend="reference")


def mixture_of(p: Problem) -> Mixture:
    return Mixture(p.weights, p.means, p.covariances)


def loss_by_autograd(p: Problem, logits, shifts, factors, prior: Prior | None, trace_penalty: float):
    """The same loss, written forwards, of steps in the components' own frames; for a batch that is half of the data."""
    L = torch.linalg.cholesky(torch.from_numpy(p.covariances))
    means = torch.from_numpy(p.means) + (L @ shifts[..., None])[..., 0]
    L = L @ (factors.tril(-1) + torch.diag_embed(factors.diagonal(dim1=-2, dim2=-1).exp()))
    V = L @ L.mT
    batch = p.batch()
    weight = torch.ones(batch.n).double() if batch.weight is None else batch.weight
    value = (weight * kernels.log_prob(torch.log_softmax(logits, 0), means, V, batch, REFERENCE)).sum()
    if prior is not None:
        value = value + 0.5 * prior.log_density(torch.softmax(logits, 0), V)
    if trace_penalty:
        value = value - 0.5 * (trace_penalty / V.diagonal(dim1=-2, dim2=-1).sum(-1)).sum()
    return -value / weight.sum()


@pytest.mark.parametrize("name", ["full", "missing full", "projection p < d", "weights"])
@pytest.mark.parametrize(
    ("prior", "penalty"), [(None, 0.0), (Prior(w=0.4, c=2.0, concentration=1.5), 0.0), (None, 3.0)]
)
def test_gradients_are_autograds(name, prior, penalty):
    p = CASES[name]
    method = SGD(rate=lambda epoch: 0.0, prior=prior, trace_penalty=penalty)
    state = method.init(mixture_of(p))
    stats = kernels.accumulate(*state.parameters(), p.batch(), REFERENCE)
    method.update(state, stats, 2 * float(stats.rows))
    leaves = [t.detach().clone().requires_grad_() for t in (state.logits, 0 * state.means, 0 * state.free[0])]
    loss_by_autograd(p, *leaves, prior, penalty).backward()
    for ours, leaf in zip((state.logits, state.means, state.free[0]), leaves, strict=True):
        torch.testing.assert_close(ours.grad, leaf.grad, rtol=1e-8, atol=1e-10)


@pytest.mark.sampled
@pytest.mark.parametrize("prior", [None, Prior(w=0.5, c=1.0)])
def test_ems_fixed_point_is_stationary(prior):
    p = problem(n=300, k=2, d=2, seed=50)
    batch, em = p.batch(), EM(prior=prior)
    state = em.init(mixture_of(p))
    for _ in range(600):
        state = em.update(state, kernels.accumulate(*state.parameters(), batch, REFERENCE), float(batch.n))
    method = SGD(rate=lambda epoch: 0.0, prior=prior)
    there = method.init(em.mixture(state))
    method.update(there, kernels.accumulate(*there.parameters(), batch, REFERENCE), float(batch.n))
    for parameter in (there.logits, there.means, there.free[0]):
        assert float(parameter.grad.abs().max()) < 1e-6


@pytest.mark.slow
def test_descent_reaches_ems_likelihood():
    p = problem(n=300, k=2, d=2, seed=50)
    batch, em, sgd = p.batch(), EM(), SGD(rate=0.05)
    best, state = em.init(mixture_of(p)), sgd.init(mixture_of(p))
    for _ in range(500):
        best = em.update(best, kernels.accumulate(*best.parameters(), batch, REFERENCE), float(batch.n))
        state = sgd.update(state, kernels.accumulate(*state.parameters(), batch, REFERENCE), float(batch.n))
    ours = kernels.accumulate(*state.parameters(), batch, REFERENCE).loglik / batch.n
    right = kernels.accumulate(*best.parameters(), batch, REFERENCE).loglik / batch.n
    assert float(right - ours) < 1e-3


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop])
def test_any_optimiser(optimizer):
    p = CASES["full"]
    method = SGD(rate=1e-3, optimizer=optimizer)
    state = method.init(mixture_of(p))
    values = []
    for _ in range(20):
        stats = kernels.accumulate(*state.parameters(), p.batch(), REFERENCE)
        values.append(float(stats.loglik))
        state = method.update(state, stats, float(stats.rows))
    assert values[-1] > values[0]


def test_fixed_parameters_stay_even_with_weight_decay():
    p = CASES["full"]
    fixed = Fixed(weights=[0, 3], means=[1], covariances=[2])
    method = SGD(rate=0.05, fixed=fixed, optimizer=torch.optim.AdamW, options={"weight_decay": 0.1})
    state = method.init(mixture_of(p))
    for _ in range(5):
        state = method.update(state, kernels.accumulate(*state.parameters(), p.batch(), REFERENCE), 37.0)
    found = method.mixture(state)
    np.testing.assert_allclose(found.weights[[0, 3]], p.weights[[0, 3]], rtol=1e-12)
    np.testing.assert_array_equal(found.means[1], p.means[1])
    np.testing.assert_allclose(found.covariances[2], p.covariances[2], rtol=1e-12)
    assert (found.means[[0, 2, 3, 4]] != p.means[[0, 2, 3, 4]]).all()
    assert found.weights.sum() == pytest.approx(1.0)


def test_schedule_sets_the_rate():
    p = CASES["full"]
    method = SGD(rate=lambda epoch: 0.1 if float(epoch) < 1 else 0.01)
    state = method.init(mixture_of(p))
    rates = []
    for _ in range(2):
        state = method.update(state, kernels.accumulate(*state.parameters(), p.batch(), REFERENCE), 37.0)
        rates.append(state.optimizer.param_groups[0]["lr"])
    assert rates == [0.1, 0.01]


def test_singular_start_is_refused():
    with pytest.raises(ValueError, match="component 0 is singular"):
        SGD().init(Mixture([1.0], [[0.0, 0.0]], [[[1.0, 1.0], [1.0, 1.0]]]))


@pytest.mark.parametrize(
    "method",
    [
        EM(),
        EM(step=0.1, prior=Prior(w=0.1)),
        SGD(),
        SGD(optimizer=torch.optim.SGD),
        SGD(optimizer=torch.optim.NAdam),
        Averaged(EM(step=0.1)),
        Averaged(SGD()),
    ],
)
def test_the_protocol(method: Method):
    """init, update, mixture, tensors and restore fit together for every method."""
    p = CASES["full"]
    batch = p.batch()

    def go(state, steps):
        for _ in range(steps):
            state = method.update(state, kernels.accumulate(*state.parameters(), batch, REFERENCE), 37.0)
        return state

    start = mixture_of(p)
    np.testing.assert_allclose(method.mixture(method.init(start)).covariances, start.covariances, rtol=1e-12)
    state = go(method.init(start), 3)
    saved = {name: tensor.clone() for name, tensor in state.tensors().items()}
    onwards = method.mixture(go(state, 3))
    again = method.mixture(go(method.restore(method.init(start), saved), 3))
    np.testing.assert_array_equal(onwards.means, again.means)
    np.testing.assert_array_equal(onwards.covariances, again.covariances)
    np.testing.assert_array_equal(onwards.weights, again.weights)


def test_lbfgs_is_refused():
    with pytest.raises(ValueError, match="LBFGS"):
        SGD(optimizer=torch.optim.LBFGS).init(mixture_of(CASES["full"]))
