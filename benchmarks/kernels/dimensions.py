"""How fast CPU kernels are in 2 to 128 dimensions: the last table of python -m benchmarks.kernels, or
python -m benchmarks.kernels.dimensions [--quick] [--dimensions 2 16 17 64] [--busy] [--write].

Operations are counted as d^3 + 4 d^2 per pair of row and component, whatever is really computed, and rates are shares
of torch's product of float32 matrices on the same threads. The two take turns, and a share is the median over rounds: a
busy machine slows both alike. With --busy, CPU seconds of one thread are counted instead of seconds: other work on the
machine hardly changes them. Nothing is timed before it agrees with the reference.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

import numpy as np
import torch

from benchmarks.common import machine, results
from xdeconv import kernels
from xdeconv.kernels.options import Options
from xdeconv.kernels.parameters import Factors
from xdeconv.rows.batch import Batch

Theta = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Clock = Callable[[], float]
ON, OFF = Options(backend="cpu"), Options(backend="cpu", skip=False)
REFERENCE = Options(backend="reference")
COMPONENTS, SIZE = 64, 2048
EVERY = [*range(2, 34), 40, 48, 55, 56, 64, 80, 96, 110, 128]
WAYS = ("float32", "float64", "diagonal", "one noise", "missing", "skipping", "densities", "low rank")


@dataclass(frozen=True)
class Rate:
    """One way of computing pairs: nanoseconds per pair, and operations per second as a share of a matrix product's."""

    nanoseconds: float
    share: float


def operations(d: int) -> int:
    return d**3 + 4 * d**2


def problem(n: int, k: int, d: int) -> tuple[Theta, Batch]:
    """Rows of a random mixture, with full noise of 64 kinds, float32."""
    rng = np.random.default_rng(d)
    A = rng.normal(size=(k, d, d + 1)) / np.sqrt(d + 1)
    V, means = A @ A.transpose(0, 2, 1) + 0.05 * np.eye(d), 2.0 * rng.normal(size=(k, d))
    B = rng.normal(size=(64, d, d + 1)) / np.sqrt(d + 1)
    S = 0.3 * (B @ B.transpose(0, 2, 1) + 0.05 * np.eye(d))
    L, N, z, s = np.linalg.cholesky(V), np.linalg.cholesky(S), rng.integers(k, size=n), np.arange(n) % 64
    v, e = rng.normal(size=(2, n, d))
    X = means[z] + np.einsum("nde,ne->nd", L[z], v) + np.einsum("nde,ne->nd", N[s], e)
    theta = (torch.full((k,), -np.log(k), dtype=torch.float64), torch.from_numpy(means), torch.from_numpy(V))
    return theta, Batch.from_arrays(X, S[s], dtype=torch.float32)


def calls(theta: Theta, batch: Batch) -> dict[str, Callable[[], object]]:
    diagonal = [a * (a + 3) // 2 for a in range(batch.d)]
    holes = batch.x.clone()
    holes[torch.rand(holes.shape, generator=torch.Generator().manual_seed(0)) < 0.2] = torch.nan
    accumulate = partial(kernels.accumulate, *theta)
    factors = three_factors(*theta[1].shape)
    low_rank = theta[0], theta[1], factors.covariances()
    variances = replace(batch, noise=batch.noise[diagonal].contiguous()).to(dtype=torch.float64)  # type: ignore[index]
    return {
        "float32": partial(accumulate, batch, OFF),
        "float64": partial(accumulate, batch.to(dtype=torch.float64), OFF),
        "diagonal": partial(accumulate, replace(batch, noise=batch.noise[diagonal].contiguous()), OFF),  # type: ignore[index]
        "one noise": partial(accumulate, replace(batch, noise=batch.noise[:, :1].contiguous()), OFF),  # type: ignore[index]
        "missing": partial(accumulate, replace(batch, x=holes, missing=True), OFF),
        "skipping": partial(accumulate, batch, ON),
        "densities": partial(kernels.log_prob, *theta, batch, OFF),
        "low rank": partial(kernels.accumulate, *low_rank, variances, OFF, factors),
    }


def three_factors(k: int, d: int) -> Factors:
    """Covariances of rank 3, or of less in few dimensions, for rows with diagonal noise in float64."""
    rng = np.random.default_rng(d)
    loadings, own = rng.normal(size=(k, d, min(3, d - 1))) / np.sqrt(3), rng.uniform(0.1, 1.0, size=(k, d))
    return Factors(torch.from_numpy(loadings), torch.from_numpy(own))


def check(theta: Theta, batch: Batch) -> None:
    """Refuse to time kernels that disagree with the reference."""
    few = batch.rows(slice(0, 20))
    truth = kernels.accumulate(*theta, few.to(dtype=torch.float64), REFERENCE)
    for options in (ON, OFF):
        ours = kernels.accumulate(*theta, few, options)
        error = float((ours.packed - truth.packed).abs().max() / truth.packed.abs().max())
        if not error < 1e-3:
            raise SystemExit(f"the kernels are wrong (relative error {error:.1e}): no times from them")


def rates(d: int, work: float, rounds: int, ways: tuple[str, ...], clock: Clock) -> dict[str, Rate]:
    """Every way of computing pairs in d dimensions."""
    n = max(1024, int(work / operations(d) / COMPONENTS) // 256 * 256)
    theta, batch = problem(n, COMPONENTS, d)
    check(theta, batch)
    matrix = torch.randn(SIZE, SIZE)
    chosen = {name: call for name, call in calls(theta, batch).items() if name in ways}
    for call in chosen.values():
        call()
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in chosen}
    for _ in range(rounds):
        for name, call in chosen.items():
            product = _seconds(lambda: matrix @ matrix, clock)
            seconds[name].append((_seconds(call, clock), product))
    return {name: _rate(times, d, n * COMPONENTS) for name, times in seconds.items()}


def _seconds(call: Callable[[], object], clock: Clock) -> float:
    start = clock()
    call()
    return clock() - start


def _rate(times: list[tuple[float, float]], d: int, pairs: int) -> Rate:
    scale = operations(d) * pairs / (2 * SIZE**3)
    share = statistics.median(scale * product / ours for ours, product in times)
    return Rate(1e9 * statistics.median(ours for ours, _ in times) / pairs, share)


def neighbours(shares: dict[int, float]) -> dict[int, float]:
    """Each rate over the best rate of the dimensions next to it."""
    order = sorted(shares)
    around = {
        d: [e for e in (order[max(i - 1, 0)], order[min(i + 1, len(order) - 1)]) if e != d] for i, d in enumerate(order)
    }
    return {d: shares[d] / max(shares[e] for e in others) for d, others in around.items() if others}


def table(found: dict[int, dict[str, Rate]]) -> str:
    """Markdown: ns per pair of every way, the share of a matrix product, and that over the best neighbour's."""
    ways = list(next(iter(found.values())))
    shares = {d: rate["float32"].share for d, rate in found.items()}
    over = neighbours(shares)
    lines = [f"| d | of a product | over the best neighbour | {' | '.join(f'{way}, ns' for way in ways)} |"]
    lines.append("| ---: " * (3 + len(ways)) + "|")
    for d, rate in found.items():
        times = " | ".join(f"{rate[way].nanoseconds:.0f}" for way in ways)
        lines.append(f"| {d} | {100 * shares[d]:.0f} % | {over.get(d, 1.0):.2f} | {times} |")
    return "\n".join(lines)


def measured(dimensions: list[int], quick: bool, busy: bool = False) -> str:
    """What was measured, as text and a table."""
    clock, seconds = (time.process_time, "CPU seconds") if busy else (time.perf_counter, "seconds")
    torch.set_num_threads(1 if busy else torch.get_num_threads())
    work, rounds, ways = (2e9, 5, ("float32", "low rank")) if quick else (1e10, 7, WAYS)
    found = {}
    for d in dimensions:
        found[d] = rates(d, work, rounds, ways, clock)
        lines = {way: f"{rate.nanoseconds:.0f} ns, {100 * rate.share:.0f} %" for way, rate in found[d].items()}
        print(d, lines, file=sys.stderr, flush=True)
    kinds = "full noise and no skipping unless said; low rank: 3 factors, diagonal noise, float64"
    return f"{seconds} of {torch.get_num_threads()} threads, {COMPONENTS} components, {kinds}.\n\n{table(found)}"


def write(body: str, command: str) -> None:
    """The section of RESULTS.md about 2 to 128 dimensions."""
    head = f"`python -m {command}` on {results.describe(machine.about())}"
    results.write_section("Kernels over dimensions on a CPU", f"{head}\n\n{body}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the work, float32 and low rank alone")
    parser.add_argument("--dimensions", type=int, nargs="+", default=EVERY)
    parser.add_argument("--busy", action="store_true", help="CPU seconds of one thread, beside other work")
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    options = parser.parse_args()
    body = measured(options.dimensions, options.quick, options.busy)
    print(body)
    if options.write:
        write(body, "benchmarks.kernels.dimensions" + " --quick" * options.quick + " --busy" * options.busy)


if __name__ == "__main__":
    main()
