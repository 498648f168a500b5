"""From rows and their densities to the sums over rows: statistics kernel, joining kernel, log_joint's kernel."""

# ruff: noqa: RUF005 (in kernels, tuples can be joined but not unpacked)
# mypy: disable-error-code="assignment, misc, no-untyped-def, var-annotated"
from __future__ import annotations

from torch import Tensor

from ...rows.batch import Batch
from .densities import Plan, Shape, prior_line, prior_of
from .memory import load_line, load_numbers, load_row, load_words, ones, row_address
from .pairs import LN_2, add_pair, pair, with_prior
from .triton_import import jit, tl, triton

GROUP = 2  # components whose rows are listed together


@jit(do_not_specialize=["prior_stride", "prior_step", "n", "k", "padded", "chunk"])
def sums_kernel(
    table, rows, prior, prior_stride, prior_step, label, out, n, k, padded, chunk,
    P: tl.constexpr, D: tl.constexpr, NOISE: tl.constexpr, MASKED: tl.constexpr, PROJECTED: tl.constexpr,
    SHARED: tl.constexpr, PRIOR: tl.constexpr, LABELLED: tl.constexpr, JOINT: tl.constexpr, ROOT: tl.constexpr,
    LINE: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr, COMPONENTS: tl.constexpr,
):  # fmt: skip
    """Lanes hold components and loop over a chunk of rows, so that all sums stay in registers.

    With few components, groups of lanes take turns on the rows. JOINT writes log (alpha N) of each pair instead.
    """
    lane = tl.arange(0, LANES)
    j = tl.program_id(1).to(tl.int64) * COMPONENTS + lane % COMPONENTS
    group = lane // COMPONENTS
    GROUPS: tl.constexpr = LANES // COMPONENTS
    SUMS: tl.constexpr = 1 + D + D * (D + 1) // 2
    kind = table.dtype.element_ty
    DOUBLE: tl.constexpr = kind == tl.float64
    S_AT: tl.constexpr = 2 * P if MASKED else P
    S_SIZE: tl.constexpr = P * (P + 1) // 2 if NOISE == 2 else P if NOISE == 1 else 0
    component = load_line(table + tl.minimum(j, k - 1) * LINE, LINE, DOUBLE)
    offset = component[0]
    m = component[1 : 1 + D]
    V = component[1 + D :]
    sums = ()
    for _ in tl.static_range(SUMS):
        sums = sums + (tl.zeros((LANES,), kind),)
    first = tl.program_id(0).to(tl.int64) * chunk
    last = tl.minimum(first + chunk, padded)
    for start in range(first, last, GROUPS):
        i = start + group
        inside = i < last
        if GROUPS > 1:
            i = tl.minimum(i, padded - 1)
        address = row_address(rows, i, WIDTH)
        row = load_row(address, ROOT + 3 if JOINT else ROOT + 2, DOUBLE)
        x = row[:P]
        seen = row[P:S_AT]
        S = row[S_AT : S_AT + S_SIZE]
        R = row[S_AT + S_SIZE : ROOT]
        value, L, z = pair(offset, m, V, x, seen, S, R, P, D, NOISE, MASKED, PROJECTED, SHARED, DOUBLE)
        if PRIOR:
            line = prior_line(i, n, label, LABELLED) * prior_stride.to(tl.int64)
            value = with_prior(value, tl.load(prior + line + tl.minimum(j, k - 1) * prior_step.to(tl.int64)))
        if JOINT:
            natural = value * LN_2 - row[ROOT + 2]
            tl.store(out + i * k + j, natural, mask=inside & (i < n) & (j < k))
        else:
            root = row[ROOT]
            if GROUPS > 1:
                root = tl.where(inside, root, 0.0)
            root = root * tl.exp2(0.5 * (value - row[ROOT + 1]))
            if PRIOR:
                root = tl.where(value == float("-inf"), 0.0, root)
            sums = add_pair(sums, root, L, z, R, seen, P, D, MASKED, PROJECTED, SHARED)
    if not JOINT:
        place = out + (tl.program_id(0).to(tl.int64) * GROUPS + group) * SUMS * k + j
        for c in tl.static_range(SUMS):
            tl.store(place + c * k.to(tl.int64), sums[c], mask=j < k)


@jit(do_not_specialize=["prior_stride", "prior_step", "n", "k", "padded"])
def alive_kernel(
    table, rows, prior, prior_stride, prior_step, label, alive, order, lists, queue, out, n, k, padded,
    P: tl.constexpr, D: tl.constexpr, NOISE: tl.constexpr, MASKED: tl.constexpr, PROJECTED: tl.constexpr,
    SHARED: tl.constexpr, PRIOR: tl.constexpr, LABELLED: tl.constexpr, ROOT: tl.constexpr, LINE: tl.constexpr,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr, LANES: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Sums for a group of like components and a chunk of rows, over the rows with which any of them has a pair alive.

    Those rows are listed first; then groups of lanes, a lane for each component, take turns on the list. Items take
    very different times: programs draw them from a queue. What is written does not depend on who draws what.
    """
    SUMS: tl.constexpr = 1 + D + D * (D + 1) // 2
    kind = table.dtype.element_ty
    DOUBLE: tl.constexpr = kind == tl.float64
    S_AT: tl.constexpr = 2 * P if MASKED else P
    S_SIZE: tl.constexpr = P * (P + 1) // 2 if NOISE == 2 else P if NOISE == 1 else 0
    AT_ONCE: tl.constexpr = LANES // GROUP
    groups = tl.cdiv(k, GROUP)
    mine = lists + tl.program_id(0).to(tl.int64) * CHUNK
    member = tl.arange(0, GROUP)
    lane = tl.arange(0, LANES)
    place = lane // GROUP
    bit = tl.arange(0, 32)
    own = tl.full((32,), 1, tl.int32) << bit
    item = tl.atomic_add(queue, 1)
    while item < groups * (padded // CHUNK):
        group = item % groups
        chunk = item // groups
        words_at = ()
        for c in tl.static_range(GROUP):
            j = tl.load(order + tl.minimum(group * GROUP + c, k - 1)).to(tl.int64)
            words_at = words_at + (alive + j * (padded // 32) + chunk * (CHUNK // 32),)
        count = 0
        i = chunk * CHUNK + bit
        for tile in range(0, CHUNK // 32, 8):
            words = load_words(words_at[0] + tile, 8)
            for c in tl.static_range(1, GROUP):
                more = load_words(words_at[c] + tile, 8)
                both = ()
                for t in tl.static_range(8):
                    both = both + (words[t] | more[t],)
                words = both
            for t in tl.static_range(8):
                before = ones(words[t] & (own - 1))
                tl.store(mine + (count + before), i, mask=(words[t] & own) != 0)
                count += ones(words[t])
                i += 32
        tl.debug_barrier()
        j = tl.load(order + tl.minimum(group * GROUP + lane % GROUP, k - 1)).to(tl.int64)
        component = load_line(table + j * LINE, LINE, DOUBLE)
        offset = component[0]
        m = component[1 : 1 + D]
        V = component[1 + D :]
        sums = ()
        for _ in tl.static_range(SUMS):
            sums = sums + (tl.zeros((LANES,), kind),)
        next_row = tl.load(mine + place, mask=place < count, other=0)
        for start in range(0, count, AT_ONCE):
            i = next_row
            next_row = tl.load(mine + start + AT_ONCE + place, mask=start + AT_ONCE + place < count, other=0)
            row = load_row(row_address(rows, i, WIDTH), ROOT + 2, DOUBLE)
            x = row[:P]
            seen = row[P:S_AT]
            S = row[S_AT : S_AT + S_SIZE]
            R = row[S_AT + S_SIZE : ROOT]
            value, L, z = pair(offset, m, V, x, seen, S, R, P, D, NOISE, MASKED, PROJECTED, SHARED, DOUBLE)
            if PRIOR:
                line = prior_line(i, n, label, LABELLED) * prior_stride.to(tl.int64)
                value = with_prior(value, tl.load(prior + line + j * prior_step.to(tl.int64)))
            root = tl.where(start + place < count, row[ROOT], 0.0)
            root = root * tl.exp2(0.5 * (value - row[ROOT + 1]))
            if PRIOR:
                root = tl.where(value == float("-inf"), 0.0, root)
            sums = add_pair(sums, root, L, z, R, seen, P, D, MASKED, PROJECTED, SHARED)
        inside = group * GROUP + member < k
        j = tl.load(order + group * GROUP + member, mask=inside, other=0)
        target = out + chunk.to(tl.int64) * SUMS * k + j
        for c in tl.static_range(SUMS):
            tl.store(target, tl.sum(tl.reshape(sums[c], (AT_ONCE, GROUP)), axis=0), mask=inside)
            target += k
        tl.debug_barrier()
        item = tl.atomic_add(queue, 1)


@jit(do_not_specialize=["parts", "programs", "k"])
def join_kernel(
    partial, row_sums, stats, parts, programs, k,
    D: tl.constexpr, SHARED: tl.constexpr, PARTS: tl.constexpr, COMPONENTS: tl.constexpr, FLAT: tl.constexpr,
):  # fmt: skip
    """Adds up the parts in float64 and in their order; one more program adds up what the rows left."""
    SUMS: tl.constexpr = 1 + D + D * (D + 1) // 2
    c = tl.program_id(0)
    if c < SUMS:
        j = tl.program_id(1) * COMPONENTS + tl.arange(0, COMPONENTS)
        total = tl.zeros((PARTS, COMPONENTS), tl.float64)
        for start in range(0, parts, PARTS):
            part = (start + tl.arange(0, PARTS)).to(tl.int64)
            mask = (part < parts)[:, None] & (j < k)[None, :]
            value = tl.load(partial + (part[:, None] * SUMS + c) * k + j[None, :], mask=mask, other=0.0)
            total += value.to(tl.float64)
        value = tl.sum(total, axis=0)
        inside = j < k
        if SHARED:
            tl.store(stats + c * k + j, value, mask=inside)
        elif c == 0:
            tl.store(stats + 2 + j, value, mask=inside)
        elif c <= D:
            tl.store(stats + 2 + k + j * D + c - 1, value, mask=inside)
        else:
            a = 0
            for t in tl.static_range(1, D):
                a += (c - 1 - D >= t * (t + 1) // 2).to(tl.int32)
            b = c - 1 - D - a * (a + 1) // 2
            matrix = stats + 2 + k * (1 + D) + j * D * D
            tl.store(matrix + a * D + b, value, mask=inside)
            tl.store(matrix + b * D + a, value, mask=inside)
    elif tl.program_id(1) == 0:
        weight = tl.zeros((FLAT,), tl.float64)
        density = tl.zeros((FLAT,), tl.float64)
        for start in range(0, programs, FLAT):
            i = start + tl.arange(0, FLAT)
            weight += tl.load(row_sums + 2 * i, mask=i < programs, other=0.0)
            density += tl.load(row_sums + 2 * i + 1, mask=i < programs, other=0.0)
        where = stats
        if SHARED:
            where = stats + SUMS * k
        tl.store(where, tl.sum(weight))
        tl.store(where + 1, tl.sum(density))


@jit(do_not_specialize=["k"])
def unwhiten_kernel(joined, table, stats, k, D: tl.constexpr, LINE: tl.constexpr, BLOCK: tl.constexpr):
    """With w = A^T z and M = A^T A shared by all rows: g = A^T (sum r z) and G = A^T (sum r z z^T - q I) A."""
    SUMS: tl.constexpr = 1 + D + D * (D + 1) // 2
    j = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = j < k
    at = tl.minimum(j, k - 1)
    A = load_numbers(table + at * LINE, 1 + D, D * (D + 1) // 2)
    q = tl.load(joined + at)
    tl.store(stats + 2 + j, q, mask=inside)
    Z = ()
    for a in tl.static_range(D):
        for b in tl.static_range(a + 1):
            value = tl.load(joined + (1 + D + a * (a + 1) // 2 + b) * k + at)
            if a == b:
                value = value - q
            Z = Z + (value,)
    for b in tl.static_range(D):
        g = tl.zeros((BLOCK,), tl.float64)
        ZA = ()
        for a in tl.static_range(D):
            value = tl.zeros((BLOCK,), tl.float64)
            for c in tl.static_range(b, D):
                if a >= c:
                    value += Z[a * (a + 1) // 2 + c] * A[c * (c + 1) // 2 + b].to(tl.float64)
                else:
                    value += Z[c * (c + 1) // 2 + a] * A[c * (c + 1) // 2 + b].to(tl.float64)
            ZA = ZA + (value,)
            if a >= b:
                g += A[a * (a + 1) // 2 + b].to(tl.float64) * tl.load(joined + (1 + a) * k + at)
        tl.store(stats + 2 + k + j * D + b, g, mask=inside)
        for a in tl.static_range(D):
            value = tl.zeros((BLOCK,), tl.float64)
            for c in tl.static_range(a, D):
                value += A[c * (c + 1) // 2 + a].to(tl.float64) * ZA[c]
            tl.store(stats + 2 + k * (1 + D) + j * D * D + a * D + b, value, mask=inside)
    if tl.program_id(0) == 0:
        tl.store(stats, tl.load(joined + SUMS * k))
        tl.store(stats + 1, tl.load(joined + SUMS * k + 1))


def partial_sums(table: Tensor, rows: Tensor, batch: Batch, shape: Shape, plan: Plan) -> Tensor:
    """Sums over each chunk of rows (parts, sums, k), in the batch's type."""
    parts = triton.cdiv(plan.padded, plan.chunk) * (plan.lanes // plan.components)
    out = rows.new_empty(parts, shape.sums, len(table))
    _over_chunks(table, rows, batch, shape, plan, out, joint=False)
    return out


def joints(table: Tensor, rows: Tensor, batch: Batch, shape: Shape, plan: Plan) -> Tensor:
    """log alpha N of each pair (n, k)."""
    out = rows.new_empty(batch.n, len(table))
    _over_chunks(table, rows, batch, shape, plan, out, joint=True)
    return out


def _over_chunks(
    table: Tensor, rows: Tensor, batch: Batch, shape: Shape, plan: Plan, out: Tensor, *, joint: bool
) -> None:
    k = len(table)
    prior, stride, step, label = prior_of(batch, rows)
    sums_kernel[(triton.cdiv(plan.padded, plan.chunk), triton.cdiv(k, plan.components))](
        table, rows, prior, stride, step, label, out, batch.n, k, plan.padded, plan.chunk,
        PRIOR=int(batch.log_prior is not None), LABELLED=int(shape.labelled), JOINT=int(joint), ROOT=shape.root,
        LANES=plan.lanes, COMPONENTS=plan.components, **shape.constants, num_warps=plan.lane_warps,
        enable_fp_fusion=False,
    )  # fmt: skip


def alive_sums(
    table: Tensor, rows: Tensor, batch: Batch, shape: Shape, plan: Plan, alive: Tensor, order: Tensor
) -> Tensor:
    """Sums over the pairs alive of each chunk of rows (parts, sums, k), in the batch's type."""
    k = len(table)
    out = rows.new_empty(plan.padded // plan.chunk, shape.sums, k)
    programs = min(plan.alive_programs, triton.cdiv(k, GROUP) * len(out))
    lists = alive.new_empty(programs, plan.chunk)
    queue = alive.new_zeros(1)
    prior, stride, step, label = prior_of(batch, rows)
    alive_kernel[(programs,)](
        table, rows, prior, stride, step, label, alive, order, lists, queue, out, batch.n, k,
        plan.padded,
        PRIOR=int(batch.log_prior is not None), LABELLED=int(shape.labelled), ROOT=shape.root, CHUNK=plan.chunk,
        LANES=plan.alive_lanes, GROUP=GROUP, **shape.constants, num_warps=1,
        enable_fp_fusion=False,
    )  # fmt: skip
    return out


def join(partial: Tensor, row_sums: Tensor, table: Tensor, shape: Shape, stats: Tensor) -> None:
    """Writes the sums over all parts into the flat tensor of a Stats."""
    parts, sums, k = partial.shape
    out = stats if not shape.shared else stats.new_empty(sums * k + 2)
    components = 32
    join_kernel[(sums + 1, triton.cdiv(k, components))](
        partial, row_sums, out, parts, len(row_sums), k,
        D=shape.d, SHARED=int(shape.shared), PARTS=32, COMPONENTS=components, FLAT=1024, num_warps=4,
        enable_fp_fusion=True,
    )  # fmt: skip
    if shape.shared:
        block = 32
        unwhiten_kernel[(triton.cdiv(k, block),)](
            out, table, stats, k, D=shape.d, LINE=shape.line, BLOCK=block, num_warps=1, enable_fp_fusion=True
        )
