"""T = V + S or R V R^T + S and x - R m of a register of rows, block by block, with the identity for missing values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from .blocks import BLOCK
from .lanes import ADDRESS, Lanes
from .panels import LOWER, SIDE, SQUARE, Pair, Panel, Tile, Variables, Writer


def prepared(emit: Writer, row: Any, component: Any, own: int = 0) -> Pair:
    """A pair of a register of rows and one component, or one of each row's ``own``."""
    stride = own or 1
    matrix = emit.at(component, emit.header["latent"], stride)
    noise = emit.at(row, emit.header["seen"], emit.group)
    if emit.kind.missing:
        _find_seen(emit, row)
    if emit.kind.projected:
        _multiply_projection(emit, row, matrix)

    def tile(i: Any, j: Any, entries: Sequence[tuple[int, int]]) -> Tile:
        start = emit.times(j, BLOCK)
        if emit.kind.projected:
            T = _projected_tile(emit, row, i, j, entries)
        else:
            T = emit.panel(matrix, i, stride, not own).tile(start, entries)
        if emit.kind.noise == "full":
            S = emit.panel(noise, i, emit.group).tile(start, entries)
            T = {entry: T[entry] + S[entry] for entry in entries}
        elif entries is LOWER:
            at = emit.at(noise, start, emit.group)
            T |= {(r, r): T[r, r] + emit.load(at, r * emit.group) for r in SIDE}
        return _masked(emit, T, i, j) if emit.kind.missing else T

    return Pair(emit, tile, partial(_residual, emit, row, component, own))


def _residual(emit: Writer, row: Any, component: Any, own: int, start: Any) -> list[Lanes]:
    """x - R m of a block, 0 where x is missing."""
    at = emit.at(row, start, emit.group)
    x = [emit.load(at, r * emit.group) for r in SIDE]
    if emit.kind.projected:
        z = _projected_mean(emit, row, component, start, x)
    else:
        m = emit.at(component, start, own or 1)
        z = [x[r] - (emit.load(m, r * own) if own else emit.broadcast(m, r)) for r in SIDE]
    return [y.compare("==", y).where(y, emit.zero) for y in z] if emit.kind.missing else z


def _projected_mean(emit: Writer, row: Any, component: Any, start: Any, x: list[Lanes]) -> list[Lanes]:
    acc = Variables(emit, {(r, 0): x[r] for r in SIDE})
    R = projection(emit, row, emit.builder.udiv(start, ADDRESS(BLOCK)))
    with emit.range(emit.header["latent_pad"], emit.header["latent"]) as f:
        column, m = R[f], emit.broadcast(emit.at(component, f))
        for r in SIDE:
            acc[r, 0] = acc[r, 0] - column[r] * m
    return [acc[r, 0] for r in SIDE]


def seen(emit: Writer, block: Any) -> list[Lanes]:
    """1 where a value is observed, 0 where it is missing."""
    count = emit.larger(emit.header["seen"], emit.header["latent"])
    at = emit.at(emit.header["vectors"], emit.builder.add(count, emit.times(block, BLOCK)), emit.width)
    return [emit.load(at, r * emit.width) for r in SIDE]


def _find_seen(emit: Writer, row: Any) -> None:
    count = emit.larger(emit.header["seen"], emit.header["latent"])
    out = emit.at(emit.header["vectors"], count, emit.width)
    with emit.range(ADDRESS(0), emit.header["seen"]) as a:
        x = emit.load(emit.at(row, a, emit.group))
        emit.store(x.compare("==", x).where(emit.one, emit.zero), emit.at(out, a, emit.width))


def _masked(emit: Writer, T: Tile, i: Any, j: Any) -> Tile:
    """The identity's lines and columns where values are missing."""
    lines = seen(emit, i)
    columns = lines if i is j else seen(emit, j)
    T = {(r, s): entry * (lines[r] * columns[s]) for (r, s), entry in T.items()}
    return T | {(r, r): T[r, r] + (emit.one - lines[r]) for r in SIDE} if i is j else T


def projection(emit: Writer, row: Any, block: Any) -> Panel:
    noise = {"full": emit.times(emit.triangular(emit.blocks("seen")), BLOCK), "diagonal": emit.header["seen"]}
    start = emit.builder.add(emit.header["seen"], noise[emit.kind.noise])
    return emit.full_panel(emit.at(row, start, emit.group), block, emit.header["latent"], emit.group)


def _multiply_projection(emit: Writer, row: Any, matrix: Any) -> None:
    """R V in panels."""
    latent, pad = emit.header["latent"], emit.header["latent_pad"]
    with emit.range(ADDRESS(0), emit.blocks("seen")) as i:
        R, out = projection(emit, row, i), emit.full_panel(emit.header["totals"], i, latent, emit.width)
        with emit.range(ADDRESS(0), emit.blocks("latent")) as e:
            V = emit.full_panel(matrix, e, latent, 1, True)
            acc = Variables(emit, dict.fromkeys(SQUARE, emit.zero))
            emit.subtract(acc, R, V, pad, latent)
            out.store(emit.times(e, BLOCK), {entry: -lanes for entry, lanes in acc.now().items()})


def _projected_tile(emit: Writer, row: Any, i: Any, j: Any, entries: Sequence[tuple[int, int]]) -> Tile:
    latent = emit.header["latent"]
    RV, R = emit.full_panel(emit.header["totals"], i, latent, emit.width), projection(emit, row, j)
    acc = Variables(emit, dict.fromkeys(entries, emit.zero))
    emit.subtract(acc, RV, R, emit.header["latent_pad"], latent)
    T = {entry: -lanes for entry, lanes in acc.now().items()}
    if i is j:
        outside = [
            emit.builder.icmp_signed("<", emit.plus(emit.times(i, BLOCK), r), emit.header["seen_pad"]) for r in SIDE
        ]
        unit = [Lanes(emit, emit.builder.select(o, emit.one.value, emit.zero.value)) for o in outside]
        T |= {(r, r): T[r, r] + unit[r] for r in SIDE}
    return T
