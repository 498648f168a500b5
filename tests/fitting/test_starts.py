"""Starts find by themselves in which coordinates rows come in clumps."""

import numpy as np
import pytest
import torch

from xdeconv.fitting.initial import Start, fit_gaussian, start_mixture
from xdeconv.rows.batch import Batch
from xdeconv.rows.data import ArraySource


def widths(X, **settings):
    """Widths of a start's components, in units of the spread of the data."""
    begun = start_mixture(ArraySource(Batch.from_arrays(X)), 8, Start(**settings), 0, torch.ones(X.shape[1]))
    return np.sqrt(begun.covariances[0].diagonal()) / np.nanstd(X, axis=0)


@pytest.mark.parametrize("unit", [1.0, 1e4])
def test_covariances_are_narrower_in_coordinates_with_clumps(unit):
    rng = np.random.default_rng(0)
    clumps = rng.uniform(0, 100, size=(40, 2))[rng.integers(40, size=8000)] + rng.normal(0, 0.2, size=(8000, 2))
    X = np.hstack([unit * clumps, rng.normal(size=(8000, 3))])
    found = widths(X)
    assert (found[:2] < 0.02).all()
    assert (found[2:] > 0.05).all()
    assert found.max() == pytest.approx(0.1, rel=0.05)


def test_without_clumps_all_coordinates_are_alike():
    found = widths(np.random.default_rng(1).normal(size=(4000, 3)))
    assert (found > 0.07).all()


@pytest.mark.parametrize("kind", ["whole numbers", "gaps everywhere", "two rows of each"])
def test_rows_that_tell_nothing_of_clumps_begin_as_wide_as_before(kind):
    X = np.random.default_rng(2).normal(size=(400, 2))
    if kind == "whole numbers":
        X = np.round(X)
    elif kind == "gaps everywhere":
        X[np.arange(400), np.arange(400) % 2] = np.nan
    else:
        X = np.repeat(X[:20], 20, axis=0)
    assert (widths(X) >= 0.0009).all()
    assert np.isfinite(widths(X)).all()


def test_starts_are_not_so_narrow_that_noise_hides_what_they_gain():
    """Rows that repeat each other in one value look like clumps, however large their noise is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    X[:, 1] = np.where(rng.uniform(size=4000) < 0.7, 0.0, X[:, 1])  # gaps that somebody has filled
    rows = ArraySource(Batch.from_arrays(X, error=[0.3, 0.3, 0.3]))
    V = start_mixture(rows, 2, Start(), 0, torch.ones(3)).covariances
    assert V[:, 1, 1] == pytest.approx(0.01 * 0.09)
    assert (V[:, 0, 0] > 0.005).all()
    exact = ArraySource(Batch.from_arrays(X))
    assert (start_mixture(exact, 2, Start(), 0, torch.ones(3)).covariances[:, 1, 1] < 2e-6).all()


def test_one_gaussian_of_projected_rows_has_the_same_bits_every_time():
    """LAPACK's least squares by torch gave others in one call of five."""
    rng = np.random.default_rng(0)
    R = rng.normal(size=(500, 2, 3))
    batch = Batch.from_arrays(rng.normal(size=(500, 2)), 0.1 * np.ones((500, 2)), R)
    first = fit_gaussian(batch)
    for size in range(1, 60):
        other = torch.full((10 * size,), float(size))  # memory for what is not initialised
        del other
        assert (fit_gaussian(batch).means == first.means).all()
