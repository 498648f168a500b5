"""Runs inside a peer's own environment: EM passes of one peer over saved rows from a saved start.

python worker.py PEER PROBLEM.npz OUT.npz PASSES ROWS SECONDS: needs NumPy and that peer, nothing of ours.
"""

from __future__ import annotations

import importlib.metadata
import resource
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

Array = np.ndarray
Parameters = tuple[Array, Array, Array]  # weights, means, covariances


class Enough(Exception):
    """All passes are done, or the time is up."""


@dataclass
class Record:
    """Seconds and parameters after each pass; it ends the fit when there are enough."""

    passes: int
    limit: float
    began: float = field(default_factory=time.perf_counter)
    seconds: list[float] = field(default_factory=list)
    found: list[Parameters] = field(default_factory=list)

    def __call__(self, weights: Array, means: Array, covariances: Array) -> None:
        self.seconds.append(time.perf_counter() - self.began)
        self.found.append((np.array(weights), np.array(means), np.array(covariances)))
        if len(self.found) >= self.passes or self.seconds[-1] > self.limit:
            raise Enough


def scikit_learn(X: Array, S: Array, start: Parameters, record: Record) -> None:
    """GaussianMixture.fit, watched after each M step."""
    from sklearn.mixture import GaussianMixture

    class Watched(GaussianMixture):
        def _m_step(self, *arguments: object, **more: object) -> None:
            super()._m_step(*arguments, **more)
            record(self.weights_, self.means_, self.covariances_)

    weights, means, covariances = start
    Watched(
        len(weights), max_iter=10_000, tol=0.0, reg_covar=0.0, weights_init=weights, means_init=means,
        precisions_init=np.linalg.inv(covariances),
    ).fit(X)  # fmt: skip


def astroml(X: Array, S: Array, start: Parameters, record: Record) -> None:
    """XDGMM's own step and the likelihood that its fit takes after each; its fit cannot be told where to start."""
    from astroML.density_estimation import XDGMM

    model = XDGMM(len(start[0]))
    model.alpha, model.mu, model.V = start
    while True:
        model._EMstep(X, S)
        model.logL(X, S)
        record(model.alpha, model.mu, model.V)


def pygmmis(X: Array, S: Array, start: Parameters, record: Record) -> None:
    """pygmmis.fit from a given mixture, watched after each step; no cut-off, no background."""
    import pygmmis as peer

    model, step = peer.GMM(K=len(start[0]), D=X.shape[1]), peer._EMstep
    model.amp[:], model.mean[:], model.covar[:] = start

    def watched(*arguments: object, **more: object) -> object:
        result = step(*arguments, **more)
        record(model.amp, model.mean, model.covar)
        return result

    peer._EMstep = watched
    try:
        peer.fit(model, X, covar=S, init_method="none", tol=0.0, maxiter=10_000, rng=np.random.RandomState(0))
    finally:
        peer._EMstep = step


def pomegranate(X: Array, S: Array, start: Parameters, record: Record) -> None:
    """GeneralMixtureModel of full Normals, by the two calls that its fit makes in each pass."""
    import torch
    from pomegranate.distributions import Normal
    from pomegranate.gmm import GeneralMixtureModel

    weights, means, covariances = (torch.tensor(a, dtype=torch.float32) for a in start)
    model = GeneralMixtureModel([Normal(m, V) for m, V in zip(means, covariances, strict=True)], weights)
    rows = torch.tensor(X, dtype=torch.float32)
    while True:
        model.summarize(rows)
        model.from_summaries()
        found = [model.priors, *(torch.stack([getattr(d, n) for d in model.distributions]) for n in ("means", "covs"))]
        record(*(t.detach().double().numpy() for t in found))


def pycave(X: Array, S: Array, start: Parameters, record: Record) -> None:
    """A whole fit, since it cannot resume; of the start it takes the means."""
    import torch
    from pycave.bayes import GaussianMixture

    limit = {"max_epochs": LONG_FIT, "progress_bar_refresh_rate": 0, "weights_summary": None}
    means, rows = (torch.tensor(a, dtype=torch.float32) for a in (start[1], X))
    model = GaussianMixture(
        len(means), covariance_type="full", init_means=means, convergence_tolerance=0.0, trainer_params=limit
    )
    model.fit(rows)
    root = model.model_.precisions_cholesky
    covariances = torch.linalg.inv(root @ root.mT)
    record(*(t.detach().double().numpy() for t in (model.model_.component_probs, model.model_.means, covariances)))


def bovy(X: Array, S: Array, start: Parameters, record: Record) -> None:
    """extreme_deconvolution, Bovy's C code, a call of one pass after the other: it changes the start in place."""
    from extreme_deconvolution import extreme_deconvolution

    weights, means, covariances = (np.array(a) for a in start)
    while True:
        extreme_deconvolution(X, S, weights, means, covariances, tol=0.0, maxiter=1)
        record(weights, means, covariances)


def ours(X: Array, S: Array, start: Parameters, record: Record, dtype: str) -> None:
    """The sums and the update of xdeconv's batch EM."""
    import torch

    import xdeconv as xd

    method, batch = xd.EM(), xd.Batch.from_arrays(X, noise=S, dtype=getattr(torch, dtype))
    state = method.init(xd.Mixture(*start))
    while True:
        state = method.update(state, xd.kernels.accumulate(*state.parameters(), batch), float(len(X)))
        record(*(t.double().numpy() for t in (state.weights, state.means, state.covariances)))


def xdeconv64(X: Array, S: Array, start: Parameters, record: Record) -> None:
    ours(X, S, start, record, "float64")


def xdeconv32(X: Array, S: Array, start: Parameters, record: Record) -> None:
    ours(X, S, start, record, "float32")


LONG_FIT = 20  # passes of a peer that cannot be stopped after each
PEERS: dict[str, tuple[str, Callable[[Array, Array, Parameters, Record], None]]] = {
    "scikit-learn": ("scikit-learn", scikit_learn),
    "astroML": ("astroML", astroml),
    "pygmmis": ("pygmmis", pygmmis),
    "pomegranate": ("pomegranate", pomegranate),
    "pycave": ("pycave", pycave),
    "extreme-deconvolution": ("extreme-deconvolution", bovy),
    "xdeconv float64": ("xdeconv", xdeconv64),
    "xdeconv float32": ("xdeconv", xdeconv32),
}


class Memory(threading.Thread):
    """The most megabytes that this process holds while it is watched (Linux), looked at every few milliseconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before = self.most = self.now()
        self.done = threading.Event()

    @staticmethod
    def now() -> float:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 2**20

    def run(self) -> None:
        while not self.done.wait(0.003):
            self.most = max(self.most, self.now())

    def added(self) -> float:
        self.done.set()
        return self.most - self.before


def largest_child() -> float:
    """Megabytes of the largest process that this one started and that has ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def main() -> None:
    name, problem, out, passes, rows, limit = sys.argv[1:7]
    package, peer = PEERS[name]
    given = np.load(problem)
    X, S = given["X"][: int(rows)], given["S"][: int(rows)]
    start = given["weights"], given["means"], given["covariances"]
    warnings.simplefilter("ignore")
    with suppress(Enough):
        peer(X[:1000].copy(), S[:1000].copy(), start, Record(1, 1e9))  # compile and import
    before, watch = largest_child(), Memory()
    watch.start()
    record = Record(int(passes), float(limit))
    with suppress(Enough):
        peer(X, S, start, record)
    added, child = watch.added(), largest_child()
    weights, means, covariances = (np.stack([f[i] for f in record.found]) for i in range(3))
    version, children = importlib.metadata.version(package), child if child > before else 0.0
    np.savez(out, seconds=record.seconds, weights=weights, means=means, covariances=covariances, version=version,
             megabytes=added, children=children, rows=int(rows))  # fmt: skip


if __name__ == "__main__":
    main()
