"""Fits in batches end at the average of their last steps, and gradient steps are as long as components are wide."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import xdeconv as xd
from xdeconv.methods import Averaged, as_structure
from xdeconv.methods.averaged import POWER

TRUTH = xd.Mixture([0.6, 0.4], [[-1.0, 0.0], [1.0, 0.5]], [0.3 * np.eye(2), 0.5 * np.eye(2)])
WAYS = {"em": xd.EM(step=0.2), "sgd": xd.SGD(rate=0.05)}


def rows(truth, error, n=2000):
    error = np.full((n, truth.d), error)
    return xd.Batch.from_arrays(truth.sample(n, seed=3, error=error), error=error)


@pytest.mark.parametrize("way", WAYS)
def test_the_average_is_nearer_the_maximum_than_the_last_step(way):
    batch = rows(TRUTH, 0.3)
    best = xd.fit(batch, mixture=TRUTH, moves="none").mixture.score(batch)
    below = {}
    for average in (True, False):
        method = replace(WAYS[way], average=average)
        found = xd.fit(batch, mixture=TRUTH, moves="none", method=method, batch_rows=100, epochs=20)
        below[average] = best - found.mixture.score(batch)
    assert below[True] < 0.1 * below[False]
    assert below[False] > 5e-4


def test_the_average_is_of_all_that_is_fitted():
    """Each step takes its share of what the steps before had."""
    batch, method = rows(TRUTH, 0.3, 60), Averaged(xd.EM(step=0.3))
    state, steps = method.init(TRUTH), []
    for part in batch.chunks(10):
        state = method.update(state, xd.kernels.accumulate(*state.parameters(), part, xd.Options()), 60.0)
        steps.append(state.parameters())
    t = np.arange(1, len(steps) + 1)
    new = (POWER + 1) / (t + POWER)
    share = new * np.cumprod(np.concatenate([[1.0], 1 - new[:0:-1]]))[::-1]
    assert share.sum() == pytest.approx(1.0)
    found, parts = method.mixture(state), (torch.stack(part).numpy() for part in zip(*steps, strict=True))
    log_weights, means, covariances = parts
    for ours, right in ((found.weights, np.exp(log_weights)), (found.means, means), (found.covariances, covariances)):
        np.testing.assert_allclose(ours, np.tensordot(share, right, 1), rtol=1e-12)


@pytest.mark.parametrize("word", ["tied", "diagonal", "spherical", "low-rank:1"])
def test_averages_keep_structures_and_what_is_held(word):
    fixed, structure = xd.Fixed(means=[True, False], weights=True), as_structure(word)
    A = np.random.default_rng(0).normal(size=(2, 5, 5))
    truth = xd.Mixture([0.6, 0.4], A[:, 0], A @ A.transpose(0, 2, 1))
    batch = rows(truth, 0.3, 500)
    for method in (xd.EM(step=0.3, fixed=fixed), xd.SGD(fixed=fixed)):
        how = {"standardize": False, "batch_rows": 100, "epochs": 2}
        found = xd.fit(batch, mixture=truth, covariance=word, method=method, **how).mixture
        np.testing.assert_array_equal(found.means[0], truth.means[0])
        np.testing.assert_allclose(found.weights, truth.weights, rtol=1e-14)
        shaped = structure.factored(torch.tensor(found.covariances), torch.tensor(found.weights)).V
        np.testing.assert_allclose(shaped, found.covariances, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("covariance", ["full", "tied", "diagonal", "spherical", "low-rank:1"])
def test_gradient_steps_are_as_long_as_components_are_wide(covariance):
    """Clusters a thousand times narrower than the field: steps of one size for all would be many of their widths."""
    places = [[-100.0, 0.0], [100.0, 30.0], [20.0, -90.0]]
    truth = xd.Mixture([0.3, 0.3, 0.4], places, [0.02 * np.eye(2)] * 3)
    batch = rows(truth, 0.05)
    found = xd.fit(batch, mixture=truth, covariance=covariance, method="sgd", epochs=3, moves="none").mixture
    assert found.score(batch) > truth.score(batch) - 0.02


def test_a_mixture_that_is_given_is_not_forgotten():
    """A first step of 1 would replace it by what one batch says."""
    batch = rows(TRUTH, 0.3)
    found = xd.fit(batch, mixture=TRUTH, method="minibatch-em", batch_rows=20, epochs=1).mixture
    assert '"start": 0.32' in found.meta["fit"]["method"]  # 20 of 62.5 rows, a 32nd of all
    assert found.score(batch) > TRUTH.score(batch) - 0.01
