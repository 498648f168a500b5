"""Growing: splits keep moments, and split what fits worst."""

import numpy as np
import pytest
from benchmarks.defaults.growing import grown, halves

from xdeconv.fitting._fit import fit
from xdeconv.mixture._mixture import Mixture
from xdeconv.rows.batch import Batch

TRUTH = Mixture([0.5, 0.3, 0.2], [[-6.0, 0.0], [6.0, 0.0], [0.0, 8.0]], [np.eye(2), np.diag([2.0, 0.5]), np.eye(2)])
NOISE = np.random.default_rng(1).uniform(0.1, 1.0, size=(900, 2))
X = TRUTH.sample(900, seed=0, noise=NOISE)


def test_halves_keep_the_moments():
    shifts, V = halves(TRUTH)
    np.testing.assert_allclose(V + np.einsum("kad,kae->kade", shifts, shifts), TRUTH.covariances[:, None].repeat(2, 1))
    assert np.linalg.eigvalsh(V).min() > 0


def test_growing_splits_what_fits_worst():
    worse = Mixture([0.5, 0.5], [[-6.0, 0.0], [3.6, 3.2]], [np.eye(2), [[10.5, -10.0], [-10.0, 16.5]]])
    batch = Batch.from_arrays(X, NOISE)
    three = grown(worse, 3, batch)
    np.testing.assert_array_equal(three.means[0], worse.means[0])
    np.testing.assert_allclose(three.weights, [0.5, 0.25, 0.25])
    assert three.score(X, NOISE) > worse.score(X, NOISE)
    assert grown(worse, 7, batch).k == 7
    with pytest.raises(ValueError, match="cannot grow"):
        grown(worse, 1, batch)


@pytest.mark.slow
def test_growing_is_as_good_as_starting_afresh():
    afresh = fit(X, 3, noise=NOISE).loglik
    one = fit(X, 1, noise=NOISE).mixture
    assert fit(X, mixture=grown(one, 3, Batch.from_arrays(X, NOISE)), noise=NOISE).loglik > afresh - 1e-3
