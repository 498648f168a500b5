"""Runs inside a peer's own environment: EM passes of one peer over saved rows from a saved start.

python peers_worker.py PEER PROBLEM.npz OUT.npz PASSES ROWS SECONDS: needs NumPy and that peer, nothing of ours.
"""

from __future__ import annotations

import importlib.metadata
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np

Array = np.ndarray
Parameters = tuple[Array, Array, Array]  # weights, means, covariances
Passes = Iterator[Parameters]


def scikit_learn(X: Array, S: Array, start: Parameters) -> Passes:
    """GaussianMixture, one step at a time by its warm start; each of them ends with one more E step than a long fit."""
    from sklearn.mixture import GaussianMixture

    weights, means, covariances = start
    model = GaussianMixture(
        len(weights), max_iter=1, tol=0.0, reg_covar=0.0, warm_start=True, weights_init=weights, means_init=means,
        precisions_init=np.linalg.inv(covariances),
    )  # fmt: skip
    while True:
        model.fit(X)
        yield model.weights_, model.means_, model.covariances_


def astroml(X: Array, S: Array, start: Parameters) -> Passes:
    """XDGMM's own step and the likelihood that its fit takes after each; its fit cannot be told where to start."""
    from astroML.density_estimation import XDGMM

    model = XDGMM(len(start[0]))
    model.alpha, model.mu, model.V = start
    while True:
        model._EMstep(X, S)
        model.logL(X, S)
        yield model.alpha, model.mu, model.V


def pygmmis(X: Array, S: Array, start: Parameters) -> Passes:
    """pygmmis.fit from a given mixture, a few iterations a call; no cut-off, no background, everything observed."""
    import pygmmis as peer

    model = peer.GMM(K=len(start[0]), D=X.shape[1])
    model.amp[:], model.mean[:], model.covar[:] = start
    while True:
        peer.fit(model, X, covar=S, init_method="none", tol=0.0, maxiter=1, rng=np.random.RandomState(0))
        yield model.amp, model.mean, model.covar


def pomegranate(X: Array, S: Array, start: Parameters) -> Passes:
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
        yield tuple(t.detach().double().numpy() for t in found)


def pycave(X: Array, S: Array, start: Parameters) -> Passes:
    """A whole fit, since it cannot go on from where it was; of the start it takes the means."""
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
    yield tuple(t.detach().double().numpy() for t in (model.model_.component_probs, model.model_.means, covariances))


def ours(X: Array, S: Array, start: Parameters, dtype: str) -> Passes:
    """The sums and the update of xdeconv's batch EM."""
    import torch

    import xdeconv as xd

    method, batch = xd.EM(), xd.Batch.from_arrays(X, noise=S, dtype=getattr(torch, dtype))
    state = method.init(xd.Mixture(*start))
    while True:
        state = method.update(state, xd.kernels.accumulate(*state.parameters(), batch), float(len(X)))
        yield tuple(t.double().numpy() for t in (state.weights, state.means, state.covariances))


def xdeconv64(X: Array, S: Array, start: Parameters) -> Passes:
    return ours(X, S, start, "float64")


def xdeconv32(X: Array, S: Array, start: Parameters) -> Passes:
    return ours(X, S, start, "float32")


LONG_FIT = 20  # passes of a peer that cannot be stopped after each
PEERS: dict[str, tuple[str, Callable[[Array, Array, Parameters], Passes]]] = {
    "scikit-learn": ("scikit-learn", scikit_learn),
    "astroML": ("astroML", astroml),
    "pygmmis": ("pygmmis", pygmmis),
    "pomegranate": ("pomegranate", pomegranate),
    "pycave": ("pycave", pycave),
    "xdeconv float64": ("xdeconv", xdeconv64),
    "xdeconv float32": ("xdeconv", xdeconv32),
}


def main() -> None:
    name, problem, out, passes, rows, limit = sys.argv[1:7]
    package, peer = PEERS[name]
    given = np.load(problem)
    X, S = given["X"][: int(rows)], given["S"][: int(rows)]
    start = given["weights"], given["means"], given["covariances"]
    warnings.simplefilter("ignore")
    next(peer(X[:1000].copy(), S[:1000].copy(), start))  # compile and import
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, seconds, found = time.perf_counter(), [], []
    for parameters in peer(X, S, start):
        seconds.append(time.perf_counter() - began)
        found.append([np.array(a) for a in parameters])
        if len(found) == int(passes) or seconds[-1] > float(limit):
            break
    used = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    weights, means, covariances = (np.stack([f[i] for f in found]) for i in range(3))
    version = importlib.metadata.version(package)
    np.savez(out, seconds=seconds, weights=weights, means=means, covariances=covariances, version=version,
             megabytes=(used[0] - before) / 1024, children=used[1] / 1024, rows=int(rows))  # fmt: skip


if __name__ == "__main__":
    main()
