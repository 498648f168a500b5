"""Which components are listed together: pairs that have their pairs alive with the same rows."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
from torch import Tensor

from .triton_import import jit, tl, triton

SAMPLE = 2048  # rows that say which components are alike
ROUNDS = 12


@jit(do_not_specialize=["k"], do_not_specialize_on_alignment=["before", "after"])
def match_kernel(likeness, before, after, k, WIDE: tl.constexpr):
    """One round: two that chose each other become partners, and a component without one chooses its most like.

    ``before`` and ``after`` (2, k) are the partner of each component, itself at first, and its choice.
    """
    i = tl.program_id(0)
    j = tl.arange(0, WIDE)
    partner = tl.load(before + j, mask=j < k, other=WIDE)
    choice = tl.load(before + k + j, mask=j < k, other=0)
    chosen = (tl.load(before + k + choice, mask=j < k, other=WIDE) == j) & (choice != j)
    partner = tl.where(chosen, choice, partner)
    free = partner == j
    like = tl.load(likeness + i.to(tl.int64) * k + j, mask=free & (j != i), other=-1.0)
    best = tl.argmax(like, axis=0)
    mine = tl.sum(tl.where(j == i, partner, 0))
    tl.store(after + i, mine)
    tl.store(after + k + i, tl.where((mine == i) & (tl.max(like, axis=0) >= 0), best, i))


def like_beside_like(alive: Tensor, k: int) -> Tensor:
    """An order of the components (k,) in pairs that have their pairs alive with the same rows, judged by a sample.

    In each round, two components that are each other's most like among those left become a pair.
    """
    words, padded = alive.shape
    sample = alive[:, :: max(1, padded // SAMPLE)][:, :SAMPLE]
    bit = torch.arange(32, dtype=torch.int32, device=alive.device)
    there = ((sample[:, None, :] >> bit[:, None]) & 1).view(32 * words, -1)[:k].float()
    both = there @ there.T
    each = both.diagonal()
    likeness = both / (each[:, None] + each[None, :] - both + 1)
    own = torch.arange(k, dtype=torch.int32, device=alive.device)
    found = own.repeat(ROUNDS + 2, 2, 1)
    for turn in range(ROUNDS + 1):
        match_kernel[(k,)](likeness, found[turn], found[turn + 1], k, WIDE=triton.next_power_of_2(k), num_warps=4)
    partner = found[-1, 0]
    first = torch.where(partner == own, own + k, torch.minimum(own, partner))
    return first.argsort(stable=True).to(torch.int32)
