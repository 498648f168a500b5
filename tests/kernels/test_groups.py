"""Groups of rows, each with its own few components: fast paths pinned to the reference, and the reference to EM."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from problems import problem
from xdeconv import kernels
from xdeconv.kernels import Groups, Options, cpu

KINDS = {
    "full": {},
    "diagonal": {"noise": "diagonal"},
    "shared": {"noise": "shared"},
    "none": {"noise": "none"},
    "missing": {"missing": 0.3},
    "projected": {"projection": "dense", "p": 2},
    "one dimension": {"d": 1},
    "seven dimensions": {"d": 7, "n": 700},
    "twenty dimensions": {"d": 20},
    "many dimensions": {"d": 50},
    "many dimensions, shared": {"d": 18, "noise": "shared"},
    "many dimensions, missing": {"d": 19, "missing": 0.3},
    "many dimensions, projected": {"d": 19, "projection": "dense", "p": 17, "noise": "diagonal"},
}


def groups_of(n: int, sizes: list[int], seed: int = 0, background: float | None = -3.0) -> Groups:
    """Groups of random rows with random weights and backgrounds."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate([np.sort(rng.choice(n, size, replace=False)) for size in sizes])
    density = np.full(len(rows), -np.inf) if background is None else background + rng.normal(size=len(rows))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    weight = rng.uniform(0.5, 2.0, len(rows))
    return Groups(*(torch.from_numpy(a) for a in (rows, starts, density, weight)))


def components_of(p, g: int, m: int):
    """Parameters (g, m, ...) picked from a problem's components."""
    pick = torch.arange(g * m).view(g, m) % len(p.weights)
    return tuple(t[pick] for t in p.parameters())


def both(p, groups: Groups, m: int, dtype: torch.dtype = torch.float64):
    parameters = components_of(p, len(groups), m)
    batch = replace(p.batch(dtype=dtype), weight=None)
    d = parameters[1].shape[-1]
    right = kernels.for_groups(replace(p.batch(), weight=None), d, Options(backend="reference"))
    fast = kernels.for_groups(batch, d, Options(backend="cpu"))
    return kernels.accumulate_groups(*parameters, fast, groups), kernels.accumulate_groups(*parameters, right, groups)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("background", [-3.0, None])
def test_the_loop_equals_the_reference(kind, dtype, background):
    p = problem(**({"n": 400, "k": 6, "seed": 3} | KINDS[kind]))
    groups = groups_of(len(p.X), [1, 37, 256, 0, 300], background=background)
    ours, right = both(p, groups, 2, dtype)
    tolerance = 1e-9 if dtype == torch.float64 else 2e-4
    for name in ("loglik", "q", "g", "G"):
        found, wanted = getattr(ours, name), getattr(right, name)
        assert found.shape == wanted.shape
        assert float((found - wanted).abs().max()) < tolerance * (1 + float(wanted.abs().max())), name


def test_one_group_of_all_rows_without_background_is_accumulate():
    p = problem(n=300, k=4, d=3, missing=0.2, seed=8)
    batch = p.batch()
    every = torch.arange(300)
    alone = Groups(every, torch.tensor([0, 300]), torch.full((300,), -torch.inf).double(), torch.ones(300).double())
    found = kernels.accumulate_groups(*(t[None] for t in p.parameters()), kernels.for_groups(batch, 3), alone)
    right = kernels.accumulate(*p.parameters(), batch)
    assert float((found.stats.packed - right.packed).abs().max()) < 1e-9 * float(right.packed.abs().max())


@pytest.mark.sampled
@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("d", [2, 6])
def test_a_background_is_one_more_component_that_is_not_fitted(backend, skip, d):
    p = problem(n=600, k=40, d=d, missing=0.1, seed=5)
    whole, options = p.batch(), Options(backend=backend, skip=skip)
    log_weights, means, V = p.parameters()
    joint = kernels.log_joint(log_weights, means, V, whole, Options(backend="reference"))
    rest = replace(whole, background=joint[:, 30:].logsumexp(1) - log_weights[30:].logsumexp(0))
    right = kernels.accumulate(log_weights, means, V, whole, Options(backend="reference"))
    found = kernels.accumulate(log_weights[:30], means[:30], V[:30], rest, options)
    assert float(found.loglik) == pytest.approx(float(right.loglik), rel=1e-9)
    assert float((found.q - right.q[:30]).abs().max()) < 1e-6
    assert float((found.G - right.G[:30]).abs().max()) < 1e-5 * float(right.G.abs().max())
    total = kernels.log_prob(log_weights[:30], means[:30], V[:30], rest, options)
    assert float((total - joint.logsumexp(1)).abs().max()) < 1e-8


def test_poisoned_memory_does_not_matter(monkeypatch):
    p = problem(n=400, k=4, d=4, noise="diagonal", missing=0.2, seed=2)
    groups = groups_of(400, [5, 130, 259])
    clean, _ = both(p, groups, 2)

    def poisoned(numbers, dtype):
        memory = fresh(numbers, dtype)
        memory.view(np.uint8)[:] = 0xFF  # NaN, and -1
        return memory

    fresh = cpu._memory
    monkeypatch.setattr(cpu, "_memory", poisoned)
    again, _ = both(p, groups, 2)
    assert torch.equal(clean.stats.packed, again.stats.packed)


def test_bits_do_not_depend_on_threads(monkeypatch):
    p = problem(n=2000, k=10, d=3, seed=4)
    groups = groups_of(2000, [300] * 40)
    results = []
    for count in (1, 2, 5):
        monkeypatch.setattr(cpu, "threads", lambda count=count: count)
        results.append(both(p, groups, 2)[0].stats.packed)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_a_failed_component_is_nan_in_its_group_alone():
    p = problem(n=100, k=4, d=2, seed=1)
    groups = groups_of(100, [50, 50])
    log_weights, means, V = components_of(p, 2, 2)
    V = V.clone()
    V[1, 0] = -10 * torch.eye(2)
    for backend in ("cpu", "reference"):
        rows = kernels.for_groups(p.batch(), 2, Options(backend=backend))
        found = kernels.accumulate_groups(log_weights, means, V, rows, groups)
        assert found.loglik[0].isfinite()
        assert found.loglik[1].isnan()
        assert found.q[0].isfinite().all()
