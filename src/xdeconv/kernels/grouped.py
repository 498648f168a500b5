"""Sums over the rows of each group, the same bits every time on any device.

On a GPU, ``index_add_`` adds in the order in which threads come.
"""

from __future__ import annotations

import torch
from torch import Tensor


def grouped_sum(values: Tensor, group: Tensor, groups: int) -> Tensor:
    """Sums (groups, ...) of the rows (n, ...) of each group (n,)."""
    if not values.is_cuda:
        return values.new_zeros(groups, *values.shape[1:]).index_add_(0, group, values)
    order = group.argsort(stable=True)
    sizes = torch.bincount(group, minlength=groups)
    return torch.segment_reduce(values[order], "sum", lengths=sizes, initial=0)
