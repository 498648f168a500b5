"""Distances between components."""

import numpy as np
import pytest

from xdeconv.mixture.distances import bhattacharyya


def test_they_are_minus_the_log_of_the_overlap():
    """The integral of the root of the product, by a sum over a grid."""
    x = np.linspace(-15, 15, 30_001)
    p, q = (np.exp(-((x - m) ** 2) / (2 * v)) / np.sqrt(2 * np.pi * v) for m, v in ((0.3, 0.5), (-0.6, 2.0)))
    by_hand = -np.log(np.sqrt(p * q).sum() * (x[1] - x[0]))
    found = bhattacharyya(np.array([[0.3]]), np.full((1, 1, 1), 0.5), np.array([[-0.6]]), np.full((1, 1, 1), 2.0))
    assert found[0, 0] == pytest.approx(by_hand, abs=1e-9)


def test_known_ones():
    means, V = np.array([[0.0], [2.0], [0.0], [0.0]]), np.array([1.0, 1.0, 4.0, 0.0])[:, None, None]
    found = bhattacharyya(means, V, means, V)
    np.testing.assert_allclose(np.diagonal(found), 0.0, atol=1e-12)
    np.testing.assert_allclose(found[0, 1:3], [0.5, 0.5 * np.log(2.5 / 2)])
    assert np.isfinite(found).all()  # without any width too
