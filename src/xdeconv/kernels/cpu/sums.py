"""The sums of one component over rows: A = L^-1 R (or L^-1), w = A^T z, and r, r w and r (w w^T - A^T A) added up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .blocks import BLOCK
from .lanes import ADDRESS, Lanes
from .moments import prepared, projection, seen
from .panels import LOWER, SIDE, SQUARE, Pair, Panel, Tile, Variables, Writer
from .whitening import sums_shared


def sums_of_rows(emit: Writer, rows: Any, groups: Any, component: Any, joint: Any, sums: Any, _: Any) -> None:
    """Add the sums of one component and neighbouring rows with responsibilities ``joint``."""
    if emit.kind.noise == "shared":
        return sums_shared(emit, rows, groups, component, joint, sums)
    totals = _totals(emit)
    with emit.range(ADDRESS(0), emit.header["sums"]) as s:
        emit.store(emit.zero, emit.at(totals, s, emit.width))
    with emit.range(ADDRESS(0), emit.times(groups, emit.parts)) as t:
        pair = prepared(emit, row := emit.part(rows, t, emit.header["slots"]), component)
        pair.factor()
        r = emit.load(emit.at(joint, t, emit.width))
        emit.store(emit.load(totals) + r, totals)
        _solve_columns(emit, pair, row)
        _add_sums(emit, r, row)
    emit.add_totals(totals, sums)
    return None


def _totals(emit: Writer) -> Any:
    """Where sums are kept: R V, where there is one, is not needed any more when they are added to."""
    if not emit.kind.projected:
        return emit.header["totals"]
    size = emit.builder.mul(emit.header["latent"], emit.header["seen"])
    return emit.at(emit.header["totals"], size, emit.width)


def _columns(emit: Writer, block: Any) -> Panel:
    """Columns of L^-1 R (or L^-1 from its diagonal on), BLOCK of them, line after line."""
    address = emit.header["columns"]
    if emit.kind.projected:
        return emit.full_panel(address, block, emit.header["seen"], emit.width)
    lines = emit.times(emit.builder.mul(block, emit.blocks("latent")), BLOCK)
    before = emit.builder.sub(lines, emit.triangular(block))
    return Panel(emit, emit.at(address, before, BLOCK * emit.width), emit.width)


def _w(emit: Writer, block: Any) -> Any:
    count = emit.times(emit.larger(emit.header["seen"], emit.header["latent"]), 2)
    return emit.at(emit.header["vectors"], emit.builder.add(count, emit.times(block, BLOCK)), emit.width)


def _first_line(emit: Writer, block: Any) -> Any:
    """The first line of a block of columns that is not 0."""
    if emit.kind.projected:
        return emit.header["seen_pad"]
    return emit.larger(emit.times(block, BLOCK), emit.header["latent_pad"])


def _solve_columns(emit: Writer, pair: Pair, row: Any) -> None:
    """Columns of A = L^-1 R and w = A^T z."""
    with emit.range(ADDRESS(0), emit.blocks("latent")) as j:
        w = Variables(emit, dict.fromkeys(((s, 0) for s in SIDE), emit.zero))
        _solve_column(emit, pair, j, row, partial(_add_to_w, pair, w))
        at = _w(emit, j)
        for s in SIDE:
            emit.store(w[s, 0], at, s * emit.width)


def _add_to_w(pair: Pair, w: Variables, tile: Tile, start: Any) -> None:
    z = pair.z(start)
    for s in SIDE:
        w[s, 0] = sum((tile[r, s] * z[r] for r in SIDE), w[s, 0])


def _solve_column(emit: Writer, pair: Pair, j: Any, row: Any, use: Callable[[Tile, Any], None]) -> None:
    """A block of columns of L^-1 R, or of L^-1."""
    out, first = _columns(emit, j), _first_line(emit, j)
    if not emit.kind.projected:
        unit = {(r, s): emit.one if r == s else emit.zero for r, s in SQUARE}
        start = emit.times(j, BLOCK)
        tile = pair.solved(unit, j)
        out.store(start, {(s, r): entry for (r, s), entry in tile.items()})
        use(tile, start)
    with emit.range(ADDRESS(0) if emit.kind.projected else emit.plus(j, 1), emit.blocks("seen")) as i:
        start = emit.times(i, BLOCK)
        acc = Variables(emit, _right_side(emit, row, i, j))
        emit.subtract(acc, pair.L(i), out, first, start)
        tile = pair.solved(acc.now(), i)
        out.store(start, {(s, r): entry for (r, s), entry in tile.items()})
        use(tile, start)


def _right_side(emit: Writer, row: Any, i: Any, j: Any) -> Tile:
    if not emit.kind.projected:
        return dict.fromkeys(SQUARE, emit.zero)
    R = projection(emit, row, i).tile(emit.times(j, BLOCK))
    if not emit.kind.missing:
        return R
    observed = seen(emit, i)
    return {(r, s): entry * observed[r] for (r, s), entry in R.items()}


def _add_sums(emit: Writer, r: Lanes, row: Any) -> None:
    """Add r w and r (w w^T - A^T A) to the sums."""
    totals = emit.plus(_totals(emit), emit.width * emit.size)
    G = emit.at(totals, emit.header["latent"], emit.width)
    with emit.range(ADDRESS(0), emit.blocks("latent")) as i:
        start = emit.times(i, BLOCK)
        at, place = _w(emit, i), emit.at(totals, start, emit.width)
        rw = [r * emit.load(at, s * emit.width) for s in SIDE]
        for s in SIDE:
            emit.store(emit.load(place, s * emit.width) + rw[s], place, s * emit.width)
        with emit.range(ADDRESS(0), i) as j:
            _add_tile(emit, r, row, rw, G, i, j, SQUARE)
        _add_tile(emit, r, row, rw, G, i, i, LOWER)


def _add_tile(
    emit: Writer, r: Lanes, row: Any, rw: list[Lanes], G: Any, i: Any, j: Any, entries: Sequence[tuple[int, int]]
) -> None:
    left = _columns(emit, i)
    right = left if i is j else _columns(emit, j)
    acc = Variables(emit, dict.fromkeys(entries, emit.zero))
    emit.subtract(acc, left, right, _first_line(emit, i), emit.header["seen"])
    minus_M = acc.now()
    if i is j and emit.kind.missing and not emit.kind.projected:
        observed = seen(emit, i)
        minus_M |= {(s, s): minus_M[s, s] * observed[s] for s in SIDE}
    at, panel, start = _w(emit, j), emit.panel(G, i, emit.width), emit.times(j, BLOCK)
    w = [emit.load(at, s * emit.width) for s in SIDE]
    old = panel.tile(start, entries)
    panel.store(start, {(a, b): old[a, b] + rw[a] * w[b] + r * minus_M[a, b] for a, b in entries})
    if emit.kind.slopes:
        slopes = emit.at(G, emit.times(emit.triangular(emit.blocks("latent")), BLOCK), emit.width)
        _add_slopes(emit, row, slopes, i, j, {(a, b): rw[a] * w[b] + r * minus_M[a, b] for a, b in entries})


def _add_slopes(emit: Writer, row: Any, slopes: Any, i: Any, j: Any, terms: Tile) -> None:
    """Add the diagonal of S times r (w w^T - M), of which ``terms`` are one tile, to the slopes."""
    noise = emit.at(row, emit.header["seen"], emit.group)
    if emit.kind.noise == "diagonal":
        if i is j:
            at = emit.at(noise, emit.times(i, BLOCK), emit.group)
            _add_lines(emit, slopes, i, [emit.load(at, s * emit.group) * terms[s, s] for s in SIDE])
        return
    S = emit.panel(noise, i, emit.group).tile(emit.times(j, BLOCK), list(terms))
    products = {entry: S[entry] * term for entry, term in terms.items()}
    lines = [sum((products[a, b] for b in SIDE if (a, b) in products), emit.zero) for a in SIDE]
    columns = [sum((products[a, b] for a in SIDE if (a, b) in products and (i is not j or a != b)), emit.zero)
               for b in SIDE]  # fmt: skip
    _add_lines(emit, slopes, i, lines)
    _add_lines(emit, slopes, j, columns)


def _add_lines(emit: Writer, slopes: Any, block: Any, terms: Sequence[Lanes]) -> None:
    at = emit.at(slopes, emit.times(block, BLOCK), emit.width)
    for s, term in enumerate(terms):
        emit.store(emit.load(at, s * emit.width) + term, at, s * emit.width)
