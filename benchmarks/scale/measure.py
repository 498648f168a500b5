"""A billion rows: what a pass, a stream and a whole fit cost, against rows, components and ranks.

    python -m benchmarks.scale --parts pass stream fit n k --out scale.json       on a GPU
    python -m benchmarks.scale --parts ranks --out scale.json                     on two cores
    python -m benchmarks.scale.report scale.json                                  tables, plots and the docs page

Rows come from ``xd.simulate.gaia``: seven columns with full covariances and missing values, made on the device chunk by
chunk. What each part does:

pass    rows are simulated once, kept on the GPU in the exact compact form, and gone through by ``xd.fit`` with EM from
        a fitted mixture (skipping depends on it); seconds are those between the epochs of the fit's own history.
stream  as many rows as fit in ``--host-gib`` of pinned memory are kept there; one pass goes through them again and
        again until ``--rows`` rows have been copied to the GPU and accumulated. Rows counted are rows copied.
fit     the whole fit: the first ``--subset`` rows are fitted from k-means with moves (hundreds of cheap passes, since a
        mixture far from its optimum needs no billion rows to know where to go), then ``--passes`` EM passes over all
        rows start from there. Everything counts: simulation, start, moves, passes. "The same fit" on the subset has the
        same first stage and as many further passes over the subset. Both are scored on rows that neither has seen.
n, k    one pass against rows and against components.
ranks   two gloo ranks of one thread against one process of two threads: the same rows, float64, five EM passes.

Results are merged into --out, part by part, so that parts may run one at a time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch

import xdeconv as xd
from benchmarks.common import machine
from benchmarks.scale.rows import SimulatedSource
from xdeconv import kernels
from xdeconv.fitting.initial import Start
from xdeconv.rows.resident import GIB, Place, ResidentSource, hold, placed
from xdeconv.system.ranks import process_group, rank, world

PLAIN: dict = {"method": xd.EM(accelerate=False), "moves": "none"}  # EM as published

HELD_OUT_ROWS = 1 << 20
FITTED_ROWS = 1 << 20


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def fitted(k: int, chosen: argparse.Namespace, epochs: int = 40) -> xd.Mixture:
    """A mixture that has seen the data: what kernels skip depends on it."""
    rows = min(FITTED_ROWS, chosen.rows)
    source = SimulatedSource(rows, device=chosen.device)
    return xd.fit(source, k, **PLAIN, epochs=epochs, tol=0, device=chosen.device).mixture


def memory() -> dict[str, float]:
    """GiB on the GPU: the most that tensors took and torch reserved, and what the device has given away now."""
    if not torch.cuda.is_available():
        return {}
    free, total = torch.cuda.mem_get_info()
    return {
        "peak_tensors_GiB": torch.cuda.max_memory_allocated() / GIB,
        "peak_reserved_GiB": torch.cuda.max_memory_reserved() / GIB,
        "device_used_GiB": (total - free) / GIB,
    }


def per_pass(result: xd.FitResult) -> list[float]:
    """Seconds of every epoch but the first, which compiles."""
    return np.diff([record.seconds for record in result.history]).tolist()


def one_pass(chosen: argparse.Namespace) -> dict[str, Any]:
    """EM passes over rows that stay on the device."""
    mixture = fitted(chosen.components, chosen)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    source = SimulatedSource(chosen.rows, device=chosen.device)
    cache = "device" if chosen.device == "cuda" else "host"
    result = xd.fit(
        source,
        mixture=mixture,
        method=xd.EM(accelerate=False),
        moves="none",
        epochs=4,
        tol=0,
        cache=cache,
        device=chosen.device,
    )
    seconds = per_pass(result)
    return {
        "rows": chosen.rows, "k": chosen.components, "seconds": statistics.median(seconds), "all": seconds,
        "until_first_pass_s": result.history[0].seconds - seconds[0], "whole_s": time.perf_counter() - began,
        "loglik": result.loglik, "notes": result.notes, **memory(),
    }  # fmt: skip


def stream(chosen: argparse.Namespace) -> dict[str, Any]:
    """EM passes over rows that are copied from pinned memory."""
    mixture = fitted(chosen.components, chosen)
    place, moved = coordinates(mixture, chosen)
    began = time.perf_counter()
    fits = int(chosen.host_gib * GIB / 96)
    source = placed(SimulatedSource(min(fits, chosen.rows), device=chosen.device), replace(place, cache="none"))[0]
    held = hold(source, "host", place.device)
    made = time.perf_counter() - began
    held = repeated(held, chosen.rows)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    passes = [timed_pass(held, moved, place.device) for _ in range(4)][1:]
    copied = sum(chunk.memory.numel() for chunk in held.chunks)
    rows = sum(chunk.rows for chunk in held.chunks)
    seconds = statistics.median(passes)
    return {
        "rows": rows, "rows_held": source.rows, "k": chosen.components, "seconds": seconds * chosen.rows / rows,
        "all": passes, "bytes": copied, "GB_per_s": copied / seconds / 1e9, "building_s": made, **memory(),
    }  # fmt: skip


def repeated(held: ResidentSource, rows: int) -> ResidentSource:
    """The chunks over and over until there are so many rows."""
    chunks, count = [], 0
    for chunk in cycle(held.chunks):
        chunks.append(chunk)
        count += chunk.rows
        if count >= rows:
            return replace(held, chunks=tuple(chunks))
    raise AssertionError


def coordinates(mixture: xd.Mixture, chosen: argparse.Namespace) -> tuple[Place, Any]:
    """Standardised coordinates as a fit chooses them, and a mixture's parameters in them."""
    from xdeconv.fitting.initial import latent_rows, moments

    sample = SimulatedSource(FITTED_ROWS, device=chosen.device).sample(1 << 17, 0)
    shift, scale = (t.cpu() for t in moments(*latent_rows(sample, None)))
    device = torch.device(chosen.device)
    moved = mixture.transformed((-shift / scale).numpy(), (1 / scale).numpy())
    return Place(shift, scale, device, torch.float32), moved.tensors(device)


def timed_pass(source: Any, parameters: Any, device: torch.device) -> float:
    """Seconds of the sums over all rows and one EM update."""
    from xdeconv.fitting.full_pass import stats_of, summed
    from xdeconv.kernels.options import DEFAULT
    from xdeconv.kernels.stats import Stats
    from xdeconv.methods.em import EMState

    synchronize()
    began = time.perf_counter()
    log_weights, means, V = parameters
    k, d = means.shape
    work = partial(stats_of, parameters=parameters, options=DEFAULT)
    stats = Stats(summed(source, work, Stats.size(k, d), device), k, d)
    state = EMState(log_weights.exp(), means, V, torch.zeros((), dtype=torch.float64, device=device))
    xd.EM().update(state, stats, float(stats.rows))
    synchronize()
    return time.perf_counter() - began


def whole_fit(chosen: argparse.Namespace) -> dict[str, Any]:
    """A subset with moves, then passes over everything; and as many passes over the subset alone."""
    held_out = SimulatedSource(HELD_OUT_ROWS, seed=1, device=chosen.device, dtype=torch.float64).sample(
        HELD_OUT_ROWS, 0
    )
    cache = "device" if chosen.device == "cuda" else "host"
    settings: dict[str, Any] = {"cache": cache, "device": chosen.device}
    further = {"method": xd.EM(), "epochs": chosen.passes, "tol": 0}
    small = SimulatedSource(chosen.subset, device=chosen.device)
    synchronize()
    began = time.perf_counter()
    first = xd.fit(small, chosen.components, epochs=chosen.subset_epochs, **settings)
    started = time.perf_counter() - began
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    everything = SimulatedSource(chosen.rows, device=chosen.device)
    whole = xd.fit(everything, mixture=first.mixture, **further, **settings)
    synchronize()
    seconds = time.perf_counter() - began
    alone = xd.fit(small, mixture=first.mixture, **further, **settings)
    return {
        "rows": chosen.rows, "subset": chosen.subset, "k": chosen.components, "passes": len(whole.history),
        "seconds": seconds, "subset_s": started, "subset_passes": len(first.history),
        "moves": sum(record.moved or 0 for record in first.history), "pass_s": statistics.median(per_pass(whole)),
        "held_out": score(whole.mixture, held_out), "held_out_subset": score(alone.mixture, held_out),
        "held_out_first": score(first.mixture, held_out), "train": whole.loglik, "notes": whole.notes, **memory(),
    }  # fmt: skip


def score(mixture: xd.Mixture, batch: xd.Batch) -> float:
    """Mean log-likelihood, float64."""
    log_prob = kernels.log_prob(*mixture.tensors(batch.device), batch)
    return float(log_prob.double().mean())


def against_rows(chosen: argparse.Namespace) -> dict[str, Any]:
    """Seconds of one pass against the number of rows."""
    place, moved = coordinates(fitted(chosen.components, chosen), chosen)
    cache = "device" if chosen.device == "cuda" else "host"
    sizes = [n for n in chosen.sizes if n <= chosen.most_rows]
    found = []
    for n in sizes:
        held = placed(SimulatedSource(n, device=chosen.device), replace(place, cache=cache))[0]
        times = [timed_pass(held, moved, place.device) for _ in range(6)][1:]
        found.append({"n": n, "k": chosen.components, "seconds": statistics.median(times)})
        del held
    return {"points": found, "slope": slope([f["n"] for f in found], [f["seconds"] for f in found])}


def against_components(chosen: argparse.Namespace) -> dict[str, Any]:
    """Seconds of one pass against the number of components."""
    rows = min(chosen.k_rows, chosen.rows)
    source = SimulatedSource(rows, device=chosen.device)
    found = []
    cache = "device" if chosen.device == "cuda" else "host"
    for k in chosen.counts:
        start = Start(epochs=2)
        mixture = xd.fit(source, k, **PLAIN, epochs=10, tol=0, start=start, device=chosen.device).mixture
        place, moved = coordinates(mixture, chosen)
        held = placed(source, replace(place, cache=cache))[0]
        times = [timed_pass(held, moved, place.device) for _ in range(6)][1:]
        found.append({"n": rows, "k": k, "seconds": statistics.median(times)})
    return {"points": found, "slope": slope([f["k"] for f in found], [f["seconds"] for f in found])}


def slope(x: list[int], y: list[float]) -> float:
    """Of the straight line through the logarithms of the upper half, where nothing but the rows costs time."""
    upper = slice(min(len(x) // 2, len(x) - 2), None)
    return float(np.polyfit(np.log(x[upper]), np.log(y[upper]), 1)[0])


# Ranks


def ranks(chosen: argparse.Namespace) -> dict[str, Any]:
    """Two processes of one thread and one of two, in turn: the same rows, the same mixture, the time of a pass."""
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / "start.safetensors"
        few = SimulatedSource(1 << 16, dtype=torch.float64)
        xd.fit(few, 16, **PLAIN, epochs=3, tol=0, device="cpu").mixture.save(start)
        alone = [sys.executable]
        several = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29617"]
        found: dict[str, list[dict[str, Any]]] = {"one": [], "two": []}
        for turn in range(chosen.rounds):
            for name, command in (("one", alone), ("two", several)):
                out = Path(folder) / f"{name}{turn}.json"
                arguments = ["--parts", "rank", "--rows", str(chosen.rows), "--mixture", str(start), "--out", str(out)]
                subprocess.run([*command, "-m", "benchmarks.scale", *arguments], check=True)
                found[name].append(json.loads(out.read_text())["rank"])
    one, two = ({**f[0], "seconds": min(g["seconds"] for g in f), "all": [g["all"] for g in f]} for f in found.values())
    apart = max(float(np.abs(np.subtract(one[name], two[name])).max()) for name in ("weights", "means", "covariances"))
    return {
        "rows": chosen.rows, "k": 16, "one_s": one["seconds"], "two_s": two["seconds"], "largest_difference": apart,
        "ratio": two["seconds"] / one["seconds"], "all": {"one": one["all"], "two": two["all"]},
    }  # fmt: skip


def one_rank(chosen: argparse.Namespace) -> dict[str, Any]:
    """Five EM passes of this process, or of the ranks it belongs to."""
    torch.set_num_threads(2)
    with process_group("cpu", timeout=300):
        source = SimulatedSource(chosen.rows, dtype=torch.float64)
        mixture = xd.load(chosen.mixture)
        settings = {"method": xd.EM(), "epochs": 6, "tol": 0, "cache": "host", "device": "cpu", "dtype": "float64"}
        result = xd.fit(source, mixture=mixture, **settings)
        found = result.mixture
        threads, ranks_ = torch.get_num_threads(), world()
        chosen.silent = rank() > 0
    scale = np.sqrt(np.einsum("kaa->ka", found.covariances))
    return {
        "seconds": statistics.median(per_pass(result)), "all": per_pass(result), "threads": threads, "ranks": ranks_,
        "weights": found.weights.tolist(), "means": (found.means / scale).tolist(),
        "covariances": (found.covariances / scale[:, :, None] / scale[:, None, :]).tolist(),
    }  # fmt: skip


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "pass": one_pass, "stream": stream, "fit": whole_fit, "n": against_rows, "k": against_components,
    "ranks": ranks, "rank": one_rank,
}  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=["pass"])
    parser.add_argument("--rows", type=int, help="default: 10^9, and 5 million for ranks")
    parser.add_argument("--components", "-k", type=int, default=256)
    parser.add_argument("--host-gib", type=float, default=60.0)
    parser.add_argument("--subset", type=int, default=10_000_000)
    parser.add_argument("--subset-epochs", type=int, default=200)
    parser.add_argument("--passes", type=int, default=25)
    parser.add_argument("--most-rows", type=int, default=10**8, help="of part n")
    parser.add_argument("--sizes", type=int, nargs="+", default=[int(10 ** (e / 2)) for e in range(10, 17)])
    parser.add_argument("--k-rows", type=int, default=1 << 22, help="rows of part k")
    parser.add_argument("--counts", type=int, nargs="+", default=[1 << e for e in range(4, 12)])
    parser.add_argument("--rounds", type=int, default=2, help="of part ranks")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("scale.json"))
    parser.add_argument("--mixture", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.rows = chosen.rows or (5_000_000 if {"ranks", "rank"} & set(chosen.parts) else 10**9)
    chosen.silent = False
    return chosen


def main() -> None:
    chosen = arguments()
    for part in chosen.parts:
        print(f"{part} ...", flush=True)
        found = {**PARTS[part](chosen), "machine": machine.about()}
        if chosen.silent:
            continue
        known = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
        chosen.out.write_text(json.dumps({**known, part: found}, indent=1))
        short = {name: value for name, value in found.items() if not isinstance(value, (list, dict))}
        print(json.dumps(short, indent=1), flush=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
