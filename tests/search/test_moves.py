"""Split, merge and revive: local trials are exact, searches never lose, and truths are found."""

import numpy as np
import pytest
import torch

import xdeconv as xd
from problems import problem
from xdeconv import kernels
from xdeconv.kernels.parameters import Parameters
from xdeconv.search.aim import ANY, Aim
from xdeconv.search.moves import Moves, Outcome, Search, bovy_pairs, bovy_splits, pair_up
from xdeconv.search.pool import Pool
from xdeconv.search.trials import Change, Effort, moment_match, refit, removals, try_merges, try_splits

EFFORT = Effort(screening=4, screen_rows=1000, polishing=5, aim=ANY)


def grid_truth(k=20, seed=0):
    """Well separated components of unequal weight, size and shape."""
    rng = np.random.default_rng(seed)
    places = np.stack(np.meshgrid(np.arange(5), np.arange(5)), -1).reshape(-1, 2)[rng.permutation(25)[:k]]
    A = rng.normal(size=(k, 2, 2))
    V = 0.3 * (A @ A.transpose(0, 2, 1) + 0.3 * np.eye(2)) * rng.lognormal(0, 0.5, size=(k, 1, 1))
    return xd.Mixture(rng.dirichlet(np.full(k, 4.0)), 12.0 * places + rng.normal(size=(k, 2)), V)


def likelihood(parameters, batch):
    return float(kernels.log_prob(*parameters, batch).sum())


def with_change(parameters, change):
    keep = [c for c in range(len(parameters[0])) if c not in change.old]
    return tuple(torch.cat([t[keep], new]) for t, new in zip(parameters, change.new, strict=True))


@pytest.fixture
def situation():
    p = problem(n=400, k=6, d=2, noise="diagonal", missing=0.1, seed=90)
    batch, parameters = p.batch(), Parameters(*p.parameters())
    return parameters, batch, Pool.of(parameters, kernels.for_groups(batch, 2))


def test_gain_of_a_trial_is_the_change_of_the_whole_likelihood(situation, monkeypatch):
    """Exact when every row is in the neighbourhood: then nothing is left out."""
    parameters, batch, _ = situation
    monkeypatch.setattr("xdeconv.search.pool.MATTERS", -1.0)
    pool = Pool.of(parameters, kernels.for_groups(batch, 2))
    before = likelihood(parameters, batch)
    changes = try_splits([2, 5, 0], parameters, pool, EFFORT, np.random.default_rng(0))
    changes += try_merges([(0, 3), (1, 2)], parameters, pool, EFFORT, np.random.default_rng(0))
    changes.append(removals(parameters, pool)[4])
    assert [change.old for change in changes] == [(2,), (5,), (0,), (0, 3), (1, 2), (4,)]
    judged = [change for change in changes if change.gain > -np.inf]  # not a split that leaves a half too few rows
    assert len(judged) >= 4
    for change in judged:
        after = likelihood(with_change(parameters, change), batch)
        assert change.gain == pytest.approx(after - before, rel=1e-6, abs=1e-5)


def test_trials_near_by_agree_with_trials_on_all_rows(situation):
    parameters, batch, pool = situation
    before = likelihood(parameters, batch)
    (change,) = try_merges([(1, 5)], parameters, pool, EFFORT, np.random.default_rng(0))
    assert change.gain == pytest.approx(likelihood(with_change(parameters, change), batch) - before, abs=0.5)


def test_merging_keeps_the_moments():
    p = problem(k=3, d=2, seed=91)
    log_weights, means, V = (t[0] for t in moment_match(Parameters(*(t[None] for t in p.parameters()))))
    mixture = xd.Mixture(p.weights, p.means, p.covariances)
    draws = mixture.sample(200_000, seed=0)
    assert float(log_weights.exp()) == pytest.approx(1.0)
    np.testing.assert_allclose(means[0], draws.mean(0), atol=0.03)
    np.testing.assert_allclose(V[0], np.cov(draws.T), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("criterion", ["gain", "bovy"])
def test_a_search_never_lowers_the_pools_likelihood(criterion):
    truth = grid_truth(8, seed=1)
    batch = xd.Batch.from_arrays(truth.sample(1500, seed=2))
    start = xd.fit(batch, 8, moves="none", seed=3, start="random").mixture
    before = likelihood(start.tensors(), batch)
    found = Search(batch, Moves(sweeps=6, criterion=criterion), np.random.default_rng(0)).run(start.tensors())
    assert likelihood(found.parameters, batch) >= before - 1e-6
    assert found.gain * batch.n == pytest.approx(likelihood(found.parameters, batch) - before, abs=1e-4)


@pytest.mark.slow
def test_all_components_of_a_separated_truth_are_recovered():
    truth = grid_truth()
    rng = np.random.default_rng(4)
    noise = 0.2 * rng.lognormal(size=(6000, 2))
    X = truth.sample(6000, seed=5, noise=noise)
    result = xd.fit(X, 20, noise=noise, seed=6, start="random")
    plain = xd.fit(X, 20, noise=noise, seed=6, start="random", moves="none")
    distance = np.linalg.norm(truth.means[:, None] - result.mixture.means, axis=2)
    assert sorted(distance.argmin(1)) == list(range(20))
    assert distance.min(1).max() < 1.5
    assert result.loglik > plain.loglik + 0.1
    assert any(record.moved for record in result.history)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_dead_components_are_revived(dtype):
    truth = grid_truth(4, seed=7)
    X = truth.sample(1000, seed=8)
    weights = np.array([0.0, 0.5, 0.5, 0.0])
    start = xd.Mixture(weights, truth.means, 4 * truth.covariances)
    result = xd.fit(X, mixture=start, seed=9, dtype=dtype, moves="auto")
    assert result.mixture.weights.min() > 0.01
    assert truth.score(X) - result.loglik < 0.1


@pytest.mark.sampled
@pytest.mark.parametrize("method", [xd.EM(step=xd.Decaying(0.2)), xd.SGD(rate=0.01)])
def test_moves_between_epochs_of_minibatch_methods(method):
    """A stream that is never held: moves are tried on a pool much smaller than the data."""
    truth = grid_truth(6, seed=10)
    X = truth.sample(3000, seed=11)
    moves = Moves(rounds=4, pool_rows=800, sweeps=10)
    arguments = {"method": method, "batch_rows": 100, "epochs": 8, "seed": 12, "start": "random"}
    without = xd.fit(X, 6, moves="none", **arguments)
    with_moves = xd.fit(X, 6, moves=moves, **arguments)
    assert with_moves.loglik > without.loglik - 0.01
    assert truth.score(X) - with_moves.loglik < 0.15


def test_resumed_fits_with_moves_end_at_the_same_bits(tmp_path, device):
    truth = grid_truth(6, seed=13)
    X = truth.sample(600, seed=14)
    weights = np.array([0.0, 0.0, 0.25, 0.25, 0.25, 0.25])
    start = xd.Mixture(weights, truth.means, 9 * truth.covariances)
    arguments = {
        "mixture": start,
        "device": device,
        "seed": 15,
        "moves": Moves(rounds=3, sweeps=5),
        "epochs": 40,
        "tol": 30.0,
    }
    whole = xd.fit(X, **arguments)

    class Enough(Exception):
        pass

    def stop(record):
        if record.epoch == stop.at:
            raise Enough

    path = tmp_path / "checkpoint"
    for stop.at in (1, 2, 6):
        with pytest.raises(Enough):
            xd.fit(X, checkpoint=xd.Checkpoint(path, 0, resume=True), callback=stop, **arguments)
    resumed = xd.fit(X, checkpoint=xd.Checkpoint(path, resume=True), **arguments)
    np.testing.assert_array_equal(whole.mixture.covariances, resumed.mixture.covariances)
    assert any(record.moved for record in whole.history)


def test_a_prior_is_part_of_what_moves_gain():
    X = grid_truth(5, seed=16).sample(500, seed=17)
    result = xd.fit(X, 5, method=xd.EM(prior=xd.Prior(w=0.5)), moves="auto", seed=18, start="random")
    assert np.isfinite(result.loglik)
    assert (np.linalg.eigvalsh(result.mixture.covariances) > 0).all()


def test_no_move_is_judged_by_a_likelihood_that_is_not_finite(situation):
    (log_weights, means, V), batch, _ = situation
    broken = V.clone()
    broken[2] = -V[2]
    moves = Moves(sweeps=1, pairs=1)
    rng = np.random.default_rng(0)
    assert not Search(batch, moves, rng).run(Parameters(log_weights, means, broken)).sound
    assert Search(batch, moves, rng).run(Parameters(log_weights, means, V)).sound


@pytest.mark.parametrize("seed", range(4))
def test_rows_almost_on_a_line_do_not_end_a_fit(seed):
    """A covariance that float64 can barely hold: with some seeds a search has trials that no row matters for."""
    rng = np.random.default_rng(100 + seed)
    a = rng.normal(size=500) + 5 * rng.integers(0, 3, size=500)
    X = np.stack([a, a], 1) + 3e-8 * rng.normal(size=(500, 2))
    result = xd.fit(X, 3, noise=np.full((500, 2), 9e-16), device="cpu", dtype="float64", seed=1, epochs=14, tol=0)
    assert np.isfinite(result.loglik)


def test_a_singular_covariance_with_a_finite_likelihood_is_no_trouble():
    rng = np.random.default_rng(0)
    X = np.stack([4.0 * rng.integers(0, 3, size=600) + rng.normal(size=600), 0.1 * rng.normal(size=600)], 1)
    start = xd.Mixture([1 / 3] * 3, [[0, 0], [4, 0], [8, 0]], [np.diag([1.0, 0.0])] * 3)
    result = xd.fit(X, mixture=start, noise=np.full((600, 2), 0.01), device="cpu", epochs=14)
    assert not any("not finite" in note for note in result.notes)


def test_a_mixture_that_cannot_be_judged_is_changed_before_the_search(monkeypatch):
    calls = []

    class Troubled(Search):
        def run(self, parameters):
            calls.append(self.aim.prior)
            return Outcome(parameters, 0, float("nan"), sound=False) if len(calls) == 1 else super().run(parameters)

    monkeypatch.setattr("xdeconv.fitting.searching.Search", Troubled)
    monkeypatch.setattr("xdeconv.fitting.stopping.CHANGED", -np.inf)  # a search whatever passes have gained
    X = grid_truth(5, seed=16).sample(500, seed=17)
    result = xd.fit(X, 5, seed=18, start="random", device="cpu")
    assert max(calls[0].w) < 1e-10  # the weak one, of columns without noise
    assert calls[1] is not None  # the small prior that leads out
    assert any("small prior" in note for note in result.notes)
    assert np.isfinite(result.loglik)


def test_a_search_that_leads_into_trouble_is_undone(monkeypatch):
    class Ruinous(Search):
        def run(self, parameters):
            return Outcome(parameters._replace(covariances=-parameters.covariances), 2, 1.0)

    X = grid_truth(5, seed=16).sample(500, seed=17)
    S = np.full_like(X, 0.01)
    untouched = xd.fit(X, 5, noise=S, seed=18, device="cpu", moves=xd.Moves(rounds=0))
    monkeypatch.setattr("xdeconv.fitting.searching.Search", Ruinous)
    monkeypatch.setattr("xdeconv.fitting.stopping.CHANGED", -np.inf)  # a search whatever passes have gained
    result = xd.fit(X, 5, noise=S, seed=18, device="cpu")
    assert any("was undone" in record.note for record in result.history)
    assert not any("small prior" in note for note in result.notes)
    assert result.converged
    assert result.loglik == pytest.approx(untouched.loglik, abs=1e-3)


def test_a_start_that_no_search_can_judge_is_used_as_it_is(monkeypatch):
    def unsound(pool, k, start, moves, rng, prior, options):
        return Outcome(Parameters(*(t * torch.nan for t in start(pool)(0))), 3, 0.0, sound=False)

    monkeypatch.setattr("xdeconv.fitting.searching.explore", unsound)
    X = grid_truth(5, seed=16).sample(500, seed=17)
    assert np.isfinite(xd.fit(X, 5, seed=18, device="cpu").loglik)


def test_bovys_criteria(situation):
    parameters, _, pool = situation
    assert sorted(bovy_splits(parameters, pool)) == list(range(6))
    pairs = bovy_pairs(pool)
    assert len(pairs) == 15
    overlap = [pool.shares.overlap[pair] for pair in pairs]
    assert overlap == sorted(overlap, reverse=True)


def test_bad_moves_are_refused():
    X = np.zeros((10, 2))
    with pytest.raises(ValueError, match="moves must be one of"):
        xd.fit(X, 2, moves="magic")
    with pytest.raises(ValueError, match="Fixed parameters"):
        xd.fit(X, 2, moves="auto", method=xd.EM(fixed=xd.Fixed(means=True)))


def test_a_search_of_few_rows_does_little(monkeypatch):
    """What 1,000 rows of one Gaussian gain from a move is their noise: few are made, and few pairs are computed."""
    rng = np.random.default_rng(0)
    batch = xd.Batch.from_arrays(rng.normal(size=(1000, 2)), error=[0.1, 0.1])
    start = xd.fit(batch, 12, epochs=30, moves="none").mixture
    done, accumulate = [0], kernels.accumulate

    def counted(log_weights, means, covariances, rows, *options):
        done[0] += rows.n * len(means)
        return accumulate(log_weights, means, covariances, rows, *options)

    monkeypatch.setattr(kernels, "accumulate", counted)
    found = Search(batch, Moves(), np.random.default_rng(1)).run(start.tensors())
    assert found.moved <= 8
    assert done[0] < 2e7


def test_a_prior_weighs_in_a_trial_as_much_as_in_the_whole_fit():
    """A component far from others that has converged with a prior stays where it is in a trial of its own."""
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(size=(100, 2)), 100 + rng.normal(size=(1900, 2))])
    prior = xd.Prior(w=30.0)
    start = xd.Mixture([0.05, 0.95], [[0.0, 0.0], [100.0, 100.0]], [np.eye(2)] * 2)
    whole = xd.fit(X, mixture=start, method=xd.EM(prior=prior), epochs=30, tol=0, dtype="float64", device="cpu").mixture
    pool = Pool.of(whole.tensors(), kernels.for_groups(xd.Batch.from_arrays(X), 2))
    start = Parameters(*(t[:1][None] for t in whole.tensors()))
    (_, _, V), _, _ = refit(pool.near([(0,)]), start, 10, Aim(prior))
    np.testing.assert_allclose(V[0, 0].numpy(), whole.covariances[0], rtol=1e-6)


def test_a_split_without_a_partner_does_not_end_the_pairing():
    """The best split's only partner overlaps it: the next split must still be made."""
    nothing = Parameters(torch.zeros(0), torch.zeros(0, 1), torch.zeros(0, 1, 1))

    def change(old, gain):
        return Change(old, nothing, gain)

    splits, freed = [change((0,), 100.0), change((1,), 50.0)], [change((0, 2), -5.0), change((3,), -99.0)]
    assert [(s.old, f.old) for s, f in pair_up(splits, freed, 4, 1.0)] == [((1,), (0, 2))]
    freed = [*freed, change((4,), -20.0)]
    assert [(s.old, f.old) for s, f in pair_up(splits, freed, 4, 1.0)] == [((0,), (4,))]


def test_nothing_is_searched_again_where_passes_have_changed_nothing():
    X = grid_truth(5, seed=16).sample(500, seed=17)
    S = np.full_like(X, 0.01)
    assert [e.moved for e in xd.fit(X, 5, noise=S, seed=18, device="cpu").history[1:] if e.moved is not None] == []
    far = xd.Mixture(np.full(5, 0.2), np.linspace([-5, -5], [25, 25], 5), [100 * np.eye(2)] * 5)
    late = xd.fit(X, mixture=far, noise=S, device="cpu", moves=xd.Moves(sweeps=0)).history
    assert sum(e.moved is not None for e in late[1:]) == 1  # here they have
