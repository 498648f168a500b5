"""The algebra of one component and a register of rows, in blocks, for dimensions that are known at run time only.

T = V + S (or R V R^T + S) is factored as L L^T from left to right. A block of products stays in registers while two
panels are read; see ``blocks`` for where they lie. ``inverse`` holds 1 / L_aa on the diagonal of L.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from .blocks import BLOCK, PART_BYTES, Blocked
from .lanes import ADDRESS, Emitter, Lanes

SIDE = range(BLOCK)
SQUARE = [(r, s) for s in SIDE for r in SIDE]
LOWER = [(r, s) for s in SIDE for r in SIDE if r >= s]
Tile = dict[tuple[int, int], Lanes]
HEADER = (
    "latent", "seen", "latent_pad", "seen_pad", "row_numbers", "component_numbers", "slots", "sums", "tile_parts",
    "destinations", "offset", "leading", "vectors", "factor", "columns", "totals", "own",
)  # fmt: skip


@dataclass(frozen=True)
class Panel:
    """BLOCK lines of a matrix, column after column; an entry is a register of rows, or one number for all of them."""

    emit: Writer
    address: Any
    stride: int
    broadcast: bool = False

    def __getitem__(self, column: Any) -> list[Lanes]:
        at = self._at(column)
        return [self._load(at, r) for r in SIDE]

    def tile(self, column: Any, entries: Sequence[tuple[int, int]] = SQUARE) -> Tile:
        """Entries of the BLOCK columns from one on."""
        at = self._at(column)
        return {(r, s): self._load(at, s * BLOCK + r) for r, s in entries}

    def store(self, column: Any, tile: Tile) -> None:
        at = self._at(column)
        for (r, s), entry in tile.items():
            self.emit.store(entry, at, (s * BLOCK + r) * self.stride)

    def _at(self, column: Any) -> Any:
        return self.emit.at(self.address, column, BLOCK * self.stride)

    def _load(self, at: Any, place: int) -> Lanes:
        return self.emit.broadcast(at, place) if self.broadcast else self.emit.load(at, place * self.stride)


class Variables:
    """Lanes that change in a loop."""

    def __init__(self, emit: Writer, tile: Tile) -> None:
        self.emit = emit
        self.places = {entry: emit.variable(lanes.value) for entry, lanes in tile.items()}

    def __getitem__(self, entry: tuple[int, int]) -> Lanes:
        return Lanes(self.emit, self.emit.builder.load(self.places[entry]))

    def __setitem__(self, entry: tuple[int, int], lanes: Lanes) -> None:
        self.emit.builder.store(lanes.value, self.places[entry])

    def now(self) -> Tile:
        return {entry: self[entry] for entry in self.places}


class Writer(Emitter):
    """An emitter for registers of rows that knows the dimensions of a call from its header."""

    vector_bytes = PART_BYTES

    def __init__(self, builder: ir.IRBuilder, kind: Blocked, header: Any) -> None:
        super().__init__(builder, kind.bits)
        self.kind = kind
        self.group = kind.width  # rows that lie side by side, in one or two registers
        self.parts = self.group // self.width
        place = builder.inttoptr(header, ADDRESS.as_pointer())
        self.header = {name: builder.load(builder.gep(place, [ADDRESS(i)])) for i, name in enumerate(HEADER)}
        self.zero, self.one = self.constant(0.0), self.constant(1.0)

    def variable(self, value: Any) -> Any:
        place = cgutils.alloca_once(self.builder, value.type)
        self.builder.store(value, place)
        return place

    @contextmanager
    def range(self, start: Any, stop: Any) -> Iterator[Any]:
        with cgutils.for_range(self.builder, stop, start=start) as loop:
            yield loop.index

    def times(self, value: Any, factor: int) -> Any:
        return self.builder.mul(value, ADDRESS(factor))

    def plus(self, value: Any, term: int) -> Any:
        return self.builder.add(value, ADDRESS(term))

    def blocks(self, dimension: str) -> Any:
        return self.builder.udiv(self.header[dimension], ADDRESS(BLOCK))

    def larger(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.builder.icmp_signed(">", a, b), a, b)

    def triangular(self, block: Any) -> Any:
        """Columns of BLOCK numbers before a panel of a triangle."""
        return self.times(self.builder.udiv(self.builder.mul(block, self.plus(block, 1)), ADDRESS(2)), BLOCK)

    def panel(self, address: Any, block: Any, stride: int, broadcast: bool = False) -> Panel:
        """A panel of a triangle."""
        return Panel(self, self.at(address, self.triangular(block), BLOCK * stride), stride, broadcast)

    def full_panel(self, address: Any, block: Any, columns: Any, stride: int, broadcast: bool = False) -> Panel:
        """A panel of a matrix."""
        return Panel(self, self.at(address, self.builder.mul(block, columns), BLOCK * stride), stride, broadcast)

    def part(self, address: Any, index: Any, numbers: Any) -> Any:
        """The address of a register of rows among groups of ``numbers`` entries."""
        group, part = self.builder.udiv(index, ADDRESS(self.parts)), self.builder.urem(index, ADDRESS(self.parts))
        return self.at(self.at(address, self.builder.mul(group, numbers), self.group), part, self.width)

    def subtract(self, acc: Variables, P: Panel, Q: Panel, start: Any, stop: Any) -> None:
        """acc -= P Q^T over some columns."""
        with self.range(start, stop) as c:
            p = P[c]
            q = p if P is Q else Q[c]
            for r, s in acc.places:
                acc[r, s] = acc[r, s] - p[r] * q[s]

    def reduced(self, vectors: Sequence[Any]) -> Any:
        """One vector with the sum of the lanes of each of as many vectors as there are lanes."""
        size = self.width
        while size > 1:
            half = size // 2
            low = [b + i + o for b in range(0, self.width, size) for o in (0, self.width) for i in range(half)]
            high = [lane + half for lane in low]
            pairs = [(vectors[i], vectors[i + half]) for i in range(half)]
            vectors = [self.builder.fadd(self._shuffle(a, b, low), self._shuffle(a, b, high)) for a, b in pairs]
            size = half
        return vectors[0]

    def add_totals(self, totals: Any, sums: Any) -> None:
        """Add the lanes of every sum to one number of memory."""
        with self.range(ADDRESS(0), self.builder.udiv(self.header["sums"], ADDRESS(self.width))) as block:
            at, place = self.at(totals, block, self.width**2), self.at(sums, block, self.width)
            found = self.reduced([self.load(at, i * self.width).value for i in range(self.width)])
            self.store(self.load(place) + Lanes(self, found), place)


class Logarithm:
    """log of a product of pivots that come one after the other, and the least of them."""

    def __init__(self, emit: Writer) -> None:
        self.emit = emit
        self.exponents = emit.variable(emit._integers(0))
        self.product, self.least = emit.variable(emit.one.value), emit.variable(emit.constant(float("inf")).value)

    def multiply(self, pivots: Sequence[Lanes]) -> None:
        emit, builder = self.emit, self.emit.builder
        exponents = builder.load(self.exponents)
        product, least = Lanes(emit, builder.load(self.product)), Lanes(emit, builder.load(self.least))
        for factor in pivots:
            least = factor.compare("<", least).where(factor, least)  # a NaN pivot makes the distance NaN
            exponent, fraction = self._split(factor)
            exponents, product = builder.add(exponents, exponent), product * fraction
        exponent, product = self._split(product)
        builder.store(builder.add(exponents, exponent), self.exponents)
        builder.store(product.value, self.product)
        builder.store(least.value, self.least)

    def _split(self, factor: Lanes) -> tuple[Any, Lanes]:
        """The exponent and a number from 1 to 2."""
        emit, builder = self.emit, self.emit.builder
        bits = emit._as_integers(factor)
        exponent = builder.sub(builder.lshr(bits, emit._integers(emit.mantissa)), emit._integers(emit.bias))
        fraction = builder.and_(bits, emit._integers((1 << emit.mantissa) - 1))
        return exponent, emit._as_numbers(builder.or_(fraction, emit._integers(emit.bias << emit.mantissa)))

    def value(self) -> Lanes:
        """NaN where a pivot is not positive."""
        emit, builder = self.emit, self.emit.builder
        fine = Lanes(emit, builder.load(self.least)).compare(
            ">", emit.constant(1.2e-38 if emit.bits == 32 else 2.3e-308)
        )
        exponents = emit._small_integers(builder.load(self.exponents)) * emit.constant(0.6931471805599453)
        return fine.where(
            emit.log_product([Lanes(emit, builder.load(self.product))]) + exponents, emit.constant(float("nan"))
        )


@dataclass(frozen=True)
class Pair:
    """T of a register of rows: a function of tiles, the residual, and where the factor and its numbers go."""

    emit: Writer
    tile: Callable[[Any, Any, Sequence[tuple[int, int]]], Tile]
    residual: Callable[[Any], list[Lanes]]

    @property
    def pad(self) -> Any:
        return self.emit.header["seen_pad"]

    def L(self, block: Any) -> Panel:
        return self.emit.panel(self.emit.header["factor"], block, self.emit.width)

    def z(self, column: Any) -> list[Lanes]:
        at = self.emit.at(self.emit.header["vectors"], column, self.emit.width)
        return [self.emit.load(at, r * self.emit.width) for r in SIDE]

    def factor(self, blocks: Any = None) -> tuple[Variables, Logarithm]:
        """L, z = L^-1 (x - R m), the squared distance z^T z, and log |T|, of all or of some leading blocks."""
        emit = self.emit
        count = emit.blocks("seen") if blocks is None else blocks
        distance, determinant = Variables(emit, {(0, 0): emit.zero}), Logarithm(emit)
        with emit.range(ADDRESS(0), count) as j:
            start, panel = emit.times(j, BLOCK), self.L(j)
            acc = Variables(emit, self.tile(j, j, LOWER))
            z = Variables(emit, dict(zip(((r, 0) for r in SIDE), self.residual(start), strict=True)))
            with emit.range(self.pad, start) as c:
                column, known = panel[c], emit.load(emit.at(emit.header["vectors"], c, emit.width))
                for r in SIDE:
                    z[r, 0] = z[r, 0] - column[r] * known
                for r, s in LOWER:
                    acc[r, s] = acc[r, s] - column[r] * column[s]
            T, pivots = self._factor_diagonal(acc.now(), y := [z[r, 0] for r in SIDE])
            panel.store(start, T)
            at = emit.at(emit.header["vectors"], start, emit.width)
            for r in SIDE:
                emit.store(y[r], at, r * emit.width)
            determinant.multiply(pivots)
            distance[0, 0] = sum((value * value for value in y), distance[0, 0])
            with emit.range(emit.plus(j, 1), count) as i:
                line = self.L(i)
                acc = Variables(emit, self.tile(i, j, SQUARE))
                emit.subtract(acc, line, panel, self.pad, start)
                line.store(start, self._solved_right(acc.now(), T))
        return distance, determinant

    def _factor_diagonal(self, T: Tile, z: list[Lanes]) -> tuple[Tile, list[Lanes]]:
        pivots = []
        for s in SIDE:
            pivots.append(T[s, s])
            T[s, s] = self.emit.one / self.emit.sqrt(T[s, s])
            z[s] = z[s] * T[s, s]
            for r in SIDE[s + 1 :]:
                T[r, s] = T[r, s] * T[s, s]
                z[r] = z[r] - T[r, s] * z[s]
            for r, t in LOWER:
                if t > s:
                    T[r, t] = T[r, t] - T[r, s] * T[t, s]
        return T, pivots

    def _solved_right(self, tile: Tile, L: Tile) -> Tile:
        """tile L^-T."""
        for s in SIDE:
            for r in SIDE:
                tile[r, s] = tile[r, s] * L[s, s]
                for t in SIDE[s + 1 :]:
                    tile[r, t] = tile[r, t] - tile[r, s] * L[t, s]
        return tile

    def solved(self, tile: Tile, block: Any) -> Tile:
        """L^-1 tile with a block of the diagonal."""
        L = self.L(block).tile(self.emit.times(block, BLOCK), LOWER)
        for r in SIDE:
            for s in SIDE:
                tile[r, s] = tile[r, s] * L[r, r]
                for t in SIDE[r + 1 :]:
                    tile[t, s] = tile[t, s] - L[t, r] * tile[r, s]
        return tile
