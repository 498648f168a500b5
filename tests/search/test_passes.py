"""Plain EM passes of a search."""

import numpy as np
import pytest
import torch

from xdeconv.kernels.parameters import Parameters
from xdeconv.rows.batch import Batch
from xdeconv.search.passes import em_passes
from xdeconv.search.sums import total_log_prob


def flat_rows(seed, n=2000, d=5, k=12, flat=1e-4):
    """A start for rows that all but lie in a plane, with errors as small as their distance from it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) + flat * rng.normal(size=(n, d))
    noise = (flat * 10 ** rng.uniform(-2, 0, size=n))[:, None, None] ** 2 * np.eye(d)
    centers = torch.from_numpy(X[rng.choice(n, k, replace=False)])
    V = 1e-2 * torch.eye(d, dtype=torch.float64).expand(k, d, d).contiguous()
    log_weights = torch.full((k,), -np.log(k), dtype=torch.float64)
    return Parameters(log_weights, centers, V), Batch.from_arrays(X, noise=noise)


@pytest.mark.parametrize("seed", range(3))
def test_components_that_float32_cannot_factor_do_not_ruin_a_search(seed):
    start, batch = flat_rows(seed)
    end = em_passes(start, batch.to(dtype=torch.float32), 12)
    assert all(tensor.isfinite().all() for tensor in end)
    assert total_log_prob(end, batch) > total_log_prob(start, batch) + 90 * batch.n  # they gain 94 to 133
