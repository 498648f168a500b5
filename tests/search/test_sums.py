"""A search for components with tails: sums of groups are those of all rows, and moves end where EM alone does not."""

import numpy as np
import torch
from scipy.stats import multivariate_t

import xdeconv as xd
from xdeconv import kernels
from xdeconv.kernels.parameters import Parameters
from xdeconv.search.aim import ANY, Aim
from xdeconv.search.contest import _all_rows
from xdeconv.search.passes import em_passes
from xdeconv.search.pool import Pool
from xdeconv.search.sums import group_sums, log_prob
from xdeconv.search.trials import em_step

HEAVY = Aim(tails=xd.StudentT(3.0))
CENTRES = np.random.default_rng(1).uniform(0, 20, size=(6, 2))


def rows(n=1200):
    rng = np.random.default_rng(2)
    v = CENTRES[rng.integers(6, size=n)] + multivariate_t([0.0, 0.0], 0.3 * np.eye(2), df=3, seed=3).rvs(n)
    error = rng.uniform(0.1, 0.3, size=v.shape)
    return v + error * rng.normal(size=v.shape), error


def test_a_step_of_a_group_is_a_pass_of_em():
    X, error = rows(300)
    batch = xd.Batch.from_arrays(X, error=error)
    start = Parameters(*xd.Mixture(np.full(6, 1 / 6), CENTRES + 0.5, [np.eye(2)] * 6).tensors())
    whole = em_passes(start, batch, 1, HEAVY)
    several = Parameters(*(torch.stack([part, part]) for part in start))
    sums = group_sums(several, kernels.for_groups(batch, 2), _all_rows(batch, several), HEAVY)
    for part, both in zip(whole, em_step(several, sums, 300.0, HEAVY), strict=True):
        torch.testing.assert_close(both, torch.stack([part, part]), rtol=1e-8, atol=1e-10)
    assert not torch.allclose(whole.covariances, em_passes(start, batch, 1, ANY).covariances, rtol=0.01)


def test_a_pool_knows_the_densities_with_tails():
    X, error = rows(300)
    batch = xd.Batch.from_arrays(X, error=error)
    start = Parameters(*xd.Mixture(np.full(6, 1 / 6), CENTRES, [0.3 * np.eye(2)] * 6).tensors())
    pool = Pool.of(start, kernels.for_groups(batch, 2), HEAVY)
    torch.testing.assert_close(pool.log_prob, log_prob(start, batch, HEAVY), rtol=1e-6, atol=1e-6)
    assert abs(float(pool.mass.sum()) - 300) < 1e-3


def test_a_plain_call_with_tails_ends_where_the_truth_leads():
    """Without moves, EM ends more than 20 nats lower."""
    X, error = rows()
    truth = xd.Mixture(np.full(6, 1 / 6), CENTRES, [0.3 * np.eye(2)] * 6, tails=xd.StudentT(3.0, fitted=True))
    best = xd.fit(X, mixture=truth, error=error).loglik
    plain, still = (xd.fit(X, 6, error=error, tails=xd.StudentT(), moves=moves).loglik for moves in (None, "none"))
    assert (best - plain) * len(X) < 1
    assert (best - still) * len(X) > 20
