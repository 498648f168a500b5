"""Sums for covariances F F^T + D pinned to the reference: in everything that such covariances read."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from xdeconv import Batch, kernels
from xdeconv.kernels.cpu import low_rank
from xdeconv.kernels.options import Options
from xdeconv.kernels.parameters import Factors, Parameters

REFERENCE = Options(backend="reference")
EXACT = Options(skip=False)


def problem(d, rank, k=4, n=300, missing=0.1, noise=True, weight=False, prior="none", background=False, seed=0):
    rng = np.random.default_rng(seed)
    factors = Factors(
        torch.from_numpy(rng.normal(size=(k, d, rank))), torch.from_numpy(rng.uniform(0.1, 1, size=(k, d)))
    )
    log_weights = torch.from_numpy(np.log(rng.dirichlet(np.ones(k)) * (0.8 if background else 1.0)))
    parameters = Parameters(log_weights, torch.from_numpy(rng.normal(size=(k, d))), factors.covariances())
    X = 2 * rng.normal(size=(n, d))
    if missing:
        X[rng.uniform(size=X.shape) < missing] = np.nan
        X[0] = np.nan
    table = np.log(rng.uniform(0.05, 1.0, size=(n if prior == "rows" else 3, k)))
    table[1, 0] = -np.inf
    batch = Batch.from_arrays(
        X, rng.uniform(0.05, 1, size=(n, d)) if noise else None, weight=rng.uniform(0, 2, size=n) if weight else None,
        log_prior=None if prior == "none" else table, label=rng.integers(3, size=n) if prior == "labels" else None,
    )  # fmt: skip
    if background:
        batch = replace(batch, background=torch.from_numpy(rng.normal(-2.0 * d, 1.0, size=n)))
    return parameters, factors, batch


def same(ours, right, factors, tolerance):
    torch.testing.assert_close(ours.rows, right.rows)
    for name in ("loglik", "q", "g"):
        torch.testing.assert_close(getattr(ours, name), getattr(right, name), rtol=tolerance, atol=tolerance)
    size = float(right.G.abs().max())
    assert float((ours.G @ factors.loadings - right.G @ factors.loadings).abs().max()) <= tolerance * size
    assert float((ours.G - right.G).diagonal(dim1=1, dim2=2).abs().max()) <= tolerance * size
    torch.testing.assert_close(ours.G, ours.G.mT)
    assert not ours.whole


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"missing": 0.0},
        {"noise": False},
        {"weight": True},
        {"prior": "rows"},
        {"prior": "labels"},
        {"background": True},
        {"n": 2},
        {"k": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize(("d", "rank"), [(12, 1), (20, 3), (33, 6)])
def test_sums_are_the_references(d, rank, kind):
    parameters, factors, batch = problem(d, rank, **kind)
    assert low_rank.takes(batch, rank)
    ours = kernels.accumulate(*parameters, batch, EXACT, factors)
    same(ours, kernels.accumulate(*parameters, batch, REFERENCE), factors, 1e-10)


@pytest.mark.slow
def test_rows_in_the_frame_of_a_fit_and_in_float32():
    parameters, factors, batch = problem(40, 2)
    moved = batch.standardized(torch.linspace(-1, 1, 40), torch.linspace(0.5, 2, 40))
    same(kernels.accumulate(*parameters, moved, EXACT, factors), kernels.accumulate(*parameters, moved, REFERENCE),
         factors, 1e-10)  # fmt: skip
    single = batch.to(dtype=torch.float32)
    exact = single.to(dtype=torch.float64)  # the same rounded rows
    same(kernels.accumulate(*parameters, single, EXACT, factors), kernels.accumulate(*parameters, exact, REFERENCE),
         factors, 1e-10)  # fmt: skip


@pytest.mark.slow
def test_skipping_loses_almost_nothing():
    parameters, factors, batch = problem(20, 3, k=16, n=2000)
    spread = parameters._replace(means=4 * parameters.means)
    skipped = kernels.accumulate(*spread, batch, Options(), factors)
    right = kernels.accumulate(*spread, batch, REFERENCE)
    assert float((skipped.q - right.q).abs().sum()) / batch.n < 2.0**-22
    torch.testing.assert_close(skipped.loglik, right.loglik, rtol=1e-10, atol=0)


def test_the_same_bits_for_any_number_of_threads(monkeypatch):
    parameters, factors, batch = problem(20, 3, n=3000)
    monkeypatch.setattr(low_rank, "CHUNK_NUMBERS", 1 << 17)
    found = []
    for count in (1, 3):
        monkeypatch.setattr(low_rank, "threads", lambda count=count: count)
        found.append(kernels.accumulate(*parameters, batch, EXACT, factors).packed)
    torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.slow
def test_what_it_is_not_for_is_summed_as_ever():
    parameters, factors, batch = problem(8, 3)  # too many factors to be faster
    torch.testing.assert_close(kernels.accumulate(*parameters, batch, EXACT, factors).packed,
                               kernels.accumulate(*parameters, batch, EXACT).packed, rtol=0, atol=0)  # fmt: skip
    rng = np.random.default_rng(1)
    parameters, factors, _ = problem(12, 1)
    full = Batch.from_arrays(rng.normal(size=(50, 12)), np.eye(12)[None].repeat(50, 0) + 0.1)
    shared = Batch.from_arrays(rng.normal(size=(50, 12)), np.ones(12))
    for other in (full, shared):
        assert not low_rank.takes(other, 1)
        torch.testing.assert_close(kernels.accumulate(*parameters, other, EXACT, factors).packed,
                                   kernels.accumulate(*parameters, other, EXACT).packed, rtol=0, atol=0)  # fmt: skip


def test_a_failure_is_nan():
    parameters, factors, batch = problem(12, 1)
    own = factors.own.clone()
    own[0, 0] = torch.nan
    assert torch.isnan(kernels.accumulate(*parameters, batch, EXACT, factors._replace(own=own)).loglik)


def test_factors_that_hold_nothing():
    """A column of zeros is read as nothing, and G is still right where it is read."""
    parameters, factors, batch = problem(12, 1)
    none = Factors(torch.zeros_like(factors.loadings), factors.own)
    diagonal = parameters._replace(covariances=none.covariances())
    same(
        kernels.accumulate(*diagonal, batch, EXACT, none), kernels.accumulate(*diagonal, batch, REFERENCE), none, 1e-10
    )


@pytest.mark.slow
def test_a_fit_with_it_ends_where_one_without_does(monkeypatch):
    import xdeconv as xd

    rng = np.random.default_rng(2)
    F = rng.normal(size=(2, 12, 1))
    z = rng.integers(2, size=800)
    v = np.where(z[:, None] == 0, -1.5, 1.5) + F[z, :, 0] * rng.normal(size=(800, 1)) + 0.5 * rng.normal(size=(800, 12))
    error = rng.uniform(0.1, 0.5, size=v.shape)
    X, calls = v + error * rng.normal(size=v.shape), []
    real = low_rank.accumulate
    monkeypatch.setattr(low_rank, "accumulate", lambda *a: calls.append(1) or real(*a))
    for words in ({}, {"batch_rows": 200}, {"batch_rows": 200, "method": xd.SGD()}):
        ours = xd.fit(X, 2, error=error, covariance=xd.LowRank(1), **words)
        assert calls, words
        calls.clear()
        with monkeypatch.context() as without:
            without.setattr(low_rank, "takes", lambda batch, rank: False)
            right = xd.fit(X, 2, error=error, covariance=xd.LowRank(1), **words)
        assert not calls
        assert ours.loglik == pytest.approx(right.loglik, abs=2e-3 if words else 2e-4)
