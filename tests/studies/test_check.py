"""Checks of errors and models: right ones pass, wrong ones are named with their factor."""

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import kstest

import xdeconv as xd

TRUTH = xd.Mixture(
    [0.6, 0.4], [[-2.0, 0.0], [2.0, 1.0]], [[[0.5, 0.1], [0.1, 1.0]], np.diag([0.3, 0.5])], labels=["a", "b"]
)
N = 4000
NOISE = np.random.default_rng(1).uniform(0.1, 2.0, size=(N, 2)) ** 2
X = TRUTH.sample(N, seed=0, noise=NOISE)


def texts(rows, mixture=TRUTH, **given):
    return {verdict.coordinate: verdict.text for verdict in xd.check(rows, mixture, **given).verdicts}


def test_right_errors_and_a_right_model_pass():
    found = xd.check(X, TRUTH, noise=NOISE)
    assert [v.text for v in found.verdicts] == ["errors and model are right"] * 2
    for verdict in found.verdicts:
        assert verdict.p_value > 0.01
        assert verdict.rows == N
        assert abs(verdict.errors.factor - 1) < 4 * verdict.errors.standard_error
        assert [group.rows for group in verdict.groups] == [N // 5] * 5


@pytest.mark.filterwarnings("error")
def test_rows_with_errors_are_not_said_to_have_none():
    rng = np.random.default_rng(0)
    exact = np.stack([rng.normal(size=400), rng.normal(size=400)], axis=1)
    error = np.stack([rng.uniform(0.1, 2, 400), rng.uniform(0.1, 2, 400)], axis=1)  # rows that were never scattered
    fitted = xd.fit(exact, 2, error=error, labels=["a", "b"]).mixture
    assert texts(exact, fitted, error=error)["a"].startswith("rows are spread more narrowly")


@pytest.mark.slow
def test_p_values_are_uniform_over_data_sets():
    seeds, low = range(60), []
    for seed in seeds:
        rows = TRUTH.sample(400, seed=seed + 10, noise=NOISE[:400])
        found = xd.check(rows, TRUTH, noise=NOISE[:400])
        low += [p < 0.1 for v in found.verdicts for p in (v.p_value, v.errors.p_value, v.widths.p_value)]
    assert 0.04 < np.mean(low) < 0.17


@pytest.mark.parametrize(("factor", "said"), [(1.5, "too small by about a factor of 1.5"), (0.7, "too large")])
def test_wrong_errors_of_one_coordinate_are_named(factor, said):
    wrong = NOISE / [1.0, factor**2]
    found = texts(X, noise=wrong)
    assert found["a"] == "errors and model are right"
    assert said in found["b"]


@pytest.mark.parametrize(("factor", "said"), [(0.8, "the model is too narrow"), (1.3, "the model is too wide")])
def test_a_wrong_model_is_named(factor, said):
    wrong = xd.Mixture(TRUTH.weights, TRUTH.means, factor**2 * TRUTH.covariances, labels=["a", "b"])
    for text in texts(X, wrong, noise=NOISE).values():
        assert said in text
        assert "errors" not in text


def test_a_fit_with_wrong_errors_does_not_hide_them():
    wrong = NOISE / 1.44
    fitted = xd.fit(X, 2, noise=wrong, labels=["a", "b"]).mixture
    for text in texts(X, fitted, noise=wrong).values():
        assert "errors are too small" in text


def test_shifted_rows_and_rows_of_some_column():
    assert texts(X + np.array([0.3, 0.0]), noise=NOISE)["a"] == "the model is off in place or shape"
    magnitude = np.random.default_rng(2).uniform(10, 20, N)
    rows = X.copy()
    bad = magnitude > 18
    rows[bad, 1] += np.random.default_rng(3).normal(0, 1.5, bad.sum())
    found = xd.check(rows, TRUTH, by={"G": magnitude}, bins=5, noise=NOISE)
    groups = [group for group in found.verdicts[1].groups if group.quantity == "G"]
    assert groups[-1].p_value < 1e-6
    assert groups[-1].sd > 1.1
    assert min(group.p_value for group in groups[:3]) > 1e-3
    assert "G 18" in repr(found) or "G 17.9" in repr(found)


def test_gaps_projections_and_rows_without_errors():
    gaps = X.copy()
    gaps[::3, 1] = np.nan
    assert [v.rows for v in xd.check(gaps, TRUTH, noise=NOISE).verdicts] == [N, N - len(X[::3])]
    R = np.random.default_rng(0).normal(size=(N, 1, 2))
    seen = TRUTH.sample(N, seed=5, noise=NOISE[:, :1], projection=R)
    assert texts(seen, noise=NOISE[:, :1], projection=R) == {"x0": "errors and model are right"}
    assert set(texts(TRUTH.sample(N, seed=7)).values()) == {"the model is right"}


CUTS = {
    "cut": xd.Cut("a", above=-2.0),
    "signal to noise": xd.Cut("a_over_error", above=0.5),
    "two": [xd.Cut("a", above=-2.0), xd.Cut("b", below=1.0)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CUTS)
def test_rows_that_were_cut_are_judged_given_that_they_were(name):
    """Whole rows of the same model would be said to be off; errors that are wrong are named with their factor."""
    model, error = TRUTH.with_(selection=CUTS[name]), np.sqrt(NOISE)
    rows = model.sample(N, seed=1, error=error, selected=True)
    found = xd.check(rows, model, error=error)
    assert [v.text for v in found.verdicts] == ["errors and model are right"] * 2
    assert all(abs(v.widths.factor - 1) < 4 * v.widths.standard_error < 0.4 for v in found.verdicts)
    assert "errors and model are right" not in texts(rows, error=error)["a"]
    wide = xd.Mixture(TRUTH.weights, TRUTH.means, 1.7 * TRUTH.covariances, labels=["a", "b"], selection=CUTS[name])
    assert all("the model is too wide" in text for text in texts(rows, wide, error=error).values())


@pytest.mark.slow
def test_errors_of_rows_that_were_cut():
    """The cut was made by the errors as quoted, half of which are what they are."""
    error, rng = np.sqrt(NOISE), np.random.default_rng(4)
    noisy = np.concatenate([TRUTH.sample(N, seed=rng, error=error * [1.5, 1.0]) for _ in range(3)])
    kept = noisy[:, 0] > 0.5 * np.tile(error[:, 0], 3)
    model = TRUTH.with_(selection=CUTS["signal to noise"])
    found = texts(noisy[kept], model, error=np.tile(error, (3, 1))[kept])
    assert "errors are too small by about a factor of 1." in found["a"]
    assert found["b"] == "errors and model are right"


@pytest.mark.slow
def test_rows_that_a_function_selected():
    def keep(X, error):
        return 1 / (1 + np.exp(-X[:, 0] / error[:, 0]))

    error = np.sqrt(NOISE)
    rows = TRUTH.with_(selection=keep).sample(N, seed=1, error=error, selected=True)
    found = xd.check(rows, TRUTH, error=error, selection=keep)
    assert [v.text for v in found.verdicts] == ["errors and model are right"] * 2
    assert found.verdicts[0].errors is None
    assert "right" not in texts(rows, error=error)["a"]
    shifted = TRUTH.transformed(np.array([0.5, 0.0]), np.ones(2))
    assert texts(rows, shifted, error=error, selection=keep)["a"] == "the model is off in place or shape"


BOX = xd.Uniform([-15.0, -15.0], [15.0, 15.0])
FAR = xd.Mixture([1.0], [[5.0, 5.0]], [20.0 * np.eye(2)])


@pytest.mark.parametrize(
    "beside",
    [{"background": BOX, "background_weight": 0.3}, {"background": FAR, "background_weight": 0.3},
     {"tails": xd.StudentT(3.0)}],
    ids=["box", "mixture", "tails"],
)  # fmt: skip
def test_models_with_more_than_gaussians(beside):
    """A background's rows, or those of tails, are not errors that are too small; of projections neither."""
    model = xd.Mixture(TRUTH.weights, TRUTH.means, TRUTH.covariances, labels=["a", "b"], **beside)
    rows = model.sample(N, seed=3, noise=NOISE)
    assert set(texts(rows, model, noise=NOISE).values()) == {"errors and model are right"}
    assert "errors are too small" in texts(model.sample(N, seed=3, noise=2.25 * NOISE), model, noise=NOISE)["b"]
    if beside.get("background") is not BOX:
        R = np.random.default_rng(0).normal(size=(N, 1, 2))
        seen = model.sample(N, seed=5, noise=NOISE[:, :1], projection=R)
        assert texts(seen, model, noise=NOISE[:, :1], projection=R) == {"x0": "errors and model are right"}


def test_refusals():
    with pytest.raises(ValueError, match="by='G' has shape"):
        xd.check(X, TRUTH, noise=NOISE, by={"G": [1.0]})
    with pytest.raises(ValueError, match="no rows"):
        xd.check(np.zeros((0, 2)), TRUTH)
    with pytest.raises(ValueError, match=r"row 0 \(and .* more\) would not have been kept"):
        xd.check(X, TRUTH.with_(selection=xd.Cut("a", above=10.0)), noise=NOISE)
    with pytest.raises(ValueError, match="names columns, which rows without a table do not have"):
        xd.check(X, TRUTH, noise=NOISE, by=["G"])
    with pytest.raises(ValueError, match="bins"):
        xd.check(X, TRUTH, noise=NOISE, bins=0)


# Values and errors that hang together


def stars(n=4000, parallax_error=0.3, seed=3, quoted=1.0, spectra=0.5):
    """Velocities of a known density: noise across the sky grows with the velocity, that of the radial one does not."""
    truth = xd.Mixture(
        [0.7, 0.3],
        [[-10.0, -20.0, -7.0], [-40.0, -50.0, -7.0]],
        [np.diag([900.0, 400.0, 200.0]), np.diag([100.0, 64.0, 100.0])],
        labels=["U", "V", "W"],
    )
    rng = np.random.default_rng(seed)
    table = {"ra": rng.uniform(0, 360, n), "dec": np.degrees(np.arcsin(rng.uniform(-1, 1, n))),
             "parallax": rng.uniform(10, 40, n), "pmra": np.zeros(n), "pmdec": np.zeros(n)}  # fmt: skip
    table |= {"parallax_error": np.full(n, parallax_error), "pmra_error": np.full(n, 0.1)}
    table |= {"pmdec_error": np.full(n, 0.1), "radial_velocity_error": rng.uniform(0.5, 3.0, n)}
    table["radial_velocity"] = np.zeros(n)
    v = np.einsum("npd,nd->np", xd.sky.velocities(table).projection, truth.sample(n, seed=seed + 1))
    for name, true in (("pmra", v[:, 0]), ("pmdec", v[:, 1])):
        table[name] = true * table["parallax"] / xd.sky.KM_S + rng.normal(size=n) * table[f"{name}_error"]
    table["parallax"] = table["parallax"] + rng.normal(size=n) * table["parallax_error"]
    table["parallax_error"] *= quoted
    radial = v[:, 2] + rng.normal(size=n) * table["radial_velocity_error"]
    table["radial_velocity"] = np.where(rng.uniform(size=n) < spectra, radial, np.nan)
    return truth, xd.open(table, ["U", "V", "W"], derive="velocities")


ACROSS = ["velocity towards east", "velocity towards north"]


def test_velocities_are_judged_by_noise_that_does_not_depend_on_them():
    """Rows with large errors are those with large velocities, in which no model holds: a factor of 28 was found."""
    truth, source = stars(10_000)
    for predicted in (False, True):
        assert texts(source, truth, predicted=predicted) == dict.fromkeys(
            [*ACROSS, "radial velocity"], "errors and model are right"
        )
    east = xd.check(source, truth, by=["radial_velocity_error"]).verdicts[0]
    assert {group.quantity for group in east.groups} == {f"error of {ACROSS[0]} at 33.1 km/s", "radial_velocity_error"}
    assert [group.rows for group in east.groups] == [2000] * 10


def test_rows_are_grouped_by_text():
    line, sd = TRUTH.marginal([0]).with_(labels=["x"]), np.sqrt(NOISE[:, 0])
    survey = np.where(np.arange(N) % 4, "A", "B")
    x = X[:, 0] + np.where(survey == "B", 1.5 * sd, 0.0) * np.random.default_rng(4).normal(size=N)
    table = {"x": x, "x_error": sd, "survey": survey, "name": [f"star {i}" for i in range(N)]}
    found = xd.check(xd.open(table, ["x"]), line, by=["survey"])
    a, b = found.verdicts[0].groups[-2:]
    assert (a.quantity, a.rows, b.quantity, b.rows) == ("survey = A", 3 * N // 4, "survey = B", N // 4)
    assert b.sd > 1.1 > a.sd
    assert f"    survey = B: {N // 4:,} rows, mean" in str(found)
    assert xd.check(x[:, None], line, error=sd[:, None], by={"survey": survey}).verdicts[0].groups[-2:] == (a, b)
    with pytest.raises(ValueError, match="different texts: at most 20"):
        xd.check(xd.open(table, ["x"]), line, by=["name"])


def test_velocities_that_no_star_shows_are_said_to_be_unseen():
    truth, source = stars(2000, spectra=0.0)
    found = xd.check(source, truth)
    assert [verdict.text for verdict in found.verdicts] == ["errors and model are right"] * 2 + ["no row shows it"]
    assert str(found).splitlines()[-1] == "radial velocity: no row shows it"


def test_parallax_errors_that_are_too_small_are_named_by_velocities():
    truth, source = stars(20_000, parallax_error=1.2, quoted=0.5)
    found = xd.check(source, truth)
    for verdict in found.verdicts[:2]:
        assert "errors are too small by about a factor of 2." in verdict.text or "1.9" in verdict.text
        assert abs(verdict.errors.factor - 2.0) < 4 * verdict.errors.standard_error < 1.0
    assert found.verdicts[2].text == "errors and model are right"


def test_errors_that_depend_on_the_values_are_not_blamed():
    """Arrays do not tell how their noise depends on the values."""
    truth, source = stars(10_000)
    rows = source.load().batch
    for predicted in (False, True):
        for verdict in xd.check(rows, truth, predicted=predicted).verdicts[:2]:
            assert "no factor on errors explains" in verdict.text
            assert "all rows together agree" in verdict.text
            assert (verdict.errors, verdict.widths) == (None, None)


def test_a_magnitude_whose_error_grows_with_it_is_not_blamed():
    rng = np.random.default_rng(0)
    magnitude = xd.Mixture([0.5, 0.5], [[12.0], [15.0]], [[[1.0]], [[2.0]]], labels=["G"])
    true = magnitude.sample(N, seed=1)
    error = 0.02 * 10 ** (0.2 * (true - 12))
    assert "no factor on errors explains" in texts(true + error * rng.normal(size=(N, 1)), magnitude, error=error)["G"]


# Values predicted from the others of their rows


def test_a_value_is_judged_by_what_the_others_predict():
    u = xd.plot.pit(TRUTH, X[:300], NOISE[:300], predicted=True)
    hidden = X[:300].copy()
    hidden[:, 1] = np.nan
    below = TRUTH.posterior(hidden, NOISE[:300])
    T = np.sqrt(below.covariances[:, :, 1, 1] + NOISE[:300, 1:])
    by_hand = (below.weights * ndtr((X[:300, 1:] - below.means[:, :, 1]) / T)).sum(1)
    np.testing.assert_allclose(u[:, 1], by_hand, atol=1e-10)
    assert np.abs(u[:, 1] - xd.plot.pit(TRUTH, X[:300], NOISE[:300])[:, 1]).max() > 0.1


def test_predictions_know_gaps_and_noise_that_values_share():
    narrow, S = xd.Mixture([1.0], [[0.0, 0.0]], [0.1 * np.eye(2)]), np.array([[[0.5, 0.3], [0.3, 0.4]]])
    gaps = narrow.sample(N, seed=2, noise=np.repeat(S, N, 0))
    gaps[::3, 0] = np.nan
    u = xd.plot.pit(narrow, gaps, S, predicted=True)
    assert np.isnan(u[::3, 0]).all()
    np.testing.assert_allclose(u[::3, 1], xd.plot.pit(narrow, gaps[::3], S)[:, 1], atol=1e-12)
    T = 0.1 * np.eye(2) + S[0]
    slope, rest = T[1, 0] / T[0, 0], np.sqrt(T[1, 1] - T[1, 0] ** 2 / T[0, 0])
    np.testing.assert_allclose(u[1::3, 1], ndtr((gaps[1::3, 1] - slope * gaps[1::3, 0]) / rest), atol=1e-12)
    assert all(kstest(u[np.isfinite(u[:, a]), a], "uniform").pvalue > 0.01 for a in range(2))


def test_a_wrong_correlation_shows_only_in_what_is_predicted():
    wrong = xd.Mixture(TRUTH.weights, TRUTH.means, TRUTH.covariances * np.array([[1.0, -3.0], [-3.0, 1.0]]))
    assert {verdict.p_value > 0.01 for verdict in xd.check(X, wrong, noise=NOISE).verdicts} == {True}
    predicted = xd.check(X, TRUTH, noise=NOISE, predicted=True)
    assert [verdict.text for verdict in predicted.verdicts] == ["errors and model are right"] * 2
    found = xd.check(TRUTH.sample(30_000, seed=8), wrong, predicted=True)
    assert min(verdict.p_value for verdict in found.verdicts) < 1e-3


def test_values_beside_a_box_of_many_dimensions_are_not_predicted():
    box = xd.Uniform([-9.0] * 3, [9.0] * 3)
    mixture = xd.Mixture([1.0], [[0.0] * 3], [np.eye(3)], background=box, background_weight=0.2)
    with pytest.raises(ValueError, match="box of 3 dimensions are not predicted"):
        xd.check(np.zeros((5, 3)), mixture, predicted=True)
