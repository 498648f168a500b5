"""Structures of covariances: EM steps are their M steps, gradients autograd's, and charts lead to the same places."""

import numpy as np
import pytest
import torch

from problems import CASES, Problem, problem
from xdeconv import EM, SGD, Fixed, LowRank, Mixture, Prior, kernels
from xdeconv.kernels.options import Options
from xdeconv.kernels.parameters import Factors
from xdeconv.methods import Accelerated, as_structure
from xdeconv.methods.structures.factor_analysis import analysed, em_step

REFERENCE = Options(backend="reference")
WORDS = ["full", "tied", "diagonal", "spherical", "low-rank:1", "low-rank:2"]
CORRELATED = problem(n=300, k=3, d=5, noise="diagonal", missing=0.1, seed=60)


def mixture_of(p: Problem) -> Mixture:
    return Mixture(p.weights, p.means, p.covariances)


def run(method, p: Problem, steps: int, start: Mixture | None = None):
    batch, state = p.batch(), method.init(start or mixture_of(p))
    values = []
    for _ in range(steps):
        stats = kernels.accumulate(*state.parameters(), batch, REFERENCE)
        log_weights, _, V = state.parameters()
        prior = 0.0 if method.prior is None else float(method.prior.log_density(log_weights.exp(), V))
        values.append(float(stats.loglik) + prior)
        state = method.update(state, stats, float(stats.rows))
    return state, np.array(values)


def is_of(word: str, V: np.ndarray) -> bool:
    """Whether covariances (k, d, d) have a structure."""
    structure = as_structure(word)
    found = structure.nearest(torch.from_numpy(np.array(V)), torch.ones(len(V), dtype=torch.float64)).V.numpy()
    off = 1e-3 if structure.name.startswith("low-rank") else 1e-9  # an own variance of almost nothing is found slowly
    return np.allclose(found, V, rtol=off, atol=off * np.abs(V).max())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("prior", [None, Prior(w=0.5, c=2.0, concentration=1.5)])
def test_em_climbs_and_keeps_its_structure(word, prior):
    state, values = run(EM(covariance=word, prior=prior), CORRELATED, 40)
    assert np.diff(values).min() >= -1e-9 * abs(values[-1])
    assert values[-1] > values[0]
    assert is_of(word, state.covariances.numpy())


@pytest.mark.parametrize("word", ["low-rank:1", "low-rank:2"])
def test_a_step_that_knows_little_of_g_climbs_too(word):
    method, batch = EM(covariance=word), CORRELATED.batch()
    state, values = method.init(mixture_of(CORRELATED)), []
    for _ in range(60):
        stats = kernels.accumulate(*state.parameters(), batch, REFERENCE)
        values.append(float(stats.loglik))
        state = method.update(state, kernels.Stats(stats.packed, stats.k, stats.d, whole=False), float(stats.rows))
    assert np.diff(values).min() >= -1e-9 * abs(values[-1])
    assert values[-1] > values[0] + 1


@pytest.mark.parametrize("word", ["tied", "diagonal", "spherical"])
def test_without_noise_a_step_is_scikit_learns(word):
    from sklearn.mixture import GaussianMixture

    p = problem(n=400, k=3, d=2, noise="none", seed=40)
    kind = {"diagonal": "diag"}.get(word, word)
    start = EM(covariance=word).init(mixture_of(p))
    V = start.covariances.numpy()
    given = {"tied": V[0], "diag": np.einsum("kdd->kd", V), "spherical": V[:, 0, 0]}[kind]
    theirs = GaussianMixture(
        3, covariance_type=kind, max_iter=1, weights_init=p.weights, means_init=p.means, reg_covar=0,
        precisions_init=np.linalg.inv(given) if kind == "tied" else 1 / given,
    )  # fmt: skip
    with pytest.warns(Warning, match="did not converge"):
        theirs.fit(p.X)
    state, _ = run(EM(covariance=word), p, 1)
    np.testing.assert_allclose(state.means, theirs.means_, rtol=1e-8)
    np.testing.assert_allclose(state.covariances, Mixture.from_sklearn(theirs).covariances, rtol=1e-7, atol=1e-12)


def test_low_rank_without_noise_is_a_factor_analysis():
    from sklearn.decomposition import FactorAnalysis

    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 6)) + rng.normal(size=(500, 6)) * rng.uniform(0.3, 1, 6)
    theirs = FactorAnalysis(2, tol=1e-10, max_iter=5000, svd_method="lapack").fit(X)
    p = Problem(np.ones(1), X[:1], np.eye(6)[None], X)
    state, values = run(EM(covariance=LowRank(2)), p, 30)
    assert values[-1] / 500 == pytest.approx(theirs.score(X), abs=1e-6)
    np.testing.assert_allclose(state.covariances[0], theirs.get_covariance(), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_factors_are_found_again():
    rng = torch.Generator().manual_seed(0)
    F = torch.randn(4, 12, 3, generator=rng, dtype=torch.float64)
    right = Factors(F, torch.rand(4, 12, generator=rng, dtype=torch.float64) + 0.05)
    found = analysed(right.covariances(), 3)
    torch.testing.assert_close(found.own, right.own, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.covariances(), right.covariances(), rtol=1e-8, atol=1e-8)
    same = em_step(right.covariances(), right)
    torch.testing.assert_close(same.covariances(), right.covariances())


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("name", ["full", "missing diagonal", "projection p < d", "weights"])
def test_gradients_are_autograds(word, name):
    p = CASES[name]
    method = SGD(rate=lambda epoch: 0.0, covariance=word).standardized([1.0, 2.0, 0.5, 3.0][: p.means.shape[1]])
    state = method.init(mixture_of(p))
    stats = kernels.accumulate(*state.parameters(), p.batch(), REFERENCE)
    method.update(state, stats, float(stats.rows))
    structure, shape = method.covariance, state.means.shape
    frames = structure.frames(state.detached, *shape)
    logits = state.logits.detach().clone().requires_grad_()
    shifts, *steps = (torch.zeros_like(t).requires_grad_() for t in (state.means, *state.free))
    means = state.means.detach() + (frames @ shifts[..., None])[..., 0]
    V = structure.made(structure.gone(state.detached, tuple(steps)), *shape).V
    density = kernels.log_prob(logits.log_softmax(0), means, V, p.batch(), REFERENCE)
    weight = torch.ones_like(density) if p.weight is None else torch.from_numpy(p.weight)
    (-(weight * density).sum() / weight.sum()).backward()
    for ours, right in zip(state.named().values(), (logits, shifts, *steps), strict=True):
        torch.testing.assert_close(ours.grad, right.grad, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("word", WORDS)
def test_a_charts_gradient_is_that_of_its_covariances(word):
    """By finite differences along random directions of the chart, which keep the structure."""
    p, structure = CORRELATED, as_structure(word).standardized([1.0, 2.0, 0.5, 1.5, 3.0])
    method = Accelerated(EM(covariance=structure))
    state, _ = run(method, p, 8)
    chart, batch = state.chart, p.batch()

    def value(x):
        parameters = chart.parameters(x, Fixed())
        return float(kernels.accumulate(*parameters, batch, REFERENCE).loglik)

    def gradient(x):
        log_weights, means, V = chart.parameters(x, Fixed())
        stats = kernels.accumulate(log_weights, means, V, batch, REFERENCE)
        return chart.gradient(x, log_weights.exp(), stats, None, Fixed())

    at = 0.1 * gradient(torch.zeros_like(state.x))
    along = gradient(at) / gradient(at).norm()
    slope = (value(at + 1e-4 * along) - value(at - 1e-4 * along)) / 2e-4
    assert slope == pytest.approx(float(gradient(at) @ along), rel=1e-5, abs=1e-6)
    assert is_of_frame(structure, chart.parameters(at, Fixed()).covariances)


def is_of_frame(structure, V) -> bool:
    return torch.allclose(structure.nearest(V, torch.ones(len(V), dtype=V.dtype)).V, V, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("word", WORDS)
def test_acceleration_ends_where_em_does(word):
    start = EM(covariance=word).mixture(run(EM(covariance=word), CORRELATED, 10)[0])
    _, slow = run(EM(covariance=word), CORRELATED, 500, start)
    state, fast = run(Accelerated(EM(covariance=word)), CORRELATED, 90, start)
    assert fast.max() >= slow[-1] - 0.05
    assert is_of(word, Accelerated(EM(covariance=word)).mixture(state).covariances)


@pytest.mark.sampled
@pytest.mark.parametrize("word", WORDS)
def test_steps_of_batches_have_the_same_fixed_point(word):
    found, _ = run(Accelerated(EM(covariance=word)), CORRELATED, 120)
    there = Accelerated(EM(covariance=word)).mixture(found)
    state, values = run(EM(covariance=word, step=0.3), CORRELATED, 10, there)
    assert values[-1] == pytest.approx(values[0], abs=0.02)
    assert is_of(word, state.covariances.numpy())


@pytest.mark.parametrize("word", WORDS)
def test_a_saved_state_is_restored(word):
    for method in (EM(covariance=word), Accelerated(EM(covariance=word)), SGD(covariance=word)):
        state, _ = run(method, CORRELATED, 9)
        saved = {name: tensor.clone() for name, tensor in state.tensors().items()}
        again = method.restore(method.init(mixture_of(CORRELATED)), saved)
        for one, other in zip(state.parameters(), again.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
        assert saved.keys() == again.tensors().keys()


# Fixed coordinates


@pytest.mark.parametrize("step", [1.0, 0.4])
def test_coordinates_of_means_are_held(step):
    mask = np.zeros((3, 5), dtype=bool)
    mask[0, 1], mask[1, :], mask[2, [0, 3]] = True, True, True
    state, values = run(EM(step=step, fixed=Fixed(means=mask)), CORRELATED, 30)
    np.testing.assert_array_equal(state.means.numpy()[mask], CORRELATED.means[mask])
    assert (state.means.numpy()[~mask] != CORRELATED.means[~mask]).all()
    if step == 1.0:
        assert np.diff(values).min() >= -1e-9 * abs(values[-1])


@pytest.mark.slow
def test_held_coordinates_lead_to_the_same_place_in_every_method():
    mask = np.zeros((3, 5), dtype=bool)
    mask[0, 1], mask[2, [0, 3]] = True, True
    fixed = Fixed(means=mask)
    _, slow = run(EM(fixed=fixed), CORRELATED, 600)
    state, fast = run(Accelerated(EM(fixed=fixed)), CORRELATED, 90)
    assert fast.max() >= slow[-1] - 0.05
    np.testing.assert_array_equal(state.parameters().means.numpy()[mask], CORRELATED.means[mask])
    there, _ = run(SGD(rate=0.02, fixed=fixed), CORRELATED, 5)
    np.testing.assert_array_equal(there.parameters().means.numpy()[mask], CORRELATED.means[mask])


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"means": np.zeros((3, 4), dtype=bool)}, r"shape \(3, 4\) for means \(3, 5\)"),
        ({"means": np.zeros((2, 5), dtype=bool)}, "for 2 components and there are 3"),
        ({"weights": [True, False]}, "2 booleans for 3"),
        ({"covariances": [3]}, "outside 0..2"),
    ],
)
def test_wrong_shapes_are_refused(choice, words):
    with pytest.raises(ValueError, match=words):
        EM(fixed=Fixed(**choice)).init(mixture_of(CORRELATED))
    with pytest.raises(ValueError, match=words):
        SGD(fixed=Fixed(**choice)).init(mixture_of(CORRELATED))


@pytest.mark.parametrize(
    "choice",
    [
        {"weights": [[True], [False]]},
        {"means": [[0, 1], [1, 0]]},
        {"means": 0.5},
        {"covariances": "all"},
        {"means": [[True], [True, False]]},
    ],
)
def test_what_is_not_a_choice_is_refused(choice):
    with pytest.raises(ValueError, match="one boolean per component"):
        Fixed(**choice)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.zeros((64, 20)), r"float64 of shape \(64, 20\)"),
        (np.zeros((64, 20, 1), bool), r"bool of shape \(64, 20, 1\)"),
        ([[True] * 20, [True] * 19], "lines of different lengths"),
    ],
)
def test_a_mask_that_is_none_is_described_and_not_repeated(mask, words):
    """A mask of 64 components in 20 dimensions was printed number by number."""
    with pytest.raises(ValueError, match=words) as refused:
        Fixed(means=mask)
    assert len(str(refused.value)) < 200


# What cannot be


def test_a_rank_must_lie_below_the_dimensions():
    with pytest.raises(ValueError, match=r"LowRank\(5\) needs more than 5 dimensions and there are 5"):
        EM(covariance=LowRank(5)).init(mixture_of(CORRELATED))
    assert LowRank(np.int64(2)) == LowRank(2)  # as in: for rank in np.arange(1, 4)
    assert type(LowRank(np.int64(2)).rank) is int
    for rank in (0, 1.5, True, np.bool_(True), np.int64(0), np.float64(2.0)):
        with pytest.raises(ValueError, match="whole number of at least 1"):
            LowRank(rank)


@pytest.mark.parametrize("method", [EM, SGD])
def test_held_covariances_must_be_of_the_structure(method):
    with pytest.raises(ValueError, match="component 0 is held and is not diagonal"):
        method(covariance="diagonal", fixed=Fixed(covariances=True)).init(mixture_of(CORRELATED))
    with pytest.raises(ValueError, match="hold all of them or none"):
        method(covariance="tied", fixed=Fixed(covariances=[0])).init(mixture_of(CORRELATED))
    diagonal = np.array([np.diag(np.diag(V)) for V in CORRELATED.covariances])
    start = Mixture(CORRELATED.weights, CORRELATED.means, diagonal)
    made = method(covariance="diagonal", fixed=Fixed(covariances=[1]))
    state, _ = run(made, CORRELATED, 2, start)
    np.testing.assert_array_equal(state.parameters().covariances[1], diagonal[1])


@pytest.mark.parametrize("word", ["round", "low-rank", "low-rank:x", 3, None])
def test_an_unknown_word_is_refused(word):
    with pytest.raises(ValueError, match="covariance must be one of"):
        as_structure(word)
