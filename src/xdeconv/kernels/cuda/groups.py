"""Groups of rows, each with a few components of its own: lanes hold a group's rows, programs a part of a group."""

# ruff: noqa: RUF005 (in kernels, tuples can be joined but not unpacked)
# mypy: disable-error-code="assignment, misc, no-untyped-def, var-annotated"
from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...rows.batch import Batch
from ..groups import Groups, GroupSums
from ..stats import Stats
from .densities import Shape, shape_of, table_of, tiles_of
from .memory import load_line, load_row, row_address
from .pairs import LN_2, LOG2_E, LOWEST, absorb, add_pair, pair
from .sums import join
from .triton_import import interpreted, jit, tl


@jit(do_not_specialize=["g"])
def groups_kernel(
    table, rows, index, starts, background, weight, out, loglik, g,
    M: tl.constexpr, P: tl.constexpr, D: tl.constexpr, NOISE: tl.constexpr, MASKED: tl.constexpr,
    PROJECTED: tl.constexpr, SHARED: tl.constexpr, ROOT: tl.constexpr, LINE: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums (parts, sums, g M) and log-likelihoods (parts, g) of one part of one group's rows.

    The densities of a row's M pairs come first, then its sums: pairs are computed twice, and nothing waits in memory.
    """
    SUMS: tl.constexpr = 1 + D + D * (D + 1) // 2
    kind = table.dtype.element_ty
    DOUBLE: tl.constexpr = kind == tl.float64
    S_AT: tl.constexpr = 2 * P if MASKED else P
    S_SIZE: tl.constexpr = P * (P + 1) // 2 if NOISE == 2 else P if NOISE == 1 else 0
    group = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1).to(tl.int64)
    begin = tl.load(starts + group)
    end = tl.load(starts + group + 1)
    share = tl.cdiv(end - begin, tl.num_programs(1))
    begin = tl.minimum(begin + part * share, end)
    end = tl.minimum(begin + share, end)
    sums = ()
    for c in tl.static_range(M * SUMS):  # noqa: B007 (below, _ is a tensor)
        sums = sums + (tl.zeros((BLOCK,), kind),)
    density = tl.zeros((BLOCK,), tl.float64)
    for start in range(begin, end, BLOCK):
        entry = start + tl.arange(0, BLOCK)
        inside = entry < end
        entry = tl.minimum(entry, end - 1)
        row = load_row(row_address(rows, tl.load(index + entry), WIDTH), ROOT + 3, DOUBLE)
        x = row[:P]
        seen = row[P:S_AT]
        S = row[S_AT : S_AT + S_SIZE]
        R = row[S_AT + S_SIZE : ROOT]
        share_of_row = tl.where(inside, tl.load(weight + entry), 0.0)
        rest = ((tl.load(background + entry) + row[ROOT + 2]) * LOG2_E).to(kind)
        alone = rest == float("-inf")
        top = tl.where(alone, LOWEST, rest).to(kind)
        total = tl.where(alone, 0.0, 1.0).to(kind)
        for j in tl.static_range(M):
            line = load_line(table + (group * M + j) * LINE, LINE, DOUBLE)
            m = line[1 : 1 + D]
            V = line[1 + D :]
            value, _, _ = pair(line[0], m, V, x, seen, S, R, P, D, NOISE, MASKED, PROJECTED, SHARED, DOUBLE)
            top, total, _ = absorb(top, total, value)
        log2_density = top + tl.log2(total)
        natural = log2_density.to(tl.float64) * LN_2 - row[ROOT + 2].to(tl.float64)
        density += tl.where(inside, natural * share_of_row, 0.0)
        root_of_row = tl.sqrt(share_of_row).to(kind)
        more = ()
        for j in tl.static_range(M):
            line = load_line(table + (group * M + j) * LINE, LINE, DOUBLE)
            m = line[1 : 1 + D]
            V = line[1 + D :]
            value, L, z = pair(line[0], m, V, x, seen, S, R, P, D, NOISE, MASKED, PROJECTED, SHARED, DOUBLE)
            root = tl.where(total == 0, 0.0, root_of_row * tl.exp2(0.5 * (value - log2_density)))
            own = sums[j * SUMS : j * SUMS + SUMS]
            more = more + add_pair(own, root, L, z, R, seen, P, D, MASKED, PROJECTED, SHARED)
        sums = more
    for j in tl.static_range(M):
        for c in tl.static_range(SUMS):
            tl.store(out + (part * SUMS + c) * (g * M) + group * M + j, tl.sum(sums[j * SUMS + c]))
    tl.store(loglik + part * g + group, tl.sum(density))


@dataclass(frozen=True)
class GroupRows:
    """A batch in tiles that groups pick rows from, and the batch itself."""

    batch: Batch
    shape: Shape
    tiles: Tensor


def in_tiles(batch: Batch, padded: int) -> GroupRows:
    """A batch in the form that groups pick rows from; weights and priors are those of the groups."""
    batch = replace(batch, weight=None, log_prior=None, label=None)
    shape = shape_of(batch)
    return GroupRows(batch, shape, tiles_of(batch, shape, padded))


def sums_of_groups(
    log_weights: Tensor, means: Tensor, covariances: Tensor, rows: GroupRows, groups: Groups, parts: int
) -> GroupSums:
    """The sums of every group over its own components (g, m, ...), each group's rows in so many parts."""
    (g, m, d), shape, device = means.shape, rows.shape, rows.batch.device
    table = table_of(log_weights.flatten(), means.flatten(0, 1), covariances.flatten(0, 1), rows.batch, shape)
    index, starts, background, weight = (
        t.to(device).contiguous() for t in (groups.rows, groups.starts, groups.background, groups.weight)
    )
    out = rows.tiles.new_empty(parts, shape.sums, g * m)
    loglik = rows.tiles.new_empty(parts, g, dtype=torch.float64)
    groups_kernel[(g, parts)](
        table, rows.tiles, index, starts, background, weight, out, loglik, g,
        M=m, ROOT=shape.root, BLOCK=256 if interpreted() else 32, **shape.constants, num_warps=1,
        enable_fp_fusion=False,
    )  # fmt: skip
    total = loglik.sum(0)
    stats = Stats(loglik.new_empty(Stats.size(g * m, d)), g * m, d)
    join(out, torch.stack([weight.sum(), total.sum()])[None], table, shape, stats.packed)
    return GroupSums(stats, total, m)
