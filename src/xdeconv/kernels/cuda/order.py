"""Which components are listed together: pairs that have their pairs alive with the same rows."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
from torch import Tensor

from .memory import ones
from .triton_import import jit, tl, triton

SAMPLE = 64  # tiles of rows that say which components are alike
ROUNDS = 12


@jit(do_not_specialize=["k", "tiles", "looked", "step"])
def likeness_kernel(alive, likeness, k, tiles, looked, step, BLOCK: tl.constexpr):
    """Rows alive with both of two components over rows alive with either, looked up in some tiles, each a step on."""
    a = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    both = tl.zeros((BLOCK, BLOCK), tl.int32)
    either = tl.zeros((BLOCK, BLOCK), tl.int32)
    for tile in range(looked):
        left = tl.load(alive + a.to(tl.int64) * tiles + tile * step, mask=a < k, other=0)[:, None]
        right = tl.load(alive + b.to(tl.int64) * tiles + tile * step, mask=b < k, other=0)[None, :]
        both += ones(left & right)
        either += ones(left | right)
    value = both.to(tl.float32) / (either + 1).to(tl.float32)
    tl.store(likeness + a.to(tl.int64)[:, None] * k + b[None, :], value, mask=(a < k)[:, None] & (b < k)[None, :])


@jit(do_not_specialize=["k", "turn"], do_not_specialize_on_alignment=["before", "after"])
def match_kernel(likeness, before, after, k, turn, WIDE: tl.constexpr):
    """One round: two that chose each other become partners, and a component without one chooses its most like.

    ``before`` and ``after`` (2, k) are the partner of each component, itself at first, and its choice.
    """
    i = tl.program_id(0)
    j = tl.arange(0, WIDE)
    partner, choice = j, j
    if turn > 0:
        partner = tl.load(before + j, mask=j < k, other=WIDE)
        choice = tl.load(before + k + j, mask=j < k, other=0)
        chosen = (tl.load(before + k + choice, mask=j < k, other=WIDE) == j) & (choice != j)
        partner = tl.where(chosen, choice, partner)
    free = (partner == j) & (j < k)
    like = tl.load(likeness + i.to(tl.int64) * k + j, mask=free & (j != i), other=-1.0)
    best = tl.argmax(like, axis=0)
    mine = tl.sum(tl.where(j == i, partner, 0))
    tl.store(after + i, mine)
    tl.store(after + k + i, tl.where((mine == i) & (tl.max(like, axis=0) >= 0), best, i))


@jit(do_not_specialize=["k"], do_not_specialize_on_alignment=["partner"])
def rank_kernel(partner, order, k, WIDE: tl.constexpr):
    """Partners side by side, in the order of the first of them, and components without one after all others."""
    i = tl.program_id(0)
    j = tl.arange(0, WIDE)
    theirs = tl.load(partner + j, mask=j < k, other=0)
    mine = tl.load(partner + i)
    first = tl.where(theirs == j, j + k, tl.minimum(j, theirs))
    own = tl.where(mine == i, i + k, tl.minimum(i, mine))
    before = (first < own) | ((first == own) & (j < i))
    tl.store(order + tl.sum((before & (j < k)).to(tl.int32)), i)


def like_beside_like(alive: Tensor) -> Tensor:
    """An order of the components (k,) in pairs that have their pairs alive with the same rows, judged by a sample.

    In each round, two components that are each other's most like among those left become a pair.
    """
    k, tiles = alive.shape
    block, wide = 16, triton.next_power_of_2(k)
    likeness = alive.new_empty(k, k, dtype=torch.float32)
    likeness_kernel[(triton.cdiv(k, block), triton.cdiv(k, block))](
        alive, likeness, k, tiles, min(SAMPLE, tiles), max(1, tiles // SAMPLE), BLOCK=block, num_warps=1,
        enable_fp_fusion=False,
    )  # fmt: skip
    partners = alive.new_empty(ROUNDS + 1, 2, k)
    for turn in range(ROUNDS + 1):
        match_kernel[(k,)](
            likeness, partners[turn - 1], partners[turn], k, turn, WIDE=wide, num_warps=4, enable_fp_fusion=False
        )
    order = alive.new_empty(k)
    rank_kernel[(k,)](partners[-1, 0], order, k, WIDE=wide, num_warps=4, enable_fp_fusion=False)
    return order
