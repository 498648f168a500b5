"""From a batch to the log-density of its rows: table of components, tiles of rows, row kernel, closing kernel."""

# ruff: noqa: RUF005 (in kernels, tuples can be joined but not unpacked)
# mypy: disable-error-code="assignment, no-untyped-def, var-annotated"
from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...rows.batch import Batch, packed_size
from .memory import load_line, load_row, place_of, row_address, store_among_four, store_row, votes
from .pairs import LN_2, LOG2_E, LOWEST, absorb, factor, pair, scaled, with_prior
from .triton_import import jit, tl, triton

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
NEGLIGIBLE = {torch.float32: 2.0**-24, torch.float64: 2.0**-40}  # the share of a row that skipped pairs may hold


@jit(do_not_specialize=["k"])
def table_kernel(
    log_weights, means, covariances, noise, table, k,
    D: tl.constexpr, NOISE: tl.constexpr, SHARED: tl.constexpr, LINE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One line per component: log2 alpha, m, V; when shared, L^-1 instead of V and its log-determinant in log2 alpha.

    One more line repeats the last component with no weight: lines are read two at a time.
    """
    j = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = j <= k
    line = table + j * LINE
    kind = table.dtype.element_ty
    at = tl.minimum(j, k - 1)
    offset = tl.where(j < k, tl.load(log_weights + at).to(tl.float64) * LOG2_E, float("-inf"))
    zeros = ()
    V = ()
    for a in tl.static_range(D):
        m = tl.load(means + at * D + a)
        tl.store(line + 1 + a, m.to(kind), mask=inside)
        zeros = zeros + (m.to(tl.float64) * 0.0,)
        for b in tl.static_range(a + 1):
            V = V + (tl.load(covariances + at * D * D + a * D + b).to(tl.float64),)
    if SHARED:
        T = ()
        for a in tl.static_range(D):
            for b in tl.static_range(a + 1):
                value = V[a * (a + 1) // 2 + b]
                if NOISE == 2:
                    value = value + tl.load(noise + a * (a + 1) // 2 + b).to(tl.float64)
                if NOISE == 1 and a == b:
                    value = value + tl.load(noise + a).to(tl.float64)
                T = T + (value,)
        L, _ = factor(T, zeros, (), (), 0, D)
        V = ()
        for a in tl.static_range(D):
            offset = offset + tl.log2(L[a * (a + 1) // 2 + a])
            for b in tl.static_range(a + 1):
                if a == b:
                    value = L[a * (a + 1) // 2 + a]
                else:
                    value = L[a * (a + 1) // 2 + b] * V[b * (b + 1) // 2 + b]
                    for c in tl.static_range(b + 1, a):
                        value += L[a * (a + 1) // 2 + c] * V[c * (c + 1) // 2 + b]
                    value = value * L[a * (a + 1) // 2 + a] * -1.0
                V = V + (value,)
    tl.store(line, offset.to(kind), mask=inside)
    for c in tl.static_range(D * (D + 1) // 2):
        tl.store(line + 1 + D + c, V[c].to(kind), mask=inside)


@jit(
    do_not_specialize=["x_stride", "noise_stride", "noise_step", "R_stride_p", "R_stride_d", "n"],
    do_not_specialize_on_alignment=["x", "noise", "R", "weight"],
)
def tiles_kernel(
    x, x_stride, noise, noise_stride, noise_step, R, R_stride_p, R_stride_d, weight, scale, rows, n,
    P: tl.constexpr, D: tl.constexpr, GIVEN: tl.constexpr, NOISE: tl.constexpr, MISSING: tl.constexpr,
    MASKED: tl.constexpr, PROJECTED: tl.constexpr, WEIGHTED: tl.constexpr, SCALED: tl.constexpr,
    HALF_LOG_2PI: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copies rows into tiles, missing values masked; rows after the last have weight zero and unit noise."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    kind = rows.dtype.element_ty
    DOUBLE: tl.constexpr = kind == tl.float64
    values = ()
    seen = ()
    constant = tl.zeros((BLOCK,), tl.float64)
    for a in tl.static_range(P):
        value = tl.load(x + a * x_stride.to(tl.int64) + i, mask=inside, other=0.0).to(kind)
        unit = tl.full((BLOCK,), HALF_LOG_2PI, tl.float64)
        if SCALED:
            unit = unit + tl.log(tl.load(scale + a))
        there = tl.full((BLOCK,), 1.0, kind)
        if MISSING:
            observed = value == value
            there = observed.to(kind)
            value = tl.where(observed, value, 0.0)
        constant += unit * there
        seen = seen + (there,)
        values = values + (value,)
    if MASKED:
        values = values + seen
    if NOISE > 0:
        at = i * noise_step.to(tl.int64)
        for a in tl.static_range(P):
            for b in tl.static_range(0 if NOISE == 2 else a, a + 1):
                slot = a * (a + 1) // 2 + b if NOISE == 2 else a
                if GIVEN:
                    value = tl.load(noise + slot * noise_stride.to(tl.int64) + at, mask=inside, other=0.0).to(kind)
                    value = value * (seen[a] * seen[b])
                else:
                    value = tl.zeros((BLOCK,), kind)
                if a == b:
                    value = tl.where(inside, value + (1.0 - seen[a]), 1.0).to(kind)
                values = values + (value,)
    if PROJECTED:
        for a in tl.static_range(P):
            for c in tl.static_range(D):
                where = R + a * R_stride_p.to(tl.int64) + c * R_stride_d.to(tl.int64) + i
                values = values + (tl.load(where, mask=inside, other=0.0).to(kind) * seen[a],)
    root = inside.to(kind)
    if WEIGHTED:
        root = tl.sqrt(tl.load(weight + i, mask=inside, other=0.0).to(kind))
    nothing = tl.zeros((BLOCK,), kind)
    values = values + (root, nothing, constant.to(kind), nothing, nothing, nothing)
    store_row(row_address(rows, i, WIDTH), values, WIDTH, DOUBLE)


@jit(do_not_specialize=["prior_stride", "prior_step", "n", "k", "padded", "share"])
def rows_kernel(
    table, rows, prior, prior_stride, prior_step, label, partial, alive, n, k, padded, share,
    P: tl.constexpr, D: tl.constexpr, NOISE: tl.constexpr, MASKED: tl.constexpr, PROJECTED: tl.constexpr,
    SHARED: tl.constexpr, PRIOR: tl.constexpr, LABELLED: tl.constexpr, ALIVE: tl.constexpr, MOST: tl.constexpr,
    LINE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Lanes hold rows and loop over a share of the components, two at a time: the log2 of that share's density.

    ALIVE keeps a bit for each pair, unset as long as all pairs of a row whose bits are unset hold no more than one
    part in MOST of the density so far, which only grows; a word (k, tiles) is a component's bits for 32 rows.
    """
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    kind = table.dtype.element_ty
    DOUBLE: tl.constexpr = kind == tl.float64
    S_AT: tl.constexpr = 2 * P if MASKED else P
    S_SIZE: tl.constexpr = P * (P + 1) // 2 if NOISE == 2 else P if NOISE == 1 else 0
    END: tl.constexpr = S_AT + S_SIZE + (P * D if PROJECTED else 0)
    row = load_row(row_address(rows, i, WIDTH), END, DOUBLE)
    x = row[:P]
    seen = row[P:S_AT]
    S = row[S_AT : S_AT + S_SIZE]
    R = row[S_AT + S_SIZE :]
    prior_at = i
    if PRIOR:
        prior_at = prior_line(i, n, label, LABELLED) * prior_stride.to(tl.int64)
    top = tl.full((BLOCK,), LOWEST, kind)
    total = tl.zeros((BLOCK,), kind)
    lost = tl.zeros((BLOCK,), kind)  # times MOST, relative to the largest term
    first = tl.program_id(1) * share
    last = tl.minimum(first + share, k)
    for start in range(first, last, 32):
        words = tl.zeros((BLOCK,), tl.int32)
        for two in range(start, tl.minimum(start + 32, last), 2):
            for j in tl.static_range(2):
                line = load_line(table + (two + j) * LINE, LINE, DOUBLE)
                m = line[1 : 1 + D]
                V = line[1 + D :]
                value, _, _ = pair(line[0], m, V, x, seen, S, R, P, D, NOISE, MASKED, PROJECTED, SHARED, DOUBLE)
                if PRIOR:
                    column = tl.minimum(two + j, k - 1) * prior_step.to(tl.int64)
                    value = with_prior(value, tl.load(prior + prior_at + column))
                higher = value > top
                top, total, small = absorb(top, total, value)
                if ALIVE:
                    with_this = scaled(small, MOST, lost)
                    dead = (with_this <= total) & (value < top)
                    lost = tl.where(dead, with_this, tl.where(higher, lost * small, lost))
                    words = tl.where(i % 32 == two + j - start, votes(dead == 0, BLOCK), words)
        if ALIVE:
            tl.store(alive + (start + i % 32) * (padded // 32) + i // 32, words, mask=start + i % 32 < k)
    tl.store(partial + tl.program_id(1).to(tl.int64) * padded + i, top + tl.log2(total))


@jit()
def prior_line(i, n, label, LABELLED: tl.constexpr):
    """The line of the log-prior that belongs to a row; some line for rows after the last."""
    i = tl.minimum(i, n - 1).to(tl.int64)
    if LABELLED:
        i = tl.load(label + i).to(tl.int64)
    return i


@jit(do_not_specialize=["n", "padded", "shares"], do_not_specialize_on_alignment=["weight"])
def close_kernel(
    partial, rows, weight, log_prob, sums, n, padded, shares,
    WEIGHTED: tl.constexpr, SUMS: tl.constexpr, ROOT: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Joins the shares of each row: writes its log-density, or keeps it in its tile and sums weights and densities."""
    program = tl.program_id(0).to(tl.int64)
    i = program * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    kind = rows.dtype.element_ty
    address = row_address(rows, i, WIDTH)
    top = tl.full((BLOCK,), LOWEST, kind)
    total = tl.zeros((BLOCK,), kind)
    for s in range(shares):
        top, total, _ = absorb(top, total, tl.load(partial + s * padded.to(tl.int64) + i))
    log2_density = top + tl.log2(total)
    natural = log2_density * LN_2 - tl.load(address + place_of(ROOT + 2))
    if SUMS:
        store_among_four(address, log2_density, ROOT + 1)
        share = inside.to(tl.float64)
        if WEIGHTED:
            share = tl.load(weight + i, mask=inside, other=0.0).to(tl.float64)
        tl.store(sums + 2 * program, tl.sum(share))
        tl.store(sums + 2 * program + 1, tl.sum(tl.where(inside, natural.to(tl.float64) * share, 0.0)))
    else:
        tl.store(log_prob + i, natural, mask=inside)


@dataclass(frozen=True)
class Plan:
    """How many rows and components a program takes."""

    padded: int  # rows in tiles, with those that fill the last program
    block: int  # rows of one program of the row kernel, and its warps
    warps: int
    shares: int  # parts into which the row kernel splits the components
    chunk: int  # rows of one program of the statistics kernel, its lanes and its warps
    lanes: int
    lane_warps: int
    components: int  # of one program of the statistics kernel
    skip: bool  # whether to sum over the pairs alive only
    alive_programs: int
    alive_lanes: int


@dataclass(frozen=True)
class Shape:
    """What a batch makes of a kernel at compile time."""

    p: int
    d: int
    given: int  # noise as given: 0 none, 1 diagonal, 2 full
    noise: int  # noise in tiles: diagonal at least when values are missing or rows that fill a tile have R = 0
    missing: bool
    projected: bool
    shared: bool
    labelled: bool

    @property
    def masked(self) -> bool:
        return self.missing and not self.projected

    @property
    def root(self) -> int:
        """The slot of a tile that holds the square root of the weight; log2 density and constant follow."""
        noise = (0, self.p, packed_size(self.p))[self.noise]
        return self.p * (2 if self.masked else 1) + noise + (self.p * self.d if self.projected else 0)

    @property
    def width(self) -> int:
        """Numbers of a row, rounded up to a multiple of four."""
        return -(-(self.root + 3) // 4) * 4

    @property
    def line(self) -> int:
        """Length of a component's line in the table: aligned for loads of four numbers."""
        return -(-self.sums // 4) * 4

    @property
    def sums(self) -> int:
        """Sums of one component: q, g and the lower triangle of G."""
        return 1 + self.d + packed_size(self.d)

    @property
    def constants(self) -> dict[str, int]:
        """The constants that every kernel over pairs takes."""
        return {
            "P": self.p, "D": self.d, "NOISE": self.noise, "MASKED": int(self.masked),
            "PROJECTED": int(self.projected), "SHARED": int(self.shared), "LINE": self.line, "WIDTH": self.width,
        }  # fmt: skip


def shape_of(batch: Batch) -> Shape:
    given = 0 if batch.noise is None else 2 if batch.full else 1
    shared = batch.shared
    noise = 0 if shared else max(given, 1) if batch.missing or batch.projection is not None else given
    return Shape(
        batch.p, batch.d, given, noise, batch.missing, batch.projection is not None, shared, batch.label is not None
    )


def unit_stride(t: Tensor) -> Tensor:
    """The tensor, or a copy, with its rows side by side in memory."""
    return t if t.stride(-1) == 1 or t.shape[-1] <= 1 else t.contiguous()


def table_of(log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, shape: Shape) -> Tensor:
    """Components as lines of numbers in the batch's type (k, line); in memory, one without weight comes after them."""
    k, d = means.shape
    log_weights, means, covariances = (t.to(batch.device).contiguous() for t in (log_weights, means, covariances))
    table = batch.x.new_empty(k + 1, shape.line)
    noise = table if batch.noise is None or not shape.shared else batch.noise.contiguous()
    block = 32
    table_kernel[(triton.cdiv(k + 1, block),)](
        log_weights, means, covariances, noise, table, k,
        D=d, NOISE=shape.given, SHARED=int(shape.shared), LINE=shape.line, BLOCK=block, num_warps=1,
        enable_fp_fusion=True,
    )  # fmt: skip
    return table[:k]


def tiles_of(batch: Batch, shape: Shape, padded: int) -> Tensor:
    """Rows in tiles (padded / 32, width / 4, 32, 4)."""
    rows = batch.x.new_empty(padded * shape.width)
    x = unit_stride(batch.x)
    noise = x if batch.noise is None else unit_stride(batch.noise)
    R = x[None] if batch.projection is None else unit_stride(batch.projection)
    weight = x if batch.weight is None else unit_stride(batch.weight)
    scale = x if batch.scale is None else batch.scale.to(torch.float64).contiguous()
    block = 128
    tiles_kernel[(padded // block,)](
        x, x.stride(0), noise, noise.stride(0), int(batch.noise is not None and batch.noise.shape[1] > 1),
        R, R.stride(0), R.stride(1), weight, scale, rows, batch.n,
        P=shape.p, D=shape.d, GIVEN=int(shape.given > 0), NOISE=shape.noise, MISSING=int(shape.missing),
        MASKED=int(shape.masked), PROJECTED=int(shape.projected), WEIGHTED=int(batch.weight is not None),
        SCALED=int(batch.scale is not None), HALF_LOG_2PI=HALF_LOG_2PI,
        WIDTH=shape.width, BLOCK=block, num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip
    return rows


def prior_of(batch: Batch, fallback: Tensor) -> tuple[Tensor, int, int, Tensor]:
    """The log-prior, its strides and the label of each row; the fallback stands for what is absent."""
    if batch.log_prior is None:
        return fallback, 0, 0, fallback
    label = fallback if batch.label is None else unit_stride(batch.label)
    return batch.log_prior, batch.log_prior.stride(0), batch.log_prior.stride(1), label


def densities(
    table: Tensor, rows: Tensor, batch: Batch, shape: Shape, plan: Plan, alive: Tensor | None = None
) -> Tensor:
    """log2 of the density of each row under each share of the components (shares, padded).

    ``alive`` (k, tiles) receives a bit for each pair but some of each row that together hold less than NEGLIGIBLE.
    """
    k = len(table)
    partial = rows.new_empty(plan.shares, plan.padded)
    prior, stride, step, label = prior_of(batch, rows)
    rows_kernel[(plan.padded // plan.block, plan.shares)](
        table, rows, prior, stride, step, label, partial, partial if alive is None else alive, batch.n, k,
        plan.padded, -(-k // (2 * plan.shares)) * 2,
        PRIOR=int(batch.log_prior is not None), LABELLED=int(shape.labelled), ALIVE=int(alive is not None),
        MOST=1 / NEGLIGIBLE[rows.dtype], BLOCK=plan.block, **shape.constants, num_warps=plan.warps,
        enable_fp_fusion=False,
    )  # fmt: skip
    return partial


def close(partial: Tensor, rows: Tensor, batch: Batch, shape: Shape, *, keep: bool) -> Tensor:
    """Log-density of each row (n,); or keeps it in the tiles and returns (programs, 2) sums of weight and density."""
    shares, padded = partial.shape
    block = 128
    programs = padded // block
    out = rows.new_empty((programs, 2) if keep else batch.n, dtype=torch.float64 if keep else rows.dtype)
    weight = rows if batch.weight is None else unit_stride(batch.weight)
    close_kernel[(programs,)](
        partial, rows, weight, out, out, batch.n, padded, shares,
        WEIGHTED=int(batch.weight is not None), SUMS=int(keep), ROOT=shape.root,
        WIDTH=shape.width, BLOCK=block, num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip
    return out
