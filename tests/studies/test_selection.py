"""Choosing the number of components: known truths, stopping and going on, refusals, the curve."""

import json
import os

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import xdeconv as xd
from xdeconv.fitting._fit import fit
from xdeconv.fitting.choosing.judging import Verdict, judged, parts_of
from xdeconv.fitting.choosing.trials import Choosing, Judgement, Trial
from xdeconv.fitting.choosing.walking import between, ladder, smaller
from xdeconv.mixture._mixture import Mixture, load
from xdeconv.rows.batch import Batch
from xdeconv.rows.data import as_source
from xdeconv.studies._select import Record, Selection, select

TRUTH = Mixture([0.5, 0.3, 0.2], [[-6.0, 0.0], [6.0, 0.0], [0.0, 8.0]], [np.eye(2), np.diag([2.0, 0.5]), np.eye(2)])
NOISE = np.random.default_rng(1).uniform(0.1, 1.0, size=(900, 2))
X = TRUTH.sample(900, seed=0, noise=NOISE)
SIZES = [1, 2, 3, 5]


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["held-out", "cv", "bic", "aic"])
def test_three_components_are_found(criterion):
    rule = "one-se" if criterion in ("held-out", "cv") else "best"
    found = select(X, SIZES, criterion, noise=NOISE, folds=3, rule=rule, tol=1e-4, moves="none")
    assert found.best == 3
    assert [record.components for record in found.table] == SIZES
    assert found.result.mixture.k == 3
    order = found.result.mixture.means[:, 0].argsort()
    np.testing.assert_allclose(found.result.mixture.means[order], TRUTH.means[[0, 2, 1]], atol=0.3)


def test_scores_are_those_of_the_rows_left_out():
    found = select(X, [3], noise=NOISE, validation=0.25, seed=3)
    batch = found.result.mixture.batch(X, NOISE)
    assert found.result.loglik == pytest.approx(found.result.mixture.score(batch))
    (record,) = found.table
    log_prob = TRUTH.log_prob(X, NOISE)
    assert record.score == pytest.approx(log_prob.mean(), abs=4 * record.standard_error)
    assert record.standard_error == pytest.approx(log_prob.std() / np.sqrt(225), rel=0.2)


def test_validation_rows_of_their_own_and_weights():
    weight = np.random.default_rng(2).uniform(0.5, 2.0, 900)
    judge = {"X": X[:300], "noise": NOISE[:300], "weight": weight[:300]}
    found = select(X[300:], [3], noise=NOISE[300:], weight=weight[300:], validation=judge)
    expected = found.result.mixture.score(X[:300], NOISE[:300], weight=weight[:300])
    assert found.table[0].score == pytest.approx(expected, abs=1e-4)


def test_a_verdict_pairs_rows_and_weighs_them():
    weight = np.random.default_rng(2).uniform(0.0, 2.0, 900)
    other = Mixture(TRUTH.weights, TRUTH.means + 0.1, TRUTH.covariances)
    halves = [as_source(X[part], noise=NOISE[part], weight=weight[part]) for part in (slice(0, 400), slice(400, None))]
    found = judged([[TRUTH, other]] * 2, halves)
    rows = np.stack([mixture.log_prob(X, NOISE) for mixture in (TRUTH, other)])
    means = rows @ weight / weight.sum()
    np.testing.assert_allclose(found.means, means)
    assert found.weight == pytest.approx(weight.sum())
    away = rows[1] - rows[0] - (means[1] - means[0])
    difference, error = found.differences()
    np.testing.assert_allclose(difference, [0.0, means[1] - means[0]], atol=1e-12)
    assert error[1] == pytest.approx(np.sqrt(np.sum((weight * away) ** 2)) / weight.sum(), rel=1e-9)
    own = np.sqrt(np.sum((weight * (rows[0] - means[0])) ** 2)) / weight.sum()
    assert np.sqrt(found.covariance[0, 0]) == pytest.approx(own, rel=1e-9)
    assert error[1] < own / 3


@pytest.mark.slow
def test_information_criteria_are_the_estimators():
    from xdeconv.compat.sklearn import XDGMM

    found = {name: select(X, [2], name, noise=NOISE) for name in ("bic", "aic")}
    model = XDGMM(2)
    for name, selection in found.items():
        model.fit(X[:5])
        model.mixture_ = selection.result.mixture
        assert selection.table[0].score == pytest.approx(getattr(model, name)(X, noise=NOISE), abs=0.1)
    assert model.mixture_.n_parameters == 11


# Stopping and going on


class Stop:
    """A callback that presses Ctrl-C in the epoch of a number."""

    def __init__(self, after):
        self.left = after

    def __call__(self, record):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_interrupted_and_resumed_is_the_same(tmp_path):
    settings = {"criterion": "cv", "noise": NOISE, "folds": 3, "epochs": 8, "tol": 0.0}
    whole = select(X, SIZES, results=tmp_path / "whole.jsonl", **settings)
    assert not whole.interrupted
    path = tmp_path / "parts.jsonl"
    part = select(X, SIZES, results=path, callback=Stop(8 * 4 + 3), **settings)
    assert part.interrupted
    assert part.result is None
    assert len(part.table) == 1
    assert len(path.read_text().splitlines()) == 1 + 4
    found = select(X, SIZES, results=path, **settings)
    assert [(r.score, r.standard_error, r.folds) for r in found.table] == [
        (r.score, r.standard_error, r.folds) for r in whole.table
    ]
    np.testing.assert_array_equal(found.result.mixture.means, whole.result.mixture.means)
    assert select(X, SIZES, results=path, **settings).table == found.table  # seconds too: nothing is fitted again


def test_a_longer_list_goes_on_and_another_chain_does_not_mix(tmp_path):
    path = tmp_path / "r.jsonl"
    settings = {"noise": NOISE, "epochs": 3, "results": path, "criterion": "held-out"}
    select(X, [2, 3], **settings)
    longer = select(X, [1, 2, 3], **settings)
    other = select(X, [1, 3], **settings)
    trials = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    assert [(t["components"], t["above"]) for t in trials] == [(3, 0), (2, 3), (1, 2), (1, 3)]
    assert other.table[-1].folds == longer.table[-1].folds


def said_in(text):
    """What lines of JSON say, None where one is not JSON: 09.5 is no number."""
    try:
        return [json.loads(line) for line in text.splitlines()]
    except json.JSONDecodeError:
        return None


def test_damaged_results_are_refused(tmp_path):
    """A digit of a score or of a mixture, with which another number of components could be chosen."""
    path = tmp_path / "r.jsonl"
    settings = {"noise": NOISE, "epochs": 2, "criterion": "bic", "results": path}
    table = select(X, [1, 2], **settings).table
    text = path.read_text()
    start = text.index("\n") + 1
    digits = [i for i in range(start, len(text)) if text[i].isdigit()]
    for i in digits[:: len(digits) // 100]:
        damaged = text[:i] + str((int(text[i]) + 1) % 10) + text[i + 1 :]
        if said_in(damaged) == said_in(text):  # the last of 17 digits need not count
            continue
        path.write_text(damaged)
        with pytest.raises(ValueError, match="does not hold the results of a selection, or is damaged"):
            select(X, [1, 2], **settings)
    path.write_text(text)
    assert select(X, [1, 2], **settings).table == table


def kept_above(limit):
    return lambda rows: rows[:, 0] > limit


def test_trials_of_rows_that_a_function_kept_are_resumed_with_it(tmp_path):
    """Results told functions by where they were in memory, and a file holds none: nothing could be resumed."""
    rows, limit = X[X[:, 0] > -1.5], -1.5
    settings = {"noise": NOISE[X[:, 0] > -1.5], "epochs": 2, "criterion": "bic", "results": tmp_path / "r.jsonl"}
    first = select(rows, [1, 2], selection=kept_above(limit), **settings)
    again = select(rows, [1, 2], selection=kept_above(limit), **settings)
    assert again.table == first.table  # seconds too: nothing is fitted again
    np.testing.assert_array_equal(again.result.mixture.means, first.result.mixture.means)
    with pytest.raises(ValueError, match=r"belongs to another fit \(options selection"):
        select(rows, [1, 2], selection=kept_above(limit - 0.5), **settings)


def test_two_selections_with_one_file_of_results_are_refused(tmp_path):
    path = tmp_path / "r.jsonl"
    settings = {"noise": NOISE, "epochs": 2, "criterion": "bic", "results": path}

    def meanwhile(_):
        with pytest.raises(BlockingIOError, match="another selection is writing"):
            select(X, [1], **settings)

    select(X, [1], callback=meanwhile, **settings)
    assert len(path.read_text().splitlines()) == 2
    assert [found.name for found in tmp_path.iterdir()] == ["r.jsonl"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_results_are_not_read_from_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)  # nobody waits for ever
    with pytest.raises(OSError, match="is a folder, a pipe or a device"):
        select(X, [1], noise=NOISE, results=tmp_path / "pipe")
    os.close(reader)


def test_an_interrupt_with_nothing_done_is_raised():
    with pytest.raises(KeyboardInterrupt):
        select(X, [2, 3], noise=NOISE, callback=Stop(1))


def test_another_call_is_refused_by_name(tmp_path):
    path = tmp_path / "r.jsonl"
    select(X, [1], noise=NOISE, epochs=2, results=path)
    with pytest.raises(ValueError, match="seed: 0 there, 1 here"):
        select(X, [1], noise=NOISE, epochs=2, results=path, seed=1)
    with pytest.raises(ValueError, match=r"options epochs: '2' there, '3' here"):
        select(X, [1], noise=NOISE, epochs=3, results=path)
    with pytest.raises(ValueError, match="checksum"):
        select(X + 1, [1], noise=NOISE, epochs=2, results=path)
    path.write_text("{}\n")
    with pytest.raises(ValueError, match="does not hold the results of a selection"):
        select(X, [1], noise=NOISE, results=path)


# Refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"criterion": "dic"}, "one of held-out, cv, bic, aic"),
        ({"criterion": "bic", "rule": "one-se"}, "for held-out and cv, one-se"),
        ({"components": []}, "such as"),
        ({"components": [0, 2]}, "at least 1"),
        ({"criterion": "cv", "folds": 1}, "folds must be"),
        ({"checkpoint": "a"}, "results= keeps them"),
    ],
)
def test_refusals(changes, message):
    with pytest.raises(ValueError, match=message):
        select(X, **{"components": [2], "noise": NOISE, **changes})


def test_a_row_prior_is_refused():
    with pytest.raises(ValueError, match="log_prior"):
        select(Batch.from_arrays(X, log_prior=np.zeros((900, 2))), [1, 2])


class Stream(xd.Source):
    """A source that is not held in memory."""

    def __init__(self, source):
        self.source = source

    rows = property(lambda self: self.source.rows)
    dim = property(lambda self: self.source.dim)

    def batches(self, epoch, *, rank=0, world=1):
        return self.source.batches(epoch, rank=rank, world=world)


def test_streams_hold_out_and_refuse_cross_validation():
    stream = Stream(as_source(X, noise=NOISE))
    assert select(stream, [1, 3], epochs=20).best == 3
    with pytest.raises(ValueError, match="cross-validation needs rows in memory"):
        select(stream, [1, 3], "cv")


# The choice and its picture


def test_the_one_standard_error_rule_is_of_differences():
    lines = [(1, -3.0, 0.1), (2, -1.05, 0.06), (4, -1.0, 0.0), (8, -1.2, 0.3)]
    table = tuple(Record(k, s, 0.5, 1.0, (s,), s + 1.0, e) for k, s, e in lines)
    assert Selection("cv", table).best == 4
    assert Selection("cv", table, "one-se").best == 2
    assert Selection("bic", table).best == 1
    assert str(Selection("cv", table)).splitlines()[3].endswith("<- chosen")


def test_eight_components_are_not_two_because_scores_scatter():
    """Scores of single rows scatter far more than their differences: by the error of the score, 2 would do."""
    rng = np.random.default_rng(0)
    means = np.stack([np.repeat([-300.0, 300.0], 4), np.tile([-4.5, -1.5, 1.5, 4.5], 2)], 1)
    eight = Mixture(np.full(8, 1 / 8), means, np.tile(0.2 * np.eye(2), (8, 1, 1)))
    two = Mixture([0.5, 0.5], [[-300.0, 0.0], [300.0, 0.0]], np.tile(np.diag([0.2, 11.45]), (2, 1, 1)))
    noise = rng.choice([0.01, 100.0], p=[0.1, 0.9], size=(300, 2))
    verdict = judged([[two, eight]], [as_source(eight.sample(300, seed=1, noise=noise), noise=noise)])
    trials = {m.k: [Trial(m.k, 0, 0, 0.0, 300.0, 0.0, m)] for m in (two, eight)}
    assert verdict.means[1] - verdict.means[0] < np.sqrt(verdict.covariance[1, 1])
    assert Judgement("held-out", "one-se", trials, verdict).best == 8


def test_folds_are_not_held_against_mixtures_that_all_rows_would_tell_better():
    """Trials of folds see fewer rows: what their free numbers cost is put right before one is called too many."""
    one, two = Mixture([1.0], [[0.0]], [[[1.0]]]), Mixture([0.5, 0.5], [[0.0], [1.0]], [[[1.0]], [[1.0]]])
    trials = {m.k: [Trial(m.k, 0, 0, 0.0, 100.0, 0.0, m)] for m in (one, two)}
    verdict = Verdict(np.array([-1.0, -0.985]), np.diag([0.0, 0.016**2]), 100.0)
    assert Judgement("cv", "one-se", trials, verdict).best == 1
    assert Judgement("cv", "one-se", trials, verdict, lacking=1 / 80 - 1 / 100).best == 2
    away, _ = Judgement("cv", "one-se", trials, verdict, lacking=1 / 80 - 1 / 100).differences()
    np.testing.assert_allclose(away[0], -0.015 - 3 / 2 * (1 / 80 - 1 / 100))
    rows = as_source(Batch.from_arrays(np.random.default_rng(0).normal(size=(100, 1))))
    folds, _ = parts_of(rows, "cv", 5, 0.2, 0)
    assert Choosing(fit, {"seed": 0}, folds, "cv", "one-se").run([1]).lacking == pytest.approx(1 / 80 - 1 / 100)


def test_numbers_that_noise_hides_are_not_put_right():
    """Fitted rows no better than unseen ones: nothing was determined, and more rows would not make it better."""
    one, two = Mixture([1.0], [[0.0]], [[[1.0]]]), Mixture([0.5, 0.5], [[0.0], [1.0]], [[[1.0]], [[1.0]]])
    verdict, lacking = Verdict(np.array([-1.0, -1.0]), np.zeros((2, 2)), 100.0), 1 / 80 - 1 / 100
    for gain, told in ((0.0, 0.0), (-0.1, 0.0), (3 / 80, 3.0), (0.5, 5.0)):
        trials = {m.k: [Trial(m.k, 0, 0, -1.0, 100.0, 0.0, m, -1.0 + gain * (m is two))] for m in (one, two)}
        away, _ = Judgement("cv", "one-se", trials, verdict, lacking, 80.0).differences()
        np.testing.assert_allclose(away[1] - away[0], told / 2 * lacking, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("wider", [None, xd.Inflation()], ids=["errors as quoted", "errors inflated"])
def test_two_noisy_components_are_not_forty(wider):
    """Of 40 components noise hides most free numbers: what all would cost must not be held in their favour."""
    rng = np.random.default_rng(0)
    error = rng.uniform(0.2, 1.0, size=(600, 1))
    true = rng.choice([-3.0, 3.0], size=(600, 1)) + 0.5 * rng.normal(size=(600, 1))
    values = true + 1.3 * error * rng.normal(size=(600, 1))
    found = select(values, [1, 2, 40], error=error if wider else 1.3 * error, inflation=wider)
    assert found.best == 2
    if wider:
        assert abs(found.result.mixture.inflation.factors[0, 0] - 1.3) < 0.3


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        {"tails": xd.StudentT()},
        {"inflation": xd.Inflation(by="y", bins=[0.5], of=["x"]), "background": xd.Uniform([-20, -20], [20, 20])},
        {"selection": xd.Cut("x", below=4.0)},
    ],
    ids=["tails", "inflation and background", "selection"],
)
def test_all_of_a_model_goes_with_the_walk(model):
    rows, noise = X[X[:, 0] < 4.0][:300], NOISE[X[:, 0] < 4.0][:300]
    how = {"noise": noise, "labels": ["x", "y"], **model}
    found = select(rows, [2, 4], folds=2, **how).result.mixture
    source = as_source(rows, noise=noise)
    made = smaller(found, 1, source, 0)
    for name in ("background", "tails", "inflation", "selection"):
        assert getattr(made, name) == getattr(found, name)
        assert (getattr(found, name) is not None) == (name in model)


@pytest.mark.slow
def test_trials_of_rows_that_were_cut_are_not_stuck_where_they_begin():
    """A third of one component was kept: with two components, one of five folds ended 0.2 nat per row too low."""
    rng = np.random.default_rng([3, 11])
    A = 0.6 * rng.normal(size=(2, 2, 2))
    V, apart = A @ A.transpose(0, 2, 1) + 0.2 * np.eye(2), rng.uniform(1.5, 3.5, size=2) * rng.choice([-1, 1], size=2)
    error, truth = rng.uniform(0.2, 0.6, (1500, 2)), Mixture([0.6, 0.4], [[0.0, 0.0], apart], V)
    rows = truth.sample(1500, 3, error=error)
    cut = xd.Cut(0, above=np.quantile(rows[:, 0], rng.uniform(0.2, 0.6)))
    kept = rows[:, 0] > cut.above
    found = select(rows[kept], [2, 3, 4, 5], error=error[kept], selection=cut)
    assert found.best == 2
    assert found.table[0].score > truth.with_(selection=cut).score(rows[kept], error=error[kept]) - 0.01


@pytest.mark.slow
def test_auto_takes_inflation_along():
    found = fit(X[:180], "auto", noise=NOISE[:180], labels=["x", "y"], inflation=xd.Inflation(of=["y"]))
    assert found.mixture.k == 3
    assert found.mixture.inflation.of == (1,)
    assert any("3 of 1 to 6 components chosen by cross-validation" in note for note in found.notes)


def test_the_curve_is_drawn():
    pytest.importorskip("matplotlib")
    table = tuple(Record(k, -1.0 / k, 0.1, 1.0, (), 1 / 16 - 1 / k, 0.1) for k in (1, 4, 16))
    ax = Selection("held-out", table).plot()
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    title = ax.yaxis.label.get_window_extent()
    assert title.y0 >= 0
    assert title.y1 <= ax.figure.bbox.y1  # it was longer than the picture is high
    assert ax.get_xlabel() == "components"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "4", "16"]
    assert Selection("bic", tuple(Record(r.components, r.score, None, 1.0, ()) for r in table)).plot(ax) is ax


# The walk


@pytest.mark.slow
def test_a_walk_down_is_as_good_as_fits_of_their_own():
    source = as_source(X, noise=NOISE)
    mixture = fit(source, 8).mixture
    for k in (5, 3, 2):
        mixture = fit(source, mixture=smaller(mixture, k, source, 0)).mixture
        assert mixture.k == k
        assert 900 * (mixture.score(X, NOISE) - fit(source, k).loglik) > -5.0


def test_rungs_and_what_lies_between():
    assert ladder(20_000, 7)[-1] == 64
    assert ladder(50, 7) == [1]
    rungs = ladder(20_000, 7)
    assert rungs[:8] == list(range(1, 9))
    assert len(rungs) < 18
    assert between(rungs, 64) == [56]
    assert between([*rungs, 56], 64) == [60]
    assert between([*rungs, 56, 60], 64) == []
    assert between([1, 2, 3], 2) == []


@pytest.mark.slow
def test_nobody_says_how_many():
    some = {"noise": NOISE[:240], "labels": ["a", "b"]}
    result = fit(X[:240], "auto", validation=0.1, **some)
    assert result.mixture.k == 3
    assert result.mixture.labels == ("a", "b")
    assert result.validation is not None
    assert any("3 of 1 to 7 components chosen by cross-validation" in note for note in result.notes)
    assert fit(X[:15], "auto").mixture.k == 1
    found = select(X[:240], folds=3, **some)
    assert (found.criterion, found.rule, found.best) == ("cv", "one-se", 3)
    assert select(X[:240], validation=0.3, **some).criterion == "held-out"


def test_auto_refuses_names_of_components():
    with pytest.raises(ValueError, match="log_prior"):
        fit(X, "auto", log_prior=np.zeros((900, 2)))
    with pytest.raises(ValueError, match="Fixed parameters name components"):
        fit(X, "auto", method=xd.EM(fixed=xd.Fixed(means=[0])))
    with pytest.raises(ValueError, match="components must be a whole number"):
        fit(X, "many")


# The command


@pytest.fixture
def table(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"u": X[:, 0], "v": X[:, 1], "u_error": np.sqrt(NOISE[:, 0]), "v_error": np.sqrt(NOISE[:, 1])}
    pq.write_table(pa.table(columns), tmp_path / "d.parquet")
    return tmp_path / "d.parquet"


def call(*words):
    from xdeconv.cli.app import run

    with pytest.raises(SystemExit) as done:
        run(["select", *map(str, words)])
    return done.value.code


@pytest.mark.slow
def test_the_command_prints_draws_and_writes(table, capsys):
    pytest.importorskip("matplotlib")
    picture, model, results = (table.with_name(name) for name in ("c.png", "m.safetensors", "r.jsonl"))
    words = (table, "-c", "u,v", "-k", "1,3", "-o", picture, "--model", model, "--results", results, "--epochs", 20,
             "--moves", "none")  # fmt: skip
    assert call(*words) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("<- chosen")
    assert picture.stat().st_size > 1000
    assert load(model).k == 3
    assert call(*words, "--seed", 1) == 1
    assert "seed: 0 there, 1 here" in capsys.readouterr().err


def test_the_command_refuses(table):
    assert call(table, "-c", "u,v", "-k", "1,many") == 2
    assert call(table, "-c", "u,v", "-k", "1", "-o", "curve.txt") == 2
    assert call(table, "-c", "u,v", "-k", "1", "--moves", "many") == 2


def test_log_densities_of_pandas_are_paired_with_the_rows_by_their_index():
    X = np.random.default_rng(0).normal(size=(300, 2))
    table, density = pd.DataFrame(X, columns=["x", "y"]), pd.Series(X[:, 0] - 4.0)
    straight, turned = (select(table, [1], "bic", background=one) for one in (density, density[::-1]))
    assert turned.table[0].score == straight.table[0].score


# Rows as a fit takes them


def test_tables_and_files_are_taken_as_a_fit_takes_them(tmp_path):
    rng = np.random.default_rng(3)
    error = rng.uniform(0.5, 2.0, size=(300, 2))
    X = rng.normal(size=(300, 2)) + error * rng.normal(size=(300, 2))
    table = pd.DataFrame({"y": X[:, 1], "y_error": error[:, 1], "x": X[:, 0], "x_error": error[:, 0], "name": "star"})
    table.to_parquet(tmp_path / "rows.parquet")
    right = select(X, [1, 2], "bic", error=error)
    for rows in (table, tmp_path / "rows.parquet", str(tmp_path / "rows.parquet")):
        found = select(rows, [1, 2], "bic", columns=["x", "y"])
        assert [r.score for r in found.table] == pytest.approx([r.score for r in right.table], rel=1e-12)
    held = select(table[:200], [1], columns=["x", "y"], validation=table[200:])
    apart = select(X[:200], [1], error=error[:200], validation={"X": X[200:], "error": error[200:]})
    assert held.table[0].score == pytest.approx(apart.table[0].score, rel=1e-12)
    with pytest.warns(xd.NoNoiseWarning, match="found for x in pandas table"):
        select(table[["x"]], [1], "bic", columns=["x"])
    with pytest.raises(ValueError, match="name the columns to fit"):
        select(tmp_path / "rows.parquet", [1])
    with pytest.raises(ValueError, match=r"columns=\['x'\] are of a table or a file, and a CatalogSource has its own"):
        select(xd.open(table, ["x", "y"]), [1], columns=["x"])
