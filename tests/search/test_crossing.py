"""Crossings: what two mixtures know together."""

import numpy as np
import pytest

from xdeconv.kernels.parameters import Parameters
from xdeconv.mixture._mixture import Mixture
from xdeconv.search.crossing import MOST_PAIRS, alike, crossings

MEANS = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0], [-5.0, -5.0]])


def at(means, order=None, weights=None):
    """Round components of variance 1 at some places."""
    means = np.asarray(means, dtype=float)
    k = len(means)
    weights = np.full(k, 1 / k) if weights is None else np.asarray(weights)
    order = np.arange(k) if order is None else np.asarray(order)
    return Parameters(*Mixture(weights[order], means[order], np.stack([np.eye(2)] * k)).tensors("cpu"))


def test_what_each_of_two_has_right_is_in_one_crossing():
    one, other = MEANS.copy(), MEANS.copy()
    one[0], other[3] = (2.0, -2.0), (-3.0, -7.0)  # each has a component astray
    made = crossings(at(one), at(other, order=[2, 0, 3, 1]))
    assert len(made) == 2
    found = [np.allclose(sorted(trial.means.tolist()), sorted(MEANS.tolist())) for trial in made]
    assert found.count(True) == 1


def test_weights_sum_to_one_and_nothing_is_crossed_where_nothing_differs():
    one = at(MEANS, weights=[0.1, 0.2, 0.3, 0.4])
    other = at(MEANS + np.array([[3.0, 0.0], [0.0, 0.0], [0.0, 3.0], [0.0, 0.0]]), weights=[0.4, 0.3, 0.2, 0.1])
    made = crossings(one, other)
    assert len(made) == 2
    for trial in made:
        assert float(trial.log_weights.exp().sum()) == pytest.approx(1.0, abs=1e-12)
    assert crossings(one, one) == []
    assert crossings(one, at(MEANS + np.array([[3.0, 0.0], [0, 0], [0, 0], [0, 0]]))) == []  # either is a parent


def test_no_more_pairs_than_can_be_tried():
    many = np.arange(16.0)[:, None] * [10.0, 0.0]
    assert len(crossings(at(many), at(many + 2.0))) == 2**MOST_PAIRS - 2


def test_mixtures_are_alike_unless_a_component_is_elsewhere():
    assert alike(at(MEANS), at(MEANS + 0.3, order=[2, 0, 3, 1]))
    assert not alike(at(MEANS), at(MEANS + np.array([[0, 0], [0, 0], [0, 0], [2, 0]])))


def test_small_differences_are_not_told_apart():
    """They follow the others: two pairs that differ a little make no crossing."""
    assert crossings(at(MEANS), at(MEANS + np.array([[0.7, 0], [0, 0.7], [0, 0], [0, 0]]))) == []
