"""How fast the CPU kernels are on this machine: python -m benchmarks.kernels.cpu [--quick] [--out results.json].

Calls that are compared take turns, and ratios are medians over rounds: a busy machine slows both sides alike. Times are
nanoseconds of wall clock for one pair of row and component, with all sums and the threads torch would use.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.common import machine
from xdeconv import kernels
from xdeconv.kernels.options import Options
from xdeconv.kernels.stats import Stats
from xdeconv.rows.batch import Batch
from xdeconv.simulate import _gaia as simulate

Theta = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Calls = dict[str, Callable[[], object]]
ON, OFF = Options(backend="cpu"), Options(backend="cpu", skip=False)
REFERENCE = Options(backend="reference")
DIAGONAL = [0, 2, 5, 9, 14, 20, 27]


def rounds(calls: Calls, repeats: int) -> dict[str, list[float]]:
    """Seconds of every call in every round, after a warm-up; the calls take turns."""
    for call in calls.values():
        call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(seconds: dict[str, list[float]], slow: str, fast: str) -> float:
    """How many times faster, median over rounds."""
    return statistics.median(a / b for a, b in zip(seconds[slow], seconds[fast], strict=True))


def gaia(n: int, missing: bool = False) -> Batch:
    """Simulated Gaia rows, standardised, float64."""
    batch = simulate.gaia(n, missing=missing).batch
    x = batch.x.double()
    shift = x.nanmean(1)
    scale = (x - shift[:, None]).square().nanmean(1).sqrt()
    return batch.to(dtype=torch.float64).standardized(shift, scale)


def em_step(theta: Theta, stats: Stats) -> Theta:
    _, m, V = theta
    q = stats.q.clamp_min(1e-9)
    delta = torch.einsum("kde,ke->kd", V, stats.g) / q[:, None]
    V = V + V @ stats.G @ V / q[:, None, None] - delta[:, :, None] * delta[:, None, :]
    return (q / stats.rows).log(), m + delta, 0.5 * (V + V.mT) + 1e-6 * torch.eye(m.shape[1], dtype=V.dtype)


def fitted(batch: Batch, k: int, passes: int = 60) -> Theta:
    """A mixture after some passes of EM from k-means."""
    from sklearn.cluster import MiniBatchKMeans

    x = batch.x.nan_to_num().T.numpy()
    kmeans = MiniBatchKMeans(k, random_state=0, n_init=1, batch_size=4096).fit(x[:50_000])
    nearest, d = kmeans.predict(x), x.shape[1]
    counts = np.bincount(nearest, minlength=k) + 1.0
    off = x - kmeans.cluster_centers_[nearest]
    V = np.stack([off[nearest == j].T @ off[nearest == j] / counts[j] + 1e-3 * np.eye(d) for j in range(k)])
    start = np.log(counts / counts.sum()), kmeans.cluster_centers_.astype(np.float64), V
    theta: Theta = tuple(torch.from_numpy(array) for array in start)  # type: ignore[assignment]
    single = batch.to(dtype=torch.float32)
    for _ in range(passes):
        theta = em_step(theta, kernels.accumulate(*theta, single, ON))
    return theta


def random_problem(n: int, k: int, d: int, seed: int = 0) -> tuple[Theta, Batch]:
    """Rows of a random mixture whose components overlap as in a fit, with full noise, float32."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(k, d, d + 1)) / np.sqrt(d + 1)
    V, means = A @ A.transpose(0, 2, 1) + 0.05 * np.eye(d), 2.0 * rng.normal(size=(k, d))
    B = rng.normal(size=(n, d, d + 1)) / np.sqrt(d + 1)
    S = 0.3 * (B @ B.transpose(0, 2, 1)) * rng.lognormal(size=(n, 1, 1))
    z = rng.integers(k, size=n)
    X = means[z] + np.einsum("nde,ne->nd", np.linalg.cholesky(V[z] + S), rng.normal(size=(n, d)))
    theta = torch.full((k,), -np.log(k), dtype=torch.float64), torch.from_numpy(means), torch.from_numpy(V)
    return theta, Batch.from_arrays(X, S, dtype=torch.float32)


def check(theta: Theta, batch: Batch) -> None:
    """Refuse to measure kernels that are wrong."""
    few = batch.rows(slice(0, 2000))
    truth = kernels.accumulate(*theta, few.to(dtype=torch.float64), REFERENCE)
    for options in (ON, OFF):
        ours = kernels.accumulate(*theta, few, options)
        error = float((ours.packed - truth.packed).abs().max() / truth.packed.abs().max())
        if not error < 1e-3:
            raise SystemExit(f"the kernels are wrong (relative error {error:.1e}): no times from them")


def measure(quick: bool = False) -> dict[str, object]:
    """Every row of the table of CPU targets, as numbers that JSON can hold."""
    n, repeats = (40_000, 3) if quick else (200_000, 5)
    double = gaia(n)
    single = double.to(dtype=torch.float32)
    theta = {k: fitted(double, k) for k in ((64,) if quick else (64, 256, 512))}
    for parameters in theta.values():
        check(parameters, single)
    result: dict[str, object] = {"machine": machine.about(), "threads": torch.get_num_threads(), "rows": n}
    parts: dict[str, Callable[[], object]] = {
        "reference": lambda: against_reference(theta[64], single.rows(slice(0, n // 10)), repeats),
        "matmul": lambda: share_of_matmul(theta[64], single, repeats),
        "skipping": lambda: {str(k): skipping(parameters, single, repeats) for k, parameters in theta.items()},
        "missing values": lambda: with_missing(n, 64 if quick else 256, repeats),
        "noise": lambda: kinds_of_noise(theta[64], double, repeats),
        "nanoseconds per pair": lambda: table(quick),
        "seconds to compile": compile_seconds,
        "astroML": lambda: against_astroml(theta[64], double),
    }
    for name, part in parts.items():
        result[name] = part()
        print(name, json.dumps(result[name]), file=sys.stderr, flush=True)
    return result


def against_reference(theta: Theta, batch: Batch, repeats: int) -> dict[str, float]:
    calls: Calls = {
        "reference": lambda: kernels.accumulate(*theta, batch, REFERENCE),
        "cpu": lambda: kernels.accumulate(*theta, batch, ON),
        "dense": lambda: kernels.accumulate(*theta, batch, OFF),
    }
    seconds = rounds(calls, repeats)
    return {
        "times faster": ratio(seconds, "reference", "cpu"),
        "times faster, no skipping": ratio(seconds, "reference", "dense"),
    }


def share_of_matmul(theta: Theta, batch: Batch, repeats: int) -> dict[str, float]:
    """Operations per second, d^3 + 4 d^2 per pair, as a share of torch's for a product of float32 matrices."""
    size, (k, d) = 2048, theta[1].shape
    A = torch.randn(size, size)
    calls: Calls = {"matmul": lambda: A @ A, "dense": lambda: kernels.accumulate(*theta, batch, OFF)}
    seconds = rounds(calls, 3 * repeats)
    scale = (d**3 + 4 * d**2) * batch.n * k / (2 * size**3)
    return {
        "matmul GFLOP/s": 2e-9 * size**3 / statistics.median(seconds["matmul"]),
        "share of matmul": scale * ratio(seconds, "matmul", "dense"),
        "ns per pair, no skipping": 1e9 * statistics.median(seconds["dense"]) / batch.n / k,
    }


def skipping(theta: Theta, batch: Batch, repeats: int) -> dict[str, float]:
    pairs = batch.n * len(theta[0])
    calls: Calls = {
        "on": lambda: kernels.accumulate(*theta, batch, ON), "off": lambda: kernels.accumulate(*theta, batch, OFF),
        "log_prob on": lambda: kernels.log_prob(*theta, batch, ON),
        "log_prob off": lambda: kernels.log_prob(*theta, batch, OFF),
    }  # fmt: skip
    seconds = rounds(calls, repeats)
    few = batch.rows(slice(0, 4096))
    r = torch.softmax(kernels.log_joint(*theta, few, ON).double(), dim=1)
    return {
        "speed-up": ratio(seconds, "off", "on"), "speed-up of log_prob": ratio(seconds, "log_prob off", "log_prob on"),
        "pairs with r > 1e-7": float((r > 1e-7).double().mean()),
        **{f"ns per pair, {name}": 1e9 * statistics.median(s) / pairs for name, s in seconds.items()},
    }  # fmt: skip


def with_missing(n: int, k: int, repeats: int) -> dict[str, float]:
    batch = gaia(n, missing=True)
    return skipping(fitted(batch, k), batch.to(dtype=torch.float32), repeats)


def kinds_of_noise(theta: Theta, double: Batch, repeats: int) -> dict[str, float]:
    """One noise for all rows against scikit-learn and against noise of their own; diagonal and float64 against full."""
    single, k = double.to(dtype=torch.float32), len(theta[0])
    shared, none = (replace(single, noise=noise) for noise in (single.noise[:, :1].contiguous(), None))
    diagonal = replace(single, noise=single.noise[DIAGONAL].contiguous())
    batches = {"full": single, "double": double, "diagonal": diagonal, "shared": shared, "none": none}
    calls: Calls = {
        f"{name} {way}": partial(kernels.accumulate, *theta, batch, options)
        for name, batch in batches.items() for way, options in (("on", ON), ("off", OFF))
    }  # fmt: skip
    for name, X in (("sklearn float32", single.x), ("sklearn float64", double.x)):
        calls |= {
            f"{name} {passes}": partial(_sklearn_em, theta, X.T.contiguous().numpy(), passes) for passes in (1, 3)
        }
    seconds = rounds(calls, repeats)
    for name in ("sklearn float32", "sklearn float64"):
        seconds[name] = [(c - a) / 2 for a, c in zip(seconds[f"{name} 1"], seconds[f"{name} 3"], strict=True)]
    times = {
        f"ns per pair, {a}": 1e9 * statistics.median(s) / double.n / k for a, s in seconds.items() if a[-1] not in "13"
    }
    return times | {
        "shared against scikit-learn float32": ratio(seconds, "sklearn float32", "shared on"),
        "shared against scikit-learn float64": ratio(seconds, "sklearn float64", "shared on"),
        "shared against full, no skipping": ratio(seconds, "full off", "shared off"),
        "shared against full": ratio(seconds, "full on", "shared on"),
        "diagonal against full, no skipping": ratio(seconds, "full off", "diagonal off"),
        "diagonal against full": ratio(seconds, "full on", "diagonal on"),
        "float64 over float32, no skipping": ratio(seconds, "double off", "full off"),
        "float64 over float32": ratio(seconds, "double on", "full on"),
    }


def _sklearn_em(theta: Theta, X: np.ndarray, passes: int) -> None:
    from sklearn.mixture import GaussianMixture

    weights, m, V = (t.numpy().astype(X.dtype) for t in (theta[0].softmax(0), theta[1], theta[2]))
    model = GaussianMixture(
        len(m), max_iter=passes, tol=0.0, init_params="random_from_data", weights_init=weights,
        means_init=m, precisions_init=np.linalg.inv(V), random_state=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)


def table(quick: bool) -> dict[str, dict[str, float]]:
    """Nanoseconds per pair of random mixtures against the number of components and dimensions."""
    result = {}
    for d in (2, 7) if quick else (2, 3, 5, 7, 10):
        for k in (16, 256) if quick else (16, 64, 256, 1024):
            n = max(4096, (1 << 22) // k)
            theta, batch = random_problem(n, k, d)
            calls: Calls = {
                way: partial(kernels.accumulate, *theta, batch, options) for way, options in (("on", ON), ("off", OFF))
            }
            seconds = rounds(calls, 5)
            result[f"d = {d}, k = {k}"] = {way: 1e9 * statistics.median(s) / n / k for way, s in seconds.items()}
    return result


COMPILE = """
import sys, time, torch
sys.path[:0] = {paths!r}
from benchmarks.kernels import cpu
from xdeconv import kernels
theta, batch = cpu.random_problem(64, 16, {d})
batch = batch.to(dtype=torch.{dtype})
start = time.perf_counter()
kernels.accumulate(*theta, batch, cpu.ON)
print(time.perf_counter() - start)
"""


def compile_seconds() -> dict[str, float]:
    """Seconds of the first call on a machine, of one with another dimension, and of one in a new process."""
    root = Path(__file__).parents[2]
    paths = [str(root), str(root / "src")]
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        for name, d, dtype in (
            ("first call, d = 7, float32", 7, "float32"), ("then d = 5", 5, "float32"), ("then d = 10", 10, "float32"),
            ("d = 7 in a new process", 7, "float32"), ("then d = 7, float64", 7, "float64"),
        ):  # fmt: skip
            code = COMPILE.format(paths=paths, d=d, dtype=dtype)
            done = subprocess.run(
                [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
            )
            result[name] = float(done.stdout)
    return result


def against_astroml(theta: Theta, batch: Batch, rows: int = 2000) -> dict[str, float] | None:
    """How many times faster a pass over as many rows is than astroML's XDGMM; None where it is not installed."""
    try:
        from astroML.density_estimation import XDGMM
    except ImportError:
        return None
    few, k = batch.rows(slice(0, rows)), len(theta[0])
    X, S = few.x.T.contiguous().numpy(), few.covariance().numpy()
    model = XDGMM(k)

    def their_pass() -> None:
        model.alpha, model.mu, model.V = (t.numpy().copy() for t in (theta[0].exp(), theta[1], theta[2]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model._EMstep(X, S)

    single = few.to(dtype=torch.float32)
    calls: Calls = {
        "astroML": their_pass, "float64": lambda: kernels.accumulate(*theta, few, ON),
        "float32": lambda: kernels.accumulate(*theta, single, ON),
    }  # fmt: skip
    seconds = rounds(calls, 5)
    return {
        "times, float64": ratio(seconds, "astroML", "float64"), "times, float32": ratio(seconds, "astroML", "float32"),
        "ns per pair, astroML": 1e9 * statistics.median(seconds["astroML"]) / rows / k,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    text = json.dumps(measure(options.quick), indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
