"""extreme_deconvolution(): the published iteration, its published examples, and what it must not do."""

import inspect

import numpy as np
import pytest

import xdeconv as xd
from compat.textbook import iterate
from problems import problem
from xdeconv.compat import extreme_deconvolution

CASES = {
    "full": (problem(n=60, k=3), {}),
    "variances": (problem(n=60, k=3, noise="diagonal", seed=1), {}),
    "p < d": (problem(n=60, k=2, d=3, p=2, projection="dense", seed=2), {}),
    "p = d": (problem(n=60, k=2, d=2, p=2, noise="diagonal", projection="dense", seed=3), {}),
    "p > d": (problem(n=60, k=2, d=2, p=3, projection="dense", seed=4), {}),
    "weights": (problem(n=60, k=3, weight=True, seed=5), {}),
    "w": (problem(n=60, k=3, seed=6), {"w": 0.7}),
    "w and weights": (problem(n=60, k=3, weight=True, seed=7), {"w": 0.7}),
    "all weights held": (problem(n=60, k=3, seed=8), {"fixamp": True}),
    "one of each held": (
        problem(n=60, k=3, seed=9),
        {"fixamp": [1, 0, 0], "fixmean": [0, 1, 0], "fixcovar": [0, 0, 1]},
    ),
    "means held": (problem(n=60, k=3, seed=10), {"fixmean": [True], "w": 0.2}),
}


def parameters(given):
    return given.weights.copy(), given.means.copy(), given.covariances.copy()


def held(options, k):
    named = (options.get(name) for name in ("fixamp", "fixmean", "fixcovar"))
    full = [np.broadcast_to([] if flags is None else flags, (0,) if flags is None else (k,)) for flags in named]
    return tuple(tuple(np.flatnonzero(flags)) for flags in full)


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_textbook_iteration(case):
    given, options = CASES[case]
    found = parameters(given)
    average = extreme_deconvolution(
        given.X, given.noise, *found, projection=given.projection, weight=given.weight, tol=0, maxiter=7, **options
    )
    expected, value = iterate(
        *parameters(given), given.X, given.noise, given.projection, given.weight, steps=7,
        w=options.get("w", 0.0), fixed=held(options, len(given.weights)),
    )  # fmt: skip
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8)
    assert average == pytest.approx(value, abs=1e-8)


def test_the_likelihood_is_that_of_what_is_returned():
    given = problem(n=80, k=3, weight=True, seed=11)
    found = parameters(given)
    average = extreme_deconvolution(given.X, given.noise, *found, weight=given.weight)
    before = parameters(given)
    again = extreme_deconvolution(given.X, given.noise, *found, weight=given.weight, likeonly=True)
    assert average == pytest.approx(again, abs=1e-12)
    mixture = xd.Mixture(*found)
    assert average == pytest.approx(given.weight @ mixture.log_prob(given.X, given.noise) / 80, abs=1e-10)
    assert not np.allclose(found[1], before[1])


def test_likeonly_changes_nothing():
    given = problem(n=40, seed=12)
    found = parameters(given)
    average = extreme_deconvolution(given.X, given.noise, *found, likeonly=True)
    assert all((ours == theirs).all() for ours, theirs in zip(found, parameters(given), strict=True))
    assert average == pytest.approx(iterate(*parameters(given), given.X, given.noise, None, steps=0)[1], abs=1e-10)


@pytest.mark.slow
def test_log_weights_lists_and_missing_values():
    given = problem(n=50, d=3, p=2, projection="dense", weight=True, seed=13)
    found, other = parameters(given), parameters(given)
    weight = given.weight + 0.1
    extreme_deconvolution(given.X, given.noise, *found, given.projection, weight, maxiter=5)
    extreme_deconvolution(
        given.X.tolist(), given.noise, *other, list(given.projection), np.log(weight), maxiter=5, logweight=True
    )
    np.testing.assert_allclose(found[1], other[1], atol=1e-12)
    X = given.X.copy()
    X[::3, 1] = np.nan
    assert np.isfinite(extreme_deconvolution(X, given.noise, *found, projection=given.projection))


def test_a_tolerance_stops_and_none_goes_on(tmp_path):
    given = problem(n=50, k=2, seed=14)
    steps = {}
    for tol in (0, 1e-2):
        extreme_deconvolution(
            given.X, given.noise, *parameters(given), tol=tol, maxiter=60, logfile=str(tmp_path / f"{tol}")
        )
        steps[tol] = len((tmp_path / f"{tol}_loglike.log").read_text().split()) - 1
    assert steps[0] == 60
    assert 1 < steps[1e-2] < 60


def test_logs(tmp_path):
    given = problem(n=50, k=2, seed=15)
    average = extreme_deconvolution(given.X, given.noise, *parameters(given), logfile=str(tmp_path / "run"))
    lines = (tmp_path / "run_loglike.log").read_text().splitlines()
    assert float(lines[-3]) == pytest.approx(average, abs=1e-9)
    values = np.array([float(line) for line in lines if line])
    assert (np.diff(values) > -1e-12).all()
    assert "# tol = 1e-06" in (tmp_path / "run_c.log").read_text()


def test_data_far_from_zero():
    rng = np.random.default_rng(0)
    found = np.ones(1), np.full((1, 1), 1e8), np.full((1, 1, 1), 9.0)
    extreme_deconvolution(1e8 + rng.normal(size=(2000, 1)), np.zeros((2000, 1)), *found)
    assert found[2][0, 0, 0] == pytest.approx(1.0, abs=0.1)


@pytest.mark.sampled
@pytest.mark.parametrize("options", [{"splitnmerge": 5}, {"maxsnm": True}])
def test_moves_find_what_em_misses(options):
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(m, 0.5, size=(150, 1)) for m in (-10.0, 0.0, 10.0)])
    noise = np.full((450, 1), 0.04)
    start = np.full(3, 1 / 3), np.array([[-10.5], [-9.5], [5.0]]), np.ones((3, 1, 1))
    plain, moved = (tuple(a.copy() for a in start) for _ in range(2))
    stuck = extreme_deconvolution(X, noise, *plain)
    better = extreme_deconvolution(X, noise, *moved, **options)
    assert better > stuck + 0.2
    np.testing.assert_allclose(np.sort(moved[1][:, 0]), [-10, 0, 10], atol=0.2)


def test_a_published_candidate_is_tried_by_em_on_all_rows():
    """Two clusters in one component and one in two: the first candidate mends it, which trials on a sample missed."""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 4.0]])
    error = rng.uniform(0.1, 0.5, size=(2000, 2))
    X = centres[rng.integers(0, 4, 2000)] + np.sqrt(0.36 + error**2) * rng.normal(size=(2000, 2))
    start = np.full(4, 0.25), np.array([[0.1, 0.0], [-0.9, 1.1], [4.0, 2.1], [0.0, 4.0]]), np.stack([np.eye(2)] * 4)
    plain, moved = (tuple(a.copy() for a in start) for _ in range(2))
    stuck = extreme_deconvolution(X, error**2, *plain)
    assert extreme_deconvolution(X, error**2, *moved, splitnmerge=1) > stuck + 0.2
    np.testing.assert_allclose(moved[1][np.lexsort(moved[1].round().T)], centres, atol=0.15)


@pytest.mark.slow
def test_moves_leave_what_is_held_alone():
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(m, 0.5, size=(150, 1)) for m in (-10.0, 0.0, 10.0)] + [rng.normal(29, 1, (150, 1))])
    noise = np.full((600, 1), 0.04)
    start = np.full(4, 1 / 4), np.array([[-10.5], [-9.5], [5.0], [29.0]]), np.ones((4, 1, 1))
    hold = {"fixmean": [0, 0, 0, 1], "fixcovar": [False, False, False, True]}
    plain, moved, few = (tuple(a.copy() for a in start) for _ in range(3))
    stuck = extreme_deconvolution(X, noise, *plain, **hold)
    better = extreme_deconvolution(X, noise, *moved, splitnmerge=4, **hold)
    assert better > stuck + 0.2
    np.testing.assert_allclose(np.sort(moved[1][:3, 0]), [-10, 0, 10], atol=0.2)
    assert (moved[1][3, 0], moved[2][3, 0, 0]) == (29.0, 1.0)
    assert extreme_deconvolution(X, noise, *few, splitnmerge=4, fixmean=[0, 0, 1, 1]) < better


def test_weights_in_a_column_and_long_lists():
    given = problem(n=60, k=3, weight=True, seed=5)
    found, other = parameters(given), parameters(given)
    extreme_deconvolution(given.X, given.noise, *found, weight=given.weight, fixmean=[True, False, True], maxiter=4)
    extreme_deconvolution(
        given.X, given.noise, *other, weight=given.weight[:, None], fixmean=[1, 0, 1, 0, 1], maxiter=4
    )
    for a, b in zip(found, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_logs_are_appended_to_with_parameters_and_criteria(tmp_path):
    given = problem(n=50, k=2, seed=15)
    first = parameters(given)
    average = extreme_deconvolution(given.X, given.noise, *first, maxiter=2, logfile=str(tmp_path / "run"))
    before = (tmp_path / "run_c.log").read_text()
    extreme_deconvolution(given.X, given.noise, *parameters(given), maxiter=3, logfile=str(tmp_path / "run"))
    text = (tmp_path / "run_c.log").read_text()
    assert text.startswith(before)
    assert text.count("# tol = 1e-06") == 2
    start = next(line for line in text.splitlines() if line.startswith("# start 0: weight "))
    assert float(start.split()[4].rstrip(";")) == pytest.approx(given.weights[0], abs=1e-11)
    end = next(line for line in text.splitlines() if line.startswith("# end 1: weight "))
    mean = [float(word) for word in end.split("mean ")[1].split(";")[0].split()]
    np.testing.assert_allclose(mean, first[1][1], rtol=1e-11)
    aic = next(float(line.split()[-1]) for line in text.splitlines() if line.startswith("# AIC"))
    assert aic == pytest.approx(2 * (2 * (1 + 3 + 6) - 1) - 2 * 50 * average)
    assert len((tmp_path / "run_loglike.log").read_text().split()) == 3 + 4


@pytest.mark.slow
@pytest.mark.parametrize("wide", [1.0, 1e3])
def test_a_start_far_wider_than_the_data_stays_a_covariance(wide):
    """Data of 1e-7 and a start of 1e3: 17 orders of magnitude, of which a step keeps 16."""
    rng = np.random.default_rng(77)
    for _ in range(40):
        X, noise = 1e-7 * rng.normal(size=(134, 2)), 1e-15 * rng.uniform(0.1, 1, size=(134, 2))
        B = rng.normal(size=(3, 2, 2))
        found = np.full(3, 1 / 3), X[:3].copy(), wide * B @ B.transpose(0, 2, 1)
        for _ in range(3):
            extreme_deconvolution(X, noise, *found, maxiter=1)
            assert np.linalg.eigvalsh(found[2]).min() >= 0
        extreme_deconvolution(X, noise, *found)
        pooled = np.einsum("k,kde->de", found[0], found[2])
        assert np.trace(pooled) < 4e-14


def test_an_indefinite_start_is_not_called_singular():
    found = np.ones(1), np.zeros((1, 2)), np.array([[[1.0, 2.0], [2.0, 1.0]]])
    with pytest.raises(ArithmeticError, match=r"step 1 met an indefinite xcovar of component 0 \(eigenvalue -1\)"):
        extreme_deconvolution(np.zeros((5, 2)), np.full((5, 2), 0.1), *found)


# Published examples


def test_two_gaussians_seen_one_axis_at_a_time():
    """The example in the docstring of the Python call: its data, its start (indefinite covariances), its result."""
    ydata = 1.0 + np.random.RandomState(1).normal(size=(200, 1))
    ycovar = np.full((200, 1), 0.01)
    projection = np.zeros((200, 1, 2))
    projection[::2, 0, 0] = projection[1::2, 0, 1] = 1.0
    xamp = np.ones(2) / 2
    xmean = np.array([[0.86447943, 0.322681], [0.67078879, 0.45087394]])
    xcovar = np.array([[[0.03821028, 0.04108113], [0.04014796, 0.03173839]],
                       [[0.06219194, 0.04302473], [0.09738021, 0.06778009]]])  # fmt: skip
    average = extreme_deconvolution(ydata, ycovar, xamp, xmean, xcovar, projection=projection)
    assert average == pytest.approx(-1.3114744655258121, abs=1e-4)
    np.testing.assert_allclose(xmean, [[2.30368235, 1.70701517], [1.08009397, 0.8888667]], atol=3e-3)
    np.testing.assert_allclose(xamp, [0.11968415, 0.880315852981], atol=3e-3)
    assert xcovar[0, 0, 0] == pytest.approx(0.445645987259, abs=3e-3)


# Sakai et al. (2000), ApJ 529, 698, table 2: log W20, its error, I magnitude, its error
TULLY_FISHER = np.array([
    [2.744, 0.028, -23.11, 0.18], [2.397, 0.074, -19.84, 0.18], [2.420, 0.049, -20.67, 0.28],
    [2.682, 0.035, -23.40, 0.12], [2.621, 0.041, -22.39, 0.08], [2.501, 0.035, -21.30, 0.11],
    [2.480, 0.059, -20.38, 0.28], [2.370, 0.049, -19.87, 0.13], [2.719, 0.034, -22.50, 0.17],
    [2.531, 0.032, -21.56, 0.08], [2.405, 0.048, -20.33, 0.14], [2.586, 0.047, -21.64, 0.09],
    [2.674, 0.036, -22.31, 0.11], [2.499, 0.035, -21.06, 0.12], [2.626, 0.026, -22.66, 0.18],
    [2.743, 0.039, -22.61, 0.11], [2.586, 0.038, -22.28, 0.08], [2.562, 0.030, -21.95, 0.13],
    [2.617, 0.046, -22.17, 0.23], [2.671, 0.026, -22.77, 0.09], [2.746, 0.021, -23.38, 0.11],
])  # fmt: skip


def test_the_tully_fisher_relation():
    """I = -9.26 (log W - 2.5) - 21.12, errors 0.57 and 0.07, in the example that comes with the C library."""
    ydata = TULLY_FISHER[:, [0, 2]].copy()
    ycovar = TULLY_FISHER[:, [1, 3], None] ** 2 * np.eye(2)
    projection = np.tile(np.eye(2), (21, 1, 1))
    xamp, xmean = np.ones(1), np.zeros((1, 2))
    xcovar = np.diag(np.ptp(ydata, axis=0) ** 2)[None].copy()
    extreme_deconvolution(ydata, ycovar, xamp, xmean, xcovar, projection=projection, tol=1e-5)
    axis = np.linalg.eigh(xcovar[0])[1][:, -1]
    slope = axis[1] / axis[0]
    assert slope == pytest.approx(-9.26, abs=0.006)
    assert slope * (2.5 - xmean[0, 0]) + xmean[0, 1] == pytest.approx(-21.12, abs=0.006)


# What is refused


def test_the_signature():
    names = ["ydata", "ycovar", "xamp", "xmean", "xcovar", "projection", "weight", "fixamp", "fixmean", "fixcovar",
             "tol", "maxiter", "w", "logfile", "splitnmerge", "maxsnm", "likeonly", "logweight"]  # fmt: skip
    found = inspect.signature(extreme_deconvolution).parameters
    assert list(found) == names
    assert found["tol"].default == 1e-6
    assert found["maxiter"].default == 10**9


def test_refusals():
    given = problem(n=10, k=3, seed=16)
    found = parameters(given)
    with pytest.raises(ValueError, match="xmean must be a NumPy array of floats"):
        extreme_deconvolution(given.X, given.noise, found[0], found[1].tolist(), found[2])
    with pytest.raises(ValueError, match=r"ycovar must have shape \(10, 3, 3\) or \(10, 3\)"):
        extreme_deconvolution(given.X, given.noise[:5], *found)
    with pytest.raises(ValueError, match="fixmean must be one truth value or 3, got 2"):
        extreme_deconvolution(given.X, given.noise, *found, fixmean=[True, False])
    with pytest.raises(ValueError, match="do not fit"):
        extreme_deconvolution(given.X, given.noise, found[0][:2].copy(), *found[1:])
    with pytest.raises(ArithmeticError, match="singular: give w > 0"):
        extreme_deconvolution(np.zeros((5, 2)), np.zeros((5, 2)), np.ones(1), np.zeros((1, 2)), np.zeros((1, 2, 2)))
