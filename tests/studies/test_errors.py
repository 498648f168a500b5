"""Standard errors without refits: exact curvature, textbook values, agreement of both ways, what is undetermined."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy.stats import norm

import xdeconv as xd
from problems import problem
from xdeconv import kernels
from xdeconv.fitting.beside.carried import Carried
from xdeconv.fitting.full_pass import stats_of
from xdeconv.kernels.options import Options
from xdeconv.kernels.parameters import Parameters
from xdeconv.mixture.inflated import Inflated
from xdeconv.rows.data import ArraySource
from xdeconv.rows.grouping import Grouping
from xdeconv.studies import _errors as module
from xdeconv.studies.beside import Beside
from xdeconv.studies.curvature import Curvature
from xdeconv.studies.information import information, nothing_said

EXACT = Options("reference", skip=False)
TRUTH = xd.Mixture(
    [0.6, 0.4], [[-4.0, 0.0], [4.0, 1.0]], [[[1.0, 0.3], [0.3, 1.0]], np.diag([2.0, 0.5])], labels=["a", "b"]
)
NOISE = np.random.default_rng(1).uniform(0.3, 1.0, size=(800, 2))
X = TRUTH.sample(800, seed=0, noise=NOISE)


@pytest.fixture(scope="module")
def mixture():
    return xd.fit(X, noise=NOISE, mixture=TRUTH, tol=1e-6).mixture


@pytest.fixture(scope="module")
def found(mixture):
    return xd.errors(X, mixture, noise=NOISE)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("prior", [None, xd.Prior(w=0.3, c=2.0, concentration=1.5)], ids=["plain", "prior"])
@pytest.mark.parametrize("fixed", [xd.Fixed(), xd.Fixed(weights=[0], means=[1], covariances=[2])], ids=["free", "held"])
@pytest.mark.parametrize(
    "kind",
    [{}, {"missing": 0.3, "weight": True}, {"projection": "dense", "p": 2}, {"prior": "rows", "noise": "diagonal"}],
    ids=["full", "gaps", "projected", "log-priors"],
)
def test_curvature_and_scatter_are_differences_of_the_sums(kind, fixed, prior):
    drawn = problem(n=40, k=4, d=3, seed=1, **kind)
    parameters, batch = Parameters(*drawn.parameters()), drawn.batch()
    there = information(ArraySource(batch), parameters, torch.linalg.cholesky(parameters.covariances), prior, fixed)
    chart, free, size = there.chart, there.free, there.chart.size

    def gradient(x, rows=batch, prior=prior):
        at = chart.parameters(x, fixed)
        return chart.gradient(x, at.log_weights.exp(), kernels.accumulate(*at, rows, EXACT), prior, fixed)

    zero, step = torch.zeros(size).double(), 1e-5
    ways = step * torch.eye(size).double()[free]
    H = torch.stack([(gradient(-way) - gradient(way))[free] / (2 * step) for way in ways])
    same = torch.where(free[:4], chart.information.sqrt(), 0.0)
    same = torch.cat([same / same.norm(), zero[4:]])[free]
    S = torch.stack([gradient(zero, batch.rows(slice(i, i + 1)), None) for i in range(batch.n)])
    torch.testing.assert_close(there.gradient, gradient(zero), rtol=0, atol=1e-12)
    torch.testing.assert_close(there.H[free][:, free], H + same[:, None] * same, rtol=0, atol=1e-7)
    torch.testing.assert_close(there.J, S.T @ S, rtol=0, atol=1e-12)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("prior", [None, xd.Prior(w=0.3, c=2.0, concentration=1.5)], ids=["plain", "prior"])
@pytest.mark.parametrize("tails", [None, xd.StudentT(4.0), xd.StudentT(4.0, fitted=True)], ids=["none", "nu", "fitted"])
@pytest.mark.parametrize("background", [False, True])
def test_curvature_and_scatter_with_a_background_and_tails(background, tails, prior):
    """By differences of the sums that fits learn from, one row at a time for the scatter."""
    drawn = problem(n=30, k=3, d=2, seed=1, missing=0.2, weight=True)
    (log_weights, means, V), batch = drawn.parameters(), drawn.batch()
    beside, fixed = Beside(background, Carried(tails)), xd.Fixed(means=[1])
    if background:
        batch = replace(batch, background=torch.linspace(-6.0, -3.0, 30, dtype=torch.float64))
        log_weights = log_weights + np.log(0.7)
    parameters = Parameters(log_weights, means, V)
    there = information(ArraySource(batch), parameters, torch.linalg.cholesky(V), prior, fixed, beside)
    chart, free, size = there.chart, there.free, there.chart.size

    def gradient(x, rows=batch, prior=prior):
        state = chart.state(x, fixed, 0.0)
        at = beside.at(state.extra)
        stats = at.stats(stats_of(rows, state.parameters(), EXACT, None, at.carried.tails), 3, 2)
        return chart.gradient(x, state.weights, stats, prior, fixed)

    zero, step = torch.zeros(size).double(), 1e-4
    assert size == 3 * 6 + background + (tails is not None and tails.fitted)
    ways = step * torch.eye(size).double()[free]
    H = torch.stack([(gradient(-way) - gradient(way))[free] / (2 * step) for way in ways])
    logits = 3 + background
    same = torch.where(free[:logits], chart.information.sqrt(), 0.0)
    same = torch.cat([same / same.norm(), zero[logits:]])[free]
    S = torch.stack([gradient(zero, batch.rows(slice(i, i + 1)), None) for i in range(batch.n)])
    torch.testing.assert_close(there.gradient, gradient(zero), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(there.H[free][:, free], H + same[:, None] * same, rtol=0, atol=1e-5)
    torch.testing.assert_close(there.J, S.T @ S, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_errors_of_a_background_and_of_tails_are_those_of_refits(monkeypatch):
    """Weight of a background far from the components: binomial. All others: within the scatter of 60 refits."""
    rng = np.random.default_rng(3)
    box = xd.Uniform([-20.0, -20.0], [20.0, 20.0])
    heavy = TRUTH.means[rng.integers(0, 2, 700)] + rng.standard_t(3.0, size=(700, 1)) * rng.normal(size=(700, 2)) / 2
    rows = np.concatenate([heavy, rng.uniform(-20, 20, size=(300, 2))])
    noise = np.full((1000, 2), 0.04)
    fitted = xd.fit(rows, noise=noise, mixture=TRUTH, background=box, tails=xd.StudentT(), tol=1e-3).mixture
    found = xd.errors(rows, fitted, noise=noise)
    draws = xd.bootstrap(rows, fitted, 60, noise=noise)
    refits = draws.standard_errors()
    assert found.background_weight == pytest.approx(np.std([m.background_weight for m in draws.mixtures]), rel=0.4)
    assert np.log(found.weights / refits.weights) == pytest.approx(0, abs=0.4)
    assert np.log(found.means / refits.means) == pytest.approx(0, abs=0.4)
    assert found.nu == pytest.approx(np.std([m.tails.nu for m in draws.mixtures]), rel=0.5)
    value, error = found.log_prob(rows[:5], noise[:5])
    np.testing.assert_allclose(value, fitted.log_prob(rows[:5], noise[:5]), rtol=1e-9)
    by_hand = found.of(lambda m: m.log_prob(rows[:5], noise[:5]))
    np.testing.assert_allclose(error, by_hand.standard_error, rtol=1e-3)
    assert "background weight 0.2" in repr(found) or "background weight 0.3" in repr(found)
    assert "  nu " in repr(found)
    monkeypatch.setattr(module, "MATRIX", 3)
    solved = xd.errors(rows, fitted, noise=noise)
    np.testing.assert_allclose(solved.log_prob(rows[:2], noise[:2]).standard_error, error[:2], rtol=2e-3)
    assert solved.nu == pytest.approx(found.nu, rel=2e-3)


@pytest.mark.parametrize("tails", [None, xd.StudentT(4.0, fitted=True)], ids=["none", "tails"])
def test_curvature_and_scatter_with_factors_on_errors(tails):
    """By differences of the sums that fits learn from: factors of two groups of rows, one of them a jitter."""
    drawn = problem(n=30, k=3, d=2, seed=1, missing=0.2, weight=True)
    batch = replace(drawn.batch(), group=torch.arange(30) % 2)
    inflation = Inflated(((1.3, 0.8), (0.4, 0.7)), (0, 1), (1,), Grouping("group", values=(0, 1)))
    beside, parameters = Beside(False, Carried(tails, inflation)), Parameters(*drawn.parameters())
    factors = torch.linalg.cholesky(parameters.covariances)
    there = information(ArraySource(batch), parameters, factors, None, xd.Fixed(), beside)
    close = Curvature.around(ArraySource(batch), parameters, factors, None, xd.Fixed(), beside)
    assert there.chart.size == 3 * 6 + 4 + (tails is not None)
    unit = there.chart.unscaled(torch.ones(there.chart.size).double())
    other = close.chart.unscaled(torch.ones(there.chart.size).double())
    torch.testing.assert_close(there.gradient / unit, close.gradient / other, rtol=1e-5, atol=1e-5)
    found = close.information()
    for ours, theirs in ((there.J, found.J), (there.H - nothing_said(there.chart, there.free),
                                              found.H - nothing_said(close.chart, close.free))):  # fmt: skip
        ours, theirs = ours / unit[:, None] / unit, theirs / other[:, None] / other
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4 * float(ours.abs().max()))


@pytest.mark.slow
def test_errors_of_factors_on_errors_are_those_of_refits():
    noise = NOISE**2
    rows = TRUTH.sample(800, seed=0, noise=noise * np.array([1.96, 1.0]))
    fitted = xd.fit(rows, noise=noise, mixture=TRUTH, inflation=xd.Inflation(), tol=1e-3).mixture
    found, drawn = xd.errors(rows, fitted, noise=noise), xd.bootstrap(rows, fitted, 60, noise=noise)
    refits = np.std([m.inflation.values for m in drawn.mixtures], axis=0, ddof=1)
    assert np.log(found.inflation / refits) == pytest.approx(0, abs=0.4)
    assert np.log(found.covariances / drawn.standard_errors().covariances) == pytest.approx(0, abs=0.5)
    plain = xd.errors(rows, fitted.with_(inflation=None), noise=noise)
    assert (found.covariances[:, 0, 0] > plain.covariances[:, 0, 0]).all()  # the width is known less well beside them
    assert "errors of all rows: a x1." in repr(found)
    near = found.of(lambda m: m.log_prob(rows[:3], noise[:3])).standard_error
    np.testing.assert_allclose(found.log_prob(rows[:3], noise[:3]).standard_error, near, rtol=1e-3)


def test_a_gaussian_that_was_cut_has_the_textbooks_errors(monkeypatch):
    """A truncated normal distribution: the inverse of its information, by matrices and by conjugate gradients."""
    rng = np.random.default_rng(0)
    rows = rng.normal(1.0, 1.0, size=(8000, 1))
    rows = rows[rows[:, 0] > 0.5]
    fitted = xd.fit(rows, 1, selection=xd.Cut(0, above=0.5), tol=1e-4).mixture
    m, s = fitted.means[0, 0], fitted.covariances[0, 0, 0] ** 0.5

    def scores(m, s, h=1e-4):
        def each(m, s):
            return norm.logpdf(rows[:, 0], m, s) - norm.logsf(0.5, m, s)

        return np.stack([each(m + h, s) - each(m - h, s), each(m, s + h) - each(m, s - h)]) / (2 * h)

    H = -np.stack([(scores(m + 1e-3, s) - scores(m - 1e-3, s)).sum(1), (scores(m, s + 1e-3) - scores(m, s - 1e-3)).sum(
        1)]) / 2e-3  # fmt: skip
    J = scores(m, s) @ scores(m, s).T
    expected = np.sqrt(np.diag(np.linalg.solve(H, np.linalg.solve(H, J).T)))
    for most in (300, 0):
        monkeypatch.setattr(module, "DIFFERENCES", most)
        found = xd.errors(rows, fitted)
        mean, width = found.of(lambda m: m.means[0, 0]), found.of(lambda m: m.covariances[0, 0, 0] ** 0.5)
        np.testing.assert_allclose([mean.standard_error, width.standard_error], expected, rtol=1e-3)
        assert not found.notes
    assert expected[0] > 2 / len(rows) ** 0.5  # a cut takes most of what rows would tell


@pytest.mark.slow
def test_errors_of_selected_rows_are_those_of_refits_and_of_functions():
    noise = np.tile(NOISE**2, (3, 1))
    rows = TRUTH.sample(2400, seed=0, noise=noise)
    kept = rows[:, 1] > 0
    rows, noise = rows[kept], noise[kept]
    fitted = xd.fit(rows, noise=noise, mixture=TRUTH, selection=xd.Cut("b", above=0.0)).mixture
    found, drawn = xd.errors(rows, fitted, noise=noise), xd.bootstrap(rows, fitted, 60, noise=noise)
    assert np.log(found.means / drawn.standard_errors().means) == pytest.approx(0, abs=0.45)
    assert np.log(found.weights / drawn.standard_errors().weights) == pytest.approx(0, abs=0.45)
    drawn = xd.errors(rows, fitted, noise=noise, selection=lambda X: X[:, 1] > 0.0)
    np.testing.assert_allclose(drawn.means, found.means, rtol=0.05)


def test_one_gaussian_has_the_textbooks_errors_under_misfit_too():
    rng = np.random.default_rng(0)
    rows, weight = rng.uniform(-1.0, 3.0, size=(500, 1)), rng.uniform(0.1, 2.0, size=500)
    fitted = xd.fit(rows, 1, weight=weight).mixture
    away, share = rows[:, 0] - fitted.means[0, 0], weight / weight.sum()
    errors = xd.errors(rows, fitted, weight=weight)
    assert errors.means[0, 0] == pytest.approx(np.sqrt(np.sum((share * away) ** 2)), rel=1e-9)
    scatter = away**2 - fitted.covariances[0, 0, 0]
    assert errors.covariances[0, 0, 0] == pytest.approx(np.sqrt(np.sum((share * scatter) ** 2)), rel=1e-6)
    assert errors.weights[0] == 0


@pytest.mark.slow
def test_they_agree_with_the_bootstrap(mixture, found):
    drawn = xd.bootstrap(X, mixture, draws=100, noise=NOISE).standard_errors()
    for name in ("weights", "means", "covariances"):
        np.testing.assert_allclose(getattr(found, name), getattr(drawn, name), rtol=0.35)


def test_conjugate_gradients_find_what_the_matrix_does(mixture, found, monkeypatch):
    def ratio(weights, means, covariances):
        return torch.stack([weights[0] / weights[1], covariances[1, 0, 1]])

    points, grid = [[0.0, 0.0], [4.0, 1.0]], np.linspace(-6, 6, 5)
    exact = found.of(ratio, autograd=True), found.log_prob(points), found.marginal("a", grid)
    monkeypatch.setattr(module, "MATRIX", 3)
    solved = xd.errors(X, mixture, noise=NOISE)
    np.testing.assert_allclose(solved.of(ratio, autograd=True).standard_error, exact[0].standard_error, rtol=1e-3)
    np.testing.assert_allclose(solved.log_prob(points).standard_error, exact[1].standard_error, rtol=1e-3)
    np.testing.assert_allclose(solved.marginal("a", grid).quantiles, exact[2].quantiles, rtol=1e-3)
    assert solved.notes == ()
    with pytest.raises(ValueError, match="a mixture of 12 parameters: ask of"):
        solved.weights  # noqa: B018


def test_functions_by_differences_and_by_autograd_agree(found):
    by_autograd = found.of(lambda weights, means, V: (weights[:, None, None] * V).sum(0), autograd=True)
    by_differences = found.of(lambda m: np.einsum("k,kab->ab", m.weights, m.covariances))
    np.testing.assert_allclose(by_differences.value, by_autograd.value)
    np.testing.assert_allclose(by_differences.standard_error, by_autograd.standard_error, rtol=1e-5)
    np.testing.assert_allclose(found.of(lambda m: m.means).standard_error, found.means, rtol=1e-6)
    np.testing.assert_allclose(found.of(lambda m: m.covariances).standard_error, found.covariances, rtol=1e-5)
    log_prob = found.of(lambda m: m.log_prob([[1.0, 0.0]], noise=[[0.1, 0.1]]))
    here = found.log_prob([[1.0, 0.0]], noise=[[0.1, 0.1]])
    np.testing.assert_allclose(here.standard_error, log_prob.standard_error, rtol=1e-5)
    with pytest.raises(ValueError, match="must compute a torch tensor"):
        found.of(lambda weights, means, V: 1.0, autograd=True)


def test_a_conditional_density_has_the_error_of_a_quotient(found):
    band = found.conditional({"b": 0.5}, "a", [-4.0, 4.0], levels=(0.5, 0.8413447))
    expected = found.of(_given)
    np.testing.assert_allclose(np.log(band.quantiles[1] / band.density), expected.standard_error, rtol=1e-4)
    np.testing.assert_allclose(band.quantiles[0], band.density)
    with pytest.raises(ValueError, match="is among the values"):
        found.conditional({"a": 0.5}, "a", [0.0])
    with pytest.raises(ValueError, match="shape"):
        found.marginal("a", [[0.0]])


def _given(mixture):
    line = mixture.condition({"b": 0.5}, noise={"b": 0.0})
    return line.log_prob([[-4.0], [4.0]], noise=[0.0])


def test_held_parameters_have_no_error_and_the_prior_helps(mixture):
    held = xd.EM(fixed=xd.Fixed(means=[0], weights=True))
    fitted = xd.fit(X, noise=NOISE, mixture=mixture, method=held).mixture
    errors = xd.errors(X, fitted, noise=NOISE, method=held)
    assert (errors.weights == 0).all()
    assert (errors.means[0] == 0).all()
    assert (errors.means[1] > 0).all()
    strong = xd.EM(prior=xd.Prior(w=4000.0, c=4000.0))
    fitted = xd.fit(X, noise=NOISE, mixture=mixture, method=strong).mixture
    assert (xd.errors(X, fitted, noise=NOISE, method=strong).covariances < 0.01).all()


def test_units_do_not_matter(mixture, found):
    shift, scale = np.array([1e4, -3.0]), np.array([1e3, 1e-4])
    moved = xd.errors(shift + scale * X, mixture.transformed(shift, scale), noise=NOISE * scale**2)
    np.testing.assert_allclose(moved.means / scale, found.means, rtol=1e-6)
    np.testing.assert_allclose(moved.covariances / scale / scale[:, None], found.covariances, rtol=1e-6)


def test_a_file_that_is_streamed_gives_the_same(mixture, found, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"a": X[:, 0], "b": X[:, 1], "a_error": np.sqrt(NOISE[:, 0]), "b_error": np.sqrt(NOISE[:, 1])}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    source = xd.open(tmp_path / "rows.parquet", ["a", "b"], memory=False)
    streamed = xd.errors(source, mixture)
    np.testing.assert_allclose(streamed.means, found.means, rtol=1e-9)
    by_path = xd.errors(tmp_path / "rows.parquet", mixture)
    np.testing.assert_allclose(by_path.means, found.means, rtol=1e-9)
    by_name = xd.errors(tmp_path / "rows.parquet", mixture, columns=["a", "b"])
    np.testing.assert_allclose(by_name.covariances, found.covariances, rtol=1e-9)


def test_rows_of_a_file_have_the_weights_and_groups_of_the_fit(tmp_path):
    """By its name, and opened without a word of either: groups of a column follow; a path's weights do."""
    rng = np.random.default_rng(2)
    columns = {"a": X[:, 0], "b": X[:, 1], "a_error": NOISE[:, 0] ** 0.5, "b_error": NOISE[:, 1] ** 0.5,
               "G": rng.uniform(10, 20, 800), "w": rng.uniform(0.1, 3.0, 800)}  # fmt: skip
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), path)
    source = xd.open(path, ["a", "b"], weight="w")
    wider = xd.Inflation(by="G", bins=[15.0])
    fitted = xd.fit(source, mixture=TRUTH, inflation=wider).mixture
    by_path, opened = xd.errors(path, fitted), xd.errors(source, fitted)
    np.testing.assert_allclose(by_path.means, opened.means, rtol=1e-9)
    assert np.isfinite(opened.inflation[:2]).all()  # the third group, of rows without G, has none
    assert not any("below a maximum" in note for note in by_path.notes)
    assert xd.check(source, fitted).verdicts[0].rows == 800
    refits = [xd.bootstrap(data, fitted, draws=1).mixtures[0].means for data in (path, source)]
    np.testing.assert_allclose(*refits, rtol=1e-9)


def test_a_width_far_below_the_noise_is_named():
    noise = np.tile([0.04, 100.0], (600, 1))
    truth = xd.Mixture([1.0], [[0.0, 0.0]], [np.diag([1.0, 1.0])], labels=["wide", "thin"])
    rows = truth.sample(600, seed=3, noise=noise)
    errors = xd.errors(rows, xd.fit(rows, 1, noise=noise, labels=["wide", "thin"]).mixture, noise=noise)
    assert len(errors.notes) == 1
    assert errors.notes[0].startswith(
        "the rows leave undetermined the width of component 0 in thin (its relative error is"
    )
    assert errors.means[0, 0] == pytest.approx(np.sqrt(1.04 / 600), rel=0.1)
    assert "note: the rows leave" in repr(errors)


def test_a_side_that_is_narrow_in_no_coordinate_is_named():
    truth = xd.Mixture([1.0], [[0.0, 0.0]], [[[50.0, 49.5], [49.5, 50.0]]], labels=["a", "b"])
    rows = truth.sample(600, seed=3, noise=[16.0, 16.0])
    (note,) = xd.errors(rows, xd.fit(rows, mixture=truth, noise=[16.0, 16.0]).mixture, noise=[16.0, 16.0]).notes
    assert "component 0 across its narrowest side (" in note


def test_two_components_on_one_place_are_undetermined(caplog):
    rows = np.random.default_rng(0).normal(size=(300, 1))
    fitted = xd.fit(rows, 1).mixture
    twins = xd.Mixture([0.5, 0.5], np.repeat(fitted.means, 2, 0), np.repeat(fitted.covariances, 2, 0))
    errors = xd.errors(rows, twins)
    assert not np.isfinite(errors.weights).any()
    of_weights = [note for note in errors.notes if "the weight of component 0 (" in note]
    assert len(of_weights) == 1
    assert "of component 1 (" in of_weights[0]
    assert len(errors.notes) <= 4  # a line of each kind
    assert errors.of(lambda m: m.mean()[0]).standard_error == pytest.approx(rows.std() / np.sqrt(300), rel=1e-3)


def test_a_background_without_rows_is_named():
    """A weight at its bound has no error that the rows could tell: not an inf without a word."""
    box, rows = xd.Uniform([-30.0], [30.0]), np.random.default_rng(0).uniform(-1.7, 1.7, size=(400, 1))
    none = xd.fit(rows, 1, background=box).mixture
    assert none.background_weight < 1e-6
    errors = xd.errors(rows, none)
    assert [note for note in errors.notes if "the rows leave undetermined the weight of the background (" in note]
    seen = np.concatenate([rows, np.linspace(-30, 30, 80)[:, None]])
    errors = xd.errors(seen, xd.fit(seen, 1, background=box).mixture)
    assert not [note for note in errors.notes if "background" in note]


def test_a_mixture_that_is_not_a_maximum_is_said_to_be_none(mixture):
    wrong = xd.Mixture(mixture.weights, mixture.means + 0.3, mixture.covariances)
    (note,) = xd.errors(X, wrong, noise=NOISE).notes
    assert "nats below a maximum" in note


# Structures of covariances


WORDS = ["tied", "diagonal", "spherical", "low-rank:1"]


def of_structure(word, k=2, n=600):
    """Rows of one or two spheres with a common factor, in units of several sizes, and a fit of a structure to them."""
    rng, units = np.random.default_rng(7), np.array([1.0, 10.0, 0.1])
    centers = np.array([[-3.0, 0.0, 0.0], [3.0, 1.0, 1.0]])[rng.integers(0, k, n)]
    v = centers + rng.normal(size=(n, 1)) * [1.0, 0.8, -0.6] + rng.normal(size=(n, 3))
    noise = rng.uniform(0.05, 0.5, size=(n, 3))
    X = v + np.sqrt(noise) * rng.normal(size=(n, 3))
    X[rng.uniform(size=X.shape) < 0.05] = np.nan
    rows = {"noise": noise * units**2}
    return X * units, rows, xd.fit(X * units, k, covariance=word, tol=1e-6, **rows).mixture


@pytest.mark.parametrize("word", ["tied", "low-rank:2"])
def test_a_structure_that_leaves_all_covariances_has_the_errors_of_full_ones(word):
    """One covariance is tied with none; and two factors and own variances make any covariance in three dimensions."""
    X, rows, fitted = of_structure(word, k=1)
    found, full = xd.errors(X, fitted, **rows), xd.errors(X, fitted.with_(structure="full"), **rows)
    for name in ("means", "covariances"):
        np.testing.assert_allclose(getattr(found, name), getattr(full, name), rtol=1e-4)
    np.testing.assert_allclose(found.log_prob(X[1:5]).standard_error, full.log_prob(X[1:5]).standard_error, rtol=1e-4)
    assert not found.notes


def test_diagonal_and_spherical_covariances_have_the_textbooks_errors():
    """Without noise, of one Gaussian: variances by the scatter of squares, of a sphere by that of their sum."""
    X = np.random.default_rng(3).uniform(-1.0, 1.0, size=(400, 3)) * [1.0, 1.1, 0.9]
    away = (X - X.mean(0)) ** 2
    for word, squares in (("diagonal", away), ("spherical", away.mean(1, keepdims=True).repeat(3, 1))):
        found = xd.errors(X, xd.fit(X, 1, covariance=word, tol=1e-8).mixture)
        np.testing.assert_allclose(found.means[0], (away.mean(0) / 400) ** 0.5, rtol=1e-5)
        np.testing.assert_allclose(found.covariances[0], np.diag(squares.std(0) / 20), rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("word", WORDS)
def test_errors_of_functions_of_a_structure(word, monkeypatch):
    X, rows, fitted = of_structure(word)
    found = xd.errors(X, fitted, **rows)
    assert not found.notes
    assert np.isfinite(found.covariances).all()
    apart = ~np.isclose(fitted.covariances, 0, atol=1e-12)
    np.testing.assert_array_equal(found.covariances[~apart], 0)
    by_hand = found.of(lambda m: m.covariances).standard_error
    np.testing.assert_allclose(found.covariances, by_hand, rtol=1e-4, atol=1e-12)
    density = found.of(lambda m: m.log_prob(X[1:4], noise=rows["noise"][1:4])).standard_error
    np.testing.assert_allclose(found.log_prob(X[1:4], rows["noise"][1:4]).standard_error, density, rtol=1e-4)
    monkeypatch.setattr(module, "DIFFERENCES", 3)
    solved = xd.errors(X, fitted, **rows)
    np.testing.assert_allclose(solved.log_prob(X[1:4]).standard_error, found.log_prob(X[1:4]).standard_error, rtol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("word", WORDS)
def test_errors_of_a_structure_are_those_of_refits(word):
    X, rows, fitted = of_structure(word)
    found, refits = xd.errors(X, fitted, **rows), xd.bootstrap(X, fitted, 60, **rows).standard_errors()
    for name in ("weights", "means", "covariances"):
        ours, theirs = getattr(found, name), getattr(refits, name)
        assert np.log(ours[theirs > 0] / theirs[theirs > 0]) == pytest.approx(0, abs=0.5), name


def test_errors_with_a_structure_a_prior_and_what_is_held():
    X, rows, _ = of_structure("diagonal")
    method = xd.EM(prior=xd.Prior(w=0.5), fixed=xd.Fixed(means=[0], covariances=[1]))
    start = xd.fit(X, 2, covariance="diagonal", **rows).mixture
    fitted = xd.fit(X, mixture=start, covariance="diagonal", method=method, tol=1e-6, **rows).mixture
    found = xd.errors(X, fitted, method=method, **rows)
    assert not found.notes  # with the prior, and what is held, it is a maximum
    assert (found.means[0] == 0).all()
    assert (found.means[1] > 0).all()
    assert (found.covariances[1] == 0).all()
    assert (np.diag(found.covariances[0]) > 0).all()


def test_refusals_of_structures():
    X, rows, fitted = of_structure("tied")
    with pytest.raises(ValueError, match="covariances are tied and the method's diagonal"):
        xd.errors(X, fitted, method=xd.EM(covariance="diagonal"), **rows)
    with pytest.raises(ValueError, match="hold all of them or none"):
        xd.errors(X, fitted, method=xd.EM(fixed=xd.Fixed(covariances=[0])), **rows)


def test_refusals(mixture):
    with pytest.raises(ValueError, match=r"1 column.* and the mixture 2 dimensions"):
        xd.errors(X[:, :1], mixture)
    with pytest.raises(ValueError, match="method must be"):
        xd.errors(X, mixture, noise=NOISE, method="em")
    singular = xd.Mixture([1.0], [[0.0, 0.0]], [np.zeros((2, 2))])
    with pytest.raises(ValueError, match="component 0 has a singular covariance"):
        xd.errors(X, singular, noise=NOISE)
    held = xd.EM(fixed=xd.Fixed(covariances=True))
    assert xd.errors(X, singular, noise=NOISE, method=held).means.shape == (1, 2)


@pytest.mark.parametrize("value", [1e100, 1e200])
def test_a_row_beyond_all_bounds_is_said_and_not_a_failure_of_algebra(value):
    X = np.random.default_rng(0).normal(size=(200, 2))
    mixture = xd.fit(X, 1, error=[0.3, 0.3], epochs=5).mixture
    X[5, 0] = value
    with pytest.raises(ValueError, match="some rows lie so far from the mixture that sums over them overflow"):
        xd.errors(X, mixture, error=[0.3, 0.3])
