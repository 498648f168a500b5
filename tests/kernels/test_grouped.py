"""Sums over groups of rows: right, and on a GPU in an order that does not depend on threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from elsewhere import GPU, Machine
from problems import problem
from xdeconv.kernels import Groups, reference
from xdeconv.kernels.grouped import grouped_sum


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_of_groups_on_both_devices(shape, dtype):
    rng = np.random.default_rng(0)
    values = torch.from_numpy(rng.normal(size=(50, *shape))).to(dtype)
    group = torch.from_numpy(rng.integers(6, size=50))  # in any order; the seventh is empty
    right = torch.stack([values[group == g].sum(0) for g in range(7)])
    torch.testing.assert_close(grouped_sum(values, group, 7), right)
    with Machine():
        there = grouped_sum(values.to(GPU), group.to(GPU), 7).cpu()
    torch.testing.assert_close(there, right)


def test_no_rows():
    for device in ("cpu", GPU):
        with Machine():
            values, group = torch.ones(0, 2, device=device), torch.zeros(0, dtype=torch.int64, device=device)
            assert grouped_sum(values, group, 3).cpu().tolist() == [[0.0, 0.0]] * 3


def test_nan_stays_in_its_group():
    with Machine():
        values = torch.tensor([1.0, torch.nan, 2.0]).to(GPU)
        total = grouped_sum(values, torch.tensor([0, 1, 2]).to(GPU), 3).cpu()
    assert total.isnan().tolist() == [False, True, False]


def test_groups_of_the_reference_on_a_gpu_add_up_in_order():
    p = problem(n=40, k=3, d=2, seed=3)
    batch = replace(p.batch(), weight=None)
    rows = torch.arange(40).repeat(2)
    groups = Groups(rows, torch.tensor([0, 40, 80]), torch.full((80,), -3.0, dtype=torch.float64),
                    torch.linspace(0.5, 2.0, 80, dtype=torch.float64))  # fmt: skip
    parameters = [torch.stack([t, t]) for t in p.parameters()]
    right = reference.accumulate_groups(*parameters, batch, groups)
    with Machine():
        there = reference.accumulate_groups(*(t.to(GPU) for t in parameters), batch.to(GPU), groups.to(GPU))
        found = there.loglik.cpu(), there.stats.packed.cpu()
    torch.testing.assert_close(found, (right.loglik, right.stats.packed))
