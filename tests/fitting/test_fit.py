"""fit(): recovery, validation, restarts, checkpoints, interruption, and what it refuses."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import xdeconv as xd
from problems import problem, random_covariances
from xdeconv.fitting import interrupting
from xdeconv.fitting._fit import NumericalTrouble
from xdeconv.fitting.workspace import Workspace

TRUTH = xd.Mixture(
    [0.4, 0.35, 0.25],
    [[0.0, 0.0], [4.0, 1.0], [-2.0, 5.0]],
    [[[1.0, 0.8], [0.8, 1.0]], [[0.2, 0.0], [0.0, 1.5]], [[0.6, -0.3], [-0.3, 0.4]]],
)


def noisy_rows(n=4000, seed=0, size=1.0, missing=0.0):
    """Rows of TRUTH with strong noise that differs from row to row."""
    rng = np.random.default_rng(seed)
    S = random_covariances(rng, n, 2, size) * rng.lognormal(0.0, 1.0, size=(n, 1, 1))
    X = TRUTH.sample(n, seed=seed, noise=S)
    X[rng.uniform(size=X.shape) < missing] = np.nan
    return X, S


def same(a: xd.Mixture, b: xd.Mixture) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("weights", "means", "covariances"))


def test_a_mixture_that_is_fitted_on_reads_a_table_as_its_own_rows_were_read(tmp_path):
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"id": np.arange(300), "x": rng.normal(size=300), "e": rng.uniform(0.2, 0.9, 300)})
    table.to_parquet(tmp_path / "rows.parquet")
    begun = xd.fit(xd.open(table, ["x"], error={"x": "e"}), 1, epochs=1).mixture
    right = xd.fit(xd.open(table, ["x"], error={"x": "e"}), mixture=begun)
    for rows in (table, tmp_path / "rows.parquet"):
        assert xd.fit(rows, mixture=begun).loglik == pytest.approx(right.loglik, rel=1e-12)
    held = xd.fit(table[:200], mixture=begun, validation=table[200:], epochs=2)
    assert np.isfinite(held.validation)
    with pytest.raises(ValueError, match="no column 'e'"):
        xd.fit(table[["x"]], mixture=begun)


def test_rows_held_out_of_a_table_are_read_as_those_to_fit(tmp_path):
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"id": np.arange(400) + 2**60, "x": rng.normal(size=400), "x_error": np.full(400, 0.5)})
    train, held = table[:300], table[300:]
    held.to_parquet(tmp_path / "held.parquet")
    right = xd.fit(train, 1, columns=["x"], validation=xd.open(held, ["x"]), epochs=3)
    for rows in (held, tmp_path / "held.parquet", str(tmp_path / "held.parquet")):
        assert xd.fit(train, 1, columns=["x"], validation=rows, epochs=3).validation == right.validation
    squares = {"columns": ["y"], "derive": {"y": "x ** 2"}, "error": {"x": 0.3}}
    derived = xd.fit(xd.open(train, **squares), 1, validation=held, epochs=3)
    same_rows = xd.fit(xd.open(train, **squares), 1, validation=xd.open(held, **squares), epochs=3)
    assert derived.validation == same_rows.validation


@pytest.mark.slow
def test_recovery_beats_a_mixture_that_ignores_the_noise():
    from sklearn.mixture import GaussianMixture

    X, S = noisy_rows(missing=0.05)
    result = xd.fit(X, 3, noise=S, seed=1, restarts=2)
    fresh = TRUTH.sample(5000, seed=99)
    complete = ~np.isnan(X).any(axis=1)
    ignorant = GaussianMixture(3, random_state=0, n_init=3).fit(X[complete])
    exact = np.zeros_like(fresh)
    best, ours, theirs = TRUTH.score(fresh), result.mixture.score(fresh, exact), ignorant.score(fresh)
    assert best - ours < 0.02
    assert ours - theirs > 0.2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "batch_rows"),
    [
        (xd.EM(step=xd.Decaying(0.2)), 200),
        (xd.SGD(rate=xd.Stepped(0.02, {10: 0.1})), 200),
        (xd.EM(prior=xd.Prior(w=1e-3)), None),
    ],
)
def test_all_methods_end_close_to_ems_likelihood(method, batch_rows):
    X, S = noisy_rows(2000, seed=3)
    em = xd.fit(X, 3, noise=S, seed=0, tol=1e-7)
    other = xd.fit(X, 3, noise=S, seed=0, method=method, batch_rows=batch_rows)
    assert em.loglik - other.loglik < 0.01


def test_one_full_batch_with_step_one_is_em():
    X, S = noisy_rows(500)
    whole = xd.fit(X, 3, noise=S, epochs=3, dtype="float64", tol=0)
    batch = xd.fit(X, 3, noise=S, epochs=3, dtype="float64", tol=0, batch_rows=500, method=xd.EM())
    np.testing.assert_allclose(whole.mixture.covariances, batch.mixture.covariances, rtol=1e-9)
    np.testing.assert_allclose(whole.mixture.means, batch.mixture.means, rtol=1e-9)


def test_one_epoch_is_exactly_one_step():
    p = problem(n=80, seed=80)
    start = xd.Mixture(p.weights, p.means, p.covariances)
    result = xd.fit(p.X, mixture=start, noise=p.noise, epochs=1, dtype="float64", standardize=False)
    assert len(result.history) == 1
    posterior = start.posterior(p.X, p.noise)
    r = posterior.weights
    means = np.einsum("nk,nkd->kd", r, posterior.means) / r.sum(0)[:, None]
    np.testing.assert_allclose(result.mixture.means, means, rtol=1e-10)
    assert result.history[0].loglik == pytest.approx(start.score(p.X, p.noise), rel=1e-12)
    assert result.loglik == pytest.approx(result.mixture.score(p.X, p.noise), rel=1e-12)


@settings(max_examples=10, deadline=None)
@given(
    shift=st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=2),
    scale=st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=2),
    seed=st.integers(0, 1000),
)
def test_affine_equivariance(shift, scale, seed):
    p = problem(n=60, k=2, d=2, missing=0.1, seed=seed)
    shift, scale = np.array(shift), np.array(scale)
    start = xd.Mixture(p.weights, p.means, p.covariances)
    plain = xd.fit(p.X, mixture=start, noise=p.noise, epochs=3, tol=0).mixture
    noise = p.noise * scale[:, None] * scale
    moved = xd.fit(p.X * scale + shift, mixture=start.transformed(shift, scale), noise=noise, epochs=3, tol=0).mixture
    size = scale * np.sqrt(np.einsum("kdd->kd", plain.covariances))
    np.testing.assert_allclose((moved.means - shift - scale * plain.means) / size, 0.0, atol=1e-6)
    expected = plain.covariances * scale[:, None] * scale
    np.testing.assert_allclose((moved.covariances - expected) / (size[:, :, None] * size[:, None, :]), 0.0, atol=1e-6)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_order_of_rows_and_components_does_not_matter(seed):
    p = problem(n=50, k=3, d=2, seed=seed)
    rng = np.random.default_rng(seed)
    rows, components = rng.permutation(50), rng.permutation(3)
    start = xd.Mixture(p.weights, p.means, p.covariances)
    other = xd.Mixture(p.weights[components], p.means[components], p.covariances[components])
    one = xd.fit(p.X, mixture=start, noise=p.noise, epochs=3, dtype="float64", tol=0).mixture
    two = xd.fit(p.X[rows], mixture=other, noise=p.noise[rows], epochs=3, dtype="float64", tol=0).mixture
    np.testing.assert_allclose(two.means, one.means[components], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(two.covariances, one.covariances[components], rtol=1e-8, atol=1e-9)


def test_weight_two_is_a_row_twice():
    p = problem(n=60, k=2, d=2, seed=81)
    start = xd.Mixture(p.weights, p.means, p.covariances)
    weight = np.ones(60)
    weight[:20] = 2
    twice = np.r_[np.arange(60), np.arange(20)]
    one = xd.fit(p.X, mixture=start, noise=p.noise, weight=weight, epochs=4, dtype="float64", tol=0)
    two = xd.fit(p.X[twice], mixture=start, noise=p.noise[twice], epochs=4, dtype="float64", tol=0)
    np.testing.assert_allclose(one.mixture.covariances, two.mixture.covariances, rtol=1e-9)
    assert one.loglik == pytest.approx(two.loglik)


def test_missing_column_is_a_dropped_column_and_the_limit_of_huge_variance():
    p = problem(n=60, k=2, d=3, seed=82)
    start = xd.Mixture(p.weights, p.means, p.covariances)
    without = p.X.copy()
    without[:, 2] = np.nan
    missing = xd.fit(without, mixture=start, noise=p.noise, epochs=3, tol=0).mixture.marginal([0, 1])
    dropped = xd.fit(p.X[:, :2], mixture=start.marginal([0, 1]), noise=p.noise[:, :2, :2], epochs=3, tol=0).mixture
    np.testing.assert_allclose(missing.means, dropped.means, rtol=1e-8)
    np.testing.assert_allclose(missing.covariances, dropped.covariances, rtol=1e-8)
    huge = p.noise.copy()
    huge[:, 2], huge[:, :, 2] = 0.0, 0.0
    huge[:, 2, 2] = 1e12
    vague = xd.fit(p.X, mixture=start, noise=huge, epochs=3, tol=0, standardize=False).mixture.marginal([0, 1])
    np.testing.assert_allclose(vague.covariances, dropped.covariances, rtol=1e-5)


@pytest.mark.slow
def test_projection_recovers_the_latent_density():
    rng = np.random.default_rng(5)
    truth = xd.Mixture([0.6, 0.4], [[0.0, 0.0, 0.0], [3.0, -3.0, 3.0]], [np.eye(3), 0.3 * np.eye(3)])
    n = 6000
    R = np.linalg.qr(rng.normal(size=(n, 3, 3)))[0][:, :2]
    X = truth.sample(n, seed=6, projection=R, noise=np.full((n, 2), 0.2))
    result = xd.fit(X, 2, noise=np.full((n, 2), 0.2), projection=R, seed=0)
    fresh = truth.sample(4000, seed=7)
    assert truth.score(fresh) - result.mixture.score(fresh, np.zeros_like(fresh)) < 0.03


def test_labelled_rows_stay_in_their_class():
    X, S = noisy_rows(300)
    log_prior = np.array([[0.0, 0.0, 0.0], [0.0, -np.inf, -np.inf]])
    label = (X[:, 0] > 3).astype(int)
    result = xd.fit(X, mixture=TRUTH, noise=S, log_prior=log_prior, label=label, epochs=20)
    assert result.mixture.means[0, 0] > 1.0


def test_validation_keeps_the_best_epoch_and_stops_early():
    X, S = noisy_rows(150, seed=8)
    held = dict(zip(("X", "noise"), noisy_rows(2000, seed=9), strict=True))
    result = xd.fit(
        X, 8, noise=S, validation=held, method=xd.EM(), epochs=400, dtype="float64", tol=0, patience=5, seed=2
    )
    scores = [record.validation for record in result.history]
    assert result.validation == pytest.approx(max(scores), rel=1e-12)
    assert len(scores) == int(np.argmax(scores)) + 1 + 5
    assert result.converged


def test_validation_by_fraction_is_disjoint():
    X, S = noisy_rows(200)
    result = xd.fit(X, 2, noise=S, validation=0.25, epochs=3, tol=0)
    assert result.history[-1].validation is not None
    assert result.mixture.meta["fit"]["rows"] == 150


def test_tolerance_stops_and_zero_never_does():
    X, S = noisy_rows(300)
    loose = xd.fit(X, 2, noise=S, tol=1e-2)
    assert loose.converged
    strict = xd.fit(X, 2, noise=S, tol=0, epochs=len(loose.history) + 10)
    assert not strict.converged
    assert len(strict.history) == len(loose.history) + 10


def test_what_float32_cannot_resolve_is_said():
    X, S = noisy_rows(300)
    asked = {"noise": S, "tol": 1e-7, "moves": "none"}
    coarse = xd.fit(X, 2, dtype="float32", **asked)
    assert coarse.converged
    (note,) = [note for note in coarse.notes if "cannot tell" in note]
    assert note.startswith("float32 cannot tell 1e-07 nats of total log-likelihood of 300 rows apart")
    finest = 6e-9 * 300 * abs(coarse.loglik)
    assert f"converged to within {finest:.2g}: dtype='float64' resolves more" in note
    assert not any("cannot tell" in note for note in xd.fit(X, 2, dtype="float64", **asked).notes)
    assert not any("cannot tell" in note for note in xd.fit(X, 2, noise=S, dtype="float32", moves="none").notes)
    few = xd.fit(X[:197], 1, noise=S[:197])  # 0.1 * 197 / 197 is more than 0.1
    assert few.converged
    assert not any("cannot tell" in note for note in few.notes)


@pytest.mark.slow
def test_restarts_keep_the_best_and_leak_nothing():
    X, S = noisy_rows(400, seed=10)
    start = xd.initial.Start(centers="random", covariances="identity")
    several = xd.fit(X, 4, noise=S, restarts=3, epochs=5, tol=0, seed=4, start=start)
    single = [xd.fit(X, 4, noise=S, epochs=5, tol=0, seed=4 + 7919 * r, start=start) for r in range(3)]
    assert several.loglik == pytest.approx(max(r.loglik for r in single), rel=1e-12)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("centers", ["kmeans", "kmeans++", "random"])
@pytest.mark.parametrize("covariances", ["clusters", "identity", "scaled"])
@pytest.mark.parametrize("coordinates", ["scaled", "raw"])
def test_every_start_leads_somewhere(centers, covariances, coordinates):
    X, S = noisy_rows(300, missing=0.1)
    start = xd.initial.Start(centers, coordinates, covariances, epochs=3, batch_rows=100)
    result = xd.fit(X, 3, noise=S, start=start, epochs=2, tol=0, seed=0)
    assert np.isfinite(result.loglik)
    again = xd.fit(X, 3, noise=S, start=start, epochs=2, tol=0, seed=0)
    assert same(result.mixture, again.mixture)


def test_identity_start_is_in_the_users_units():
    X, _ = noisy_rows(300)
    start = xd.initial.Start(covariances="identity")
    source = xd.data.ArraySource(xd.Batch.from_arrays(1000 * X))
    scale = torch.tensor([1000.0, 50.0]).double()
    moved = source.standardized(torch.zeros(2).double(), scale, torch.device("cpu"), torch.float64)
    mixture = xd.initial.start_mixture(moved, 3, start, 0, scale)
    np.testing.assert_allclose(
        mixture.transformed(np.zeros(2), scale.numpy()).covariances, np.tile(np.eye(2), (3, 1, 1))
    )


def test_all_missing_rows_are_allowed_and_reported():
    X, S = noisy_rows(100)
    X[7] = np.nan
    result = xd.fit(X, 2, noise=S, epochs=2)
    assert "1 of 100 rows have nothing observed" in result.notes[0]
    many = np.full((2400, 2), np.nan)
    many[:1200] = np.random.default_rng(0).normal(size=(1200, 2))
    assert "1,200 of 2,400 rows" in " ".join(xd.fit(many, 1, epochs=1).notes)
    without = np.delete(np.arange(100), 7)
    right = xd.fit(X[without], mixture=result.mixture, noise=S[without], epochs=1)
    assert right.history[0].loglik * 99 == pytest.approx(result.loglik * 100)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, S: xd.fit(X, 2000, noise=S), "2000 components need at least as many rows, there are 100"),
        (lambda X, S: xd.fit(X, noise=S), "give components"),
        (lambda X, S: xd.fit(X, 2, mixture=TRUTH, noise=S), "mixture has 3 components and components=2"),
        (lambda X, S: xd.fit(X, 0, noise=S), "components must be a whole number"),
        (lambda X, S: xd.fit(X, 2, noise=S, epochs=-1), "epochs must be"),
        (lambda X, S: xd.fit(X, 2, noise=S, epochs=0), "epochs must be"),
        (lambda X, S: xd.fit(X, 2, noise=S, seed=None), "seed must be"),
        (lambda X, S: xd.fit(X, 2, noise=S, dtype="int32"), "dtype must be float32 or float64"),
        (lambda X, S: xd.fit(X, 2, noise=S, method="me"), "method must be one of"),
        (lambda X, S: xd.fit(X, 2, noise=S, labels=["a"]), "labels must name 2"),
        (lambda X, S: xd.fit(X, mixture=TRUTH, noise=S, restarts=2), "restarts try new starts"),
        (lambda X, S: xd.fit(X, 2, noise=S, validation=xd.Batch.from_arrays(X[:0])), "validation has no rows"),
        (lambda X, S: xd.fit(X[:, :1], mixture=TRUTH), "2 dimensions and the data 1"),
        (lambda X, S: xd.fit(X, 2, noise=S, validation=1.5), "between 0 and 1"),
        (lambda X, S: xd.fit(X, 2, noise=S, start="magic"), "not one of"),
        (
            lambda X, S: xd.fit(X, 2, noise=S, options=xd.Options("cuda"), device="cpu"),
            "backend 'cuda' cannot take this",
        ),
        (lambda X, S: xd.fit(np.zeros((0, 2)), 1), "no rows to fit"),
        (lambda X, S: xd.fit(np.full((5, 2), np.nan), 1), "no observed value in any row"),
    ],
)
def test_bad_calls_are_refused(call, message, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    X, S = noisy_rows(100)
    with pytest.raises(ValueError, match=message):
        call(X, S)


@pytest.mark.slow
def test_duplicated_rows_without_noise_are_met_with_a_small_prior_and_said():
    X = np.repeat(np.arange(4.0)[:, None], 10, axis=0) * np.ones((1, 2))
    plain = xd.fit(X, 4, epochs=50)
    assert any("weak prior" in note for note in plain.notes)
    assert (np.linalg.eigvalsh(plain.mixture.covariances) > 0).all()
    result = xd.fit(X, 4, epochs=50, tol=0, method=xd.EM())
    assert any("small prior" in record.note for record in result.history)
    assert any("needs a prior" in note for note in result.notes)
    assert (np.linalg.eigvalsh(result.mixture.covariances) > 0).all()
    with pytest.raises(NumericalTrouble, match="needs a prior"):
        xd.fit(X, 4, epochs=50, tol=0, method=xd.EM(prior=xd.Prior(w=0.0, c=0.0)))
    quiet = xd.fit(X, 4, epochs=50, method=xd.EM(prior=xd.Prior(w=1e-3)))
    assert not any("prior" in note for note in quiet.notes)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("noise", [None, 0.01])
@pytest.mark.parametrize("far", [1e2, 1e5, 1e6])
def test_one_far_outlier_does_not_end_a_fit(k, noise, far):
    X = np.random.default_rng(0).normal(size=(300, 2))
    X[0] = far
    result = xd.fit(X, k, noise=None if noise is None else np.full_like(X, noise), epochs=60)
    V = result.mixture.covariances
    assert np.isfinite(result.loglik)
    assert (np.linalg.eigvalsh(V)[:, 1] > 0).all()
    if k > 1:
        bulk = result.mixture.weights @ (np.abs(result.mixture.means).max(1) < 10)
        assert bulk == pytest.approx(299 / 300, abs=1e-3)


def test_a_fit_with_a_prior_added_is_resumed_with_it(tmp_path):
    X = np.repeat(np.arange(4.0)[:, None], 10, axis=0) * np.ones((1, 2))
    whole = xd.fit(X, 4, epochs=30, tol=0, method=xd.EM())
    path = tmp_path / "checkpoint"
    xd.fit(X, 4, epochs=20, tol=0, method=xd.EM(), checkpoint=path)
    resumed = xd.fit(X, 4, epochs=30, tol=0, method=xd.EM(), checkpoint=xd.Checkpoint(path, resume=True))
    assert any(record.epoch < 20 and "small prior" in record.note for record in whole.history)
    assert same(whole.mixture, resumed.mixture)


def test_float32_trouble_is_said_and_the_fit_goes_on_in_float64():
    """Two coordinates that agree to 1e-6: T is singular in float32 and well defined in float64.

    Where they agree to 3e-6, float32 may get through, which depends on the processor.
    """
    rng = np.random.default_rng(11)
    v = rng.normal(size=(500, 1))
    X = np.hstack([v, v + 1e-6 * rng.normal(size=(500, 1))])
    result = xd.fit(X, 2, dtype="float32", seed=0)
    assert any("float64" in note for note in result.notes)
    right = xd.fit(X, 2, dtype="float64", seed=0)
    assert result.converged
    assert result.loglik == pytest.approx(right.loglik, abs=0.05)


@pytest.mark.sampled
@pytest.mark.parametrize("method", [xd.EM(), xd.EM(step=0.1), xd.SGD(rate=0.01)])
def test_resumed_is_the_uninterrupted_fit_to_the_bit(method, tmp_path, device):
    X, S = noisy_rows(300)
    batch_rows = None if method == xd.EM() else 64
    arguments = {"noise": S, "method": method, "batch_rows": batch_rows, "tol": 0, "seed": 3}
    arguments |= {"validation": 0.2, "restarts": 2, "device": device}
    whole = xd.fit(X, 3, epochs=6, **arguments)
    path = tmp_path / "fit.checkpoint"

    class Enough(Exception):
        pass

    def stop(record):
        if (record.restart, record.epoch) == (stop.restart, 3):
            raise Enough

    for stop.restart in (0, 1):
        with pytest.raises(Enough):
            xd.fit(X, 3, epochs=6, checkpoint=xd.Checkpoint(path, 0, resume=True), callback=stop, **arguments)
    resumed = xd.fit(X, 3, epochs=6, checkpoint=xd.Checkpoint(path, resume=True), **arguments)
    assert same(whole.mixture, resumed.mixture)
    assert [e.loglik for e in whole.history] == [e.loglik for e in resumed.history]
    again = xd.fit(X, 3, epochs=6, checkpoint=xd.Checkpoint(path, resume=True), **arguments)
    assert same(whole.mixture, again.mixture)


def test_checkpoint_of_another_fit_is_refused(tmp_path):
    X, S = noisy_rows(100)
    path = tmp_path / "fit.checkpoint"
    xd.fit(X, 2, noise=S, epochs=2, checkpoint=path)
    with pytest.raises(ValueError, match="seed: 0 there, 1 here"):
        xd.fit(X, 2, noise=S, epochs=2, checkpoint=xd.Checkpoint(path, resume=True), seed=1)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="truncated, damaged"):
        xd.fit(X, 2, noise=S, epochs=2, checkpoint=xd.Checkpoint(path, resume=True))


SCRIPT = textwrap.dedent("""
    import sys, numpy as np, xdeconv as xd, torch, time
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    X, S = rng.normal(size=(400, 2)), rng.uniform(0.1, 1.0, size=(400, 2))
    slow = (lambda record: time.sleep(0.02)) if len(sys.argv) > 2 else None
    print("ready", flush=True)
    result = xd.fit(X, 3, noise=S, epochs=60, tol=0, checkpoint=xd.Checkpoint(sys.argv[1], 0, resume=True),
                    callback=slow, method=xd.EM(step=0.3), batch_rows=100, options=xd.Options("reference"))
    print("done", result.interrupted, len(result.history), flush=True)
    result.mixture.save(sys.argv[1] + ".model")
""")


@contextmanager
def script(path, *more):
    """A fit in another process that has just begun."""
    command = [sys.executable, "-c", SCRIPT, str(path), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        yield process


def run_script(path):
    with script(path) as process:
        out, err = process.communicate(timeout=120)
    assert "done False 60" in out, err


@pytest.mark.processes
def test_killed_at_any_moment_and_resumed(tmp_path):
    run_script(tmp_path / "whole")
    path = tmp_path / "killed"
    for wait in (0.4, 0.7):
        with script(path, "slow") as process:
            time.sleep(wait)
            process.send_signal(signal.SIGKILL)
    run_script(path)
    assert same(xd.load(f"{tmp_path}/whole.model"), xd.load(f"{path}.model"))


@pytest.mark.processes
def test_ctrl_c_returns_the_best_so_far(tmp_path):
    path = tmp_path / "fit"
    with script(path, "slow") as process:
        while not os.path.exists(path):
            time.sleep(0.02)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert "done True" in out, err
    assert "resume=True) resumes from here" in err
    assert xd.load(f"{path}.model").k == 3
    run_script(path)


def test_ctrl_c_with_validation_returns_the_best_epoch():
    X, S = noisy_rows(120, seed=20)
    held = dict(zip(("X", "noise"), noisy_rows(500, seed=21), strict=True))

    def stop(record):
        if record.epoch == 60:
            raise KeyboardInterrupt

    result = xd.fit(
        X, 8, noise=S, validation=held, method=xd.EM(), dtype="float64", tol=0, patience=1000, callback=stop, seed=2
    )
    assert result.interrupted
    assert result.validation == pytest.approx(max(record.validation for record in result.history), rel=1e-12)


@pytest.fixture
def _many_rows(monkeypatch):
    """Few rows count as many, of which no pass is made after an interrupt."""
    monkeypatch.setattr(interrupting, "QUICK_PAIRS", 0)
    monkeypatch.setattr(Workspace, "score", lambda *args: pytest.fail("a pass was made"))


@pytest.mark.usefixtures("_many_rows")
@pytest.mark.parametrize("words", [{}, {"restarts": 2, "moves": "none"}])
def test_ctrl_c_makes_no_pass_over_many_rows(words):
    X, S = noisy_rows(300)

    def stop(record):
        if record.epoch == 3:
            raise KeyboardInterrupt

    result = xd.fit(X, 3, noise=S, tol=0, epochs=9, callback=stop, method=xd.EM(), **words)
    assert result.interrupted
    assert result.loglik == result.history[-1].loglik
    assert any("without another" in note for note in result.notes)


def test_ctrl_c_in_the_first_pass_tells_the_likelihood_of_some_rows(monkeypatch):
    X, S = noisy_rows(300)
    expected = xd.fit(X, 3, noise=S, moves="none", tol=0, epochs=1).history[0].loglik

    def stopped(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(interrupting, "QUICK_PAIRS", 0)
    monkeypatch.setattr(Workspace, "passed", stopped)
    result = xd.fit(X, 3, noise=S, moves="none", validation=0.2)
    assert result.interrupted
    assert not result.history
    assert abs(result.loglik - expected) < 1
    assert abs(result.validation - expected) < 1


def test_a_checkpoint_is_not_resumed_with_other_rows(tmp_path):
    X, S = noisy_rows(100)
    path = tmp_path / "fit.checkpoint"
    xd.fit(X, 2, noise=S, epochs=2, checkpoint=path)
    for other in ({"data": X + 1.0, "noise": S}, {"data": X, "noise": 2 * S}):
        with pytest.raises(ValueError, match=r"data checksum: .* there"):
            xd.fit(other["data"], 2, noise=other["noise"], epochs=2, checkpoint=xd.Checkpoint(path, resume=True))


def test_tables_of_errors_follow_the_columns_of_the_data():
    import pandas

    X, _ = noisy_rows(200)
    table = pandas.DataFrame(X, columns=["a", "b"])
    error = pandas.DataFrame({"b": np.full(200, 2.0), "a": np.full(200, 0.1)})
    named = xd.fit(table, 2, error=error, epochs=3).mixture
    plain = xd.fit(X, 2, error=np.tile([0.1, 2.0], (200, 1)), epochs=3).mixture
    np.testing.assert_array_equal(named.covariances, plain.covariances)
    with pytest.raises(ValueError, match="validation is of"):
        xd.fit(table, 2, validation=pandas.DataFrame(X, columns=["b", "a"]), epochs=2)


@pytest.mark.slow
def test_projected_rows_far_from_zero():
    X, _ = noisy_rows(300)
    result = xd.fit(X + 1e8, 2, error=[0.1, 0.1], projection=np.tile(np.eye(2), (300, 1, 1)), epochs=5)
    assert np.abs(result.mixture.means - 1e8).max() < 10


@pytest.mark.parametrize("standardize", [True, False])
def test_rows_far_from_zero_are_centred_before_they_are_cast(standardize, device):
    X = 1e8 + np.random.default_rng(0).normal(size=(2000, 2))
    result = xd.fit(X, 1, dtype="float32", standardize=standardize, device=device)
    np.testing.assert_allclose(result.mixture.covariances[0], np.cov((X - 1e8).T, bias=True), rtol=1e-4, atol=1e-4)
    assert [note for note in result.notes if "weak prior" not in note] == []


@pytest.mark.slow
def test_a_restart_that_was_rescued_leaves_no_trace_in_the_next(monkeypatch):
    from xdeconv.fitting import loop

    X, S = noisy_rows(200)
    arguments = {"noise": S, "method": xd.EM(), "epochs": 4, "tol": 0, "dtype": "float64"}
    calls = []

    def fail_once(after, loglik, nothing):
        calls.append(1)
        if len(calls) == 2:
            raise NumericalTrouble("made up")

    monkeypatch.setattr(loop, "refuse_trouble", fail_once)
    result = xd.fit(X, 3, restarts=2, seed=5, **arguments)
    assert any("small prior" in record.note for record in result.history if record.restart == 0)
    monkeypatch.undo()
    alone = xd.fit(X, 3, restarts=2, seed=5, **arguments)
    second = [[r.loglik for r in fit.history if r.restart == 1] for fit in (result, alone)]
    assert second[0] == second[1]


def test_notes_survive_a_resume(tmp_path):
    X = np.repeat(np.arange(4.0)[:, None], 10, axis=0) * np.ones((1, 2))
    path = tmp_path / "checkpoint"
    xd.fit(X, 4, epochs=20, tol=0, method=xd.EM(), checkpoint=path)
    resumed = xd.fit(X, 4, epochs=30, tol=0, method=xd.EM(), checkpoint=xd.Checkpoint(path, resume=True))
    whole = xd.fit(X, 4, epochs=30, tol=0, method=xd.EM())
    assert resumed.notes == whole.notes
    assert any("small prior" in note for note in resumed.notes)


@pytest.mark.parametrize("method", [xd.EM(step=0.2), xd.SGD(rate=0.01)])
def test_batches_of_no_weight_change_nothing_and_break_nothing(method):
    X, S = noisy_rows(400)
    weight = np.zeros(400)
    weight[::50] = 1.0
    result = xd.fit(X, 2, noise=S, weight=weight, method=method, batch_rows=10, epochs=3, tol=0)
    assert np.isfinite(result.loglik)
    assert not any("repeated" in note or "not finite" in note for note in result.notes)


def test_units_of_validation_and_start_must_be_those_of_the_data():
    from astropy import units as u
    from astropy.table import QTable

    rng = np.random.default_rng(0)
    table = QTable({"a": rng.normal(size=50) * u.mas, "b": rng.normal(size=50) * u.mag})
    other = QTable({"a": rng.normal(size=50) * u.arcsec, "b": rng.normal(size=50) * u.mag})
    with pytest.raises(ValueError, match="validation is in"):
        xd.fit(table, 2, validation=other, epochs=1)
    start = xd.Mixture([1.0], [[0, 0]], [np.eye(2)], labels=["a", "b"], units=["arcsec", "mag"])
    with pytest.raises(ValueError, match="mixture is in"):
        xd.fit(table, mixture=start, epochs=1)
    swapped = table["b", "a"]
    with pytest.raises(ValueError, match="validation is of"):
        xd.fit(table, 2, validation={"X": swapped}, epochs=1)


def test_a_score_of_held_out_rows_that_is_not_finite_is_noticed(monkeypatch):
    from xdeconv.fitting.workspace import Workspace

    X, S = noisy_rows(100)
    monkeypatch.setattr(Workspace, "score", lambda self, parameters, source: float("nan"))
    with pytest.raises(NumericalTrouble, match="held out is not finite"):
        xd.fit(X, 2, noise=S, validation=0.2, epochs=2)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_constant_column_without_noise_is_met_with_a_prior_of_sensible_size(backend, dtype):
    X = np.random.default_rng(0).normal(size=(200, 2))
    X[:, 1] = 3.0
    result = xd.fit(X, 2, epochs=40, dtype=dtype, options=xd.Options(backend=backend))
    assert 1e-18 < result.mixture.covariances[:, 1, 1].max() < 1e-10
    assert np.isfinite(result.loglik)
    assert abs(result.loglik) < 50
    assert any("small prior" in note for note in result.notes)


class Rows(xd.Source):
    """A stream of as many rows as it says."""

    dim = 2

    def __init__(self, rows):
        self._rows = rows

    @property
    def rows(self):
        return self._rows

    def batches(self, epoch, *, rank=0, world=1):
        raise NotImplementedError


def test_long_streams_are_fitted_in_batches_unless_their_rows_live_elsewhere(device):
    from xdeconv.fitting.words import MANY_ROWS, in_batches
    from xdeconv.system.devices import chosen_device

    here = chosen_device("cpu")
    assert in_batches(Rows(MANY_ROWS["cpu"] + 1), here)
    assert not in_batches(Rows(MANY_ROWS["cpu"]), here)
    table = {"x": np.arange(10.0), "x_error": np.ones(10)}
    stream = xd.open(table, ["x"], memory=False)
    stream.tally.rows[(None, None)] = MANY_ROWS["cpu"] + 1
    assert in_batches(stream, here)


@pytest.mark.parametrize(
    ("words", "said"),
    [({"moves": "none"}, "fitting 60 rows by EM, without moves"), ({}, "fitting 60 rows by EM, with moves"),
     ({"tails": 4.0}, "fitting 60 rows by EM"), ({"components": 1}, "fitting 60 rows by EM, without moves"),
     ({"moves": "none", "batch_rows": 20}, "fitting 60 rows by EM, 20 rows per step, without moves"),
     ({"moves": "none", "method": xd.SGD(), "batch_rows": 9}, "60 rows by SGD, 9 rows per step, without moves")],
)  # fmt: skip
def test_a_fit_says_what_it_does(words, said, caplog):
    X = np.random.default_rng(0).normal(size=(60, 1))
    with caplog.at_level("INFO", "xdeconv"):
        xd.fit(X, **{"components": 2, "error": [0.1], "epochs": 1, **words})
    assert any(said in message for message in caplog.messages)
