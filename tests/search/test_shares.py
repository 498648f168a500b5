"""What components have of rows: pairs that matter, in order, multiplied and merged."""

import numpy as np
import pytest
from scipy import sparse

from xdeconv.search.shares import Shares


def random_shares(n=40, k=6, seed=0):
    """Shares, and the same as a table (n, k)."""
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((n, k)) < 0.3, rng.random((n, k)), 0.0)
    dense[:, 4] = 0.0  # a component without rows
    weight = rng.random(n)
    i, j = np.nonzero(dense)
    return Shares.of(i, j, dense[i, j], weight, k), dense, weight


def test_pairs_come_component_by_component_with_rows_in_order():
    found, dense, _ = random_shares()
    right = sparse.csc_array(dense)
    right.sort_indices()
    np.testing.assert_array_equal(found.starts, right.indptr)
    np.testing.assert_array_equal(found.rows, right.indices)
    np.testing.assert_array_equal(found.values, right.data)
    np.testing.assert_array_equal(found.components, np.nonzero(dense.T)[0])


def test_overlap_is_that_of_all_rows_with_their_weights():
    found, dense, weight = random_shares()
    np.testing.assert_allclose(found.overlap, (dense * weight[:, None]).T @ dense, rtol=1e-13)


def test_rows_are_merged_in_order_and_shares_added():
    found, dense, _ = random_shares()
    touched = [(0, 3), (5,), (2, 4), (1, 0, 3)]
    rows, total, starts = found.together(touched)
    for group, some in enumerate(touched):
        both = dense[:, some].sum(1)
        here = slice(starts[group], starts[group + 1])
        np.testing.assert_array_equal(rows[here], np.flatnonzero(both))
        np.testing.assert_allclose(total[here], both[both > 0], rtol=1e-15)


@pytest.mark.parametrize("pairs", [0, 2])
def test_components_without_rows_make_empty_groups(pairs):
    rows, values = np.arange(2)[:pairs], np.array([0.5, 0.25])[:pairs]
    found = Shares.of(rows, np.ones(pairs, np.int64), values, np.ones(2), 2)
    rows, total, starts = found.together([(0,), (1,), (0,)])
    assert rows.tolist() == [0, 1][:pairs]
    assert total.tolist() == [0.5, 0.25][:pairs]
    assert starts.tolist() == [0, 0, pairs, pairs]
