"""Fits in children of every kind, after a fit with threads in their parent: they end, with the parent's bits."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

HEADER = ["way", "ended", "bits of the parent's fit"]
TIMEOUT = 300.0
CHILDREN = 2


def fitted(seed: int) -> list[Any]:
    """A fit that uses threads where it may."""
    import numpy as np

    import xdeconv as xd

    X = np.random.default_rng(0).normal(size=(20_000, 3))
    mixture = xd.fit(X, 3, error=[0.3] * 3, epochs=3, seed=seed, moves="none", device="cpu").mixture
    return [mixture.means.tolist(), mixture.posterior(X[:9], error=[0.3] * 3).mean().tolist()]


def by_os_fork() -> list[Any]:
    """The bare system call."""
    here, there = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        there.send(fitted(0))
        os._exit(0)
    assert here.poll(TIMEOUT), "the child hangs"
    found = here.recv()
    os.waitpid(child, 0)
    return [found]


def by_process(method: str) -> list[Any]:
    """multiprocessing.Process."""
    context = multiprocessing.get_context(method)
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(there,))
    process.start()
    assert here.poll(TIMEOUT), "the child hangs"
    found = here.recv()
    process.join(TIMEOUT)
    return [found]


def _send(there: Any) -> None:
    there.send(fitted(0))


def by_pool(method: str) -> list[Any]:
    """multiprocessing.Pool."""
    with multiprocessing.get_context(method).Pool(CHILDREN) as pool:
        return pool.map_async(fitted, [0] * CHILDREN).get(TIMEOUT)


def by_executor() -> list[Any]:
    """concurrent.futures."""
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(CHILDREN) as pool:
        return list(pool.map(fitted, [0] * CHILDREN, timeout=TIMEOUT))


def by_joblib(backend: str) -> list[Any]:
    """joblib, as scikit-learn uses it."""
    from joblib import Parallel, delayed

    return Parallel(n_jobs=CHILDREN, backend=backend, timeout=TIMEOUT)(delayed(fitted)(0) for _ in range(CHILDREN))


def by_dask(scheduler: str) -> list[Any]:
    """Dask's own schedulers."""
    import dask

    tasks = [dask.delayed(fitted)(0) for _ in range(CHILDREN)]
    return list(dask.compute(*tasks, scheduler=scheduler, num_workers=CHILDREN))


def by_threads() -> list[Any]:
    """Fits side by side in one process."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(CHILDREN) as pool:
        return list(pool.map(fitted, [0] * CHILDREN, timeout=TIMEOUT))


def during_a_fit() -> list[Any]:
    """A fork while another thread fits."""
    thread = threading.Thread(target=lambda: [fitted(seed) for seed in range(4)])
    thread.start()
    found = by_pool("fork")
    thread.join()
    return found


WAYS: dict[str, Callable[[], list[Any]]] = {
    "os.fork": by_os_fork,
    "Process, fork": lambda: by_process("fork"),
    "Process, spawn": lambda: by_process("spawn"),
    "Process, forkserver": lambda: by_process("forkserver"),
    "Pool, fork": lambda: by_pool("fork"),
    "Pool, spawn": lambda: by_pool("spawn"),
    "Pool, forkserver": lambda: by_pool("forkserver"),
    "ProcessPoolExecutor": by_executor,
    "joblib, loky": lambda: by_joblib("loky"),
    "joblib, multiprocessing": lambda: by_joblib("multiprocessing"),
    "joblib, threading": lambda: by_joblib("threading"),
    "Dask, processes": lambda: by_dask("processes"),
    "Dask, threads": lambda: by_dask("threads"),
    "threads": by_threads,
    "fork during a fit": during_a_fit,
}


def part(folder: Path, arguments: argparse.Namespace) -> tuple[list[list[str]], list[str]]:
    """Every way, in a process of its own."""
    lines, remarks = [], []
    for way in WAYS:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.stress.forks", way]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=2 * TIMEOUT, check=False)
            ended, same = done.returncode == 0, done.stdout.strip().endswith("True")
            remarks += [] if ended and same else [f"- {way}: {(done.stderr.strip() or done.stdout)[-300:]}"]
        except subprocess.TimeoutExpired:
            ended, same = False, False
            remarks.append(f"- {way}: hangs")
        lines.append([way, *("yes" if fine else "**no**" for fine in (ended, same))])
    return lines, remarks


if __name__ == "__main__":
    import torch

    torch.set_num_threads(2)
    alone = fitted(0)
    print(all(found == alone for found in WAYS[sys.argv[1]]()))
