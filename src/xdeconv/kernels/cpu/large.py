"""The steps of ``tiles`` for dimensions that are known at run time: few to compile, for every size.

They take what those take and, last, the address of a header with the dimensions and with room to work in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .blocks import BLOCK, Blocked
from .lanes import ADDRESS, INDEX, Lanes
from .panels import LOWER, SIDE, SQUARE, Pair, Panel, Tile, Variables, Writer
from .tiles import SIX, UNSEEN, _cfunc, fingerprint, notice
from .whitening import bound_of_rows, joint_shared, sums_shared


def joint_of_rows(emit: Writer, rows: Any, groups: Any, component: Any, joint: Any, *_: Any) -> None:
    """log alpha N of one component and neighbouring rows."""
    if emit.kind.noise == "shared":
        return joint_shared(emit, rows, groups, component, joint)
    with emit.range(ADDRESS(0), emit.times(groups, emit.parts)) as t:
        row = emit.part(rows, t, emit.header["slots"])
        value = _log_joint(emit, _prepared(emit, row, component), _offset(emit, component))
        emit.store(value, emit.at(joint, t, emit.width))
    return None


def joint_of_best(emit: Writer, rows: Any, groups: Any, components: Any, best: Any, out: Any, _: Any) -> None:
    """log alpha N of neighbouring rows, each with a component of its own."""
    own, numbers = emit.header["own"], emit.header["component_numbers"]
    blocks = emit.builder.udiv(numbers, ADDRESS(emit.piece))
    with emit.range(ADDRESS(0), groups) as group:
        index = emit.builder.add(best, emit.times(group, 4 * emit.group))
        _transposed(emit, components, numbers, index, blocks, own, None)
        for part in range(emit.parts):
            t = emit.plus(emit.times(group, emit.parts), part)
            row = emit.part(rows, t, emit.header["slots"])
            component = emit.plus(own, part * emit.width * emit.size)
            offset = emit.load(emit.at(component, _offset_place(emit), emit.group))
            value = _log_joint(emit, _prepared(emit, row, component, emit.group), offset)
            emit.store(value, emit.at(out, t, emit.width))


def _log_joint(emit: Writer, pair: Pair, offset: Lanes) -> Lanes:
    distance, determinant = pair.factor()
    return emit.constant(-0.5) * (distance[0, 0] + determinant.value()) + offset


def _offset_place(emit: Writer) -> Any:
    latent = emit.header["latent"]
    if emit.kind.projected:
        return emit.builder.mul(latent, emit.plus(latent, 1))
    return emit.builder.add(latent, emit.times(emit.triangular(emit.blocks("latent")), BLOCK))


def _offset(emit: Writer, component: Any) -> Lanes:
    return emit.broadcast(emit.at(component, _offset_place(emit)))


def _prepared(emit: Writer, row: Any, component: Any, own: int = 0) -> Pair:
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
    R = _projection(emit, row, emit.builder.udiv(start, ADDRESS(BLOCK)))
    with emit.range(emit.header["latent_pad"], emit.header["latent"]) as f:
        column, m = R[f], emit.broadcast(emit.at(component, f))
        for r in SIDE:
            acc[r, 0] = acc[r, 0] - column[r] * m
    return [acc[r, 0] for r in SIDE]


def _seen(emit: Writer, block: Any) -> list[Lanes]:
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
    lines = _seen(emit, i)
    columns = lines if i is j else _seen(emit, j)
    T = {(r, s): entry * (lines[r] * columns[s]) for (r, s), entry in T.items()}
    return T | {(r, r): T[r, r] + (emit.one - lines[r]) for r in SIDE} if i is j else T


def _projection(emit: Writer, row: Any, block: Any) -> Panel:
    noise = {"full": emit.times(emit.triangular(emit.blocks("seen")), BLOCK), "diagonal": emit.header["seen"]}
    start = emit.builder.add(emit.header["seen"], noise[emit.kind.noise])
    return emit.full_panel(emit.at(row, start, emit.group), block, emit.header["latent"], emit.group)


def _multiply_projection(emit: Writer, row: Any, matrix: Any) -> None:
    """R V in panels."""
    latent, pad = emit.header["latent"], emit.header["latent_pad"]
    with emit.range(ADDRESS(0), emit.blocks("seen")) as i:
        R, out = _projection(emit, row, i), emit.full_panel(emit.header["totals"], i, latent, emit.width)
        with emit.range(ADDRESS(0), emit.blocks("latent")) as e:
            V = emit.full_panel(matrix, e, latent, 1, True)
            acc = Variables(emit, dict.fromkeys(SQUARE, emit.zero))
            emit.subtract(acc, R, V, pad, latent)
            out.store(emit.times(e, BLOCK), {entry: -lanes for entry, lanes in acc.now().items()})


def _projected_tile(emit: Writer, row: Any, i: Any, j: Any, entries: Sequence[tuple[int, int]]) -> Tile:
    latent = emit.header["latent"]
    RV, R = emit.full_panel(emit.header["totals"], i, latent, emit.width), _projection(emit, row, j)
    acc = Variables(emit, dict.fromkeys(entries, emit.zero))
    emit.subtract(acc, RV, R, emit.header["latent_pad"], latent)
    T = {entry: -lanes for entry, lanes in acc.now().items()}
    if i is j:
        outside = [
            emit.builder.icmp_signed("<", emit.plus(emit.times(i, BLOCK), r), emit.header["seen_pad"]) for r in SIDE
        ]
        T |= {(r, r): T[r, r] + _where(emit, outside[r], emit.one) for r in SIDE}
    return T


def sums_of_rows(emit: Writer, rows: Any, groups: Any, component: Any, joint: Any, sums: Any, _: Any) -> None:
    """Add the sums of one component and neighbouring rows with responsibilities ``joint``."""
    if emit.kind.noise == "shared":
        return sums_shared(emit, rows, groups, component, joint, sums)
    totals = _totals(emit)
    with emit.range(ADDRESS(0), emit.header["sums"]) as s:
        emit.store(emit.zero, emit.at(totals, s, emit.width))
    with emit.range(ADDRESS(0), emit.times(groups, emit.parts)) as t:
        pair = _prepared(emit, row := emit.part(rows, t, emit.header["slots"]), component)
        pair.factor()
        r = emit.load(emit.at(joint, t, emit.width))
        emit.store(emit.load(totals) + r, totals)
        _solve_columns(emit, pair, row)
        _add_sums(emit, r)
    emit.add_totals(totals, sums)
    return None


def _totals(emit: Writer) -> Any:
    """Where sums are kept: R V, where there is one, is not needed any more when they are added to."""
    if not emit.kind.projected:
        return emit.header["totals"]
    size = emit.builder.mul(emit.header["latent"], emit.header["seen"])
    return emit.at(emit.header["totals"], size, emit.width)


def columns(emit: Writer, block: Any) -> Panel:
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


def first_line(emit: Writer, block: Any) -> Any:
    """The first line of a block of columns that is not 0."""
    if emit.kind.projected:
        return emit.header["seen_pad"]
    return emit.larger(emit.times(block, BLOCK), emit.header["latent_pad"])


def _solve_columns(emit: Writer, pair: Pair, row: Any) -> None:
    """Columns of A = L^-1 R and w = A^T z."""
    with emit.range(ADDRESS(0), emit.blocks("latent")) as j:
        w = Variables(emit, dict.fromkeys(((s, 0) for s in SIDE), emit.zero))
        add = partial(_add_to_w, pair, w)
        solve_column(emit, pair, j, row, add)
        at = _w(emit, j)
        for s in SIDE:
            emit.store(w[s, 0], at, s * emit.width)


def _add_to_w(pair: Pair, w: Variables, tile: Tile, start: Any) -> None:
    z = pair.z(start)
    for s in SIDE:
        w[s, 0] = sum((tile[r, s] * z[r] for r in SIDE), w[s, 0])


def solve_column(emit: Writer, pair: Pair, j: Any, row: Any, use: Callable[[Tile, Any], None]) -> None:
    """A block of columns of L^-1 R, or of L^-1."""
    out, first = columns(emit, j), first_line(emit, j)
    if not emit.kind.projected:
        unit = {(r, s): emit.one if r == s else emit.zero for r, s in SQUARE}
        start = emit.times(j, BLOCK)
        tile = pair.solved(unit, j)
        out.store(start, {(s, r): entry for (r, s), entry in tile.items()})
        use(tile, start)
    with emit.range(ADDRESS(0) if emit.kind.projected else emit.plus(j, 1), emit.blocks(pair.dimension)) as i:
        start = emit.times(i, BLOCK)
        acc = Variables(emit, _right_side(emit, row, i, j))
        emit.subtract(acc, pair.L(i), out, first, start)
        tile = pair.solved(acc.now(), i)
        out.store(start, {(s, r): entry for (r, s), entry in tile.items()})
        use(tile, start)


def _right_side(emit: Writer, row: Any, i: Any, j: Any) -> Tile:
    if not emit.kind.projected:
        return dict.fromkeys(SQUARE, emit.zero)
    R = _projection(emit, row, i).tile(emit.times(j, BLOCK))
    if not emit.kind.missing:
        return R
    seen = _seen(emit, i)
    return {(r, s): entry * seen[r] for (r, s), entry in R.items()}


def _add_sums(emit: Writer, r: Lanes) -> None:
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
            _add_tile(emit, r, rw, G, i, j, SQUARE)
        _add_tile(emit, r, rw, G, i, i, LOWER)


def _add_tile(
    emit: Writer, r: Lanes, rw: list[Lanes], G: Any, i: Any, j: Any, entries: Sequence[tuple[int, int]]
) -> None:
    left = columns(emit, i)
    right = left if i is j else columns(emit, j)
    acc = Variables(emit, dict.fromkeys(entries, emit.zero))
    emit.subtract(acc, left, right, first_line(emit, i), emit.header["seen"])
    minus_M = acc.now()
    if i is j and emit.kind.missing and not emit.kind.projected:
        seen = _seen(emit, i)
        minus_M |= {(s, s): minus_M[s, s] * seen[s] for s in SIDE}
    at, panel, start = _w(emit, j), emit.panel(G, i, emit.width), emit.times(j, BLOCK)
    w = [emit.load(at, s * emit.width) for s in SIDE]
    old = panel.tile(start, entries)
    panel.store(start, {(a, b): old[a, b] + rw[a] * w[b] + r * minus_M[a, b] for a, b in entries})


def noise_range(emit: Writer, rows: Any, groups: Any, least: Any, most: Any, *_: Any) -> None:
    """Least and most, lane by lane, of the row sums of |S|, diagonal matrices with which are at least S."""
    latent, pad, sizes = emit.header["latent"], emit.header["latent_pad"], emit.header["vectors"]
    with emit.range(ADDRESS(0), emit.times(groups, emit.parts)) as t:
        row = emit.part(rows, t, emit.header["slots"])
        part = emit.times(emit.builder.urem(t, ADDRESS(emit.parts)), emit.width * emit.size)
        noise = emit.at(row, latent, emit.group)
        with emit.range(ADDRESS(0), latent) as a:
            variance = emit.load(emit.at(noise, a, emit.group)) if emit.kind.noise == "diagonal" else emit.zero
            emit.store(emit.magnitude(variance), emit.at(sizes, a, emit.width))
        if emit.kind.noise == "full":
            _add_sizes(emit, noise, sizes)
        with emit.range(pad, latent) as a:
            x, size = emit.load(emit.at(row, a, emit.group)), emit.load(emit.at(sizes, a, emit.width))
            size = x.compare("==", x).where(size, emit.constant(UNSEEN))
            for line, choose in ((least, emit.smallest), (most, emit.largest)):
                at = emit.builder.add(emit.at(line, emit.builder.sub(a, pad), emit.group), part)
                emit.store(choose(size, emit.load(at)), at)


def _add_sizes(emit: Writer, noise: Any, sizes: Any) -> None:
    """Add |S_ab| to lines a and b."""

    def add(block: Any, terms: dict[int, list[Lanes]]) -> None:
        at = emit.at(sizes, emit.times(block, BLOCK), emit.width)
        for r, lanes in terms.items():
            emit.store(sum(lanes, emit.load(at, r * emit.width)), at, r * emit.width)

    with emit.range(ADDRESS(0), emit.blocks("latent")) as i:
        panel = emit.panel(noise, i, emit.group)
        with emit.range(ADDRESS(0), i) as j:
            S = {entry: emit.magnitude(lanes) for entry, lanes in panel.tile(emit.times(j, BLOCK)).items()}
            add(i, {r: [S[r, s] for s in SIDE] for r in SIDE})
            add(j, {s: [S[r, s] for r in SIDE] for s in SIDE})
        S = {entry: emit.magnitude(lanes) for entry, lanes in panel.tile(emit.times(i, BLOCK), LOWER).items()}
        add(i, {r: [S[max(r, s), min(r, s)] for s in SIDE] for r in SIDE})


def bounds(emit: Writer, components: Any, index: Any, noise: Any, offsets: Any, out: Any, _: Any) -> None:
    """A group of components that bound those of an index from above for every row of a tile with this noise (d)."""
    first = emit.builder.zext(emit.builder.load(emit._pointer(index, 0, INDEX), align=4), ADDRESS)
    numbers, latent, pad = (emit.header[name] for name in ("component_numbers", "latent", "latent_pad"))
    for part in range(emit.parts):
        lines = emit.plus(
            emit.at(emit.header["grouped"], emit.builder.mul(first, numbers)), part * emit.width * emit.size
        )
        matrix = emit.at(lines, latent, emit.group)

        def tile(i: Any, j: Any, entries: Sequence[tuple[int, int]], matrix: Any = matrix) -> Tile:
            start = emit.times(j, BLOCK)
            T = emit.panel(matrix, i, emit.group).tile(start, entries)
            if entries is LOWER:
                at = emit.at(noise, emit.builder.sub(start, pad))
                inside = [emit.builder.icmp_signed(">=", emit.plus(start, r), pad) for r in SIDE]
                T |= {(r, r): T[r, r] + _where(emit, inside[r], emit.broadcast(at, r)) for r in SIDE}
            return T

        pair = Pair(emit, tile, lambda _: [emit.zero] * BLOCK, "latent")
        pair.factor()
        table = emit.at(out, numbers, part * emit.width)
        _store_bounds(emit, pair, lines, offsets, table, part)


def _where(emit: Writer, chosen: Any, lanes: Lanes) -> Lanes:
    return Lanes(emit, emit.builder.select(chosen, lanes.value, emit.zero.value))


def _store_bounds(emit: Writer, pair: Pair, lines: Any, offsets: Any, table: Any, part: int) -> None:
    latent = emit.header["latent"]
    with emit.range(ADDRESS(0), latent) as a:
        _store_numbers(emit, emit.load(emit.at(lines, a, emit.group)), table, a)
    with emit.range(ADDRESS(0), emit.blocks("latent")) as j:

        def keep(tile: Tile, start: Any, j: Any = j) -> None:
            before = emit.triangular(emit.builder.udiv(start, ADDRESS(BLOCK)))
            place = emit.times(emit.builder.add(before, emit.times(j, BLOCK)), BLOCK)
            for r, s in SQUARE:
                _store_numbers(emit, tile[r, s], table, emit.plus(emit.builder.add(latent, place), s * BLOCK + r))

        solve_column(emit, pair, j, None, keep)
    _store_numbers(emit, emit.load(offsets, part * emit.width), table, _offset_place(emit))


def _store_numbers(emit: Writer, lanes: Lanes, table: Any, place: Any) -> None:
    """One number for each line of a table."""
    at = emit.at(table, place)
    for lane in range(emit.width):
        number = emit.builder.extract_element(lanes.value, INDEX(lane))
        emit.builder.store(number, emit._pointer(at, 0, emit.number), align=emit.size)
        at = emit.at(at, emit.header["component_numbers"])


def groups_of_table(emit: Writer, table: Any, index: Any, count: Any, rows: Any, *_: Any) -> None:
    """The rows that an index of ``count`` names become groups of rows, number by number."""
    numbers = emit.header["row_numbers"]
    blocks = emit.builder.udiv(numbers, ADDRESS(emit.piece))
    groups = emit.builder.udiv(emit.plus(count, emit.group - 1), ADDRESS(emit.group))
    with emit.range(ADDRESS(0), groups) as group:
        places = emit.builder.add(index, emit.times(group, 4 * emit.group))
        out = emit.at(rows, emit.builder.mul(group, emit.header["slots"]), emit.group)
        _transposed(emit, table, numbers, places, blocks, out, emit.header["destinations"])


def _transposed(
    emit: Writer, table: Any, numbers: Any, index: Any, blocks: Any, out: Any, destinations: Any | None
) -> None:
    """The numbers of the table rows that a group of indices names, each to its destination or one after the other."""
    places = [emit.builder.load(emit._pointer(index, lane, INDEX), align=4) for lane in range(emit.group)]
    starts = [emit.at(table, emit.builder.mul(emit.builder.zext(place, ADDRESS), numbers)) for place in places]
    for first in range(0, emit.group, emit.piece):
        with emit.range(ADDRESS(0), blocks) as block:
            here = [emit.at(start, block, emit.piece) for start in starts[first : first + emit.piece]]
            square = emit._transpose(partial(emit._load_half, here, 0))
            for a, column in enumerate(square):
                place = emit.plus(emit.times(block, emit.piece), a)
                if destinations is not None:
                    slot = emit._pointer(emit.builder.add(destinations, emit.times(place, 4)), 0, INDEX)
                    place = emit.builder.zext(emit.builder.load(slot, align=4), ADDRESS)
                at = emit._pointer(emit.at(out, place, emit.group), first, column.type)
                emit.builder.store(column, at, align=emit.size)


STEPS: dict[str, Callable[..., None]] = {step.__name__: step for step in (
    groups_of_table, joint_of_rows, joint_of_best, sums_of_rows, noise_range, bounds, bound_of_rows,
)}  # fmt: skip


@cache
def compiled(kind: Blocked, step: str) -> int:
    """The address of a step for a kind of data of any dimensions, compiled now unless the disk has it."""
    return _compiled(kind.code, step)


@cache
def _compiled(code: str, step: str) -> int:
    mark = fingerprint()

    def run(a, b, c, d, e, f):  # type: ignore[no-untyped-def]
        _emit(code, step, mark, a, b, c, d, e, f)

    run.__qualname__ = f"large {step} {code}".replace(" ", "_")
    with notice(f"more dimensions, {code}"):
        return int(_cfunc(types.void(*SIX), cache=True, nopython=True, error_model="numpy")(run).address)


@intrinsic(prefer_literal=True)
def _emit(typing: Any, code: Any, step: Any, mark: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
    """The instructions of a step, in place of a call."""
    kind, write = Blocked.parse(code.literal_value), STEPS[step.literal_value]

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        write(Writer(builder, kind, arguments[-1]), *arguments[3:])
        return context.get_dummy_value()

    return types.void(code, step, mark, *SIX), generate
