"""The least that errors of parameters can be, against its closed form."""

import numpy as np
from benchmarks.convergence.bound import least_errors

import xdeconv as xd
from xdeconv.rows.batch import Batch


def test_the_least_errors_of_one_gaussian_behind_noise():
    truth = xd.Mixture([1.0], [[2.0]], [[[1.0]]])
    error = np.full((200_000, 1), 1.5)
    weight, mean, variance = least_errors(
        truth, Batch.from_arrays(truth.sample(200_000, seed=0, error=error), error=error)
    )
    assert weight < 1e-6
    assert abs(mean / np.sqrt(3.25) - 1) < 0.01
    assert abs(variance / (np.sqrt(2) * 3.25) - 1) < 0.02
