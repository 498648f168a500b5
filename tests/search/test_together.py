"""Rows of several components, each once."""

import numpy as np
from scipy import sparse

from xdeconv.search.together import rows_together


def test_rows_are_merged_in_order_and_shares_added():
    rng = np.random.default_rng(0)
    share = sparse.random_array((40, 6), density=0.3, rng=rng, format="csc")
    share.sort_indices()
    dense, touched = share.toarray(), np.array([[0, 3], [5, 1], [2, 2 + 2]])
    dense[:, 3] *= 1.0
    rows, total, starts = rows_together(share.indptr, share.indices, share.data, touched)
    for group, (a, b) in enumerate(touched):
        both = dense[:, a] + dense[:, b]
        here = slice(starts[group], starts[group + 1])
        np.testing.assert_array_equal(rows[here], np.flatnonzero(both))
        np.testing.assert_allclose(total[here], both[both > 0], rtol=1e-15)


def test_components_without_rows_make_empty_groups():
    share = sparse.csc_array(np.array([[0.0, 0.5], [0.0, 0.25]]))
    rows, total, starts = rows_together(share.indptr, share.indices, share.data, np.array([[0], [1], [0]]))
    assert rows.tolist() == [0, 1]
    assert total.tolist() == [0.5, 0.25]
    assert starts.tolist() == [0, 0, 2, 2]
