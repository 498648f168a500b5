"""Threads, forked and fresh processes give what one process gives; a fit changes nothing that others share."""

import multiprocessing
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import xdeconv as xd

X = np.random.default_rng(0).normal(size=(200, 2))
ERROR = np.full((200, 2), 0.3)


def fitted(seed):
    settings = {"error": ERROR, "seed": seed, "tol": 0}
    batch = xd.fit(X, 3, epochs=12, **settings).mixture
    steps = xd.fit(X, 3, epochs=2, method=xd.SGD(), batch_rows=50, **settings).mixture
    return batch.means, batch.covariances, steps.means, steps.covariances


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.slow
def test_the_same_seed_is_the_same_result():
    one, other = fitted(3), fitted(3)
    assert same(one, other)
    assert not same(one, fitted(4))


@pytest.mark.slow
def test_any_number_of_threads_gives_the_same_bits():
    rng = np.random.default_rng(1)
    many, before = rng.normal(size=(20_000, 2)), torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(xd.fit(many, 4, error=[0.3, 0.3], epochs=3, tol=0).mixture.covariances)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.slow
def test_parallel_threads():
    alone = [fitted(seed) for seed in range(3)]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(fitted, range(3)))
    assert all(same(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_forked_workers_after_a_fit_in_the_parent():
    alone = [fitted(seed) for seed in range(2)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        together = pool.map_async(fitted, range(2)).get(timeout=120)
    assert all(same(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")
def test_joblib():
    joblib = pytest.importorskip("joblib")
    alone = [fitted(seed) for seed in range(2)]
    together = joblib.Parallel(n_jobs=2)(joblib.delayed(fitted)(seed) for seed in range(2))
    assert all(same(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scheduler", ["processes", "threads"])
def test_dask(scheduler):
    dask = pytest.importorskip("dask")
    alone = [fitted(seed) for seed in range(2)]
    together = dask.compute(*(dask.delayed(fitted)(seed) for seed in range(2)), scheduler=scheduler, num_workers=2)
    assert all(same(a, b) for a, b in zip(alone, together, strict=True))


def shared_state():
    return {
        "threads": torch.get_num_threads(), "dtype": torch.get_default_dtype(), "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(), "numpy errors": np.geterr(),
        "torch random": torch.get_rng_state().tolist(), "numpy random": str(np.random.get_state()),  # noqa: NPY002
        "python random": random.getstate(), "print": np.get_printoptions(),
    }  # fmt: skip


@pytest.mark.slow
def test_a_fit_changes_nothing_that_others_share(tmp_path):
    before = shared_state()
    mixture = xd.fit(X, 2, error=ERROR, epochs=12, validation=0.2, checkpoint=tmp_path / "c").mixture
    xd.fit(X, 2, method=xd.SGD(), batch_rows=50, epochs=1, dtype="float32")
    mixture.posterior(X, error=ERROR).sample(3, seed=0)
    mixture.sample(10, seed=1)
    mixture.save(tmp_path / "m")
    xd.load(tmp_path / "m").log_prob(X, error=ERROR)
    xd.XDGMM(2, max_iter=2, tol=0).fit(X)
    after = shared_state()
    assert [name for name in before if before[name] != after[name]] == []
