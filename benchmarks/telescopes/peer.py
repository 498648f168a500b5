"""pygmmis on rows of its own example, with the settings it has there; run by a Python that has it (NumPy < 1.24)."""

import json
import resource
import sys
from functools import partial

import numpy as np
import pygmmis

W, CUTOFF, OVERSAMPLING = 0.1, 5, 10


def kept(X):
    """Whether a row is in the box and not in the hole."""
    return ((X > 0) & (X < 10)).all(axis=1) & (((X - [6.5, 6.0]) ** 2).sum(axis=1) > 4.0)


def cpu():
    """CPU seconds of this process and its children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    X, b, rng = np.load(sys.argv[1])["X"], float(sys.argv[2]), np.random.RandomState(int(sys.argv[3]))
    field = None
    if b:
        field = pygmmis.Background((np.array([-10, -10]), np.array([20, 20])))
        field.amp, field.adjust_amp = b, True
    S, model = 0.25 * np.eye(2), pygmmis.GMM(K=3, D=2)
    began = cpu()
    pygmmis.fit(model, X, w=W, cutoff=CUTOFF, background=field, rng=rng)
    noise = partial(pygmmis.covar_callback_default, default=S)
    pygmmis.fit(model, X, covar=S, init_method="none", w=W, cutoff=CUTOFF, sel_callback=kept, oversampling=OVERSAMPLING,
                covar_callback=noise, background=field, rng=rng)  # fmt: skip
    weight = 0.0 if field is None else float(field.amp)
    found = {name: getattr(model, name).tolist() for name in ("amp", "mean", "covar")}
    print(json.dumps({**found, "b": weight, "cpu": cpu() - began}))
