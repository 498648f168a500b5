"""Error bands: known standard errors, matching, coverage, determinism, interrupts."""

import numpy as np
import pytest

import xdeconv as xd
from xdeconv.fitting._fit import fit
from xdeconv.mixture._mixture import Mixture
from xdeconv.rows.batch import Batch
from xdeconv.studies._bootstrap import Bootstrap, bootstrap
from xdeconv.studies.matching import matched

TRUTH = Mixture(
    [0.5, 0.3, 0.2], [[-6.0, 0.0], [6.0, 0.0], [0.0, 8.0]], [np.eye(2), np.diag([2.0, 0.5]), np.eye(2)],
    labels=["a", "b"],
)  # fmt: skip
NOISE = np.random.default_rng(1).uniform(0.1, 1.0, size=(600, 2))
X = TRUTH.sample(600, seed=0, noise=NOISE)


@pytest.fixture(scope="module")
def found():
    mixture = fit(X, noise=NOISE, mixture=TRUTH).mixture
    return bootstrap(X, mixture, draws=60, noise=NOISE, tol=1e-4)


@pytest.mark.slow
def test_the_standard_error_of_a_mean_is_the_textbooks():
    rows = np.random.default_rng(0).normal(3.0, 2.0, size=(500, 1))
    found = bootstrap(rows, fit(rows, 1).mixture, draws=200, epochs=2).standard_errors()
    assert found.means[0, 0] == pytest.approx(rows.std() / np.sqrt(500), rel=0.15)
    assert found.covariances[0, 0, 0] == pytest.approx(((rows - rows.mean()) ** 2).std() / np.sqrt(500), rel=0.15)
    assert found.weights[0] == 0


@pytest.mark.slow
def test_the_standard_error_with_weights_is_the_weighted_ones():
    rng = np.random.default_rng(0)
    rows, weight = rng.normal(size=(500, 1)), rng.uniform(0.1, 2.0, size=500)
    start = fit(rows, 1, weight=weight).mixture
    found = bootstrap(rows, start, draws=200, epochs=2, weight=weight).standard_errors()
    mean = np.average(rows[:, 0], weights=weight)
    expected = np.sqrt(np.sum((weight * (rows[:, 0] - mean)) ** 2)) / weight.sum()
    assert found.means[0, 0] == pytest.approx(expected, rel=0.15)


@pytest.mark.slow
def test_shapes_and_sizes(found):
    assert found.weights.shape == (60, 3)
    assert found.means.shape == (60, 3, 2)
    assert found.covariances.shape == (60, 3, 2, 2)
    assert found.mixtures[0].labels == ("a", "b")
    errors = found.standard_errors()
    np.testing.assert_allclose(errors.weights, np.sqrt(TRUTH.weights * (1 - TRUTH.weights) / 600), rtol=0.35)
    assert (errors.means < 0.3).all()


@pytest.mark.slow
def test_bands_cover_the_truth(found):
    grid = np.linspace(-9, 9, 60)
    band = found.marginal("a", grid, levels=(0.025, 0.975))
    truth = np.exp(TRUTH.marginal(["a"]).log_prob(grid[:, None]))
    inside = (band.quantiles[0] <= truth) & (truth <= band.quantiles[1])
    assert inside[truth > 1e-3].mean() > 0.7
    np.testing.assert_allclose(band.density, np.exp(found.mixture.marginal(["a"]).log_prob(grid[:, None], [0.0])))
    near = (band.quantiles[0] <= band.density) & (band.density <= band.quantiles[1])
    assert near[truth > 1e-3].mean() > 0.9


@pytest.mark.slow
def test_conditional_bands(found):
    grid = np.linspace(-3, 12, 40)
    band = found.conditional({"a": 0.0}, "b", grid, error={"a": 0.5})
    expected = np.exp(found.mixture.condition({"a": 0.0}, error={"a": 0.5}).log_prob(grid[:, None], [0.0]))
    np.testing.assert_allclose(band.density, expected)
    assert band.quantiles.shape == (2, 40)
    by_index = found.conditional({0: 0.0}, 1, grid, error={0: 0.5})
    np.testing.assert_array_equal(by_index.quantiles, band.quantiles)
    with pytest.raises(ValueError, match="among the values"):
        found.conditional({"a": 0.0}, "a", grid)


@pytest.mark.slow
def test_scores_of_all_draws(found):
    scores = found.score(X, noise=NOISE)
    assert scores.shape == (60,)
    best = found.mixture.score(X, NOISE)
    assert best - 0.1 < scores.min()
    assert scores.max() <= best + 1e-4


@pytest.mark.slow
def test_draws_depend_on_the_seed_and_their_number_alone(found):
    few = bootstrap(X, found.mixture, draws=2, noise=NOISE, tol=1e-4)
    np.testing.assert_array_equal(few.means, found.means[:2])
    other = bootstrap(X, found.mixture, draws=1, seed=1, noise=NOISE, tol=1e-4)
    assert (other.means != found.means[:1]).all()


# Matching


def test_matching_undoes_a_permutation():
    rng = np.random.default_rng(0)
    order = rng.permutation(3)
    shuffled = Mixture(TRUTH.weights[order], TRUTH.means[order] + 0.1, TRUTH.covariances[order] * 1.2)
    np.testing.assert_allclose(matched(shuffled, TRUTH).means, TRUTH.means + 0.1)
    np.testing.assert_array_equal(matched(shuffled, TRUTH).weights, TRUTH.weights)


def test_matching_tells_same_centres_apart_by_their_widths():
    a = Mixture([0.5, 0.5], np.zeros((2, 1)), [[[1.0]], [[9.0]]])
    b = Mixture([0.1, 0.9], np.zeros((2, 1)), [[[8.0]], [[1.1]]])
    np.testing.assert_array_equal(matched(b, a).weights, [0.9, 0.1])


@pytest.mark.slow
def test_widths_that_noise_hides_do_not_change_the_places_of_components():
    """Two components of one centre, told apart by x; of three coordinates that all are noise the widths are chance."""
    rng = np.random.default_rng(0)
    n, inner = 2000, rng.uniform(size=2000) < 0.75
    error = np.hstack([np.full((n, 1), 1e-3), np.array([0.5, 0.2, 0.2]) * rng.uniform(0.5, 1.5, (n, 3))])
    X = rng.normal(size=(n, 4)) * error
    X[:, 0] += rng.normal(size=n) * np.where(inner, 0.03, 0.09)
    mixture = xd.fit(X, 2, error=error).mixture
    errors = bootstrap(X, mixture, draws=8, error=error).standard_errors()
    assert errors.weights.max() < 0.06  # 0.249 where some draws had theirs exchanged


# Interrupts, refusals, pictures


def test_an_interrupt_returns_the_draws_so_far():
    calls = []

    def stop(record):
        calls.append(record)
        if len(calls) == 5:
            raise KeyboardInterrupt

    found = bootstrap(X, TRUTH, draws=9, noise=NOISE, epochs=2, tol=0.0, callback=stop)
    assert found.interrupted
    assert len(found.mixtures) == 2


@pytest.mark.slow
def test_refusals(found):
    with pytest.raises(ValueError, match="draws must be"):
        bootstrap(X, TRUTH, draws=0, noise=NOISE)
    with pytest.raises(ValueError, match="components cannot be given"):
        bootstrap(X, TRUTH, noise=NOISE, components=3)
    with pytest.raises(ValueError, match="carries its own noise"):
        bootstrap(Batch.from_arrays(X, NOISE), TRUTH, noise=NOISE)
    with pytest.raises(ValueError, match="grid must be"):
        found.marginal("a", [[0.0]])
    with pytest.raises(ValueError, match="levels are probabilities"):
        found.marginal("a", [0.0], levels=(16, 84))
    with pytest.raises(ValueError, match="at least 2 draws"):
        Bootstrap(TRUTH, (TRUTH,)).standard_errors()


@pytest.mark.slow
def test_a_band_is_drawn(found):
    pytest.importorskip("matplotlib")
    ax = found.marginal("a", np.linspace(-9, 9, 20)).plot()
    assert len(ax.lines) == len(ax.collections) == 1


@pytest.mark.slow
def test_what_draws_leave_undetermined_is_named_and_draws_that_stop_early_are_counted(caplog):
    noise = np.tile([0.04, 100.0], (600, 1))
    truth = xd.Mixture([1.0], [[0.0, 0.0]], [np.diag([1.0, 1.0])], labels=["wide", "thin"])
    rows = truth.sample(600, seed=3, noise=noise)
    fitted = xd.fit(rows, 1, noise=noise, labels=["wide", "thin"]).mixture
    (note,) = xd.bootstrap(rows, fitted, 20, noise=noise).notes
    assert note.startswith("the rows leave undetermined the width of component 0 in thin (")
    assert note in caplog.text
    assert xd.bootstrap(rows, fitted, 3, noise=noise, epochs=1).notes[0].startswith("3 of 3 draws have not converged")


def test_what_the_fit_held_fixed_stays_so_in_refits_and_has_no_error(tmp_path):
    """A fit with a mean held had refits in which it moved, and an error as if it were free."""
    fixed = xd.Fixed(means=[True, False, False], weights=True)
    mixture = fit(X, noise=NOISE, mixture=TRUTH, method=xd.EM(fixed=fixed)).mixture
    mixture.save(tmp_path / "model.safetensors")
    mixture = xd.load(tmp_path / "model.safetensors")
    refits = bootstrap(X, mixture, draws=3, noise=NOISE).standard_errors()
    for errors in (refits, xd.errors(X, mixture, noise=NOISE)):
        assert (errors.means[0] < 1e-12).all()  # rounding of the frame
        assert (errors.means[1:] > 1e-3).all()
        assert (errors.weights < 1e-12).all()
    free = bootstrap(X, mixture, draws=3, noise=NOISE, method=xd.EM()).standard_errors()
    assert (free.means > 0).all()
    assert (bootstrap(X, mixture.with_(meta={}), draws=2, noise=NOISE).standard_errors().means > 0).all()


def test_bands_of_errors_say_what_they_are():
    axes = xd.errors(X, fit(X, noise=NOISE, mixture=TRUTH).mixture, noise=NOISE).plot()
    names = [text.get_text() for text in axes[0].figure.legends[0].get_texts()]
    assert sorted(names) == ["95 %, by standard errors", "true density"]
