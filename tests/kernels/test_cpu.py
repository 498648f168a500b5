"""What only the CPU backend promises: the same bits for any threads, clean scratch memory, code kept on disk."""

import multiprocessing
import os
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from problems import Problem, problem
from xdeconv import kernels
from xdeconv.kernels import cpu
from xdeconv.kernels.options import Options

REFERENCE, ON, OFF = Options(backend="reference"), Options(backend="cpu"), Options(backend="cpu", skip=False)
NUMBERS = (torch.float32, torch.float64)


@pytest.fixture(autouse=True)
def _bounds_in_small_problems(monkeypatch):
    monkeypatch.setattr(cpu, "BOUND_DIMENSION", 1)
    monkeypatch.setattr(cpu, "BOUND_COMPONENTS", 8)


def relative_error(p: Problem, batch, options: Options) -> float:
    """Largest error of the sums, relative to the size of each sum."""
    ours = kernels.accumulate(*p.parameters(), batch, options)
    truth = kernels.accumulate(*p.parameters(), batch.to(dtype=torch.float64), REFERENCE)
    pairs = [(getattr(ours, name), getattr(truth, name)) for name in ("loglik", "q", "g", "G")]
    return max(float((a - b).abs().max() / max(batch.n, float(b.abs().max()))) for a, b in pairs)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("d", range(1, 11))
def test_every_dimension(d):
    p = problem(n=70, k=9, d=d, missing=0.1 * (d % 3 == 0), noise="full" if d % 2 else "diagonal", seed=d)
    assert relative_error(p, p.batch(dtype=NUMBERS[d % 2]), ON) < (1e-10 if d % 2 else 2e-4)


@pytest.mark.parametrize("n", [1, 7, 15, 16, 17, 255, 256, 257, 4095, 4096, 4097])
def test_sizes_around_a_group_a_tile_and_a_window(n, monkeypatch):
    monkeypatch.setattr(cpu, "CHUNK_PAIRS", 9 * 2048)
    p = problem(n=4097, k=9, d=3, missing=0.1, weight=True, seed=41)
    batch = p.batch().rows(slice(0, n))
    assert relative_error(p, batch, ON) < 1e-10
    right = kernels.log_prob(*p.parameters(), batch, REFERENCE)
    torch.testing.assert_close(kernels.log_prob(*p.parameters(), batch, ON), right, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("options", [ON, OFF])
def test_the_same_bits_for_any_number_of_threads(options, monkeypatch):
    monkeypatch.setattr(cpu, "CHUNK_PAIRS", 1 << 12)
    p = problem(n=5000, k=12, d=3, missing=0.1, weight=True, prior="labels", seed=42)
    batch = p.batch(dtype=torch.float32)

    def results(threads: int) -> list[torch.Tensor]:
        monkeypatch.setattr(cpu, "threads", lambda: threads)
        stats = kernels.accumulate(*p.parameters(), batch, options).packed
        return [stats, *(f(*p.parameters(), batch, options) for f in (kernels.log_prob, kernels.log_joint))]

    one = results(1)
    for threads in (2, 3, 16):
        assert all(torch.equal(a, b) for a, b in zip(one, results(threads), strict=True))


@pytest.mark.parametrize("options", [ON, OFF])
@pytest.mark.parametrize("fill", [0xFF, 0x7F, 0x01])
def test_nothing_reads_fresh_memory(fill, options, monkeypatch):
    p = problem(n=300, k=20, d=3, missing=0.1, weight=True, prior="rows", seed=43)
    batch = p.batch(dtype=torch.float32)
    clean = kernels.accumulate(*p.parameters(), batch, options).packed

    def poisoned(numbers: int, dtype: np.dtype) -> np.ndarray:
        memory = fresh(numbers, dtype)
        memory.view(np.uint8)[:] = fill
        return memory

    fresh = cpu._memory
    monkeypatch.setattr(cpu, "_memory", poisoned)
    assert torch.equal(kernels.accumulate(*p.parameters(), batch, options).packed, clean)


@pytest.mark.parametrize("kind", [{}, {"noise": "diagonal"}, {"missing": 0.4}, {"prior": "labels"}, {"prior": "rows"}])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_skipping_loses_no_more_than_it_may(kind, dtype):
    """Components far apart and noise over many decades, so that bounds decide about most pairs."""
    p = problem(n=700, k=40, d=3, seed=44, **kind)
    noise = p.noise * np.logspace(-5, 3, 700).reshape(-1, *[1] * (p.noise.ndim - 1))
    far = replace(p, means=4 * p.means, X=4 * p.X, noise=noise)
    batch = far.batch(dtype=dtype)
    on, off = (kernels.accumulate(*far.parameters(), batch, options) for options in (ON, OFF))
    slack = 1e-6 if dtype == torch.float32 else 1e-11
    assert float((on.q - off.q).abs().sum()) <= slack * batch.n
    assert float((on.loglik - off.loglik).abs()) <= slack * max(batch.n, float(off.loglik.abs()))
    a, b = (kernels.log_prob(*far.parameters(), batch, options) for options in (ON, OFF))
    torch.testing.assert_close(a, b, rtol=slack, atol=slack)


def test_dead_components_and_impossible_rows():
    p = problem(n=60, k=12, d=2, seed=45)
    log_weights, means, V = p.parameters()
    log_weights[3] = -torch.inf
    batch = p.batch(dtype=torch.float32)
    assert float(kernels.accumulate(log_weights, means, V, batch, ON).q[3]) == 0.0
    nowhere = replace(batch, log_prior=torch.full((60, 12), -torch.inf))
    assert bool(kernels.log_prob(log_weights, means, V, nowhere, ON).isneginf().all())


@pytest.mark.parametrize("options", [ON, OFF])
def test_a_failed_factor_is_seen_among_many_components(options):
    p = problem(n=300, k=30, d=3, seed=46)
    log_weights, means, V = p.parameters()
    V[7] = -V[7]
    for dtype in NUMBERS:
        batch = p.batch(dtype=dtype)
        assert bool(kernels.accumulate(log_weights, means, V, batch, options).loglik.isnan())
        assert bool(kernels.log_prob(log_weights, means, V, batch, options).isnan().any())


def test_scale_changes_log_likelihoods_only():
    p = problem(n=50, k=9, d=3, missing=0.2, seed=47)
    batch = replace(p.batch(), scale=torch.tensor([2.0, 0.1, 30.0], dtype=torch.float64))
    assert relative_error(p, batch, ON) < 1e-10


def test_values_that_are_not_neighbours_in_memory():
    p = problem(n=64, k=9, d=3, seed=48)
    batch = p.batch()
    apart = replace(batch, x=batch.x.repeat_interleave(2, dim=1)[:, ::2], noise=batch.noise.T.contiguous().T)
    stats = [kernels.accumulate(*p.parameters(), b, ON).packed for b in (batch, apart)]
    assert torch.equal(*stats)


def test_refusals_say_why():
    p = problem(n=2, k=2, d=129)
    assert "129" in str(cpu.refuses(p.batch(), 2, 129))
    assert "float16" in str(cpu.refuses(problem(n=2).batch(dtype=torch.float16), 5, 3))
    assert cpu.refuses(problem(n=2).batch(), 5, 3) is None


def test_log_prob_needs_no_memory_for_pairs():
    p = problem(n=20_000, k=64, d=2, seed=49)
    batch = p.batch(dtype=torch.float32)
    kernels.log_prob(*p.parameters(), batch, ON)
    tracemalloc.start()
    kernels.log_prob(*p.parameters(), batch, ON)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000 * 64 * 4 / 2


@pytest.mark.processes
def test_threads_of_the_caller_and_forked_workers(monkeypatch):
    monkeypatch.setattr(cpu, "CHUNK_PAIRS", 1 << 12)
    monkeypatch.setattr(cpu, "threads", lambda: 2)
    p = problem(n=2000, k=9, d=2, seed=50)
    batch = p.batch(dtype=torch.float32)

    def compute(_: int = 0) -> torch.Tensor:
        return kernels.accumulate(*p.parameters(), batch, ON).packed

    right = compute()
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(right, stats) for stats in pool.map(compute, range(8)))
    if "fork" in multiprocessing.get_all_start_methods():
        fork = multiprocessing.get_context("fork")
        ours, theirs = fork.Pipe()
        worker = fork.Process(target=lambda: theirs.send_bytes(compute().numpy().tobytes()))
        worker.start()
        assert ours.poll(60)
        assert ours.recv_bytes() == right.numpy().tobytes()
        worker.join()


SECOND_PROCESS = """
import torch
from problems import problem
from xdeconv import kernels
from xdeconv.kernels import cpu
from xdeconv.kernels.cpu import lanes as numba_lanes, loops as numba_rows
from xdeconv.kernels.options import Options

cpu.BOUND_DIMENSION, cpu.BOUND_COMPONENTS = 1, 8

def compiles(*_):
    raise AssertionError("a step was compiled again")

numba_lanes.Emitter.__init__ = compiles
for d, dtype in [(2, torch.float32), (3, torch.float32), (3, torch.float64)]:
    p = problem(n=40, k=9, d=d, noise="full", seed=51)
    assert kernels.accumulate(*p.parameters(), p.batch(dtype=dtype), Options(backend="cpu")).loglik.isfinite()
for bits, bounds in [(32, True), (64, True), (32, False)]:
    assert not numba_rows.loop(bits, bounds).stats.cache_misses
"""


@pytest.mark.processes
def test_a_second_process_compiles_nothing():
    for d, dtype in [(2, torch.float32), (3, torch.float32), (3, torch.float64)]:
        p = problem(n=40, k=9, d=d, noise="full", seed=51)
        kernels.accumulate(*p.parameters(), p.batch(dtype=dtype), ON)
    path = f"import sys; sys.path.insert(0, {str(__file__).rsplit('/', 2)[0]!r})"
    done = subprocess.run([sys.executable, "-c", path + SECOND_PROCESS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


SOME_KINDS = """
import sys
from problems import problem
from xdeconv import kernels
from xdeconv.kernels.options import Options
p = problem(n=40, k=9, d=int(sys.argv[1]), seed=3)
ours = kernels.accumulate(*p.parameters(), p.batch(), Options(backend="cpu"))
right = kernels.accumulate(*p.parameters(), p.batch(), Options(backend="reference"))
assert float((ours.packed - right.packed).abs().max() / right.packed.abs().max()) < 1e-9
"""


@pytest.mark.processes
def test_processes_that_compile_at_once_share_a_folder_and_no_index(tmp_path):
    """Numba numbers the files of an index: two processes that add to one would give two functions the same name."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    code = f"import sys; sys.path[:0] = {sys.path!r}\n{SOME_KINDS}"
    started = [subprocess.Popen([sys.executable, "-c", code, d], env=environment) for d in ("1", "2")]
    assert [process.wait() for process in started] == [0, 0]
    again = [subprocess.run([sys.executable, "-c", code, d], env=environment, check=False) for d in ("1", "2")]
    assert [done.returncode for done in again] == [0, 0]
    compiled = list(tmp_path.rglob("*.nbc"))
    assert len(compiled) > 10
    assert len(compiled) == len(list(tmp_path.rglob("*.nbi")))
