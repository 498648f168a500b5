"""y = L^-1 (x - m) with an L that all rows share, several registers of rows at a time: d^2 operations per pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .blocks import BLOCK
from .lanes import ADDRESS, Lanes
from .panels import SIDE, SQUARE, Variables, Writer

TOGETHER = 4  # registers of rows


def joint_shared(emit: Writer, rows: Any, groups: Any, component: Any, joint: Any) -> None:
    """log alpha N of neighbouring rows, with a T that all rows share."""

    def keep(t: Any, value: Lanes) -> None:
        emit.store(value, emit.at(joint, t, emit.width))

    _distances(emit, rows, groups, component, keep)


def _distances(emit: Writer, rows: Any, groups: Any, component: Any, keep: Callable[[Any, Lanes], None]) -> None:
    offset = emit.at(component, emit.header["offset"])

    def use(first: Any, count: int) -> None:
        distance = Variables(emit, {(0, g): emit.zero for g in range(count)})

        def add(_: Any, y: dict[tuple[int, int], Lanes]) -> None:
            for g in range(count):
                distance[0, g] = sum((y[r, g] * y[r, g] for r in SIDE), distance[0, g])

        _whiten(emit, rows, component, first, count, add)
        for g in range(count):
            value = emit.constant(-0.5) * distance[0, g] + emit.broadcast(offset)
            keep(emit.plus(first, g), value)

    _several(emit, emit.times(groups, emit.parts), use)


def _several(emit: Writer, parts: Any, use: Callable[[Any, int], None]) -> None:
    """Use registers of rows TOGETHER, and what is left one by one."""
    whole = emit.builder.udiv(parts, ADDRESS(TOGETHER))
    with emit.range(ADDRESS(0), whole) as block:
        use(emit.times(block, TOGETHER), TOGETHER)
    with emit.range(emit.times(whole, TOGETHER), parts) as t:
        use(t, 1)


def _whiten(
    emit: Writer, rows: Any, component: Any, first: Any, count: int,
    use: Callable[[Any, dict[tuple[int, int], Lanes]], None],
) -> None:  # fmt: skip
    """y of some registers of rows, block by block."""
    latent, pad, room = emit.header["latent"], emit.header["latent_pad"], emit.header["totals"]
    places = [emit.part(rows, emit.plus(first, g), emit.header["slots"]) for g in range(count)]
    with emit.range(ADDRESS(0), latent) as a:
        m, out = emit.broadcast(emit.at(component, a)), emit.at(room, a, count * emit.width)
        for g, row in enumerate(places):
            emit.store(emit.load(emit.at(row, a, emit.group)) - m, out, g * emit.width)
    matrix = emit.at(component, latent)
    with emit.range(ADDRESS(0), emit.blocks("latent")) as i:
        panel = emit.panel(matrix, i, 1, True)
        acc = Variables(emit, {(r, g): emit.zero for g in range(count) for r in SIDE})
        with emit.range(pad, emit.times(emit.plus(i, 1), BLOCK)) as c:
            column, at = panel[c], emit.at(room, c, count * emit.width)
            for g in range(count):
                z = emit.load(at, g * emit.width)
                for r in SIDE:
                    acc[r, g] = acc[r, g] + column[r] * z
        use(i, acc.now())


def sums_shared(emit: Writer, rows: Any, groups: Any, component: Any, joint: Any, sums: Any) -> None:
    """Add r, r y and r y y^T of neighbouring rows to the sums."""
    parts = emit.times(groups, emit.parts)
    stride, address = emit.header["tile_parts"], emit.header["columns"]

    def lines(block: Any) -> list[Any]:
        start = emit.times(block, BLOCK)
        return [emit.at(address, emit.builder.mul(emit.plus(start, r), stride), emit.width) for r in SIDE]

    def use(first: Any, count: int) -> None:
        def keep(i: Any, y: dict[tuple[int, int], Lanes]) -> None:
            for r, line in enumerate(lines(i)):
                at = emit.at(line, first, emit.width)
                for g in range(count):
                    emit.store(y[r, g], at, g * emit.width)

        _whiten(emit, rows, component, first, count, keep)

    _several(emit, parts, use)
    _add_products(emit, parts, joint, lines)
    emit.add_totals(emit.header["totals"], sums)


def _add_products(emit: Writer, parts: Any, joint: Any, lines: Callable[[Any], list[Any]]) -> None:
    totals, latent = emit.header["totals"], emit.header["latent"]
    first = emit.plus(totals, emit.width * emit.size)
    G = emit.at(first, latent, emit.width)
    with emit.range(ADDRESS(0), emit.header["sums"]) as s:
        emit.store(emit.zero, emit.at(totals, s, emit.width))
    with emit.range(ADDRESS(0), parts) as t:
        emit.store(emit.load(totals) + emit.load(emit.at(joint, t, emit.width)), totals)
    with emit.range(ADDRESS(0), emit.blocks("latent")) as i:
        left, panel = lines(i), emit.panel(G, i, emit.width)
        g = Variables(emit, {(r, 0): emit.zero for r in SIDE})
        with emit.range(ADDRESS(0), parts) as t:
            r_ = emit.load(emit.at(joint, t, emit.width))
            for r in SIDE:
                g[r, 0] = g[r, 0] + r_ * emit.load(emit.at(left[r], t, emit.width))
        at = emit.at(first, emit.times(i, BLOCK), emit.width)
        for r in SIDE:
            emit.store(g[r, 0], at, r * emit.width)
        with emit.range(ADDRESS(0), emit.plus(i, 1)) as j:
            right = lines(j)
            acc = Variables(emit, dict.fromkeys(SQUARE, emit.zero))
            with emit.range(ADDRESS(0), parts) as t:
                r_ = emit.load(emit.at(joint, t, emit.width))
                p = [r_ * emit.load(emit.at(line, t, emit.width)) for line in left]
                q = [emit.load(emit.at(line, t, emit.width)) for line in right]
                for r, s in SQUARE:
                    acc[r, s] = acc[r, s] + p[r] * q[s]
            panel.store(emit.times(j, BLOCK), acc.now())
