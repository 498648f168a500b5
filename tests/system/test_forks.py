"""A fit in a forked child ends, also when its parent has computed with many threads before."""

import subprocess
import sys
import textwrap

import pytest

PROGRAM = textwrap.dedent("""
    import multiprocessing, os, sys, threading, warnings
    warnings.simplefilter("ignore")
    import numpy as np
    import torch
    import xdeconv as xd

    torch.set_num_threads(2)
    X = np.random.default_rng(0).normal(size=(40_000, 3))
    fork = multiprocessing.get_context("fork")

    def fitted(seed):
        result = xd.fit(X, 3, error=[0.3] * 3, epochs=2, seed=seed, moves="none")
        return result.mixture.means.tolist(), result.mixture.posterior(X[:9]).mean().tolist(), torch.get_num_threads()

    def grandchild(seed):
        with fork.Pool(1) as pool:
            return pool.map_async(fitted, [seed]).get(timeout=60)[0]

    def in_pool(work):
        with fork.Pool(2) as pool:
            return pool.map_async(work, [0, 1]).get(timeout=60)

    def by_os_fork():
        here, there = fork.Pipe()
        if os.fork() == 0:
            there.send(fitted(0))
            os._exit(0)
        assert here.poll(60), "the child hangs"
        return [here.recv()]

    def while_it_fits():
        begun = threading.Event()
        def busy():
            xd.fit(X, 3, error=[0.3] * 3, epochs=30, tol=0, moves="none", callback=lambda record: begun.set())
        thread = threading.Thread(target=busy)
        thread.start()
        begun.wait(60)
        found = in_pool(fitted)
        thread.join()
        return found

    alone = fitted(0)
    (X @ X.T[:, :500]).sum()
    way = sys.argv[1]
    if way == "Pool":
        found = in_pool(fitted)
    elif way == "grandchild":
        process = fork.Process(target=lambda: print(grandchild(0)[0] == alone[0]))
        process.start(); process.join(100)
        sys.exit(process.exitcode)
    elif way == "os.fork":
        found = by_os_fork()
    elif way == "during a fit":
        found = while_it_fits()
    print(found[0][:2] == alone[:2] and found[0][2] == 1)
    assert torch.get_num_threads() == 2  # the parent keeps its own
""")


@pytest.mark.processes
@pytest.mark.parametrize("way", ["Pool", "grandchild", "os.fork", "during a fit"])
def test_a_forked_child_fits_after_its_parent(way):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, way], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "True", done.stdout
