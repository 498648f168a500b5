"""Pairs of many dimensions: lanes hold rows, and matrices lie in memory, in square blocks that pass through registers.

Dimensions are known at run time, so that one kernel serves all of them; they are filled up to whole blocks by the
identity. A number of a lane lies beside those of the other lanes of its program, which alone reads it again: nothing
has to wait for another. The factor L of T holds 1 / L_aa on its diagonal; A = L^-1 R, so that w = A^T z, M = A^T A.
"""

# ruff: noqa: RUF005 (in kernels, tuples can be joined but not unpacked)
# mypy: disable-error-code="assignment, misc, no-untyped-def, var-annotated"
from __future__ import annotations

from .pairs import LN_2, factor, log2_root_inverse, square, subtract
from .triton_import import jit, tl


@jit()
def load_vector(at, step, SIDE: tl.constexpr):
    out = ()
    for r in tl.static_range(SIDE):
        out = out + (tl.load(at + r * step),)
    return out


@jit()
def store_vector(at, step, values, SIDE: tl.constexpr):
    for r in tl.static_range(SIDE):
        tl.store(at + r * step, values[r])


@jit()
def zeros(COUNT: tl.constexpr, LANES: tl.constexpr, kind: tl.constexpr):
    out = ()
    for c in tl.static_range(COUNT):  # noqa: B007 (below, _ is a tensor)
        out = out + (tl.zeros((LANES,), kind),)
    return out


@jit()
def minus_products(block, left, left_step, left_line, right, right_step, right_line, first, last, SIDE: tl.constexpr):
    """block - sum over c from first to last of left[:, c] right[c, :]."""
    for c in range(first, last):
        a = load_vector(left + c * left_step, left_line, SIDE)
        b = load_vector(right + c * right_step, right_line, SIDE)
        less = ()
        for r in tl.static_range(SIDE):
            for s in tl.static_range(SIDE):
                less = less + (subtract(a[r], b[s], block[r * SIDE + s]),)
        block = less
    return block


@jit()
def noise_block(S, padded, I, J, LANES: tl.constexpr, NOISE: tl.constexpr, SIDE: tl.constexpr):
    """A block of S, on or below its diagonal; on it, what lies above has no meaning."""
    on_diagonal = tl.where(I == J, 1.0, 0.0).to(S.dtype.element_ty)
    out = ()
    for r in tl.static_range(SIDE):
        a = I * SIDE + r
        for s in tl.static_range(SIDE):
            if NOISE == 2:
                value = tl.load(S + (a * (a + 1) // 2 + J * SIDE + s) * padded)
            elif r == s:
                value = tl.load(S + a * padded) * on_diagonal
            else:
                value = tl.zeros((LANES,), S.dtype.element_ty)
            out = out + (value,)
    return out


@jit()
def covariance_block(
    V, S, seen, R, U, padded, I, J, latent,
    LANES: tl.constexpr, NOISE: tl.constexpr, MASKED: tl.constexpr, PROJECTED: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """A block of T = R V R^T + S; a missing value's line is that of the identity. U is - R V."""
    block = noise_block(S, padded, I, J, LANES, NOISE, SIDE)
    if PROJECTED:
        right = R + padded * (J * SIDE * latent)
        left = U + I * SIDE * latent * LANES
        out = minus_products(block, left, LANES, latent * LANES, right, padded, latent * padded, 0, latent, SIDE)
    else:
        out = ()
        for r in tl.static_range(SIDE):
            for s in tl.static_range(SIDE):
                value = tl.load(V + (I * SIDE + r) * latent + J * SIDE + s)
                if MASKED:
                    there = tl.load(seen + (I * SIDE + r) * padded)
                    value = value * (there * tl.load(seen + (J * SIDE + s) * padded))
                out = out + (block[r * SIDE + s] + value,)
    return out


@jit()
def residual_block(
    m, x, seen, R, L, z, padded, J, observed, latent,
    LANES: tl.constexpr, MASKED: tl.constexpr, PROJECTED: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """A block of x - R m, less what the factor's lines up to its own take."""
    out = ()
    for r in tl.static_range(SIDE):
        a = J * SIDE + r
        value = tl.load(x + a * padded)
        if PROJECTED:
            for c in range(latent):
                value = subtract(tl.load(R + (a * latent + c) * padded), tl.load(m + c), value)
        else:
            value = value - tl.load(m + a)
            if MASKED:
                value = value * tl.load(seen + a * padded)
        for c in range(J * SIDE):
            value = subtract(tl.load(L + (a * observed + c) * LANES), tl.load(z + c * LANES), value)
        out = out + (value,)
    return out


@jit()
def times_inverse(block, L, SIDE: tl.constexpr):
    """block L^-T for a packed triangle L."""
    out = ()
    for r in tl.static_range(SIDE):
        line = ()
        for s in tl.static_range(SIDE):
            value = block[r * SIDE + s]
            for t in tl.static_range(s):
                value = subtract(line[t], L[s * (s + 1) // 2 + t], value)
            line = line + (value * L[s * (s + 1) // 2 + s],)
        out = out + line
    return out


@jit()
def inverse_times(L, block, SIDE: tl.constexpr):
    """L^-1 block for a packed triangle L."""
    out = ()
    for r in tl.static_range(SIDE):
        for s in tl.static_range(SIDE):
            value = block[r * SIDE + s]
            for t in tl.static_range(r):
                value = subtract(L[r * (r + 1) // 2 + t], out[t * SIDE + s], value)
            out = out + (value * L[r * (r + 1) // 2 + r],)
    return out


@jit()
def load_triangle(at, line, step, SIDE: tl.constexpr):
    out = ()
    for r in tl.static_range(SIDE):
        for s in tl.static_range(r + 1):
            out = out + (tl.load(at + r * line + s * step),)
    return out


@jit()
def factored(
    m, V, x, seen, S, R, L, z, U, padded, observed, latent,
    LANES: tl.constexpr, NOISE: tl.constexpr, MASKED: tl.constexpr, PROJECTED: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """Writes L and z = L^-1 (x - R m) of one component and the program's rows; z^2 and sum log2 (1 / L_aa) come back.

    Block columns come one after the other, each less the products of those before it.
    """
    kind: tl.constexpr = x.dtype.element_ty
    LINE = observed * LANES
    distance = tl.zeros((LANES,), kind)
    logarithm = tl.zeros((LANES,), kind)
    if PROJECTED:
        for I in range(observed // SIDE):
            for J in range(latent // SIDE):
                left = R + padded * (I * SIDE * latent)
                nothing = zeros(SIDE * SIDE, LANES, kind)
                right = V + J * SIDE
                product = minus_products(
                    nothing, left, padded, latent * padded, right, latent, 1, 0, latent, SIDE
                )  # fmt: skip
                for r in tl.static_range(SIDE):
                    at = U + ((I * SIDE + r) * latent + J * SIDE) * LANES
                    store_vector(at, LANES, product[r * SIDE : r * SIDE + SIDE], SIDE)
    for J in range(observed // SIDE):
        top = L + J * SIDE * LINE
        start = covariance_block(
            V, S, seen, R, U, padded, J, J, latent, LANES, NOISE, MASKED, PROJECTED, SIDE
        )  # fmt: skip
        whole = minus_products(start, top, LANES, LINE, top, LANES, LINE, 0, J * SIDE, SIDE)
        residual = residual_block(
            m, x, seen, R, L, z, padded, J, observed, latent, LANES, MASKED, PROJECTED, SIDE
        )  # fmt: skip
        T = ()
        for r in tl.static_range(SIDE):
            for s in tl.static_range(r + 1):
                T = T + (whole[r * SIDE + s],)
        triangle, part = factor(T, residual, (), (), 0, SIDE)
        for r in tl.static_range(SIDE):
            own = triangle[r * (r + 1) // 2 : r * (r + 1) // 2 + r + 1]
            store_vector(top + r * LINE + J * SIDE * LANES, LANES, own, r + 1)
        store_vector(z + J * SIDE * LANES, LANES, part, SIDE)
        distance += square(part, 0, SIDE)
        logarithm += log2_root_inverse(triangle, 0, SIDE, kind == tl.float64)
        for I in range(J + 1, observed // SIDE):
            here = L + I * SIDE * LINE
            first = covariance_block(
                V, S, seen, R, U, padded, I, J, latent, LANES, NOISE, MASKED, PROJECTED, SIDE
            )  # fmt: skip
            below = minus_products(first, here, LANES, LINE, top, LANES, LINE, 0, J * SIDE, SIDE)
            lines = times_inverse(below, triangle, SIDE)
            for r in tl.static_range(SIDE):
                at = here + r * LINE + J * SIDE * LANES
                store_vector(at, LANES, lines[r * SIDE : r * SIDE + SIDE], SIDE)
    return distance, logarithm


@jit()
def seen_through(
    seen, R, L, z, A, w, padded, observed, latent,
    LANES: tl.constexpr, MASKED: tl.constexpr, PROJECTED: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """Writes A = L^-1 R and w = A^T z; without a projection R is the identity, zero where a value is missing."""
    kind: tl.constexpr = z.dtype.element_ty
    LINE = observed * LANES
    for J in range(latent // SIDE):
        pulled = zeros(SIDE, LANES, kind)
        first = 0 if PROJECTED else J
        for I in range(first, observed // SIDE):
            on_diagonal = tl.where(I == J, 1.0, 0.0).to(kind)
            start = ()
            for r in tl.static_range(SIDE):
                for s in tl.static_range(SIDE):
                    if PROJECTED:
                        at = R + ((I * SIDE + r) * latent + J * SIDE + s) * padded
                        value = tl.load(at)
                    elif r == s:
                        value = tl.zeros((LANES,), kind) + on_diagonal
                        if MASKED:
                            value = value * tl.load(seen + (I * SIDE + r) * padded)
                    else:
                        value = tl.zeros((LANES,), kind)
                    start = start + (value,)
            here = L + I * SIDE * LINE
            rest = minus_products(
                start, here, LANES, LINE, A + J * SIDE * LANES, latent * LANES, LANES, first * SIDE, I * SIDE, SIDE
            )
            lines = inverse_times(load_triangle(here + I * SIDE * LANES, LINE, LANES, SIDE), rest, SIDE)
            part = load_vector(z + I * SIDE * LANES, LANES, SIDE)
            more = ()
            for s in tl.static_range(SIDE):
                value = pulled[s]
                for r in tl.static_range(SIDE):
                    value = tl.fma(lines[r * SIDE + s], part[r], value)
                more = more + (value,)
            pulled = more
            for r in tl.static_range(SIDE):
                at = A + ((I * SIDE + r) * latent + J * SIDE) * LANES
                store_vector(at, LANES, lines[r * SIDE : r * SIDE + SIDE], SIDE)
        store_vector(w + J * SIDE * LANES, LANES, pulled, SIDE)


@jit()
def add_to_sums(share, A, w, g, G, observed, latent, LANES: tl.constexpr, PROJECTED: tl.constexpr, SIDE: tl.constexpr):
    """Adds r w to g and r (w w^T - M) to the blocks of G on and below its diagonal."""
    kind: tl.constexpr = w.dtype.element_ty
    for I in range(latent // SIDE):
        own = load_vector(w + I * SIDE * LANES, LANES, SIDE)
        for r in tl.static_range(SIDE):
            at = g + (I * SIDE + r) * LANES
            tl.store(at, tl.fma(share, own[r], tl.load(at)))
        first = 0 if PROJECTED else I * SIDE
        for J in range(I + 1):
            other = load_vector(w + J * SIDE * LANES, LANES, SIDE)
            nothing = zeros(SIDE * SIDE, LANES, kind)
            left = A + I * SIDE * LANES
            right = A + J * SIDE * LANES
            less = minus_products(
                nothing, left, latent * LANES, LANES, right, latent * LANES, LANES, first, observed, SIDE
            )  # fmt: skip
            for r in tl.static_range(SIDE):
                for s in tl.static_range(SIDE):
                    at = G + ((I * SIDE + r) * latent + J * SIDE + s) * LANES
                    value = tl.fma(own[r], other[s], less[r * SIDE + s])
                    tl.store(at, tl.fma(share, value, tl.load(at)))


@jit(do_not_specialize=["k", "padded", "observed", "latent", "numbers"])
def joint_kernel(
    log_weights, means, covariances, x, seen, S, R, room, joint, k, padded, observed, latent, numbers,
    LANES: tl.constexpr, NOISE: tl.constexpr, MASKED: tl.constexpr, PROJECTED: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """log (alpha N) (k, padded) without the rows' constants, of LANES rows and a component at a time."""
    lane = tl.arange(0, LANES)
    program = tl.program_id(0).to(tl.int64)
    L = room + program * numbers * LANES + lane
    z = L + observed * observed * LANES
    U = z + observed * LANES
    padded = padded.to(tl.int64)
    for task in range(program, padded // LANES * k, tl.num_programs(0)):
        i = task // k * LANES + lane
        j = task % k
        distance, logarithm = factored(
            means + j * latent, covariances + j * latent * latent, x + i, seen + i, S + i, R + i, L, z, U,
            padded, observed, latent, LANES, NOISE, MASKED, PROJECTED, SIDE,
        )  # fmt: skip
        value = tl.load(log_weights + j) + (logarithm * LN_2 - 0.5 * distance)
        tl.store(joint + j * padded + i, value)


@jit(do_not_specialize=["k", "padded", "observed", "latent", "numbers", "chunk"])
def moments_kernel(
    share, means, covariances, x, seen, S, R, room, out, k, padded, observed, latent, numbers, chunk,
    LANES: tl.constexpr, NOISE: tl.constexpr, MASKED: tl.constexpr, PROJECTED: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """g and the lower triangle of G (chunks, k, d + d (d + 1) / 2), each of a chunk of rows and a component."""
    lane = tl.arange(0, LANES)
    kind: tl.constexpr = x.dtype.element_ty
    program = tl.program_id(0).to(tl.int64)
    L = room + program * numbers * LANES + lane
    z = L + observed * observed * LANES
    U = z + observed * LANES
    A = U + (observed * latent * LANES if PROJECTED else 0)
    w = A + observed * latent * LANES
    g = w + latent * LANES
    G = g + latent * LANES
    padded = padded.to(tl.int64)
    for task in range(program, tl.cdiv(padded, chunk) * k, tl.num_programs(0)):
        j = task % k
        begin = task // k * chunk
        for c in range(latent + latent * latent):
            tl.store(g + c * LANES, tl.zeros((LANES,), kind))
        for start in range(begin, tl.minimum(begin + chunk, padded), LANES):
            i = start + lane
            own = tl.load(share + j * padded + i)
            if tl.sum(own, axis=0) != 0.0:
                factored(
                    means + j * latent, covariances + j * latent * latent, x + i, seen + i, S + i, R + i, L, z, U,
                    padded, observed, latent, LANES, NOISE, MASKED, PROJECTED, SIDE,
                )  # fmt: skip
                seen_through(
                    seen + i, R + i, L, z, A, w, padded, observed, latent, LANES, MASKED, PROJECTED, SIDE
                )  # fmt: skip
                add_to_sums(own, A, w, g, G, observed, latent, LANES, PROJECTED, SIDE)
        at = out + task * (latent + latent * (latent + 1) // 2)
        for a in range(latent):
            tl.store(at + a, tl.sum(tl.load(g + a * LANES), axis=0))
            for b in range(a + 1):
                value = tl.sum(tl.load(G + (a * latent + b) * LANES), axis=0)
                tl.store(at + latent + a * (a + 1) // 2 + b, value)
