"""Fits to rows that were selected: the density of all rows comes out, by every way of fitting; bad input is named."""

import numpy as np
import pytest
import torch
from benchmarks.telescopes.selection import FIELD, box_with_hole, example

import xdeconv as xd

TRUTH = xd.Mixture([0.7, 0.3], [[2.0], [4.0]], [[[0.4]], [[1.0]]], labels=["parallax"])
ERROR = np.exp(np.random.default_rng(0).uniform(np.log(0.1), np.log(1.0), size=(10_000, 1)))
X = TRUTH.sample(10_000, seed=1, error=ERROR)


def kept(which):
    return {"X": X[which], "error": ERROR[which]}


PLAIN, SNR = kept(X[:, 0] > 1.5), kept(X[:, 0] > 5 * ERROR[:, 0])
ABOVE, OVER_ERROR = xd.Cut("parallax", above=1.5), xd.Cut("parallax_over_error", above=5)


def fitted(rows, selection, k=2, **more):
    return xd.fit(rows["X"], k, error=rows["error"], labels=["parallax"], selection=selection, **more)


def spread(mixture):
    return float(mixture.mean()[0]), float(np.sqrt(mixture.covariance()[0, 0]))


CASES = {
    "cut": (PLAIN, ABOVE),
    "signal to noise": (SNR, OVER_ERROR),
    "a function": (PLAIN, lambda X: X[:, 0] > 1.5),
    "a function of errors": (SNR, lambda X, error: X[:, 0] > 5 * error[:, 0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_density_of_all_rows_comes_out(name):
    """Truth: mean 2.600, spread 1.192; the naive fit has 2.91 to 2.93."""
    rows, selection = CASES[name]
    result = fitted(rows, selection)
    mean, sd = spread(result.mixture)
    assert result.converged
    assert abs(mean - 2.600) < 0.02
    assert abs(sd - 1.192) < 0.02
    assert spread(fitted(rows, None).mixture)[0] > 2.9
    score = result.mixture.score(rows["X"], error=rows["error"])
    exact = result.mixture.score(rows["X"], error=rows["error"], selection=ABOVE if rows is PLAIN else OVER_ERROR)
    assert abs(score - exact) < 1e-3
    assert result.loglik == pytest.approx(score, abs=0 if callable(selection) else 1e-9)  # the same draws
    assert ("draws" in " ".join(result.notes)) == callable(selection)


@pytest.mark.slow
def test_converged_means_that_nothing_is_left():
    short = fitted(PLAIN, ABOVE)
    long = fitted(PLAIN, ABOVE, mixture=short.mixture, tol=1e-6)
    assert (long.loglik - short.loglik) * len(PLAIN["X"]) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("selection", [xd.Cut(0, above=0.0), lambda X: X[:, 0] > 0], ids=["cut", "function"])
def test_a_search_mends_what_is_stuck(selection):
    """Two components on one cluster and one on two: the rows that were rejected are drawn for the moves."""
    truth = xd.Mixture([0.3, 0.4, 0.3], [[0.3, 0.0], [20.0, 0.0], [20.0, 12.0]], [np.eye(2) * 0.5] * 3)
    rows = truth.sample(1500, 0, error=[0.3, 0.3])
    rows = rows[rows[:, 0] > 0]
    stuck = xd.Mixture([0.2, 0.2, 0.6], [[0.2, 0.5], [0.4, -0.5], [20.0, 6.0]], [np.eye(2)] * 2 + [np.diag([1, 36])])
    given = {"error": [0.3, 0.3], "selection": selection, "mixture": stuck}
    plain, mended = (xd.fit(rows, moves=moves, **given) for moves in ("none", "auto"))
    assert any(record.moved for record in mended.history)
    assert (mended.loglik - plain.loglik) * len(rows) > 20
    assert mended.loglik > truth.with_(selection=selection).score(rows, error=[0.3, 0.3])


def test_errors_that_are_all_the_same_may_be_written_for_each_row():
    rows = PLAIN["X"][:800]
    scores = [xd.fit(rows, 1, error=error, selection=lambda X: X[:, 0] > 1.5).loglik
              for error in ([0.3], np.full((800, 1), 0.3))]  # fmt: skip
    assert abs(scores[0] - scores[1]) < 2e-3


@pytest.mark.slow
def test_plain_em_ends_where_accelerated_em_does():
    rows = {name: value[:1500] for name, value in PLAIN.items()}
    fast = fitted(rows, ABOVE, 1)
    slow = fitted(rows, ABOVE, 1, method=xd.EM(accelerate=False), tol=1e-3)
    assert slow.converged
    assert abs(slow.loglik - fast.loglik) * 1500 < 0.1
    gains = np.diff([record.loglik for record in slow.history])
    assert gains.min() > -1e-12  # the rows that were rejected make it EM


@pytest.mark.slow
def test_minibatches_and_gradients_come_near():
    full = fitted(PLAIN, ABOVE)
    for method in (None, xd.SGD(rate=lambda epoch: 0.01 / (1 + epoch))):
        part = fitted(PLAIN, ABOVE, method=method, batch_rows=500, epochs=15)
        assert full.loglik - part.loglik < 0.003
        assert abs(spread(part.mixture)[0] - 2.6) < 0.15  # where a fit as if nothing were cut is 0.31 off


@pytest.mark.slow
def test_float32_and_weights_and_units():
    rows = {name: value[:4000] for name, value in PLAIN.items()}
    double = fitted(rows, ABOVE)
    single = fitted(rows, ABOVE, dtype="float32")
    assert abs(single.loglik - double.loglik) < 1e-5
    twice = {name: np.concatenate([value, value[:1000]]) for name, value in rows.items()}
    weighed = fitted(rows, ABOVE, weight=np.where(np.arange(4000) < 1000, 2.0, 1.0), mixture=double.mixture)
    again = fitted(twice, ABOVE, mixture=double.mixture)
    assert abs(weighed.loglik - again.loglik) < 1e-6
    other = xd.fit(1000 * rows["X"] + 5, 2, error=1000 * rows["error"], selection=xd.Cut(0, above=1505.0))
    assert abs((spread(other.mixture)[0] - 5) / 1000 - spread(double.mixture)[0]) < 0.003


@pytest.mark.slow
def test_three_dimensions_with_correlated_noise_and_two_cuts():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(3, 3))
    truth = xd.Mixture([1.0], [[1.0, 0.5, -0.5]], [A @ A.T + np.eye(3)])
    B = rng.normal(size=(12_000, 3, 3)) * 0.5
    noise = B @ B.transpose(0, 2, 1) + 0.1 * np.eye(3)
    cuts = [xd.Cut(0, above=0.8), xd.Cut(2, below=0.0)]
    rows = truth.sample(12_000, 4, noise=noise)
    which = (rows[:, 0] > 0.8) & (rows[:, 2] < 0.0)
    result = xd.fit(rows[which], 1, noise=noise[which], selection=cuts)
    naive = xd.fit(rows[which], 1, noise=noise[which]).mixture
    assert result.converged
    off = [np.linalg.norm(found.means - truth.means) for found in (result.mixture, naive)]
    assert off[0] < 0.25 * off[1]
    gain = result.mixture.score(rows[which], noise=noise[which]) - truth.with_(selection=cuts).score(
        rows[which], noise=noise[which]
    )
    assert 0 < gain * which.sum() < 20  # nine parameters: half a chi-squared of nine


def test_beside_a_background_and_with_tails():
    field = xd.Uniform([0.0, 0.0], [10.0, 10.0])
    truth = xd.Mixture([1.0], [[3.0, 5.0]], [np.eye(2)], background=field, background_weight=0.4)
    cut = xd.Cut(0, above=2.5)
    rows = truth.sample(4000, 0, error=[0.3, 0.3])
    rows = rows[rows[:, 0] > 2.5]
    found = xd.fit(rows, 1, error=[0.3, 0.3], background=field, selection=cut).mixture
    assert abs(found.background_weight - 0.4) < 0.03
    assert np.abs(found.means - truth.means).max() < 0.15
    heavy = xd.Mixture([1.0], [[0.0]], [[[1.0]]], tails=xd.StudentT(4.0))
    rows = heavy.sample(6000, 1, error=[0.2])
    result = xd.fit(rows[rows[:, 0] > -0.5][:, :1], 1, error=[0.2], tails=4.0, selection=xd.Cut(0, above=-0.5))
    assert result.converged
    assert abs(result.mixture.means[0, 0]) < 0.12


@pytest.mark.slow
def test_a_function_beside_a_background_finds_what_the_cut_does():
    field = xd.Uniform([0.0, 0.0], [10.0, 10.0])
    truth = xd.Mixture([1.0], [[3.0, 5.0]], [np.eye(2)], background=field, background_weight=0.4)
    rows = truth.sample(3000, 0, error=[0.3, 0.3])
    rows = rows[rows[:, 0] > 2.5]
    given = {"error": [0.3, 0.3], "background": field}
    cut = xd.fit(rows, 1, selection=xd.Cut(0, above=2.5), **given).mixture
    drawn = xd.fit(rows, 1, selection=lambda X: X[:, 0] > 2.5, **given).mixture
    assert abs(drawn.background_weight - cut.background_weight) < 0.003
    np.testing.assert_allclose(drawn.means, cut.means, atol=0.01)


@pytest.mark.sampled
@pytest.mark.parametrize("selection", [ABOVE, CASES["a function"][1]], ids=["cut", "function"])
def test_a_fit_resumes_to_the_bit(tmp_path, selection):
    rows = {name: value[:1500] for name, value in PLAIN.items()}
    whole = fitted(rows, selection)
    path = tmp_path / "checkpoint"
    for epochs in (7, 25):
        fitted(rows, selection, epochs=epochs, checkpoint=xd.Checkpoint(path, 0.0, resume=epochs > 7))
    resumed = fitted(rows, selection, checkpoint=xd.Checkpoint(path, 0.0, resume=True))
    np.testing.assert_array_equal(resumed.mixture.means, whole.mixture.means)
    with pytest.raises(ValueError, match="belongs to another fit"):
        fitted(rows, xd.Cut(0, above=1.4), checkpoint=xd.Checkpoint(path, 0.0, resume=True))


def test_a_stream_is_fitted_as_rows_in_memory_are(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = {name: value[:2000, 0] for name, value in PLAIN.items()}
    table = pa.table({"parallax": rows["X"], "parallax_error": rows["error"]})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=500)
    source = xd.open(str(tmp_path / "rows.parquet"), ["parallax"])
    given = {"error": rows["error"][:, None], "labels": ["parallax"]}
    memory = xd.fit(rows["X"][:, None], 2, selection=ABOVE, **given)
    stream = xd.fit(source, 2, selection=ABOVE, cache="none", mixture=memory.mixture)
    assert abs(stream.loglik - memory.loglik) < 1e-4


@pytest.mark.slow
def test_held_out_rows_and_selected_numbers_are_judged_given_selection():
    rows = {name: value[:3000] for name, value in PLAIN.items()}
    result = fitted(rows, ABOVE, validation=0.3)
    assert abs(result.validation - result.loglik) < 0.06
    chosen = xd.select(rows["X"], [1, 2], error=rows["error"], selection=xd.Cut(0, above=1.5))
    assert chosen.result.mixture.selection is not None
    record = chosen.table[1]
    assert record.components == 2
    assert abs(record.score - result.loglik) < 0.02  # as if nothing were cut, it would be 0.1 lower


def test_a_bootstrap_keeps_the_selection():
    rows = {name: value[:1000] for name, value in PLAIN.items()}
    mixture = fitted(rows, ABOVE, 1).mixture
    refits = xd.bootstrap(rows["X"], mixture, error=rows["error"], draws=3)
    assert all(one.selection == mixture.selection for one in refits.mixtures)
    scores = [one.score(rows["X"], error=rows["error"]) for one in (mixture, *refits.mixtures)]
    assert 0 < (scores[0] - min(scores)) * 1000 < 10


def test_rows_of_almost_no_chance_are_named():
    far = xd.Mixture([1.0], [[-4.0]], [[[1.0]]])
    rows = far.sample(300, 0, error=[0.1]) + 4.2
    rows = rows[rows[:, 0] > 0]
    held = xd.EM(fixed=xd.Fixed(means=True, covariances=True))
    result = xd.fit(rows, mixture=far, method=held, error=[0.1], selection=xd.Cut(0, above=0.0), epochs=2)
    assert any("too little to be corrected for" in note and note.startswith("row ") for note in result.notes)


def test_rows_behind_a_component_are_those_that_were_kept():
    """One row in a thousand is of the component of which all was kept, and of almost all rows that are left."""
    truth = xd.Mixture([0.001, 0.999], [[3.0], [-6.0]], [[[1.0]], [[4.0]]], selection=xd.Cut(0, above=0.0))
    rows = truth.sample(300, 0, error=np.full((300, 1), 0.1), selected=True)
    held = xd.EM(fixed=xd.Fixed(weights=True, means=True, covariances=True))
    known = {"error": [0.1], "selection": xd.Cut(0, above=0.0), "method": held}
    assert not [note for note in xd.fit(rows, mixture=truth, **known).notes if "rest" in note]
    lone = truth.with_(weights=np.array([0.999, 0.001]))
    assert any("component 1 rests on fewer than 4 rows" in note for note in xd.fit(rows, mixture=lone, **known).notes)


@pytest.mark.slow
def test_no_component_leaves_for_where_nothing_is_kept():
    """The likelihood of these 220 rows rises without end as one does, a thousandth of a nat for each tenth of P."""
    rows = example(3, 400, 0.3)
    rows = rows[box_with_hole(rows)]
    result = xd.fit(rows, 3, error=[0.5, 0.5], background=FIELD, selection=box_with_hole)
    assert result.converged
    assert result.mixture.kept_probability(rows[:1], error=[0.5, 0.5])[0] > 1e-4


REFUSED = {
    r"row 2 .*would not have been kept": {"selection": xd.Cut(0, above=0.35)},
    "between 0 and 1": {"selection": lambda X: X[:, 0] * np.nan},
    r"returned 3 .*between 0 and 1": {"selection": lambda X: np.full(len(X), 3.0)},
    r"returned -1 .*between 0 and 1": {"selection": lambda X: np.full(len(X), -1.0)},
    r"shape \(4,\) for 3 rows": {"selection": lambda X: np.ones(4)},
    "returned nothing": {"selection": lambda X: None},
    "over its error and these rows have no errors": {"selection": xd.Cut(0, above=2, over_error=True), "error": None},
    "must return probabilities": {"selection": lambda X: ["yes"] * len(X)},
    "log-densities per row": {"selection": xd.Cut(0, above=0.0), "background": np.zeros(3)},
    "probabilities, got": {"selection": lambda X: np.ones(len(X)) * 1j},
    "returned .nan. for a true value": {"selection": xd.Completeness(lambda X: X[:, 0] > 0, lambda v: v * np.nan)},
    r"returned .-1\.. for a true value": {"selection": xd.Completeness(lambda X: X[:, 0] > 0, lambda v: v * 0 - 1)},
    r"variances \(3, 1\) or covariances": {"selection": xd.Completeness(lambda X: X[:, 0] > 0, lambda v: v[0])},
    "are projections": {"selection": xd.Cut(0, above=0.0), "projection": np.ones((3, 1, 1))},
    "log_prior": {"selection": xd.Cut(0, above=0.0), "log_prior": np.zeros((3, 1))},
    "'g', and the data have no names": {"selection": xd.Cut("g", above=0.0)},
    "returned nan for a row": {"selection": lambda X: np.where(abs(X[:, 0] - 0.4) < 0.15, 1.0, np.nan)},  # elsewhere
}


def test_cuts_of_correlated_errors_beside_a_box_are_refused_before_any_work(monkeypatch):
    monkeypatch.setattr("xdeconv.fitting._fit.run", lambda *_: pytest.fail("work was done"))
    cuts, box = [xd.Cut(0, above=0.0), xd.Cut(1, below=3.0)], xd.Uniform([-9.0, -9.0], [9.0, 9.0])
    with pytest.raises(ValueError, match="where their errors are correlated: give selection= a function"):
        xd.fit([[0.5, 0.4]], 1, noise=[[[0.5, 0.3], [0.3, 0.4]]], background=box, selection=cuts)


@pytest.mark.parametrize("text", REFUSED)
def test_bad_selections_are_refused_before_any_work(text, monkeypatch):
    monkeypatch.setattr("xdeconv.fitting._fit.run", lambda *_: pytest.fail("work was done"))
    with pytest.raises(ValueError, match=text):
        xd.fit([[0.5], [0.4], [0.3]], 1, **{"error": [0.1], **REFUSED[text]})


def test_rows_that_were_not_kept_are_named_by_their_places():
    rows = np.linspace(1.0, 2.0, 200)[:, None]
    rows[[150, 160]] = 0.0
    with pytest.raises(ValueError, match=r"row 150 \(and 1 more\) would not have been kept by selection=g > 0.5"):
        xd.fit(rows, 1, error=[0.1], labels=["g"], validation=0.4, selection=xd.Cut("g", above=0.5))
    cut = xd.Mixture([1.0], [[1.5]], [[[0.1]]], labels=["g"], selection=xd.Cut("g", above=0.5))
    with pytest.raises(ValueError, match=r"row 150 \(and 1 more\) would not have been kept by selection=g > 0.5"):
        cut.score(rows, error=[0.1])


def test_a_function_that_fails_says_whose_it_is():
    with pytest.raises(IndexError) as raised:
        xd.fit(PLAIN["X"], 1, error=PLAIN["error"], selection=lambda X: X["g"] > 0)
    assert "selection=" in raised.value.__notes__[0]


def test_the_estimator_takes_it():
    rows = {name: value[:2000] for name, value in PLAIN.items()}
    model = xd.XDGMM(1, selection=xd.Cut(0, above=1.5)).fit(rows["X"], error=rows["error"])
    assert model.mixture_.selection is not None
    assert model.score(rows["X"], error=rows["error"]) > model.mixture_.log_prob(rows["X"], error=rows["error"]).mean()
    assert torch.is_tensor(model.mixture_.selection.probability(model.mixture_.batch(rows["X"], error=rows["error"])))


def test_a_component_that_leaves_the_box_ends_no_fit():
    """Draws of the population alone did not see its tail: the likelihood rose by 26 nats that were none, until a
    covariance failed."""
    X = example(1, 400, 0.3)
    result = xd.fit(X[box_with_hole(X)], 3, error=[0.5, 0.5], background=FIELD, selection=box_with_hole)
    assert result.converged
    assert len(result.history) < 300
