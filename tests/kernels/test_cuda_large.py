"""More than ten dimensions by Triton: kernels that learn their dimensions at run time, pinned to the reference."""

from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch

from problems import problem
from xdeconv import kernels
from xdeconv.kernels import Groups, cuda
from xdeconv.kernels.cuda import large
from xdeconv.kernels.options import Options
from xdeconv.rows.batch import Batch

pytestmark = [
    pytest.mark.interpreted,
    pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed"),
]
REFERENCE, CUDA, DENSE = Options(backend="reference"), Options(backend="cuda"), Options(backend="cuda", skip=False)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4}
KINDS: dict[str, dict] = {
    "full": {},
    "diagonal, missing": {"d": 13, "noise": "diagonal", "missing": 0.4, "weight": True},
    "missing, priors of rows": {"missing": 0.4, "prior": "rows"},
    "shared, missing": {"noise": "shared", "missing": 0.3},
    "no noise, missing": {"noise": "none", "missing": 0.3, "prior": "labels"},
    "whole blocks": {"d": 12, "n": 33},
    "shared": {"d": 30, "noise": "shared", "weight": True, "k": 5},
    "shared diagonal": {"d": 14, "noise": "shared-diagonal"},
    "no noise": {"d": 11, "noise": "none"},
    "projection to more": {"d": 5, "p": 11, "projection": "dense", "missing": 0.2},
    "projection to few": {"d": 11, "p": 2, "projection": "dense", "noise": "diagonal"},
}


def check(p, dtype, device, options=CUDA):
    """Errors relative to the size of each sum over all rows, not relative to nearly dead components."""
    theta, batch = p.parameters(), p.batch(dtype=dtype)
    exact, there = batch.to(dtype=torch.float64), batch.to(device=device)
    ours, right = kernels.accumulate(*theta, there, options), kernels.accumulate(*theta, exact, REFERENCE)
    for name in ("rows", "loglik", "q", "g", "G"):
        a, b = getattr(ours, name).cpu(), getattr(right, name)
        assert float((a - b).abs().max()) <= TOLERANCE[dtype] * max(batch.n, float(b.abs().max())), name
    joint = kernels.log_joint(*theta, exact, REFERENCE)
    close = {"rtol": TOLERANCE[dtype], "atol": 10 * TOLERANCE[dtype]}
    torch.testing.assert_close(kernels.log_joint(*theta, there, options).cpu().double(), joint, **close)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_equals_the_reference(name, device):
    check(problem(**({"n": 21, "k": 2, "d": 11, "seed": 80} | KINDS[name])), torch.float64, device)


def test_float32_without_skipping(device):
    check(problem(n=21, k=2, d=11, missing=0.2, seed=81), torch.float32, device, DENSE)


def test_several_slices_chunks_and_programs_add_up(monkeypatch, device):
    p = problem(n=40, k=2, d=11, missing=0.2, weight=True, seed=82)
    whole = kernels.accumulate(*p.parameters(), p.batch(device=device), CUDA).packed
    monkeypatch.setattr(large, "NUMBERS", 24 * (8 + 2 * 66 + 121))  # 24 rows at a time
    monkeypatch.setattr(cuda, "launch_for", lambda batch: large.Launch(16, 3))
    parts = kernels.accumulate(*p.parameters(), p.batch(device=device), CUDA).packed
    torch.testing.assert_close(parts, whole, rtol=1e-9, atol=1e-9)


def test_a_background_takes_its_share_of_rows(device):
    p = problem(n=30, k=2, d=11, seed=83)
    background = torch.linspace(-60.0, 0.0, 30, dtype=torch.float64)
    log_weights, *rest = p.parameters()
    halved = (log_weights + torch.tensor(0.5).log(), *rest)
    ours, right = (
        kernels.accumulate(*halved, replace(p.batch(device=place), background=background.to(place)), options)
        for place, options in ((device, CUDA), ("cpu", REFERENCE))
    )
    torch.testing.assert_close(ours.packed.cpu(), right.packed, rtol=1e-9, atol=1e-8)
    assert 1.0 < float(ours.q.sum()) < 29.0


@pytest.mark.parametrize("noise", ["full", "shared"])
def test_a_failed_factor_is_nan(noise, device):
    p = problem(n=12, k=2, d=11, noise=noise, seed=84)
    log_weights, means, V = p.parameters()
    V[1, 10, 10] = -500.0
    batch = p.batch(device=device)
    assert bool(kernels.accumulate(log_weights, means, V, batch, CUDA).loglik.isnan())
    joint = kernels.log_joint(log_weights, means, V, batch, CUDA)
    assert bool(joint[:, 1].isnan().all())
    assert bool(joint[:, 0].isfinite().all())


def test_nothing_reads_fresh_memory(monkeypatch, device):
    p = problem(n=20, k=2, d=11, missing=0.2, seed=85)
    clean = kernels.accumulate(*p.parameters(), p.batch(device=device), CUDA).packed
    fresh = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda t, *size, **kind: fresh(t, *size, **kind).fill_(torch.nan))
    assert torch.equal(kernels.accumulate(*p.parameters(), p.batch(device=device), CUDA).packed, clean)


def test_pairs_that_hold_nothing_are_not_summed(device):
    """A component that no row belongs to has sums of exactly zero with skipping, and tiny ones without."""
    p = problem(n=20, k=2, d=11, seed=86)
    log_weights, means, V = p.parameters()
    means[1] += 9.0
    on, off = (kernels.accumulate(log_weights, means, V, p.batch(device=device), how) for how in (CUDA, DENSE))
    assert not on.G[1].any()
    assert 0.0 < float(off.G[1].abs().max()) < 1e-9


def test_groups_are_summed_by_the_reference(device):
    p = problem(n=20, k=2, d=11, seed=87)
    theta = [t[None] for t in p.parameters()]
    rows, no = torch.arange(20), torch.full((20,), -torch.inf, dtype=torch.float64)
    groups = Groups(rows, torch.tensor([0, 20]), no, torch.ones(20, dtype=torch.float64))
    ours = kernels.accumulate_groups(*theta, kernels.for_groups(p.batch(device=device), 11, CUDA), groups)
    right = kernels.accumulate(*p.parameters(), p.batch(), REFERENCE)
    torch.testing.assert_close(ours.stats.q.cpu(), right.q, rtol=1e-9, atol=1e-9)


def test_up_to_128_dimensions(device):
    assert cuda.refuses(Batch(x=torch.zeros(128, 3, device=device)), 2, 128) is None
    assert "129 dimensions" in cuda.refuses(Batch(x=torch.zeros(129, 3, device=device)), 2, 129)
