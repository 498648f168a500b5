"""A contest of starts on few rows."""

import numpy as np
import pytest
import torch

import xdeconv as xd
from xdeconv import kernels
from xdeconv.fitting.initial import Start, start_mixture
from xdeconv.kernels.parameters import Parameters
from xdeconv.rows.batch import Batch
from xdeconv.rows.data import ArraySource
from xdeconv.search.contest import HEATS, LOOK, MOST_STARTS, _alike, contest
from xdeconv.search.passes import em_passes
from xdeconv.search.sums import total_log_prob

TRUTH = xd.Mixture([0.5, 0.3, 0.2], [[0, 0], [1.5, 0.5], [0, 2]], [np.eye(2), 0.5 * np.eye(2), np.eye(2)])


def rows(n=400, weight=None):
    noise = np.random.default_rng(0).uniform(0.05, 0.5, size=(n, 2))
    return Batch.from_arrays(TRUTH.sample(n, seed=1, noise=noise), noise, weight=weight)


def start_on(batch, seen=None):
    def start(number):
        if seen is not None:
            seen.append(number)
        return Parameters(*start_mixture(ArraySource(batch), 3, Start(), number, torch.ones(2)).tensors("cpu"))

    return start


@pytest.mark.slow
def test_the_winner_is_the_best_of_all_starts_after_as_many_passes():
    batch = rows()
    start = start_on(batch)
    found = contest(start, batch, 3, 2)
    passes = sum(count for count, _ in HEATS)
    alone = [em_passes(start(s), batch, passes) for s in range(MOST_STARTS)]
    values = [total_log_prob(p, batch) for p in alone]
    assert total_log_prob(found[0], batch) > np.sort(values)[-5]
    assert min(abs(total_log_prob(found[0], batch) - v) for v in values) < 1e-6


def test_the_best_comes_first_and_weights_sum_to_one():
    batch = rows(weight=np.random.default_rng(2).uniform(0.5, 2.0, 400))
    found = contest(start_on(batch), batch, 3, 2)
    values = [total_log_prob(p, batch) for p in found]
    assert values == sorted(values, reverse=True)
    for p in found:
        assert abs(float(p.log_weights.exp().sum()) - 1) < 1e-9


def test_many_rows_have_few_starts():
    seen = []
    batch = rows(30_000)
    contest(start_on(batch, seen), batch, 3, 2)
    assert seen == [0, 1]


def test_starts_that_are_far_behind_and_hardly_gain_go_early(monkeypatch):
    truth = xd.Mixture([0.5, 0.3, 0.2], [[0, 0], [9, 0], [0, 9]], [np.eye(2)] * 3)
    noise = np.full((2000, 2), 0.1)
    batch = Batch.from_arrays(truth.sample(2000, seed=1, noise=noise), noise)
    good = Parameters(*truth.tensors())
    alike = good._replace(means=good.means[[0, 0, 0]])  # three components in one place never part
    counted, accumulate = [], kernels.accumulate_groups
    monkeypatch.setattr(kernels, "accumulate_groups", lambda *a: counted.append(len(a[1])) or accumulate(*a))
    found = contest(lambda number: alike if number else good, batch, 3, 2)
    assert len(found) == 1
    torch.testing.assert_close(found[0].means, good.means, atol=0.2, rtol=0)
    assert counted == [16] * LOOK + [2] * LOOK  # one of those alike goes on; gains are known at the second look


def test_starts_that_are_close_stay_to_the_end():
    batch = rows()
    passes = sum(count for count, _ in HEATS)
    found = contest(start_on(batch), batch, 3, 2)
    assert len(found) > 1
    assert total_log_prob(found[0], batch) - total_log_prob(found[-1], batch) < 20 + passes


def test_of_starts_on_the_same_hill_the_best_goes_on(monkeypatch):
    """Their values differ by many nats when their components are already where the others are."""
    batch = rows(2000)
    start = Parameters(*TRUTH.tensors())
    counted, accumulate = [], kernels.accumulate_groups
    monkeypatch.setattr(kernels, "accumulate_groups", lambda *a: counted.append(len(a[1])) or accumulate(*a))
    near = [start._replace(means=start.means + 0.02 * number) for number in range(16)]
    found = contest(lambda number: near[number], batch, 3, 2)
    assert counted[:LOOK] == [16] * LOOK
    assert counted[LOOK:] == [1] * len(counted[LOOK:])
    assert len(found) == 1


def test_starts_that_differ_in_one_component_are_not_alike():
    start = Parameters(*TRUTH.tensors())
    elsewhere = start._replace(means=start.means + torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.4, 0.0]]))
    wider = start._replace(covariances=start.covariances * torch.tensor([1.0, 1.0, 2.0]).view(3, 1, 1))
    again = start.pick([2, 0, 1])
    for other, alike in ((elsewhere, False), (wider, False), (again, True)):
        both = Parameters(*(torch.stack(pair) for pair in zip(start, other, strict=True)))
        assert _alike(both).tolist() == [False, alike]
