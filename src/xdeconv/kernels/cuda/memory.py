"""How rows, components and lists of pairs lie in a GPU's memory, and how lanes load and store them.

A component is a line of a table: log2 alpha, m and V, filled up to a multiple of four numbers.
Rows lie in tiles of 32, four numbers of a row side by side and then those of the next row: lanes load four numbers at
a time, some rows of a tile cost little more than their share of it, and all offsets are constants. The numbers of a
row: x, seen, S, R, then the square root of the weight, the log2 of the density, the constant.
A word has a bit for each row of a tile.
"""

# ruff: noqa: RUF005 (in kernels, tuples can be joined but not unpacked)
# mypy: disable-error-code="assignment, no-untyped-def, var-annotated"
from __future__ import annotations

from .triton_import import constant, interpreted, jit, tl

TILE = constant(32)
COMPILED = constant(not interpreted())


@jit()
def votes(true, N: tl.constexpr):
    """A word for each 32 neighbouring lanes, with a bit for each that holds true; compiled, N lanes are N threads."""
    if COMPILED:
        return tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.u32 p, $1, 0; vote.sync.ballot.b32 $0, p, 0xffffffff; }", "=r,r",
            [true.to(tl.int32)], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        bits = tl.reshape(true.to(tl.int64), (N // 32, 32)) << tl.arange(0, 32)[None, :]
        word = tl.sum(bits, axis=1).to(tl.int32)
        return tl.reshape(tl.broadcast_to(word[:, None], (N // 32, 32)), (N,))


@jit()
def ones(word):
    """How many bits of a word are set."""
    if COMPILED:
        return tl.inline_asm_elementwise("popc.b32 $0, $1;", "=r,r", [word], dtype=tl.int32, is_pure=True, pack=1)
    else:
        word = word - ((word >> 1) & 0x55555555)
        word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
        word = (word + (word >> 4)) & 0x0F0F0F0F
        return (word + (word >> 8) + (word >> 16) + (word >> 24)) & 63


@jit()
def row_address(rows, i, WIDTH: tl.constexpr):
    return rows + (i // TILE).to(tl.int64) * (WIDTH * TILE) + i % TILE * 4


@jit()
def place_of(SLOT: tl.constexpr):
    """Where a number of a row lies, after the row's address."""
    return SLOT // 4 * 4 * TILE + SLOT % 4


@jit()
def load_row(address, COUNT: tl.constexpr, DOUBLE: tl.constexpr):
    """The first COUNT numbers of a row."""
    out = ()
    for c in tl.static_range(0, COUNT, 4):
        out = out + load_four(address + c * TILE, DOUBLE)
    return out[:COUNT]


@jit()
def store_row(address, values, COUNT: tl.constexpr, DOUBLE: tl.constexpr):
    """Writes COUNT numbers of a row, a multiple of four."""
    for c in tl.static_range(0, COUNT, 4):
        store_four(address + c * TILE, values[c : c + 4], DOUBLE)


@jit()
def store_among_four(address, value, SLOT: tl.constexpr):
    """Writes one number of a row together with its neighbours: memory is slow to change a part of a sector."""
    START: tl.constexpr = SLOT // 4 * 4
    values = ()
    for c in tl.static_range(4):
        if START + c == SLOT:
            values = values + (value,)
        else:
            values = values + (tl.load(address + START * TILE + c),)
    store_four(address + START * TILE, values, value.dtype == tl.float64)


@jit()
def store_four(address, values, DOUBLE: tl.constexpr):
    """Four numbers side by side, to an address that is a multiple of their size; 16 bytes at a time."""
    if not COMPILED:
        for c in tl.static_range(4):
            tl.store(address + c, values[c])
    elif DOUBLE:
        store_two(address, values[0], values[1])
        store_two(address + 2, values[2], values[3])
    else:
        tl.inline_asm_elementwise(
            "st.global.v4.f32 [$1], {$2, $3, $4, $5}; mov.u32 $0, 0;", "=r,l,f,f,f,f",
            [address.to(tl.int64), values[0], values[1], values[2], values[3]],
            dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@jit()
def store_two(address, a, b):
    tl.inline_asm_elementwise(
        "st.global.v2.f64 [$1], {$2, $3}; mov.u32 $0, 0;", "=r,l,d,d", [address.to(tl.int64), a, b],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@jit()
def load_numbers(address, START: tl.constexpr, COUNT: tl.constexpr):
    out = ()
    for c in tl.static_range(COUNT):
        out = out + (tl.load(address + START + c),)
    return out


@jit()
def load_line(address, COUNT: tl.constexpr, DOUBLE: tl.constexpr):
    """COUNT numbers side by side, a multiple of four."""
    out = ()
    for c in tl.static_range(0, COUNT, 4):
        out = out + load_four(address + c, DOUBLE)
    return out


@jit()
def load_four(address, DOUBLE: tl.constexpr):
    """Four numbers side by side, from an address that is a multiple of their size; 16 bytes at a time."""
    if not COMPILED:
        return load_numbers(address, 0, 4)
    elif DOUBLE:
        return load_two(address) + load_two(address + 2)
    else:
        return tl.inline_asm_elementwise(
            "ld.global.nc.v4.f32 {$0, $1, $2, $3}, [$4];", "=f,=f,=f,=f,l", [address],
            dtype=(tl.float32, tl.float32, tl.float32, tl.float32), is_pure=True, pack=1,
        )  # fmt: skip


@jit()
def load_two(address):
    return tl.inline_asm_elementwise(
        "ld.global.nc.v2.f64 {$0, $1}, [$2];", "=d,=d,l", [address],
        dtype=(tl.float64, tl.float64), is_pure=True, pack=1,
    )  # fmt: skip


@jit()
def load_words(address, COUNT: tl.constexpr):
    """COUNT words side by side, a multiple of four; four at once, from an aligned address."""
    out = ()
    for c in tl.static_range(0, COUNT, 4):
        if COMPILED:
            out = out + tl.inline_asm_elementwise(
                "ld.global.nc.v4.b32 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,l", [address + c],
                dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=True, pack=1,
            )  # fmt: skip
        else:
            out = out + load_numbers(address, c, 4)
    return out
