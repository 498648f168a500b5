"""Posterior means and covariances: a lane holds a row and loops over components, merging what each adds (West 1979)."""

# ruff: noqa: RUF005 (in kernels, tuples can be joined but not unpacked)
# mypy: disable-error-code="assignment, misc, no-untyped-def, var-annotated"
from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ...rows.batch import Batch, packed_size
from .densities import Plan, Shape, close, densities, prior_line, prior_of, shape_of, table_of, tiles_of
from .memory import load_line, load_row, row_address
from .pairs import pair, subtract, with_prior
from .triton_import import interpreted, jit, tl


@jit()
def posterior(m, V, S, seen, L, z, D: tl.constexpr, NOISE: tl.constexpr, MASKED: tl.constexpr):
    """Where a row's true value lies under a component, seen from the row, and the packed covariance.

    With W = L^-1, Y = W S and U = W V: a value that is observed lies -Y^T z from the row, and one that is missing at
    m + U^T z. The covariance is Y^T U where one of two values is observed, and V - U^T U where both are missing.
    """
    zero = tl.zeros_like(z[0])
    place = ()
    B = ()
    for a in tl.static_range(D):
        if MASKED:
            place = place + ((1.0 - seen[a]) * m[a],)
        else:
            place = place + (zero,)
        for b in tl.static_range(a + 1):
            if MASKED:
                B = B + ((1.0 - seen[a]) * (1.0 - seen[b]) * V[a * (a + 1) // 2 + b],)
            else:
                B = B + (zero,)
    W = ()
    for c in tl.static_range(D):
        line = ()
        for a in tl.static_range(D):
            if a < c:
                value = L[c * (c + 1) // 2 + a] * W[a * D + a]
                for b in tl.static_range(a + 1, c):
                    value = tl.fma(L[c * (c + 1) // 2 + b], W[b * D + a], value)
                value = (value * -1.0) * L[c * (c + 1) // 2 + c]
            elif a == c:
                value = L[c * (c + 1) // 2 + c]
                if MASKED:
                    value = value * seen[c]
            else:
                value = zero
            line = line + (value,)
        W = W + line
        u = times(line, V, c, D)
        if NOISE == 2:
            y = times(line, S, c, D)
        else:
            y = ()
            for a in tl.static_range(D):
                if NOISE == 1 and a <= c:
                    y = y + (line[a] * S[a],)
                else:
                    y = y + (zero,)
        new_place = ()
        new_B = ()
        for a in tl.static_range(D):
            left = y[a]
            if MASKED:
                left = tl.where(seen[a] > 0, y[a], u[a] * -1.0)
            new_place = new_place + (subtract(left, z[c], place[a]),)
            for b in tl.static_range(a + 1):
                right = u[b]
                if MASKED:
                    right = tl.where((seen[a] == 0) & (seen[b] > 0), y[b] * -1.0, u[b])
                new_B = new_B + (tl.fma(left, right, B[a * (a + 1) // 2 + b]),)
        place = new_place
        B = new_B
    return place, B


@jit()
def times(line, V, c: tl.constexpr, D: tl.constexpr):
    """The line c of a lower triangle, times a packed symmetric matrix."""
    out = ()
    for a in tl.static_range(D):
        value = line[0] * V[a * (a + 1) // 2]
        for e in tl.static_range(1, c + 1):
            if e > a:
                value = tl.fma(line[e], V[e * (e + 1) // 2 + a], value)
            else:
                value = tl.fma(line[e], V[a * (a + 1) // 2 + e], value)
        out = out + (value,)
    return out


@jit()
def merged(found, r, place, B, D: tl.constexpr):
    """Weight, mean and spread of a row with those of one more component."""
    whole = found[0] + r
    step = tl.where(whole == 0, 0.0, r / whole)
    apart = r * (1.0 - step)
    out = (whole,)
    away = ()
    for a in tl.static_range(D):
        away = away + (place[a] - found[1 + a],)
        out = out + (tl.fma(step, away[a], found[1 + a]),)
    for a in tl.static_range(D):
        for b in tl.static_range(a + 1):
            value = tl.fma(r, B[a * (a + 1) // 2 + b], found[1 + D + a * (a + 1) // 2 + b])
            out = out + (tl.fma(apart * away[a], away[b], value),)
    return out


@jit(do_not_specialize=["prior_stride", "prior_step", "n", "k"])
def posteriors_kernel(
    table, rows, prior, prior_stride, prior_step, label, out, n, k,
    D: tl.constexpr, NOISE: tl.constexpr, MASKED: tl.constexpr, PRIOR: tl.constexpr, LABELLED: tl.constexpr,
    ROOT: tl.constexpr, LINE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Means and packed covariances of rows whose tiles hold the log2 of their densities."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    kind = table.dtype.element_ty
    DOUBLE: tl.constexpr = kind == tl.float64
    S_AT: tl.constexpr = 2 * D if MASKED else D
    TRIANGLE: tl.constexpr = D * (D + 1) // 2
    row = load_row(row_address(rows, i, WIDTH), ROOT + 2, DOUBLE)
    x = row[:D]
    seen = row[D:S_AT]
    S = row[S_AT:ROOT]
    prior_at = i
    if PRIOR:
        prior_at = prior_line(i, n, label, LABELLED) * prior_stride.to(tl.int64)
    found = ()
    for _ in tl.static_range(1 + D + TRIANGLE):
        found = found + (tl.zeros((BLOCK,), kind),)
    for j in range(k):
        line = load_line(table + j * LINE, LINE, DOUBLE)
        m = line[1 : 1 + D]
        V = line[1 + D :]
        value, L, z = pair(line[0], m, V, x, seen, S, (), D, D, NOISE, MASKED, 0, 0, DOUBLE)
        if PRIOR:
            value = with_prior(value, tl.load(prior + prior_at + j * prior_step.to(tl.int64)))
        r = tl.exp2(value - row[ROOT + 1])
        if PRIOR:
            r = tl.where(value == float("-inf"), 0.0, r)
        place, B = posterior(m, V, S, seen, L, z, D, NOISE, MASKED)
        found = merged(found, r, place, B, D)
    none = (found[0] > 0) == 0
    for a in tl.static_range(D):
        tl.store(out + a * n.to(tl.int64) + i, tl.where(none, float("nan"), found[1 + a]), mask=i < n)
    for p in tl.static_range(TRIANGLE):
        value = tl.where(none, float("nan"), found[1 + D + p] / found[0])
        tl.store(out + (D + p) * n.to(tl.int64) + i, value, mask=i < n)


def moments(table: Tensor, part: Batch, shape: Shape, plan: Plan) -> Tensor:
    """Means and packed covariances (d + ..., n) of some rows."""
    rows = tiles_of(part, shape, plan.padded)
    close(densities(table, rows, part, shape, plan), rows, part, shape, keep=True)
    prior, stride, step, label = prior_of(part, rows)
    out = rows.new_empty(shape.d + packed_size(shape.d), part.n)
    block = plan.padded if interpreted() else 64
    constants = {name: shape.constants[name] for name in ("D", "NOISE", "MASKED", "LINE", "WIDTH")}
    posteriors_kernel[(plan.padded // block,)](
        table, rows, prior, stride, step, label, out, part.n, len(table),
        PRIOR=int(part.log_prior is not None), LABELLED=int(shape.labelled), ROOT=shape.root, BLOCK=block,
        **constants, num_warps=2, enable_fp_fusion=False,
    )  # fmt: skip
    return out


def table_and_shape(log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch) -> tuple[Tensor, Shape]:
    """Components, and rows as they are taken here: noise that all share is each row's own."""
    shape = shape_of(batch)
    if shape.shared:
        shape = replace(shape, shared=False, noise=shape.given)
    return table_of(log_weights, means, covariances, batch, shape), shape
