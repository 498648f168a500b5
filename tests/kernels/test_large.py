"""Dimensions that compiled kernels learn at run time, from 17 to 128: pinned to the reference."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from llvmlite import binding

from problems import Problem, problem
from xdeconv import kernels
from xdeconv.kernels import cpu
from xdeconv.kernels.options import Options

REFERENCE, ON, OFF = Options(backend="reference"), Options(backend="cpu"), Options(backend="cpu", skip=False)
NUMBERS = (torch.float64, torch.float32)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4}
KINDS: dict[str, dict] = {
    "full": {},
    "diagonal": {"noise": "diagonal"},
    "no noise": {"noise": "none"},
    "shared": {"noise": "shared"},
    "shared diagonal": {"noise": "shared-diagonal"},
    "missing full": {"missing": 0.4},
    "missing diagonal": {"noise": "diagonal", "missing": 0.4},
    "missing no noise": {"noise": "none", "missing": 0.4},
    "missing shared": {"noise": "shared", "missing": 0.4},
    "projection": {"p": 17, "projection": "dense"},
    "projection to more": {"p": 23, "projection": "dense", "noise": "diagonal"},
    "projection of few": {"d": 3, "p": 18, "projection": "dense"},
    "projection to one": {"p": 1, "projection": "dense", "noise": "diagonal"},
    "projection rank-deficient": {"p": 18, "projection": "deficient"},
    "projection missing": {"p": 17, "projection": "dense", "missing": 0.3},
    "projection shared": {"p": 17, "projection": "dense", "noise": "shared-diagonal"},
    "one component": {"k": 1},
    "one row": {"n": 1},
    "weights": {"weight": True},
    "row priors": {"prior": "rows", "missing": 0.2},
    "label priors": {"prior": "labels", "weight": True},
    "many components": {"n": 100, "k": 35},
}


@pytest.fixture(autouse=True)
def _bounds_in_small_problems(monkeypatch):
    monkeypatch.setattr(cpu, "BOUND_COMPONENTS", 4)


def check(p: Problem, dtype: torch.dtype, options: Options) -> None:
    """Errors relative to the size of each sum over all rows, not relative to nearly dead components."""
    theta, batch = p.parameters(), p.batch(dtype=dtype)
    exact = batch.to(dtype=torch.float64)
    ours, right = kernels.accumulate(*theta, batch, options), kernels.accumulate(*theta, exact, REFERENCE)
    for name in ("rows", "loglik", "q", "g", "G"):
        a, b = getattr(ours, name), getattr(right, name)
        assert float((a - b).abs().max()) <= TOLERANCE[dtype] * max(batch.n, float(b.abs().max())), name
    joint = kernels.log_joint(*theta, exact, REFERENCE)
    close = {"rtol": TOLERANCE[dtype], "atol": 10 * TOLERANCE[dtype]}
    torch.testing.assert_close(kernels.log_joint(*theta, batch, options).double(), joint, **close)
    torch.testing.assert_close(kernels.log_prob(*theta, batch, options).double(), joint.logsumexp(1), **close)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("options", [ON, OFF], ids=["skip", "dense"])
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_equals_the_reference(name, dtype, options):
    check(problem(**({"n": 37, "k": 5, "d": 19, "seed": 60} | KINDS[name])), dtype, options)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("d", [17, 18, 19, 20, 21, 25, 31, 32, 33, 47, 50, 64, 65, 100, 127, 128])
def test_every_size_of_a_block(d):
    """Each way in which a dimension can fill its last block, with full and other noise and with missing values."""
    options, dtype = (ON, OFF)[d % 2], NUMBERS[d // 2 % 2]
    check(problem(n=21, k=6, d=d, seed=d), dtype, options)
    check(problem(n=21, k=6, d=d, noise=("diagonal", "shared", "none")[d % 3], seed=d), dtype, options)
    check(problem(n=21, k=6, d=d, missing=0.2, seed=d), torch.float64, options)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("d", "p"), [(17, 128), (128, 17), (128, 128), (5, 40), (40, 5), (30, 29)])
def test_projections_between_sizes(d, p):
    check(problem(n=9, k=4, d=d, p=p, projection="dense", missing=0.2, seed=61), torch.float64, ON)


@pytest.mark.parametrize("n", [1, 7, 15, 16, 17, 63, 64, 65, 255, 256, 257, 300])
@pytest.mark.parametrize("noise", ["full", "shared"])
def test_sizes_around_a_group_and_a_tile(n, noise, monkeypatch):
    monkeypatch.setattr(cpu, "CHUNK_PAIRS", 1)
    p = problem(n=300, k=9, d=17, noise=noise, weight=True, seed=62)
    noise_of_rows = p.noise if noise == "shared" else p.noise[:n]
    check(replace(p, X=p.X[:n], noise=noise_of_rows, weight=p.weight[:n]), torch.float64, ON)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_extreme_rows_stay_finite_and_right(dtype):
    """Rows a million sd away, noise over 12 decades, weights over 12 decades, a dead component."""
    p = problem(n=24, k=4, d=18, seed=63)
    X = p.X.copy()
    X[3] = 1e6
    X[4, 1] = -1e6
    noise = p.noise * np.logspace(-6, 6, 24)[:, None, None]
    weights = np.array([0.0, 1e-12, 0.3, 0.7 - 1e-12])
    with np.errstate(divide="ignore"):
        theta = Problem(weights, p.means, p.covariances, X, noise).parameters()
    batch = Problem(weights, p.means, p.covariances, X, noise).batch(dtype=dtype)
    right = kernels.log_prob(*theta, batch.to(dtype=torch.float64), REFERENCE)
    for options in (ON, OFF):
        ours = kernels.log_prob(*theta, batch, options)
        torch.testing.assert_close(ours.double(), right, rtol=20 * TOLERANCE[dtype], atol=20 * TOLERANCE[dtype])
        stats = kernels.accumulate(*theta, batch, options)
        assert bool(stats.packed.isfinite().all())
        assert float(stats.q[0]) == 0.0
        assert float(stats.q.sum()) == pytest.approx(24, rel=1e-5)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", [{}, {"noise": "shared"}, {"missing": 0.3}, {"p": 18, "projection": "dense"}])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_tiny_and_huge_determinants(kind, dtype):
    """The product of 100 pivots is far outside of what a number can hold, and its logarithm is not."""
    for scale in (1e-3, 1e3):
        p = problem(n=20, k=4, d=100, seed=64, **kind)
        small = replace(p, means=p.means * scale, X=p.X * scale, covariances=p.covariances * scale**2)
        check_log_prob(replace(small, noise=p.noise * scale**2), dtype)


def check_log_prob(p: Problem, dtype: torch.dtype) -> None:
    batch = p.batch(dtype=dtype)
    right = kernels.log_prob(*p.parameters(), batch.to(dtype=torch.float64), REFERENCE)
    ours = kernels.log_prob(*p.parameters(), batch, ON)
    torch.testing.assert_close(ours.double(), right, rtol=TOLERANCE[dtype], atol=10 * TOLERANCE[dtype])


@pytest.mark.parametrize("options", [ON, OFF], ids=["skip", "dense"])
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("kind", [{}, {"noise": "shared"}, {"noise": "diagonal", "missing": 0.2}])
def test_a_failed_factor_is_nan(kind, dtype, options):
    p = problem(n=40, k=9, d=21, seed=65, **kind)
    for place in (0, 20):
        log_weights, means, V = p.parameters()
        V[7, place, place] = -500.0
        batch = p.batch(dtype=dtype).rows(slice(1, None))
        assert bool(kernels.accumulate(log_weights, means, V, batch, options).loglik.isnan())
        joint = kernels.log_joint(log_weights, means, V, batch, options)[:, 7]
        seen = ~batch.x[place].isnan()
        assert bool(joint[seen].isnan().all())
        assert not bool(joint.isneginf().any())
        assert bool(kernels.log_prob(log_weights, means, V, batch, options)[seen].isnan().all())


@pytest.mark.parametrize("dtype", NUMBERS)
def test_a_component_that_failed_leaves_rows_alone_that_a_prior_keeps_from_it(dtype):
    p = problem(n=70, k=4, d=17, seed=66)
    log_weights, means, V = p.parameters()
    own = torch.tensor([[0.0, 0.0, -torch.inf, -torch.inf], [-torch.inf, -torch.inf, 0.0, 0.0]], dtype=dtype)
    label = (torch.arange(70) % 3 == 2).long()
    batch = replace(p.batch(dtype=dtype), log_prior=own, label=label, weight=(1 - label).to(dtype))
    bad = V.clone()
    bad[2:] = -torch.eye(17)
    for options in (ON, OFF):
        right, found = (kernels.accumulate(log_weights, means, matrix, batch, options) for matrix in (V, bad))
        assert torch.equal(kernels.log_prob(log_weights, means, bad, batch, options).isnan(), label == 1)
        for name in ("q", "g", "G"):
            close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}  # other pairs are skipped: rounded otherwise
            torch.testing.assert_close(getattr(found, name)[:2], getattr(right, name)[:2], **close)


@pytest.mark.parametrize("kind", [{}, {"noise": "shared"}, {"p": 17, "projection": "dense"}])
@pytest.mark.parametrize("options", [ON, OFF], ids=["skip", "dense"])
def test_the_same_bits_for_any_number_of_threads(kind, options, monkeypatch):
    monkeypatch.setattr(cpu, "CHUNK_PAIRS", 1)
    p = problem(n=900, k=12, d=18, missing=0.0 if kind else 0.1, weight=True, prior="labels", seed=67, **kind)
    batch = p.batch(dtype=torch.float32)

    def results(threads: int) -> list[torch.Tensor]:
        monkeypatch.setattr(cpu, "threads", lambda: threads)
        stats = kernels.accumulate(*p.parameters(), batch, options).packed
        return [stats, *(f(*p.parameters(), batch, options) for f in (kernels.log_prob, kernels.log_joint))]

    one = results(1)
    for threads in (2, 3, 16):
        assert all(torch.equal(a, b) for a, b in zip(one, results(threads), strict=True))


@pytest.mark.parametrize("kind", [{"missing": 0.1}, {"noise": "shared"}, {"p": 21, "projection": "dense"}])
@pytest.mark.parametrize("options", [ON, OFF], ids=["skip", "dense"])
@pytest.mark.parametrize("fill", [0xFF, 0x7F, 0x01])
def test_nothing_reads_fresh_memory(kind, fill, options, monkeypatch):
    p = problem(n=150, k=20, d=19, weight=True, prior="rows", seed=68, **kind)
    batch = p.batch(dtype=torch.float32)

    def results() -> list[torch.Tensor]:
        return [
            kernels.accumulate(*p.parameters(), batch, options).packed,
            kernels.log_prob(*p.parameters(), batch, options),
        ]

    def poisoned(numbers: int, dtype: np.dtype) -> np.ndarray:
        memory = fresh(numbers, dtype)
        memory.view(np.uint8)[:] = fill
        return memory

    clean, fresh = results(), cpu._memory
    monkeypatch.setattr(cpu, "_memory", poisoned)
    assert all(torch.equal(a, b) for a, b in zip(results(), clean, strict=True))


@pytest.mark.parametrize("kind", [{}, {"noise": "diagonal"}, {"missing": 0.4}, {"prior": "labels"}, {"prior": "rows"}])
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("spread", [0.4, 4])
def test_skipping_loses_no_more_than_it_may(kind, dtype, spread):
    """Components far apart and noise over many decades, so that bounds decide about most pairs; and close ones."""
    p = problem(n=400, k=40, d=17, seed=69, **kind)
    noise = p.noise * np.logspace(-5, 3, 400).reshape(-1, *[1] * (p.noise.ndim - 1))
    far = replace(p, means=spread * p.means, X=spread * p.X, noise=noise)
    batch = far.batch(dtype=dtype)
    on, off = (kernels.accumulate(*far.parameters(), batch, options) for options in (ON, OFF))
    slack = 1e-6 if dtype == torch.float32 else 1e-11
    assert float((on.q - off.q).abs().sum()) <= slack * batch.n
    assert float((on.loglik - off.loglik).abs()) <= slack * max(batch.n, float(off.loglik.abs()))
    a, b = (kernels.log_prob(*far.parameters(), batch, options) for options in (ON, OFF))
    torch.testing.assert_close(a, b, rtol=slack, atol=slack)


@pytest.mark.parametrize("options", [ON, OFF], ids=["skip", "dense"])
@pytest.mark.parametrize("kind", [{"missing": 0.1}, {"noise": "shared"}, {"p": 17, "projection": "dense"}])
def test_a_background_takes_its_share_of_rows(kind, options):
    p = problem(n=90, k=9, d=19, weight=True, seed=73, **kind)
    background = torch.linspace(-60.0, 0.0, 90, dtype=torch.float64)
    batch = replace(p.batch(), background=background)
    log_weights, *rest = p.parameters()
    halved = (log_weights - np.log(2), *rest)  # half of the weight is the background's
    ours, right = (kernels.accumulate(*halved, batch, how) for how in (options, REFERENCE))
    assert 1.0 < float(ours.q.sum()) < float(ours.rows) - 1.0
    torch.testing.assert_close(ours.packed, right.packed, rtol=1e-9, atol=1e-8)
    found, exact = (kernels.log_prob(*halved, batch, how) for how in (options, REFERENCE))
    torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-10)


def test_values_that_are_not_neighbours_in_memory():
    p = problem(n=64, k=9, d=17, seed=71)
    batch = p.batch()
    apart = replace(batch, x=batch.x.repeat_interleave(2, dim=1)[:, ::2], noise=batch.noise.T.contiguous().T)
    assert torch.equal(*(kernels.accumulate(*p.parameters(), b, ON).packed for b in (batch, apart)))


def test_scale_changes_log_likelihoods_only():
    p = problem(n=50, k=9, d=18, missing=0.2, seed=72)
    scale = torch.linspace(0.1, 30.0, 18, dtype=torch.float64)
    batch = replace(p.batch(), scale=scale)
    ours, right = (kernels.accumulate(*p.parameters(), batch, options) for options in (ON, REFERENCE))
    torch.testing.assert_close(ours.packed, right.packed, rtol=1e-9, atol=1e-8)


def test_no_rows_are_zero():
    p = problem(n=4, k=3, d=20)
    assert not kernels.accumulate(*p.parameters(), p.batch().rows(slice(0, 0)), ON).packed.any()


def test_up_to_128_dimensions():
    assert cpu.refuses(problem(n=2, k=2, d=128).batch(), 2, 128) is None
    assert "129" in str(cpu.refuses(problem(n=2, k=2, d=129).batch(), 2, 129))


HALF_REGISTERS = """
from problems import problem
from test_large import NUMBERS, OFF, ON, check, cpu
from xdeconv.kernels.cpu import blocks
assert (blocks.BLOCK, blocks.PART_BYTES, blocks.UNROLLED) == (3, 32, 11)
cpu.BOUND_COMPONENTS = 4
for dtype in NUMBERS:
    for options in (ON, OFF):
        check(problem(n=40, k=9, d=19, missing=0.2, seed=1), dtype, options)
        check(problem(n=40, k=9, d=18, seed=2), dtype, options)
        check(problem(n=70, k=9, d=20, noise="shared", seed=3), dtype, options)
        check(problem(n=20, k=4, d=18, p=20, projection="dense", noise="diagonal", seed=4), dtype, options)
"""


@pytest.mark.processes
@pytest.mark.skipif(not binding.get_host_cpu_features().get("avx512f"), reason="has no wider registers than those")
def test_machines_with_16_registers_of_32_bytes(tmp_path):
    features = binding.get_host_cpu_features().items()
    flags = ",".join(f"{'+' if on and not name.startswith('avx512') else '-'}{name}" for name, on in features)
    compiler = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": flags, "NUMBA_CACHE_DIR": str(tmp_path)}
    code = f"import sys; sys.path[:0] = {[os.path.dirname(__file__), *sys.path]!r}\n{HALF_REGISTERS}"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | compiler, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
