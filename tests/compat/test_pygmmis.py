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


def test_a_background_is_told_from_components_by_the_plain_call():
    """One random start without a search loses components on few rows, which the background then takes."""
    rng = np.random.RandomState(42)
    truth = pygmmis.GMM(3, 2)
    truth.amp[:], truth.mean[:] = [0.4, 0.35, 0.25], [[2.0, 7.0], [3.0, 3.0], [8.0, 4.0]]
    truth.covar[:] = [np.diag([0.4, 0.6]), 0.5 * np.eye(2), np.diag([0.3, 1.0])]
    field = pygmmis.Background(([0, 0], [10, 10]))
    rows = truth.draw(1500, rng) + rng.normal(0, 0.5, size=(1500, 2))
    rows = np.concatenate([rows[((rows > 0) & (rows < 10)).all(axis=1)], field.draw(300, rng)])
    for seed in range(3):
        gmm = pygmmis.GMM(3, 2)
        pygmmis.fit(gmm, rows, covar=0.25 * np.eye(2), background=field, rng=np.random.RandomState(seed))
        assert abs(field.amp - 300 / len(rows)) < 0.04
        assert np.abs(gmm.mean[np.argsort(gmm.mean[:, 0])] - truth.mean).max() < 0.2
    field.amp_max = 0.1
    with pytest.warns(UserWarning, match="above its amp_max, which is not held here"):
        pygmmis.fit(gmm, rows, covar=0.25 * np.eye(2), init_method="none", background=field)


def test_what_a_script_of_theirs_calls_beside_fit(tmp_path):
    one, rng = pygmmis.GMM(1, 2), np.random.RandomState(0)
    one.amp[:], one.mean[:], one.covar[:] = 1.0, [[1.0, 2.0]], np.eye(2)
    X = one.draw(50, rng)
    assert np.allclose(one.logL(X), np.log(one(X)))
    both = pygmmis.stack([one, one], np.array([-3.0, -1.0]))
    assert np.allclose(both.amp, [0.75, 0.25])
    assert np.allclose(both(X), one(X))
    both.save(tmp_path / "gmm.npz", note=3)
    again = pygmmis.GMM()
    again.load(tmp_path / "gmm.npz")
    assert (again.K, again.D) == (2, 2)
    assert np.array_equal(again.covar, both.covar)
    assert pygmmis.covar_callback_default(X, default=4 * np.eye(2)).shape == (50, 2, 2)
    with pytest.raises(ValueError, match="default= of shape"):
        pygmmis.covar_callback_default(X)


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
