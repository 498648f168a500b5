"""Questions to a mixture, against brute-force integration and sampling."""

import pickle

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest, multivariate_normal

from problems import CASES, problem
from xdeconv import Mixture, load

MIXTURE = Mixture(
    [0.3, 0.5, 0.2],
    [[0.0, 1.0], [2.0, -1.0], [-2.0, 0.5]],
    [[[1.0, 0.4], [0.4, 0.8]], [[0.5, -0.2], [-0.2, 1.5]], [[0.3, 0.0], [0.0, 0.2]]],
    labels=["x", "y"],
    units=["mas", "mag"],
)


def density(v):
    parts = zip(MIXTURE.weights, MIXTURE.means, MIXTURE.covariances, strict=True)
    return sum(w * multivariate_normal(m, V).pdf(v) for w, m, V in parts)


def test_marginal_integrates_the_other_coordinate():
    marginal = MIXTURE.marginal(["y"])
    assert marginal.labels == ("y",)
    assert marginal.units == ("mag",)
    for y in (-1.0, 0.3, 2.0):
        brute = quad(lambda x, y=y: density([x, y]), -12, 12, epsabs=1e-10)[0]
        assert np.exp(marginal.log_prob([[y]]))[0] == pytest.approx(brute, rel=1e-7)


@pytest.mark.parametrize("variance", [0.0, 0.7])
def test_condition_is_the_integral(variance):
    """p(y | x observed with noise) = int p(x, y) N(x_obs | x, s) dx / norm."""
    given = MIXTURE.condition({"x": 0.5}, noise={"x": variance})
    assert given.labels == ("y",)

    def joint(y):
        if variance == 0:
            return density([0.5, y])
        blur = multivariate_normal(0.5, variance)
        return quad(lambda x: density([x, y]) * blur.pdf(x), -12, 12, epsabs=1e-10)[0]

    norm = np.exp(MIXTURE.marginal(["x"]).log_prob([[0.5]], noise=[[variance]]))[0]
    for y in (-1.0, 0.3, 2.0):
        assert np.exp(given.log_prob([[y]]))[0] == pytest.approx(joint(y) / norm, rel=1e-6)


def test_values_to_condition_on_may_have_units_and_are_single_numbers():
    import astropy.units as u

    mixture = Mixture([1.0], [[0.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]]], ["x", "y"], ["mas", "mas"])
    right = mixture.condition({"x": 2.0}, error={"x": 0.3})
    found = mixture.condition({"x": 0.002 * u.arcsec}, error={"x": 300 * u.uas})
    np.testing.assert_allclose(found.means, right.means, rtol=1e-12)
    np.testing.assert_allclose(found.covariances, right.covariances, rtol=1e-12)
    with pytest.raises(ValueError, match="x is in 'km', which cannot be turned into 'mas'"):
        mixture.condition({"x": 2 * u.km})
    for wrong in ({"values": {"x": [1.0, 2.0]}}, {"values": {"x": 1.0}, "error": {"x": [1.0, 2.0]}}):
        with pytest.raises(ValueError, match=r"of x must be one number, got shape \(2,\)"):
            mixture.condition(**wrong)


def test_condition_agrees_with_the_posterior_of_a_row_with_nan():
    p = CASES["missing full"]
    mixture = Mixture(p.weights, p.means, p.covariances)
    S = np.array([[0.5, 0.1], [0.1, 0.3]])
    given = mixture.condition({2: 0.4, 0: -1.0}, noise=S)
    X, noise = np.full((1, 4), np.nan), np.zeros((1, 4, 4))
    X[0, [2, 0]] = 0.4, -1.0
    noise[0][np.ix_([2, 0], [2, 0])] = S
    posterior = mixture.posterior(X, noise).marginal([1, 3])
    np.testing.assert_allclose(given.weights, posterior.weights[0], rtol=1e-10)
    np.testing.assert_allclose(given.means, posterior.means[0], rtol=1e-10)
    np.testing.assert_allclose(given.covariances, posterior.covariances[0], rtol=1e-9)
    by_error = mixture.condition({0: -1.0}, error={0: 0.5})
    np.testing.assert_allclose(by_error.means, mixture.condition({0: -1.0}, noise={0: 0.25}).means)


def test_posterior_is_bayes_in_one_dimension():
    mixture = Mixture([0.4, 0.6], [[-1.0], [2.0]], [[[0.5]], [[1.5]]])
    x, s = 0.7, 0.8
    v = np.linspace(-15, 15, 100_001)
    joint = np.exp(mixture.log_prob(v[:, None])) * multivariate_normal(x, s).pdf(v)

    def moment(f):
        return (f * joint).sum() / joint.sum()

    posterior = mixture.posterior([[x]], noise=[[s]])
    mean = moment(v)
    assert posterior.mean()[0, 0] == pytest.approx(mean, rel=1e-7)
    assert posterior.covariance()[0, 0, 0] == pytest.approx(moment((v - mean) ** 2), rel=1e-6)
    median = posterior.quantile(0.5)[0, 0]
    assert moment(v < median) == pytest.approx(0.5, abs=1e-4)
    assert posterior.quantile([0.1, 0.5]).shape == (2, 1, 1)


def test_posterior_draws_have_the_posteriors_moments():
    p = CASES["projection p < d"]
    mixture = Mixture(p.weights, p.means, p.covariances)
    posterior = mixture.posterior(p.X[:3], p.noise[:3], p.projection[:3])
    draws = posterior.sample(40_000, seed=1)
    assert draws.shape == (3, 40_000, 3)
    sd = np.sqrt(np.einsum("naa->na", posterior.covariance()))
    assert (np.abs(draws.mean(1) - posterior.mean()) < 5 * sd / 200).all()
    for i in range(3):
        np.testing.assert_allclose(np.cov(draws[i].T), posterior.covariance()[i], atol=0.05 * sd[i].max() ** 2)
    quantiles = posterior.quantile([0.16, 0.84])
    np.testing.assert_allclose(np.quantile(draws, [0.16, 0.84], axis=1), quantiles, atol=0.05 * sd.max())


def test_posterior_works_in_chunks(monkeypatch):
    p = problem(n=40, k=3, d=2, missing=0.3, seed=70)
    mixture = Mixture(p.weights, p.means, p.covariances)
    whole = mixture.posterior(p.X, p.noise)
    expected = whole.mean(), whole.covariance(), whole.quantile(0.3), mixture.outlier(p.X, p.noise)
    monkeypatch.setattr("xdeconv.mixture.posterior.CHUNK_NUMBERS", 50)
    monkeypatch.setattr("xdeconv.mixture.posterior.MOMENT_NUMBERS", 12)
    part = mixture.posterior(p.X, p.noise)
    for ours, right in zip((part.mean(), part.covariance(), part.quantile(0.3), part.outlier()), expected, strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-12)


def test_posterior_covariance_is_positive_however_small_the_noise():
    p = CASES["full"]
    mixture = Mixture(p.weights, p.means, p.covariances)
    noise = 1e-14 * p.noise
    B = mixture.posterior(p.X, noise).covariances
    assert (np.linalg.eigvalsh(B)[..., 0] > 0).all()
    np.testing.assert_allclose(B, np.broadcast_to(noise[:, None], B.shape), rtol=1e-3)


def test_outlier_is_uniform_for_rows_of_the_mixture_and_tiny_far_away():
    apart = Mixture([0.5, 0.5], [[0.0, 0.0], [50.0, 50.0]], [np.eye(2), 2 * np.eye(2)])
    X = apart.sample(4000, seed=3, noise=np.array([0.5, 0.1]))
    X[::3, 0] = np.nan
    tail = apart.outlier(X, noise=np.array([0.5, 0.1]))
    assert kstest(tail, "uniform").pvalue > 1e-3
    assert apart.outlier([[1e3, 0.0]])[0] < 1e-100
    assert apart.outlier([[np.nan, np.nan]])[0] == 1.0


def test_sample_moments_noise_and_seed():
    draws = MIXTURE.sample(50_000, seed=4)
    mean = MIXTURE.weights @ MIXTURE.means
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.05)
    np.testing.assert_array_equal(draws, MIXTURE.sample(50_000, seed=4))
    assert (MIXTURE.sample(5, seed=5) != MIXTURE.sample(5, seed=6)).all()
    noisy = MIXTURE.sample(50_000, seed=4, noise=np.array([3.0, 0.0]))
    np.testing.assert_allclose((noisy - draws).var(0), [3.0, 0.0], atol=0.1)
    R = np.broadcast_to([[1.0, 1.0]], (50_000, 1, 2))
    np.testing.assert_allclose(MIXTURE.sample(50_000, seed=4, projection=R)[:, 0], draws.sum(1))


def test_sample_where_and_as_it_is_asked():
    plain = MIXTURE.sample(50_000, seed=4)
    np.testing.assert_array_equal(plain, MIXTURE.sample(50_000, seed=4, device="cpu", dtype="float64"))
    far = MIXTURE.transformed(np.full(2, 1e9), np.ones(2))
    single = far.sample(50_000, seed=4, dtype="float32")
    np.testing.assert_array_equal(single, far.sample(50_000, seed=4, device="cpu", dtype="float32"))
    np.testing.assert_allclose(single.mean(0) - 1e9, MIXTURE.mean(), atol=0.05)
    np.testing.assert_allclose(np.cov(single.T), MIXTURE.covariance(), atol=0.1)
    assert far.sample(0, dtype="float32").shape == (0, 2)
    with pytest.raises(ValueError, match="dtype must be float32 or float64"):
        MIXTURE.sample(1, dtype="int8")


def test_responsibilities_sum_to_one_and_score_is_the_weighted_mean():
    p = CASES["weights"]
    mixture = Mixture(p.weights, p.means, p.covariances)
    np.testing.assert_allclose(mixture.responsibilities(p.X, p.noise).sum(1), 1.0, rtol=1e-12)
    log_prob = mixture.log_prob(p.X, p.noise)
    assert mixture.score(p.X, p.noise) == pytest.approx(log_prob.mean())
    assert mixture.score(p.X, p.noise, weight=p.weight) == pytest.approx(np.average(log_prob, weights=p.weight))


def test_tables_are_put_in_order():
    import pandas

    X = np.array([[0.1, 0.2], [0.3, 0.4]])
    table = pandas.DataFrame({"y": X[:, 1], "other": 0.0, "x": X[:, 0]})
    np.testing.assert_allclose(MIXTURE.log_prob(table), MIXTURE.log_prob(X))


def test_immutable():
    with pytest.raises(ValueError, match="read-only"):
        MIXTURE.weights[0] = 1.0
    with pytest.raises(AttributeError):
        MIXTURE.weights = np.ones(3)
    with pytest.raises(TypeError):
        MIXTURE.meta["a"] = 1
    copy = pickle.loads(pickle.dumps(MIXTURE))
    assert not copy.weights.flags.writeable
    np.testing.assert_array_equal(copy.covariances, MIXTURE.covariances)
    with pytest.raises(ValueError, match="what JSON can hold"):
        MIXTURE.with_(meta={"a": np.ones(2)})


def test_save_and_load_to_the_bit(tmp_path):
    path = tmp_path / "m.safetensors"
    told = MIXTURE.with_(meta={"made": "here", "list": [1, 2]})
    told.save(path)
    back = load(path)
    for name in ("weights", "means", "covariances"):
        np.testing.assert_array_equal(getattr(back, name), getattr(told, name))
    assert (back.labels, back.units, back.meta) == (told.labels, told.units, told.meta)


def test_what_is_no_model_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    with pytest.raises(FileNotFoundError, match="no file"):
        load(path)
    MIXTURE.save(path)
    content = path.read_bytes()
    for cut in (0, 4, 40, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:cut])
        with pytest.raises(ValueError, match="truncated, damaged or not an xdeconv mixture"):
            load(path)
    from safetensors.numpy import save_file

    save_file({"weights": np.ones(1)}, path)
    with pytest.raises(ValueError, match="is not an xdeconv mixture"):
        load(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5, 0.6], [[0.0], [1.0]], np.ones((2, 1, 1))), "sum to 1"),
        (([1.0], [[0.0, 0.0]], np.ones((1, 1, 1))), "do not fit"),
        (([1.0], [[np.nan]], np.ones((1, 1, 1))), "means of component 0 is not finite"),
        (([1.0], [[0.0, 0.0]], [[[1.0, 2.0], [2.0, 1.0]]]), "component 0 is not positive"),
        (([1.0], [[0.0, 0.0]], [[[1.0, 0.5], [0.0, 1.0]]]), "not symmetric"),
        (([1.0], [[0.0, 0.0]], [np.eye(2)], ["a", "a"]), "must be unique"),
        (([1.0], [[0.0, 0.0]], [np.eye(2)], ["a"]), "must name 2"),
    ],
)
def test_bad_parameters_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Mixture(*arguments)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (lambda m: m.marginal(["z"]), "no coordinate 'z': its labels are"),
        (lambda m: m.marginal([5]), "nor an index below 2"),
        (lambda m: m.marginal(["x", 0]), "named twice"),
        (lambda m: m.condition({"x": 0.0, "y": 1.0}), "nothing is left"),
        (lambda m: m.condition({"x": np.nan}), "is NaN"),
        (lambda m: m.condition({"x": 1.0}, noise={"y": 1.0}), "not among the values"),
        (lambda m: m.condition({"x": 1.0}, noise={"x": -1.0}), "negative"),
        (lambda m: m.condition({"x": 1.0}, noise=[1.0]), "shape"),
        (lambda m: m.condition({"x": 1.0}, noise={"x": 1.0}, error={"x": 1.0}), "not both"),
        (lambda m: m.log_prob([[1.0]]), "1 columns and the mixture 2"),
        (lambda m: m.score(np.zeros((0, 2))), "no rows"),
        (lambda m: m.posterior([[0.0, 0.0]]).quantile(1.0), "strictly between"),
        (lambda m: m.posterior([[0.0, 0.0]]).marginal(["x"]).marginal(["y"]), "dropped"),
    ],
)
def test_bad_questions_are_refused(question, message):
    with pytest.raises(ValueError, match=message):
        question(MIXTURE)


def test_errors_follow_the_columns_of_a_table():
    """A table is put in the mixture's order, and so is a table of errors; an array of errors cannot follow."""
    import pandas

    table, error = pandas.DataFrame({"y": [0.0], "x": [3.0]}), pandas.DataFrame({"y": [0.01], "x": [10.0]})
    right = MIXTURE.log_prob([[3.0, 0.0]], error=[[10.0, 0.01]])
    np.testing.assert_allclose(MIXTURE.log_prob(table, error=error), right)
    np.testing.assert_allclose(MIXTURE.log_prob(table, error**2), right * 0 + MIXTURE.log_prob(table, noise=error**2))
    with pytest.raises(ValueError, match="give its errors as a table of those names too"):
        MIXTURE.log_prob(table, error=error.to_numpy())
    with pytest.raises(ValueError, match="the mixture is of"):
        MIXTURE.log_prob(table.rename(columns={"x": "z"}))


def test_a_density_that_does_not_exist_is_an_error_and_not_nan():
    point = Mixture([0.5, 0.5], [[0.0], [5.0]], [[[0.0]], [[1.0]]])
    for question in (point.log_prob, point.responsibilities, point.score, lambda X: point.posterior(X).mean()):
        with pytest.raises(ValueError, match="singular"):
            question([[1.0]])
    assert np.isfinite(point.log_prob([[1.0]], error=[0.1])).all()


def test_a_mixture_made_of_a_mixtures_arrays_has_the_same_bits():
    rng = np.random.default_rng(5)
    for k in (2, 3, 50, 1000):
        mixture = Mixture(rng.dirichlet(np.ones(k)).astype(np.float32), rng.normal(size=(k, 1)), np.ones((k, 1, 1)))
        again = Mixture(mixture.weights, mixture.means, mixture.covariances)
        assert np.array_equal(mixture.weights, again.weights)


def test_a_row_without_posterior_is_named_by_its_place_among_all_rows(monkeypatch):
    from xdeconv.mixture import posterior

    monkeypatch.setattr(posterior, "CHUNK_NUMBERS", 40)
    noise = np.full((100, 2), 0.1)
    noise[73] = 0.0
    with pytest.raises(ValueError, match="row 73 has no posterior"):
        Mixture([1.0], [[0.0, 0.0]], np.zeros((1, 2, 2))).posterior(np.zeros((100, 2)), noise=noise).mean()
