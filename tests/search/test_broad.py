"""Moves of projected rows, and of rows that noise drowns, are judged by whole mixtures."""

import numpy as np
import pytest
import torch

import xdeconv as xd
from xdeconv.catalog import hipparcos
from xdeconv.fitting.initial import Ground, Start
from xdeconv.kernels.options import Options
from xdeconv.kernels.parameters import Parameters
from xdeconv.mixture._mixture import Mixture
from xdeconv.rows.batch import Batch
from xdeconv.search import broad, exploring
from xdeconv.search.aim import Aim
from xdeconv.search.broad import FAR, MOST_COMPONENTS, SMALL, explore_broadly, fits, jump
from xdeconv.search.moves import Moves
from xdeconv.search.passes import Climb
from xdeconv.search.sums import total_log_prob

CENTRES = [[0, 0], [1.5, 0], [0, 1.5], [-2, -1], [3, 3]]
TRUTH = Mixture(np.array([0.3, 0.25, 0.2, 0.15, 0.1]), np.array(CENTRES, dtype=float), 0.15 * np.stack([np.eye(2)] * 5))


def projected(n=3000, seed=0):
    """One number per row: a two-dimensional truth seen from a direction of its own."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, np.pi, n)
    R = np.stack([np.cos(angle), np.sin(angle)], axis=1)[:, None, :]
    noise = np.full((n, 1), 0.05)
    return Batch.from_arrays(TRUTH.sample(n, seed=seed, noise=noise, projection=R), noise, R)


def at_random(batch):
    def start(number):
        rng = np.random.default_rng(number)
        mixture = Mixture(np.full(5, 0.2), rng.normal(size=(5, 2)), np.stack([np.eye(2)] * 5))
        return Parameters(*mixture.tensors("cpu"))

    return start


def test_broad_trials_are_for_projected_rows_and_few_components():
    batch = projected(50)
    assert fits(batch, MOST_COMPONENTS)
    assert not fits(batch, MOST_COMPONENTS + 1)
    assert not fits(Batch.from_arrays(np.zeros((4, 2))), 2)


@pytest.mark.parametrize("full", [False, True])
def test_rows_that_noise_drowns_are_for_broad_trials(full):
    """Values of one variance behind noise that is larger, or smaller, in both coordinates or in one."""
    rng = np.random.default_rng(0)
    for variances, drowned in (([2.0, 2.0], True), ([0.5, 0.5], False), ([2.0, 0.5], False)):
        X = rng.normal(size=(2000, 2)) * np.sqrt(1 + np.array(variances))
        X[::3, 0] = np.nan
        noise = np.tile(np.diag(variances) if full else variances, (2000, 1, 1) if full else (2000, 1))
        assert fits(Batch.from_arrays(X, noise), 2) == drowned


def test_climbs_that_failed_are_left_without_a_warning():
    """Few rows may lead a shaken mixture to where there is no density; whether that is like another is not asked."""
    batch = projected(60)
    search = broad._Broad(batch, Moves(), np.random.default_rng(0), Aim(), Options())
    best = search._climb(at_random(batch)(0)).further(3)
    failed = search._climb(Parameters(*(part * np.nan for part in best.parameters)))
    assert search._raced([failed], best) is None


@pytest.mark.slow
def test_the_search_ends_above_the_truth_from_bad_starts():
    batch = projected(1500)
    found = exploring.explore(batch, 5, at_random, Moves(), np.random.default_rng(0))
    truth = total_log_prob(Parameters(*TRUTH.tensors("cpu")), batch)
    assert total_log_prob(found.parameters, batch) > truth
    assert found.sound


@pytest.mark.slow
def test_velocities_of_stars_end_higher_than_by_trials_with_the_others_held(monkeypatch):
    """5,000 stars of Hipparcos, k = 8: 5 to 52 nats higher from each of four seeds."""
    sky = hipparcos.nearby_main_sequence(hipparcos.read())
    sky = sky[np.sort(np.random.default_rng(0).permutation(len(sky))[:5000])]
    batch, aim = Batch.from_arrays(sky.x, sky.noise, sky.projection), Aim(xd.Prior(w=4.0))

    def starts(rows):
        ground = Ground.of(rows, Start(), torch.ones(3))
        return lambda number: Parameters(*ground.mixture(8, 20 + number).tensors("cpu"))

    def value():
        found = exploring.explore(batch, 8, starts, Moves(), np.random.default_rng(2), aim)
        return Climb.of(found.parameters, batch, aim).further(200).value

    broad = value()
    monkeypatch.setattr(exploring, "fits", lambda pool, k: False)
    assert broad > value() + 2


@pytest.mark.slow
def test_a_prior_counts_and_weights_sum_to_one():
    batch, prior = projected(800), xd.Prior(w=0.5)
    found = explore_broadly(at_random, batch, 5, Moves(starts=1, sweeps=1), np.random.default_rng(0), Aim(prior))
    assert float(found.parameters.log_weights.exp().sum()) == pytest.approx(1.0, abs=1e-12)
    free = explore_broadly(at_random, batch, 5, Moves(starts=1, sweeps=1), np.random.default_rng(0))
    smallest = [float(torch.linalg.eigvalsh(one.parameters.covariances).min()) for one in (found, free)]
    assert smallest[0] > smallest[1]


def test_a_climb_may_be_interrupted_and_tells_its_own_value():
    batch, aim = projected(500), Aim(xd.Prior(w=0.1))
    whole = Climb.of(at_random(batch)(0), batch, aim).further(25)
    parts = Climb.of(at_random(batch)(0), batch, aim).further(9).further(16)
    assert whole.value == parts.value
    assert torch.equal(whole.parameters.means, parts.parameters.means)
    value = total_log_prob(whole.parameters, batch) + float(aim.log_density(whole.parameters))
    assert whole.value == pytest.approx(value, abs=1e-6)


def test_what_each_parent_has_right_comes_together(monkeypatch):
    """Two starts, each with one cluster cut in two and two others taken together, which EM alone does not mend."""
    c = np.array([[0, 0], [6, 0], [12, 0], [0, 8], [6, 8], [12, 8]], dtype=float)
    astray = [[c[0] - 0.3, c[0] + 0.3, (c[1] + c[2]) / 2, *c[3:]], [*c[:3], c[3] - 0.3, c[3] + 0.3, (c[4] + c[5]) / 2]]
    truth = Mixture(np.full(6, 1 / 6), c, np.stack([0.5 * np.eye(2)] * 6))
    rng = np.random.default_rng(0)
    R, noise = rng.normal(size=(900, 2, 2)), np.full((900, 2), 0.05)
    batch = Batch.from_arrays(truth.sample(900, seed=0, noise=noise, projection=R), noise, R)
    for look in ("moved", "shaken"):
        monkeypatch.setattr(broad._Broad, look, lambda *_: None)

    def start(number):
        means, V = np.array(astray[number]), np.stack([np.eye(2)] * 6)
        return Parameters(*Mixture(np.full(6, 1 / 6), means, V).tensors("cpu"))

    def away(starts):
        found = explore_broadly(lambda _: start, batch, 6, Moves(starts=starts), np.random.default_rng(0)).parameters
        return np.abs(found.means.numpy()[:, None] - c).max(2).min(0).max()

    assert away(starts=1) > 1.0
    assert away(starts=2) < 0.5


def test_a_jump_moves_one_component_by_its_own_widths_and_makes_it_smaller():
    before = Parameters(*TRUTH.tensors("cpu"))
    after = [jump(before, 3, np.random.default_rng(seed)) for seed in range(200)]
    others = [0, 1, 2, 4]
    assert all(torch.equal(one.means[others], before.means[others]) for one in after)
    assert all(torch.equal(one.covariances[others], before.covariances[others]) for one in after)
    assert torch.equal(after[0].covariances[3], SMALL**2 * before.covariances[3])
    away = torch.stack([one.means[3] for one in after]) - before.means[3]
    width = before.covariances[3].diagonal().sqrt()
    assert (away.std(0) / width).numpy() == pytest.approx([FAR, FAR], rel=0.2)


def test_jumps_lead_from_the_smaller_of_two_clusters_to_both():
    rng = np.random.default_rng(0)
    parts = [rng.normal(0, 1, (900, 2)), rng.normal([6, 0], 0.5, (40, 2)), rng.normal([6, 4], 0.5, (15, 2))]
    batch = Batch.from_arrays(np.concatenate(parts), np.full((955, 2), 1e-4))
    V = torch.eye(2, dtype=torch.float64).repeat(2, 1, 1)
    begun = Parameters(torch.tensor([0.98, 0.02]).double().log(), torch.tensor([[0.2, 0.1], [6, 4]]).double(), V)
    begun.covariances[1] *= 0.25
    stuck = Climb.of(begun, batch).further(200)
    search = broad._Broad(batch, Moves(), rng, Aim(), Options())
    better = search.jumped(stuck)
    assert better is not None
    assert better.value > stuck.value + 100
    assert float(stuck.parameters.means[1, 1]) == pytest.approx(4, abs=0.3)
    assert better.parameters.means[1].numpy() == pytest.approx([6, 4 * 15 / 55], abs=0.3)
