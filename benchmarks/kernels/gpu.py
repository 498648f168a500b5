"""How fast the Triton kernels are on this GPU: python -m benchmarks.kernels.gpu [--quick] [--out results.json].

Times are medians over warm calls between device events, in milliseconds for one call of accumulate with all sums. Calls
are queued one after the other, as passes over chunks of rows are, so that the GPU does not wait for Python.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.common import machine
from xdeconv import EM, SGD, Mixture, Stepped, kernels
from xdeconv.fitting.minibatches import make_steps
from xdeconv.kernels.options import Options
from xdeconv.kernels.stats import Stats
from xdeconv.rows.batch import Batch, packed_size
from xdeconv.simulate import _gaia as simulate

Theta = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
ROWS = 1 << 20
GPU = "cuda"
DENSE, SKIP = Options(backend="cuda", skip=False), Options(backend="cuda", skip=True)


def milliseconds(call: Callable[[], object], repeats: int = 10) -> float:
    """Median time of a warm call among others."""
    call()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, stop in events:
        start.record()
        call()
        stop.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(stop) for start, stop in events)


def idle(call: Callable[[], object], repeats: int = 10) -> float:
    """Median time of a warm call that finds the GPU idle: what Python does before the first kernel counts."""
    call()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        times.append(milliseconds_of(call))
    return statistics.median(times)


def milliseconds_of(call: Callable[[], object]) -> float:
    """One call between device events."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop)


def captured(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def gaia(n: int, missing: bool = False) -> Batch:
    """Simulated Gaia rows, standardised, float32."""
    batch = simulate.gaia(n, missing=missing, device=GPU).batch
    x = batch.x.double()
    shift = x.nanmean(1)
    scale = (x - shift[:, None]).square().nanmean(1).sqrt()
    return replace(batch.standardized(shift, scale), scale=None).to(dtype=torch.float32)


def kmeans(x: torch.Tensor, k: int, passes: int = 15) -> Theta:
    centers = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:k].to(GPU)]
    for _ in range(passes):
        nearest = torch.cat([torch.cdist(part, centers).argmin(1) for part in x.split(1 << 18)])
        counts = nearest.bincount(minlength=k).clamp_min(1)
        centers = torch.zeros_like(centers).index_add_(0, nearest, x) / counts[:, None]
    off = x - centers[nearest]
    V = torch.zeros(k, *[x.shape[1]] * 2, device=GPU).index_add_(0, nearest, off[:, :, None] * off[:, None, :])
    V = V / counts[:, None, None] + 1e-3 * torch.eye(x.shape[1], device=GPU)
    return (counts / len(x)).double().log(), centers.double(), V.double()


def em_step(theta: Theta, stats: Stats, lam: float = 1.0, floor: float = 1e-6) -> Theta:
    """The update of docs/maths.md in torch operations, with a small floor under the covariances."""
    log_weights, m, V = theta
    new = (1 - lam) * log_weights.exp() + lam * stats.q.to(V.dtype) / stats.rows.to(V.dtype)
    share = (lam / (stats.rows.to(V.dtype) * new.clamp_min(1e-30)))[:, None]
    delta = share * torch.einsum("kde,ke->kd", V, stats.g.to(V.dtype))
    grown = V + share[:, :, None] * (V @ stats.G.to(V.dtype) @ V) - delta[:, :, None] * delta[:, None, :]
    return new.clamp_min(1e-12).log(), m + delta, grown + floor * torch.eye(m.shape[1], device=GPU, dtype=V.dtype)


def fitted(batch: Batch, k: int, passes: int = 100) -> Theta:
    theta = kmeans(batch.x.T.nan_to_num().contiguous(), k)
    for _ in range(passes):
        theta = em_step(theta, kernels.accumulate(*theta, batch, DENSE))
    return theta


def made_up(n: int, k: int, d: int, noise: str = "full") -> tuple[Theta, Batch]:
    """A random mixture and rows near it, float32."""
    random = torch.Generator(GPU).manual_seed(d)
    A = torch.randn(k, d, d + 1, generator=random, device=GPU)
    V = A @ A.mT / (d + 1) + 0.05 * torch.eye(d, device=GPU)
    m = 2 * torch.randn(k, d, generator=random, device=GPU)
    x = torch.randn(d, n, generator=random, device=GPU) * 2.2
    size = 0.3 * torch.rand(n, generator=random, device=GPU).exp()
    a, b = torch.tril_indices(d, d, device=GPU)
    packed = torch.where((a == b)[:, None], size, 0.1 * size) if noise == "full" else size.expand(d, n)
    S = {"none": None, "shared": packed[:, :1].contiguous()}.get(noise, packed.contiguous())
    assert S is None or noise != "full" or len(S) == packed_size(d)
    return (torch.full((k,), -math.log(k), device=GPU), m, V), Batch(x=x, noise=S)


def agreement(theta: Theta, batch: Batch) -> float:
    """The largest error of any sum against the float64 reference, relative to the sums' size."""
    part = batch.rows(slice(0, 4096))
    right = kernels.accumulate(*theta, part.to(dtype=torch.float64), Options(backend="reference"))
    ours = kernels.accumulate(*theta, part, SKIP)
    pairs = [(getattr(ours, name), getattr(right, name)) for name in ("rows", "loglik", "q", "g", "G")]
    return max(float((a - b).abs().max() / max(part.n, float(b.abs().max()))) for a, b in pairs)


def apart_by(theta: Theta, batch: Batch) -> float:
    """The largest difference between sums with and without skipping, relative to the sums' size."""
    one, other = (kernels.accumulate(*theta, batch, options) for options in (SKIP, DENSE))
    pairs = [(getattr(one, name), getattr(other, name)) for name in ("loglik", "q", "g", "G")]
    return max(float((a - b).abs().max() / max(batch.n, float(b.abs().max()))) for a, b in pairs)


def alive(theta: Theta, batch: Batch) -> float:
    """The fraction of pairs that skipping keeps."""
    joint = kernels.log_joint(*theta, batch.rows(slice(0, 1 << 15)), DENSE)
    return float((joint.log_softmax(1) > math.log(2.0**-24 / len(theta[0]))).float().mean())


def main_table(report: Callable[[str, float], None]) -> None:
    rows = gaia(ROWS)
    theta = fitted(rows, 256)
    error = agreement(theta, rows)
    if not error < 1e-4:
        raise SystemExit(f"kernels disagree with the reference by {error:.1e}: no timings")
    report("gaia k=256 error of sums against float64", error)
    report("gaia k=256 alive fraction", alive(theta, rows))
    report("gaia k=256 skip against dense", apart_by(theta, rows))
    report("gaia k=256 dense", milliseconds(lambda: kernels.accumulate(*theta, rows, DENSE)))
    report("gaia k=256 skip", milliseconds(lambda: kernels.accumulate(*theta, rows, SKIP)))
    report("gaia k=256 skip, one call with the GPU idle before", idle(lambda: kernels.accumulate(*theta, rows, SKIP)))
    report("gaia k=256 log_prob", milliseconds(lambda: kernels.log_prob(*theta, rows, SKIP)))
    for name, batch in kinds(rows).items():
        if name not in ("full", "500 rows"):
            for how, options in (("dense", DENSE), ("skip", SKIP)):
                taken = milliseconds(lambda b=batch, o=options: kernels.accumulate(*theta, b, o), 5)
                report(f"gaia k=256 {name} {how}", taken)
    steps(report, theta, rows)
    whole_steps(report, theta, rows)
    theta = fitted(rows, 512)
    report("gaia k=512 alive fraction", alive(theta, rows))
    report("gaia k=512 dense", milliseconds(lambda: kernels.accumulate(*theta, rows, DENSE)))
    report("gaia k=512 skip", milliseconds(lambda: kernels.accumulate(*theta, rows, SKIP)))
    apart(report)


def apart(report: Callable[[str, float], None]) -> None:
    """Rows of a mixture whose components hardly overlap: what skipping can do at best."""
    (log_weights, m, V), rows = made_up(ROWS, 256, 7)
    label = torch.randint(256, (ROWS,), device=GPU, generator=torch.Generator(GPU).manual_seed(1))
    L = torch.linalg.cholesky(0.1 * V)
    rows = replace(rows, x=m.T[:, label] + torch.einsum("nde,en->dn", L[label], rows.x / 2.2), noise=rows.noise * 0.1)
    theta = (log_weights, m, 0.1 * V)
    report("separated k=256 alive fraction", alive(theta, rows))
    report("separated k=256 dense", milliseconds(lambda: kernels.accumulate(*theta, rows, DENSE)))
    report("separated k=256 skip", milliseconds(lambda: kernels.accumulate(*theta, rows, SKIP)))


def steps(report: Callable[[str, float], None], theta: Theta, rows: Batch, size: int = 500) -> None:
    """Microseconds of one minibatch, replayed on several batches so that no cache holds them all."""
    log_weights, m, V = (t.float() for t in theta)
    batches = [rows.rows(slice(s * size, (s + 1) * size)) for s in range(64)]

    def every(call: Callable[[Batch], object]) -> float:
        graphs = [captured(lambda b=batch: call(b)) for batch in batches]
        return 1e3 * milliseconds(lambda: [g.replay() for g in graphs]) / len(graphs)

    def step(batch: Batch) -> object:
        return em_step((log_weights, m, V), kernels.accumulate(log_weights, m, V, batch, SKIP), lam=0.01)

    report("500 rows k=256 accumulate, graph (us)", every(lambda b: kernels.accumulate(log_weights, m, V, b, SKIP)))
    report("500 rows k=256 EM step, graph (us)", every(step))
    eager = milliseconds(lambda: [kernels.accumulate(log_weights, m, V, b, SKIP) for b in batches])
    report("500 rows k=256 accumulate, eager (us)", 1e3 * eager / len(batches))


def whole_steps(report: Callable[[str, float], None], theta: Theta, rows: Batch, size: int = 500) -> None:
    """Microseconds of one step of the product's own loop, copies of the batch and everything else included."""
    methods = {"EM": EM(step=Stepped(0.01, {10: 0.5}), inflate=1e-3), "SGD": SGD(rate=0.01, trace_penalty=1e-3)}
    for name, method in methods.items():
        steps = make_steps(method, float(rows.n), SKIP, torch.device(GPU), size, held=True)
        state = method.init(Mixture.from_tensors(theta[0].exp() / theta[0].exp().sum(), *theta[1:]), GPU)
        batches = [rows.rows(slice(s * size, (s + 1) * size)) for s in range(500)]
        for batch in batches[:20]:
            state = steps.step(state, batch)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for batch in batches[20:]:
            state = steps.step(state, batch)
        torch.cuda.synchronize()
        report(f"500 rows k=256 {name} step, whole (us)", 1e6 * (time.perf_counter() - began) / (len(batches) - 20))


def kinds(rows: Batch) -> dict[str, Batch]:
    """The batch with other kinds of noise, missing values and in float64."""
    assert rows.noise is not None
    return {
        "full": rows,
        "diagonal": replace(rows, noise=rows.noise[[a * (a + 1) // 2 + a for a in range(7)]]),
        "missing": gaia(rows.n, missing=True),
        "shared": replace(rows, noise=rows.noise[:, :1]),
        "float64": rows.to(dtype=torch.float64),
        "500 rows": rows.rows(slice(0, 500)),
    }


def warm(what: str) -> None:
    """Compiles the kernels of one table's line: several processes do so side by side."""
    if what.isdigit():
        one_size(int(what), 256, 1 << 19)
        return
    theta, rows = made_up(ROWS, 256, 7)
    batch = kinds(rows)[what]
    for options in (DENSE, SKIP):
        kernels.accumulate(*(t.double() for t in theta), batch, options)


def side_by_side(names: list[str]) -> None:
    for process in [
        subprocess.Popen([sys.executable, "-m", "benchmarks.kernels.gpu", "--warm", name]) for name in names
    ]:
        process.wait()


def one_size(d: int, k: int, n: int) -> float:
    theta, rows = made_up(n, k, d)
    return milliseconds(lambda: kernels.accumulate(*theta, rows, DENSE), 5)


def sizes(report: Callable[[str, float], None]) -> None:
    """Nanoseconds per pair, dense, over d and k; kernels for different d are compiled side by side first."""
    n = 1 << 19
    side_by_side([str(d) for d in (2, 3, 4, 5, 6, 8, 9, 10)])
    for d in range(2, 11):
        report(f"d={d} k=256 ns/pair", 1e6 * one_size(d, 256, n) / (n * 256))
    for k in (16, 32, 64, 128, 200, 512, 1024):
        report(f"d=7 k={k} ns/pair", 1e6 * one_size(7, k, n) / (n * k))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the tables over d and k")
    parser.add_argument("--out", default="kernels_gpu.json")
    parser.add_argument("--warm", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.warm:
        warm(options.warm)
        return
    results: dict[str, object] = {"machine": machine.about()}

    def report(name: str, value: float) -> None:
        results[name] = value
        print(f"{name:45s} {value:10.4g}", flush=True)
        Path(options.out).write_text(json.dumps(results, indent=1))

    side_by_side(["full", "diagonal", "missing", "shared", "float64", "500 rows"])
    main_table(report)
    if not options.quick:
        sizes(report)


if __name__ == "__main__":
    main()
