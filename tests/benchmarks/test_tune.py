"""The search for hyper-parameters: what it proposes and what it calls a default."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from benchmarks.paper.rows import PRESETS, Table
from benchmarks.tune import search as tune

import xdeconv as xd
from xdeconv.fitting.words import Worded, choose_method
from xdeconv.methods import suited_batch

pytestmark = pytest.mark.slow


def closeness(settings: tune.Settings) -> float:
    return -(np.log(settings.step / 0.05) ** 2) - np.log(settings.batch_rows / 300) ** 2


def test_a_sobol_sequence_covers_the_ranges_and_repeats():
    bounds = tune.ranges(100_000)
    first, again = (list(tune.proposals("qmc", 16, bounds, closeness)) for _ in range(2))
    assert first == again
    assert len(first) == 16
    for name, (low, high) in bounds.items():
        values = np.array([getattr(settings, name) for settings, _ in first], dtype=float)
        assert ((values >= low * 0.99) & (values <= high * 1.01)).all()
        assert (values < np.sqrt(low * high)).sum() == 8


def test_defaults_are_those_of_the_library():
    source = Table(None, 200, "cpu").prepared(PRESETS[0]).train
    minibatch = tune.defaults("minibatch", 16, 7)
    chosen = choose_method(source, 16, torch.device("cpu"), Worded(), minibatch.batch_rows).method
    assert minibatch.batch_rows == suited_batch(16, 7)
    assert chosen == xd.EM(step=tune.schedule(minibatch.step))
    assert xd.SGD(rate=tune.schedule(tune.defaults("sgd", 16, 7).step)) == xd.SGD()


@pytest.mark.parametrize("method", tune.TITLES)
def test_a_trial_is_a_score_and_a_failed_one_is_minus_infinity(method, capsys):
    rows = Table(None, 600, "cpu").prepared(PRESETS[0])
    objective = tune.Objective(method, rows, 2, 8, (1.0,) * 7)  # gradients need some epochs from narrow starts
    assert -60 < objective(tune.Settings(0.1, 64, 1e-6)) < 0
    assert objective(tune.Settings(0.1, 0, 1e-6)) == -np.inf
    assert "batch_rows" in capsys.readouterr().out
