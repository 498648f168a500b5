"""pygmmis' call: a GMM and a Background are filled in place, with selection."""

import numpy as np
import pytest

from xdeconv.compat import pygmmis


def kept(X):
    """A box with a hole."""
    return ((X > 0) & (X < 10)).all(axis=1) & (((X - [6.5, 6.0]) ** 2).sum(axis=1) > 4.0)


@pytest.mark.slow
def test_a_box_with_a_hole_a_background_and_noise():
    rng = np.random.RandomState(3)
    truth = pygmmis.GMM(2, 2)
    truth.amp[:], truth.mean[:] = [0.6, 0.4], [[6.0, 5.0], [1.0, 2.0]]
    truth.covar[:] = [2.0 * np.eye(2), np.eye(2)]
    field = pygmmis.Background((np.array([-10, -10]), np.array([20, 20])))
    rows = np.concatenate([truth.draw(4000, rng), rng.uniform(-10, 20, size=(1700, 2))])
    rows = rows + rng.normal(0, 0.5, rows.shape)
    rows = rows[kept(rows)]
    gmm, S = pygmmis.GMM(2, 2), 0.25 * np.eye(2)
    pygmmis.fit(gmm, rows, w=0.1, cutoff=5, init_method="kmeans", background=field, rng=rng)
    told = {"sel_callback": kept, "covar_callback": lambda v: S, "background": field, "rng": rng}
    loglik, _ = pygmmis.fit(gmm, rows, covar=S, init_method="none", w=0.1, **told)
    order = np.argsort(-gmm.mean[:, 0])
    assert np.abs(gmm.mean[order] - truth.mean).max() < 0.4
    assert np.abs(gmm.amp[order] - truth.amp).max() < 0.08
    assert np.isfinite(loglik)
    unseen = truth.draw(5000, rng)
    assert gmm(unseen, as_log=True).mean() > truth(unseen, as_log=True).mean() - 0.05


def test_frozen_components_and_what_is_refused():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(300, 1))
    gmm = pygmmis.GMM(2, 1)
    gmm.amp[:], gmm.mean[:], gmm.covar[:] = 0.5, [[0.0], [5.0]], 1.0
    pygmmis.fit(gmm, X, init_method="none", frozen=[1], rng=rng)
    assert gmm.mean[1, 0] == 5.0
    assert gmm.mean[0, 0] != 0.0
    with pytest.raises(ValueError, match="init_method"):
        pygmmis.fit(gmm, X, init_method="best")
    held = pygmmis.Background(([0.0], [1.0]), 0.1)
    held.adjust_amp = False
    with pytest.raises(ValueError, match="adjust_amp"):
        pygmmis.fit(gmm, X, background=held)
