"""What a search asks of its pool is exact, and starts that end alike are not recombined."""

import numpy as np
import pytest
import torch

import xdeconv as xd
from problems import problem
from xdeconv import kernels
from xdeconv.kernels.parameters import Parameters
from xdeconv.rows.batch import Batch
from xdeconv.search import exploring, pool, pruning, single
from xdeconv.search.contest import contest
from xdeconv.search.exploring import explore
from xdeconv.search.moves import Moves, Outcome
from xdeconv.search.pool import MATTERS, Pool
from xdeconv.search.sums import total_log_prob
from xdeconv.search.trials import Change


@pytest.fixture
def situation():
    p = problem(n=500, k=6, d=2, noise="diagonal", missing=0.1, weight=True, seed=90)
    batch, parameters = p.batch(), Parameters(*p.parameters())
    return parameters, batch, Pool.of(parameters, kernels.for_groups(batch, 2))


def responsibilities(parameters, batch):
    joint = kernels.log_joint(*parameters, batch)
    return (joint - joint.logsumexp(1, keepdim=True)).exp(), joint.logsumexp(1)


def test_mass_and_loss_are_those_of_all_pairs(situation, monkeypatch):
    parameters, batch, whole = situation
    r, log_prob = responsibilities(parameters, batch)
    weight = batch.weight.double()
    monkeypatch.setitem(pool.CHUNK_PAIRS, "cpu", 300)
    in_parts = Pool.of(parameters, kernels.for_groups(batch, 2))
    for found in (whole, in_parts):
        torch.testing.assert_close(found.mass, weight @ r, rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(found.loss, weight @ torch.log1p(-r.clamp(max=1 - 1e-7)), rtol=1e-4, atol=1e-2)
        torch.testing.assert_close(found.log_prob, log_prob, rtol=1e-6, atol=1e-6)
    for name, values in vars(whole.shares).items():
        np.testing.assert_allclose(getattr(in_parts.shares, name), values, rtol=1e-12)


def test_neighbourhoods_are_the_rows_that_matter_and_what_the_others_give_them(situation):
    parameters, batch, found = situation
    r, log_prob = responsibilities(parameters, batch)
    r = torch.where(r > MATTERS, r, 0.0)
    touched = [(1,), (0, 3), (2, 5), (4,)]
    groups = found.near(touched).groups
    for number, components in enumerate(touched):
        share = r[:, list(components)].sum(1)
        own = slice(int(groups.starts[number]), int(groups.starts[number + 1]))
        assert groups.rows[own].tolist() == share.nonzero()[:, 0].tolist()
        rest = (log_prob + torch.log1p(-share.clamp(max=1 - 1e-7)))[groups.rows[own]]
        sure = share[groups.rows[own]] < 0.999
        torch.testing.assert_close(groups.background[own][sure], rest[sure], rtol=1e-4, atol=1e-3)


def test_a_sample_stands_for_all_rows_of_its_trial(situation):
    _, _, found = situation
    near = found.near([(0,), (1, 2), (3,)])
    sample = near.sample(40, np.random.default_rng(0))
    assert sample.groups.sizes.tolist() == [min(40, size) for size in near.groups.sizes.tolist()]
    for group in range(3):
        own, every = (slice(*g.starts[group : group + 2].tolist()) for g in (sample.groups, near.groups))
        chosen = sample.groups.rows[own].tolist()
        assert len(set(chosen)) == len(chosen)
        assert set(chosen) <= set(near.groups.rows[every].tolist())
        total = float(near.groups.weight[every].sum())
        assert float(sample.groups.weight[own].sum()) == pytest.approx(total, rel=0.3)


def test_trials_of_merges_keep_their_components_when_places_change():
    part = Parameters(torch.zeros(1), torch.zeros(1, 2), torch.eye(2)[None])
    merges = {pair: Change(pair, part, -1.0) for pair in ((0, 1), (2, 5), (4, 5), (3, 5))}
    near = np.eye(6, dtype=bool)
    near[3, 4] = near[4, 3] = True
    kept = pruning._still_true(merges, [Change((3,), part, 0.0)], near)
    assert set(kept) == {(0, 1), (2, 4)}  # 3 went, 4 was beside it, and 5 is 4 now
    assert all(change.old == pair for pair, change in kept.items())


def separated_rows(n=2000):
    truth = xd.Mixture([0.5, 0.3, 0.2], [[0, 0], [9, 0], [0, 9]], [np.eye(2)] * 3)
    noise = np.full((n, 2), 0.1)
    return Batch.from_arrays(truth.sample(n, seed=1, noise=noise), noise), Parameters(*truth.tensors())


def test_starts_that_end_alike_are_one_in_a_contest():
    batch, truth = separated_rows()
    assert len(contest(lambda number: truth, batch, 3, 4)) == 1


def test_searches_that_end_alike_are_not_recombined(monkeypatch):
    batch, truth = separated_rows()
    monkeypatch.setattr(exploring, "PARENT_ROWS", 500)
    monkeypatch.setattr(exploring, "SAME", 50.0)  # the parents' rows differ
    monkeypatch.setattr(exploring, "pruned", lambda *_: pytest.fail("both are the same"))
    found = explore(batch, 3, lambda rows: lambda number: truth, Moves(starts=2), np.random.default_rng(0))
    assert found.sound
    monkeypatch.setattr(exploring, "SAME", 0.0)
    with pytest.raises(pytest.fail.Exception):
        explore(batch, 3, lambda rows: lambda number: truth, Moves(starts=2), np.random.default_rng(0))


def finite(parameters):
    return all(bool(t.isfinite().all()) for t in parameters)


def test_a_start_that_cannot_be_judged_is_left_out(monkeypatch):
    batch, truth = separated_rows()
    monkeypatch.setattr(exploring, "PARENT_ROWS", 500)
    monkeypatch.setattr(exploring, "SAME", 0.0)
    prune = exploring.pruned
    monkeypatch.setattr(
        exploring, "pruned", lambda both, *a: prune(both, *a) if finite(both) else pytest.fail("joined")
    )
    broken = truth._replace(log_weights=torch.full((3,), torch.nan, dtype=torch.float64))
    found = explore(batch, 3, lambda rows: lambda number: broken if number == 1 else truth, Moves(starts=4),
                    np.random.default_rng(0))  # fmt: skip
    assert found.sound
    assert total_log_prob(found.parameters, batch) > total_log_prob(truth, batch)


def rows_of_searches(batch, moves, starts, monkeypatch):
    """How many rows each search has, in their order."""
    seen = []

    class Counted(exploring.Search):
        def run(self, parameters):
            seen.append(self.batch.n)
            return super().run(parameters)

    monkeypatch.setattr(exploring, "Search", Counted)
    monkeypatch.setattr(exploring, "PARENT_ROWS", 500)
    monkeypatch.setattr(exploring, "SAME", 0.0)
    explore(batch, 3, lambda rows: starts, moves, np.random.default_rng(0))
    return seen


@pytest.mark.parametrize(("n", "rows"), [(6000, [500] * 4 + [1500] * 3 + [6000]), (1500, [500] * 4 + [1500] * 3)])
def test_what_becomes_of_starts_is_searched_on_more_rows_and_on_all(n, rows, monkeypatch):
    batch, truth = separated_rows(n)
    assert rows_of_searches(batch, Moves(), lambda number: truth, monkeypatch) == rows


def test_the_one_search_that_can_be_judged_goes_on_with_all_rows(monkeypatch):
    batch, truth = separated_rows()
    broken = truth._replace(log_weights=torch.full((3,), torch.nan, dtype=torch.float64))
    assert rows_of_searches(batch, Moves(starts=2), lambda number: broken if number else truth, monkeypatch) == [
        500,
        500,
        2000,
    ]


@pytest.mark.slow
def test_searches_side_by_side_find_the_same_for_any_number_of_threads(monkeypatch):
    batch, truth = separated_rows()
    alike = truth._replace(means=truth.means[[0, 0, 0]])  # only moves lead out
    monkeypatch.setattr(exploring, "PARENT_ROWS", 500)

    def found(threads, pairs):
        monkeypatch.setattr(exploring, "THREAD_PAIRS", pairs)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return explore(batch, 3, lambda rows: lambda number: alike, Moves(starts=4), np.random.default_rng(0))
        finally:
            torch.set_num_threads(before)

    one, two, alone = found(1, 0), found(2, 0), found(2, 1 << 30)
    assert one.moved == two.moved == alone.moved > 0
    for a, b, c in zip(one.parameters, two.parameters, alone.parameters, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


def test_long_searches_are_made_in_float32_unless_it_is_too_coarse(monkeypatch):
    batch, truth = separated_rows()
    monkeypatch.setattr(single, "WORK", 1)
    kinds = []
    monkeypatch.setattr(
        exploring, "_recombined", lambda there, *_: kinds.append(there.pool.dtype) or Outcome(truth, 0, 0.0)
    )
    explore(batch, 3, lambda rows: lambda number: truth, Moves(), np.random.default_rng(0))
    assert kinds == [torch.float32]
    assert not single.worth_single(batch.to(dtype=torch.float32), 3)
    far = Batch.from_arrays((batch.x.T + 1e6).numpy(), np.full((batch.n, 2), 0.1))  # where float32 has steps of 0.06
    moved = truth._replace(means=truth.means + 1e6)
    monkeypatch.setattr(
        exploring, "_recombined", lambda there, *_: kinds.append(there.pool.dtype) or Outcome(moved, 0, 0.0)
    )
    explore(far, 3, lambda rows: lambda number: moved, Moves(), np.random.default_rng(0))
    assert kinds[1:] == [torch.float32, torch.float64]
