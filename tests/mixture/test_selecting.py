"""Selection functions: chances and their derivatives against integrals, drawn and in closed form, saved and asked."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

import xdeconv as xd
from xdeconv import kernels
from xdeconv.kernels.parameters import Parameters
from xdeconv.mixture.inflated import Inflated
from xdeconv.mixture.selections import drawing, nodes
from xdeconv.mixture.selections.contract import Population
from xdeconv.mixture.selections.given import parsed, resolved
from xdeconv.mixture.selections.intervals import box, share

V = np.array(
    [
        [[1.0, 0.3, -0.2], [0.3, 0.8, 0.1], [-0.2, 0.1, 0.6]],
        [[0.5, -0.1, 0.0], [-0.1, 1.2, 0.4], [0.0, 0.4, 2.0]],
    ]
)
MIXTURE = xd.Mixture([0.4, 0.6], [[0.0, 1.0, -1.0], [1.0, -1.0, 0.5]], V, labels=["x", "y", "z"])


def correlated(n, seed=0):
    A = np.random.default_rng(seed).normal(size=(n, 3, 3)) * 0.4
    return A @ A.transpose(0, 2, 1) + 0.05 * np.eye(3)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_what_lies_between_edges_and_its_derivatives(m):
    rng = np.random.default_rng(m)
    A = rng.normal(size=(4, m, m))
    T = torch.from_numpy(A @ A.transpose(0, 2, 1) + 0.3 * np.eye(m))
    low = torch.from_numpy(rng.normal(size=(4, m)) - 1)
    high = low + torch.from_numpy(rng.uniform(0.5, 3.0, size=(4, m)))
    low[0, 0], high[1, -1] = -torch.inf, torch.inf
    found = box(low, high, T)
    for i in range(4):
        ends = high[i].clamp(max=40).numpy(), low[i].clamp(min=-40).numpy()
        exact = multivariate_normal(np.zeros(m), T[i].numpy()).cdf(ends[0], lower_limit=ends[1])
        assert abs(float(found.value[i]) - exact) < (1e-10 if m < 3 else 1e-5)
    for a in range(m):
        step = torch.zeros(m, dtype=torch.float64)
        step[a] = 1e-4
        slope = (share(low - step, high - step, T) - share(low + step, high + step, T)) / 2e-4
        curvature = (box(low - step, high - step, T).slope - box(low + step, high + step, T).slope) / 2e-4
        torch.testing.assert_close(slope, found.slope[:, a], atol=1e-7, rtol=0)
        torch.testing.assert_close(curvature, found.curvature[:, a], atol=1e-7, rtol=0)


@pytest.mark.parametrize("apart", [0.3, 1e-2, 1e-4, 1e-7, 1e-10])
def test_what_lies_between_edges_of_a_thin_gaussian(apart):
    """A likelihood that loses it gains nats that are none: 200 of 60 rows, by a component that lay along their box."""
    r = 1 - apart
    sd = np.sqrt((1 - r) * (1 + r))
    low, high = np.array([[-1.0, 0.3], [0.5, 0.5], [1.0, -3.0], [-0.7, 0.2]]), np.array([1.5, 0.9])
    high = np.stack([high, low[1] + sd, high, [2.0, 0.2 + 3 * sd]])
    for sign in (1.0, -1.0):
        T = torch.tensor([[1.0, sign * r], [sign * r, 1.0]], dtype=torch.float64).expand(4, 2, 2)
        ends = (low, high) if sign > 0 else (np.c_[low[:, 0], -high[:, 1]], np.c_[high[:, 0], -low[:, 1]])
        found = share(*(torch.from_numpy(end) for end in ends), T)
        for i in range(len(low)):
            edges = np.array([low[i, 1], high[i, 1]]) / r
            steps = (edges[:, None] + sd / r * np.array([-9.0, -4.0, -1.0, 0.0, 1.0, 4.0, 9.0])).ravel()
            known = np.unique(np.r_[low[i, 0], high[i, 0], steps.clip(low[i, 0], high[i, 0])])
            t, w = np.polynomial.legendre.leggauss(60)
            at = known[:-1, None] + np.diff(known)[:, None] * (t + 1) / 2
            inside = norm.cdf((high[i, 1] - r * at) / sd) - norm.cdf((low[i, 1] - r * at) / sd)
            exact = float(((norm.pdf(at) * inside) @ w @ np.diff(known)) / 2)
            assert abs(float(found[i]) - exact) < 1e-13


CUTS = {
    "one": [xd.Cut("x", above=0.5)],
    "errors": [xd.Cut("x_over_error", above=1.0)],
    "two": [xd.Cut("x", above=-0.5), xd.Cut("y_over_error", below=2.0)],
    "box": [xd.Cut("x", above=-1, below=2), xd.Cut("z", above=-1.5, below=1.0), xd.Cut("y", below=2.0)],
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("beside", [None, "mixture", "uniform"])
def test_sums_are_derivatives_of_the_likelihood_given_selection(name, beside):
    """q - rows alpha, g and G / 2 are the derivatives by logits, means and covariances."""
    if beside == "uniform" and name != "one":
        pytest.skip("not in closed form with correlated errors")
    wide = MIXTURE.transformed(np.ones(3), np.full(3, 2.0))
    background = {"mixture": wide, "uniform": xd.Uniform([-5] * 3, [5] * 3)}.get(beside)
    n, b = 40, 0.0 if background is None else 0.2
    noise = correlated(n)
    x = MIXTURE.with_(selection=CUTS[name]).sample(n, 1, noise=noise, selected=True)
    weight = np.random.default_rng(2).uniform(0.5, 2.0, size=n)
    batch = xd.Batch.from_arrays(x, noise, weight=weight)
    if background is not None:
        batch = xd.Batch(batch.x, batch.noise, weight=batch.weight, background=background.log_density(batch))
    cuts = resolved(CUTS[name], MIXTURE.labels, 3)

    def loglik(logits, means, covariances):
        log_weights = torch.log_softmax(torch.cat([logits, torch.zeros(1)]), 0)[:2]
        scaled = log_weights - log_weights.exp().sum().log() + np.log(1 - b)
        population = Population(Parameters(scaled, means, covariances), background)
        logs = kernels.log_prob(*population.parameters, batch) - cuts.log_chance(population, batch)
        return float(batch.weight @ logs), population

    at = (torch.tensor(MIXTURE.weights).log(), torch.tensor(MIXTURE.means), torch.tensor(MIXTURE.covariances))
    value, population = loglik(*at)
    stats = cuts.corrected(kernels.accumulate(*population.parameters, batch), population, batch)
    assert abs(float(stats.loglik) - value) < 1e-9
    assert abs(float(stats.seen) - weight.sum()) < 1e-9
    assert float(stats.rows) > weight.sum()
    share_ = population.parameters.log_weights.exp() / (1 - b)
    on_logits = stats.q - stats.q.sum() * share_
    for which, derivative in enumerate((on_logits, stats.g, stats.G / 2)):
        for index in np.ndindex(*at[which].shape):
            step = 1e-4
            moved = [[t.clone() for t in at] for _ in range(2)]
            for sign, one in zip((1, -1), moved, strict=True):
                one[which][index] += sign * step / 2
                if which == 2 and index[1] != index[2]:
                    one[2][index[0], index[2], index[1]] += sign * step / 2
            slope = (loglik(*moved[0])[0] - loglik(*moved[1])[0]) / step
            exact = float(derivative[index]) * (2 if which == 2 and index[1] != index[2] else 1)
            assert abs(slope - exact) < 1e-4 * (1 + abs(exact)), (which, index)


def test_a_uniform_background_is_selected_too():
    field = xd.Uniform([0.0, 0.0], [10.0, 4.0])
    cuts = [xd.Cut(0, above=3.0), xd.Cut(1, below=2.5)]
    one = xd.Mixture([1.0], [[5.0, 2.0]], [np.eye(2)], background=field, background_weight=0.4)
    mixture = one.with_(selection=cuts)
    error = np.array([[0.8, 0.3], [0.0, 0.0]])
    drawn = [mixture.sample(400_000, 3, error=e) for e in error]
    exact = [np.mean((x[:, 0] > 3.0) & (x[:, 1] < 2.5)) for x in drawn]
    np.testing.assert_allclose(mixture.kept_probability(np.full((2, 2), 4.0), error=error), exact, atol=0.003)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["errors", "two"])
def test_drawn_chances_are_those_of_the_closed_form(name):
    """With noise of every row's own, gaps of a coordinate that is not cut, a background, and weights."""
    n = 3000
    rng = np.random.default_rng(0)
    error = np.exp(rng.uniform(np.log(0.1), np.log(1.0), size=(n, 3)))
    mixture = MIXTURE.with_(background=xd.Uniform([-5] * 3, [5] * 3), background_weight=0.3, selection=CUTS[name])
    X = mixture.sample(n, 1, error=error, selected=True)
    X[:500, 2] = np.nan

    def omega(X, error):
        inside = {"errors": X[:, 0] > error[:, 0], "two": (X[:, 0] > -0.5) & (X[:, 1] < 2 * error[:, 1])}
        return inside[name]

    closed = mixture.kept_probability(X, error=error)
    drawn = mixture.kept_probability(X, error=error, selection=omega)
    assert np.abs(drawn / closed - 1).mean() < 0.015
    assert abs(np.log(drawn / closed).mean()) < 0.003  # rows share draws: what each lacks, others have
    batch = mixture.batch(X, error=error)
    population = mixture.population()
    exact = mixture.selection.kept(population, batch)
    found = xd.Completeness(omega).around(population, 64, 0).kept(population, batch)
    scale = float(exact.q.sum())
    for a, b in zip(found[2:], exact[2:], strict=True):
        assert float((a - b).abs().max()) < 0.003 * scale


def test_draws_of_a_row_are_from_everywhere():
    """Every n-th of an even sequence lies in one corner: chances were off by 10 %, and by more the more draws."""
    mixture = xd.Mixture([0.6, 0.4], [[0.0], [3.0]], [[[1.0]], [[0.5]]], selection=xd.Cut(0, above=0.5))
    error = np.exp(np.random.default_rng(0).uniform(np.log(0.2), 0.0, size=(1000, 1)))
    X = mixture.sample(1000, 1, error=error, selected=True)
    chances = xd.Completeness(lambda X, error: X[:, 0] > 0.5).around(mixture.population(), 256, 0)
    drawn = chances.log_chance(mixture.population(), mixture.batch(X, error=error)).exp().numpy()
    assert np.abs(drawn / mixture.kept_probability(X, error=error) - 1).max() < 0.03


@pytest.mark.parametrize("alike", [True, False])
def test_chances_of_what_is_hardly_ever_kept(alike):
    """Draws are of where the rows are, too: those of the population alone gave 1e-300 for 2e-10."""
    rng = np.random.default_rng(0)
    X = np.column_stack([7 + rng.exponential(0.15, size=100), rng.normal(size=100)])
    error = [0.5, 0.5] if alike else rng.uniform(0.4, 0.6, size=(100, 2))
    mixture = xd.Mixture([1.0], [[0.0, 0.0]], [np.eye(2)], selection=xd.Cut(0, above=7.0))
    drawn = mixture.kept_probability(X, error=error, selection=lambda X: X[:, 0] > 7.0)
    assert np.abs(np.log(drawn / mixture.kept_probability(X, error=error))).max() < (0.01 if alike else 0.3)


@pytest.mark.parametrize("noisy", [True, False])
def test_sums_over_nodes_are_those_of_the_kernels(noisy, monkeypatch):
    """In several pieces, of nodes with and without noise."""
    monkeypatch.setattr(nodes, "NUMBERS", 100)
    rng = np.random.default_rng(3)
    X, factor = rng.normal(size=(50, 3)), torch.from_numpy(rng.normal(size=50))
    batch = xd.Batch.from_arrays(X, correlated(1, seed=2) if noisy else None)
    parameters = MIXTURE.scaled()
    parts = (kernels.log_prob(*parameters, batch) + factor).exp()
    sums = kernels.accumulate(*parameters, replace(batch, weight=parts))
    found = nodes.integrals(parameters, batch, factor)
    for a, b in zip(found, (parts, sums.q, sums.g, sums.G), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("beside", [None, xd.Uniform([-5.0] * 3, [5.0] * 3)])
def test_draws_are_summed_alike_for_few_components_and_for_many(beside, monkeypatch):
    """By products of matrices, and by two looks of the kernels; so is what draws are worth."""
    mixture = MIXTURE if beside is None else MIXTURE.with_(background=beside, background_weight=0.3)
    batch = xd.Batch.from_arrays(mixture.sample(100, 1), error=[0.3] * 3)
    moved = mixture.with_(means=mixture.means + 0.3).population()
    found = []
    for large in (0, 1000):
        monkeypatch.setattr(drawing, "LARGE", large)
        drawn = xd.Completeness(lambda X: X[:, 0] > 0).around(mixture.population(), 8, 0)
        found.append((*drawn.kept(moved, batch), torch.tensor(drawn.worth(moved, batch))))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-7)
    assert 0.1 < float(found[0][-1]) < 0.99


def test_a_covariance_that_has_failed_is_nan_in_sums_over_nodes():
    bad = MIXTURE.scaled()._replace(covariances=torch.from_numpy(-V))
    found = nodes.integrals(bad, xd.Batch.from_arrays(np.zeros((4, 3))), torch.zeros(4, dtype=torch.float64))
    assert all(bool(part.isnan().all()) for part in found)


def test_noise_that_depends_on_the_true_value():
    """Faint rows are noisy: the chance to be kept is that of the whole population, which is integrated here."""
    mixture = xd.Mixture([1.0], [[1.0]], [[[1.0]]])
    selection = xd.Completeness(lambda X, error: X[:, 0] > 3 * error[:, 0], noise=lambda v: 0.01 + 0.1 * np.abs(v))
    v = np.linspace(-6, 8, 20001)
    sd = np.sqrt(0.01 + 0.1 * np.abs(v))
    exact = np.sum(norm.pdf(v, 1, 1) * norm.sf((3 * sd - v) / sd)) * (v[1] - v[0])
    np.testing.assert_allclose(mixture.kept_probability([[2.0], [3.0]], selection=selection), exact, rtol=2e-3)


@pytest.mark.slow
def test_score_is_a_density_of_what_was_kept():
    mixture = xd.Mixture([1.0], [[1.0]], [[[1.0]]], selection=xd.Cut(0, above=0.5))
    x = np.linspace(0.5, 8, 4001)
    density = [np.exp(mixture.score([[value]], error=[0.5])) for value in x[::40]]
    assert abs(np.sum(density) * 40 * (x[1] - x[0]) - 1) < 0.05
    smooth = mixture.with_(selection=lambda X: 1 / (1 + np.exp(-X[:, 0])))
    x = np.linspace(-5, 8, 101)
    density = [np.exp(smooth.score([[value]], error=[0.5])) for value in x]
    assert abs(np.sum(density) * (x[1] - x[0]) - 1) < 0.01


@pytest.mark.slow
def test_draws_of_what_a_survey_sees():
    mixture = xd.Mixture([1.0], [[1.0]], [[[1.0]]], labels=["x"], selection=xd.Cut("x_over_error", above=2))
    error = np.random.default_rng(0).uniform(0.2, 1.0, size=(5000, 1))
    rows = mixture.sample(5000, 1, error=error, selected=True)
    assert (rows > 2 * error).all()
    assert rows.mean() > 1.5
    with pytest.raises(ValueError, match="give error= or noise="):
        mixture.sample(10, selected=True)
    with pytest.raises(ValueError, match="no selection"):
        mixture.with_(selection=None).sample(10, selected=True)
    with pytest.raises(ValueError, match="row 0 was not kept"):
        xd.Mixture([1.0], [[0.0]], [[[1.0]]], selection=xd.Cut(0, above=30.0)).sample(1, 0, selected=True)


def test_files_hold_cuts_and_say_that_there_was_a_function(tmp_path):
    X = np.array([[1.0, 2.0, 3.0]])
    cut = MIXTURE.with_(selection=CUTS["two"])
    cut.save(tmp_path / "cut.safetensors")
    again = xd.load(tmp_path / "cut.safetensors")
    assert again.selection == cut.selection
    assert again.score(X, error=[1.0] * 3) == cut.score(X, error=[1.0] * 3)
    MIXTURE.with_(selection=lambda X: X[:, 0] > 0).save(tmp_path / "function.safetensors")
    lost = xd.load(tmp_path / "function.safetensors")
    lost.log_prob(X)
    with pytest.raises(ValueError, match="give selection= again"):
        lost.score(X)
    assert np.isfinite(lost.score(X, selection=lambda X: X[:, 0] > 0))


def test_marginals_have_no_selection_and_units_change_it():
    cut = MIXTURE.with_(selection=CUTS["two"])
    assert cut.marginal(["x"]).selection is None
    moved = cut.transformed(np.array([1.0, 2.0, 3.0]), np.array([2.0, -3.0, 1.0]))
    X = np.array([[0.3, 1.0, 0.2]])
    there = np.array([1.0, 2.0, 3.0]) + np.array([2.0, -3.0, 1.0]) * X
    error = np.array([[0.4, 0.7, 0.2]])
    old, new = cut.kept_probability(X, error=error), moved.kept_probability(there, error=error * [2, 3, 1])
    np.testing.assert_allclose(new, old, rtol=1e-12)


def test_factors_on_errors_and_a_selection_are_refused_together():
    """Edges over errors are those of the errors as quoted, and rows scatter by others: nothing knows both."""
    inflated = MIXTURE.with_(inflation=Inflated(((2.0, 2.0, 2.0),), (0, 1, 2)))
    X, error = np.zeros((1, 3)), np.full((1, 3), 0.5)
    for ask in (inflated.score, inflated.kept_probability):
        with pytest.raises(ValueError, match="factors on errors has no selection"):
            ask(X, error=error, selection=CUTS["one"])
    with pytest.raises(ValueError, match="factors on errors has no selection"):
        inflated.with_(selection=CUTS["one"])


WRONG = {
    "cuts nothing": lambda: xd.Cut("x"),
    "keeps nothing": lambda: xd.Cut("x", above=2, below=1),
    "finite number": lambda: xd.Cut("x", above=np.nan),
    "label or the index": lambda: xd.Cut(1.5, above=1),
    "'g', and the columns are": lambda: MIXTURE.with_(selection=xd.Cut("g", above=1)),
    "column 3 and the data have 3": lambda: MIXTURE.with_(selection=xd.Cut(3, above=1)),
    "selection must be": lambda: MIXTURE.with_(selection="x > 5"),
    "is not NAME > NUMBER": lambda: parsed("x > y"),
    "must be a function": lambda: xd.Completeness(3),
}


@pytest.mark.parametrize("text", WRONG)
def test_bad_selections_are_refused(text):
    with pytest.raises(ValueError, match=text):
        WRONG[text]()


def test_conditions_are_cuts():
    assert parsed("x >= 1 and y<2") == [xd.Cut("x", above=1.0), xd.Cut("y", below=2.0)]
