"""pygmmis on rows of its own example, by several settings; run by a Python that has it (NumPy < 1.24).

python peer.py ROWS.npz BACKGROUND SEED '[[tol, oversampling, runs], ...]'
"""

import json
import resource
import sys
from functools import partial

import numpy as np
import pygmmis

W, CUTOFF = 0.1, 5


def kept(X):
    """Whether a row is in the box and not in the hole."""
    return ((X > 0) & (X < 10)).all(axis=1) & (((X - [6.5, 6.0]) ** 2).sum(axis=1) > 4.0)


def cpu():
    """CPU seconds of this process and its children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def fitted(X, b, rng, tol, oversampling):
    """One run: its log-likelihood, and its mixture with the weight of the background."""
    field = None
    if b:
        field = pygmmis.Background((np.array([-10, -10]), np.array([20, 20])))
        field.amp, field.adjust_amp = b, True
    S, model = 0.25 * np.eye(2), pygmmis.GMM(K=3, D=2)
    pygmmis.fit(model, X, w=W, cutoff=CUTOFF, background=field, rng=rng)
    noise = partial(pygmmis.covar_callback_default, default=S)
    loglik, _ = pygmmis.fit(model, X, covar=S, init_method="none", w=W, cutoff=CUTOFF, sel_callback=kept, tol=tol,
                            oversampling=oversampling, covar_callback=noise, background=field, rng=rng)  # fmt: skip
    found = {name: getattr(model, name).tolist() for name in ("amp", "mean", "covar")}
    return loglik, {**found, "b": 0.0 if field is None else float(field.amp)}


def best(X, b, rng, tol, oversampling, runs):
    """The best of some runs, None where all fail, and their CPU seconds."""
    began, found = cpu(), []
    for _ in range(runs):
        try:
            found.append(fitted(X, b, rng, tol, oversampling))
        except (ValueError, RuntimeError, np.linalg.LinAlgError, FloatingPointError):
            continue
    sound = [one for one in found if np.isfinite(one[0]) and np.isfinite(one[1]["mean"]).all()]
    return {"model": max(sound, key=lambda one: one[0])[1] if sound else None, "cpu": cpu() - began}


if __name__ == "__main__":
    X, b, seed = np.load(sys.argv[1])["X"], float(sys.argv[2]), int(sys.argv[3])
    np.seterr(all="ignore")
    print(json.dumps([best(X, b, np.random.RandomState(seed), *setting) for setting in json.loads(sys.argv[4])]))
