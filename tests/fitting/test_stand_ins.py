"""Values such as -999 are told of once per fit, and values that are only extreme are not."""

import numpy as np
import pytest

import xdeconv as xd
from xdeconv.fitting.stand_ins import stand_ins

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 2))


def notes(X, **settings):
    found = xd.fit(X, 1, error=0.1 * np.ones(X.shape), moves="none", **settings).notes
    return [note for note in found if "if it means that there is none" in note]


def test_a_fit_says_so_once(caplog):
    with_some = X.copy()
    with_some[:7, 1] = -999
    with_some[7:11, 1] = 99.999
    first, second = notes(with_some, labels=["x", "g"])
    assert first.startswith("-999 is the value of g in 7 of 400 rows")
    assert second.startswith("99.999 is the value of g in 4 of 400 rows")
    assert caplog.text.count("-999 is the value") == 1
    assert notes(X) == []


@pytest.mark.parametrize(
    "values",
    [
        np.r_[np.zeros(50), RNG.uniform(0, 1, 50)],  # an edge that is reached
        np.r_[np.full(50, 5.0), RNG.uniform(0, 4, 50)],  # near
        np.r_[X[:, 0], 1e6],  # an outlier
        np.r_[X[:, 0], np.nan, np.nan, np.nan],
        np.repeat([0.0, 1.0, 100.0], 30),  # classes
        np.repeat(np.r_[np.arange(20.0), 100.0], 4),  # rows that repeat
        np.full(9, 3.0),
        np.array([]),
    ],
)
def test_others_do_not_look_like_one(values):
    assert list(stand_ins(values)) == []
