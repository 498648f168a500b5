"""Accelerated EM: the objective never falls, whatever stands beside the likelihood."""

import numpy as np
import pytest

from problems import CASES
from xdeconv import EM, Fixed, Mixture, Prior, kernels
from xdeconv.methods import Accelerated

PRIOR = Prior(w=0.1, c=3.0, concentration=2.0)
HELD = Fixed(
    weights=[True, False, False, False, False],
    means=[False, True, False, False, False],
    covariances=[False, False, True, False, False],
)


def objective(mixture, prior, batch):
    """The log-likelihood of all rows and the log-prior, without the sums that the method reads."""
    log_weights, means, V = mixture.tensors()
    rows = kernels.log_prob(log_weights, means, V, batch)
    weight = 1.0 if batch.weight is None else batch.weight
    return float((rows * weight).sum()) + (0.0 if prior is None else float(prior.log_density(log_weights.exp(), V)))


@pytest.mark.parametrize("name", ["full", "missing diagonal", "projection p < d", "weights", "row priors"])
@pytest.mark.parametrize("prior", [None, PRIOR], ids=["plain", "prior"])
@pytest.mark.parametrize("fixed", [None, HELD], ids=["free", "held"])
def test_the_objective_with_its_prior_never_falls(name, prior, fixed):
    p = CASES[name]
    batch, start = p.batch(), Mixture(p.weights, p.means, p.covariances)
    method = Accelerated(EM(prior=prior, fixed=fixed))
    state, values = method.init(start), []
    for _ in range(40):
        values.append(objective(method.mixture(state), prior, batch))
        stats = kernels.accumulate(*state.parameters(), batch)
        state = method.update(state, stats, float(batch.total_weight()))
    assert np.diff(values).min() >= -1e-12 * abs(values[-1])
    assert values[-1] > values[0] + 0.1
    if fixed is not None:
        end = method.mixture(state)
        assert np.isclose(end.weights[0], start.weights[0], rtol=1e-12)
        assert np.array_equal(end.means[1], start.means[1])
        assert np.array_equal(end.covariances[2], start.covariances[2])
