"""Lanes: one number per row, W rows side by side, whose arithmetic becomes vector instructions."""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import cgutils

VECTOR_BYTES = 64  # two AVX2 registers: two independent chains of instructions hide each other's latency
REGISTER_BYTES = 32
ADDRESS = ir.IntType(64)
INDEX = ir.IntType(32)


class Lanes:
    """W numbers (or W truth values) in one LLVM vector; operators emit the instruction that computes them."""

    __slots__ = ("emit", "value")

    def __init__(self, emit: Emitter, value: Any) -> None:
        self.emit, self.value = emit, value

    def __add__(self, other: Lanes) -> Lanes:
        return Lanes(self.emit, self.emit.builder.fadd(self.value, other.value, flags=("contract", "nsz")))

    def __sub__(self, other: Lanes) -> Lanes:
        return Lanes(self.emit, self.emit.builder.fsub(self.value, other.value, flags=("contract", "nsz")))

    def __mul__(self, other: Lanes) -> Lanes:
        return Lanes(self.emit, self.emit.builder.fmul(self.value, other.value, flags=("contract", "nsz")))

    def __neg__(self) -> Lanes:
        return Lanes(self.emit, self.emit.builder.fneg(self.value))

    def __truediv__(self, other: Lanes) -> Lanes:
        return Lanes(self.emit, self.emit.builder.fdiv(self.value, other.value))

    def __or__(self, other: Lanes) -> Lanes:
        return Lanes(self.emit, self.emit.builder.or_(self.value, other.value))

    def __invert__(self) -> Lanes:
        return Lanes(self.emit, self.emit.builder.not_(self.value))

    def __and__(self, other: Lanes) -> Lanes:
        return Lanes(self.emit, self.emit.builder.and_(self.value, other.value))

    def compare(self, operator: str, other: Lanes) -> Lanes:
        """Truth values; false where either side is NaN."""
        return Lanes(self.emit, self.emit.builder.fcmp_ordered(operator, self.value, other.value))

    def where(self, yes: Lanes, no: Lanes) -> Lanes:
        """Truth values choose between two numbers."""
        return Lanes(self.emit, self.emit.builder.select(self.value, yes.value, no.value))


class Emitter(ABC):
    """Writes instructions for W lanes of one float type at the place where a Numba function is being lowered."""

    @property
    @abstractmethod
    def vector_bytes(self) -> int:
        """Memory of W numbers."""

    def __init__(self, builder: ir.IRBuilder, bits: int) -> None:
        self.builder = builder
        builder.function.attributes.alignstack = 64  # or vectors that do not fit in registers straddle cache lines
        builder.function.attributes.add("noinline")
        self.bits = bits
        self.size = bits // 8
        self.width = self.vector_bytes // self.size
        self.piece = REGISTER_BYTES // self.size
        self.number = ir.FloatType() if bits == 32 else ir.DoubleType()
        self.vector = ir.VectorType(self.number, self.width)
        self.integer = ir.IntType(bits)
        self.integers = ir.VectorType(self.integer, self.width)
        self.mantissa = 23 if bits == 32 else 52
        self.bias = 127 if bits == 32 else 1023

    def constant(self, value: float) -> Lanes:
        return Lanes(self, ir.Constant(self.vector, [value] * self.width))

    def load(self, address: Any, offset: int = 0) -> Lanes:
        """W neighbouring numbers, ``offset`` numbers after an address."""
        return Lanes(self, self.builder.load(self._pointer(address, offset, self.vector), align=self.size))

    def broadcast(self, address: Any, offset: int = 0) -> Lanes:
        """One number of memory in every lane."""
        number = self.builder.load(self._pointer(address, offset, self.number), align=self.size)
        return Lanes(self, self._spread(number, self.vector))

    def store(self, lanes: Lanes, address: Any, offset: int = 0) -> None:
        self.builder.store(lanes.value, self._pointer(address, offset, self.vector), align=self.size)

    def gather(self, address: Any, index: Any) -> Lanes:
        """The numbers at W indices."""
        result = ir.Constant(self.vector, ir.Undefined)
        for lane, place in enumerate(self.indices(index)):
            number = self.builder.load(self._pointer(self.at(address, place), 0, self.number), align=self.size)
            result = self.builder.insert_element(result, number, INDEX(lane))
        return Lanes(self, result)

    def scatter(self, lanes: Lanes, address: Any, index: Any) -> None:
        """Store numbers at W indices."""
        for lane, place in enumerate(self.indices(index)):
            number = self.builder.extract_element(lanes.value, INDEX(lane))
            self.builder.store(number, self._pointer(self.at(address, place), 0, self.number), align=self.size)

    def index_variable(self) -> Any:
        """W indices that change in a loop, 0 at first."""
        return cgutils.alloca_once_value(self.builder, ir.Constant(ir.VectorType(INDEX, self.width), [0] * self.width))

    def replace_index(self, variable: Any, chosen: Lanes, index: Any) -> None:
        """Set the true lanes of a variable to one index."""
        new = self._spread(self.builder.trunc(index, INDEX), ir.VectorType(INDEX, self.width))
        self.builder.store(self.builder.select(chosen.value, new, self.builder.load(variable)), variable)

    def store_index(self, variable: Any, address: Any) -> None:
        self.builder.store(
            self.builder.load(variable), self._pointer(address, 0, ir.VectorType(INDEX, self.width)), align=4
        )

    def clear_indices(self, address: Any) -> None:
        """Store W zero indices."""
        wide = ir.VectorType(INDEX, self.width)
        self.builder.store(ir.Constant(wide, [0] * self.width), self._pointer(address, 0, wide), align=4)

    def store_count(self, count: Any, address: Any) -> None:
        """Store one whole number."""
        self.builder.store(count, self.builder.inttoptr(address, ADDRESS.as_pointer()))

    def indices(self, index: Any) -> list[Any]:
        """W indices of memory, as whole numbers."""
        places = [self.builder.load(self._pointer(index, lane, INDEX), align=4) for lane in range(self.width)]
        return [self.builder.zext(place, ADDRESS) for place in places]

    def rows(self, table: Any, stride: int, index: Any) -> list[Lanes]:
        """Column by column the ``stride`` numbers (whole registers) of the W table rows that W indices name."""
        pieces = self._pieces(table, stride, index)
        return [Lanes(self, self._join(parts)) for parts in zip(*pieces, strict=True)]

    def copy_rows(self, table: Any, stride: int, index: Any, out: Any, columns: int) -> None:
        """Store columns of the W table rows that W indices name."""
        for first, piece in zip(range(0, self.width, self.piece), self._pieces(table, stride, index), strict=True):
            for a, column in enumerate(piece[:columns]):
                self.builder.store(column, self._pointer(out, a * self.width + first, column.type), align=self.size)

    def _pieces(self, table: Any, stride: int, index: Any) -> list[list[Any]]:
        starts = [self.at(table, place, stride) for place in self.indices(index)]
        result = []
        for first in range(0, self.width, self.piece):
            columns: list[Any] = []
            for block in range(0, stride, self.piece):
                columns += self._transpose(partial(self._load_half, starts[first : first + self.piece], block))
            result.append(columns)
        return result

    def _load_half(self, starts: Sequence[Any], block: int, row: int, half: int) -> Any:
        kind = ir.VectorType(self.number, self.piece // 2)
        place = self._pointer(starts[row], block + half * kind.count, kind)
        return self.builder.load(place, align=self.size)

    def store_rows(self, columns: Sequence[Lanes], table: Any) -> None:
        """W rows of a table, one after the other, from their columns (whole registers)."""
        for block in range(0, len(columns), self.piece):
            for first in range(0, self.width, self.piece):
                square = self._transpose(partial(self._take_half, columns[block : block + self.piece], first))
                for lane, row in enumerate(square):
                    place = self._pointer(table, (first + lane) * len(columns) + block, row.type)
                    self.builder.store(row, place, align=self.size)

    def scatter_rows(self, columns: Sequence[Lanes], table: Any, index: Any) -> None:
        """The W rows of a table that W indices name, from their columns (whole registers)."""
        starts = [self.at(table, place, len(columns)) for place in self.indices(index)]
        for block in range(0, len(columns), self.piece):
            for first in range(0, self.width, self.piece):
                square = self._transpose(partial(self._take_half, columns[block : block + self.piece], first))
                for start, row in zip(starts[first : first + self.piece], square, strict=True):
                    self.builder.store(row, self._pointer(start, block, row.type), align=self.size)

    def _take_half(self, columns: Sequence[Lanes], first: int, row: int, half: int) -> Any:
        start, value = first + half * self.piece // 2, columns[row].value
        return self._shuffle(value, value, range(start, start + self.piece // 2))

    def _transpose(self, part: Callable[[int, int], Any]) -> list[Any]:
        """The columns of a square of registers, of whose rows ``part`` gives the first or second half."""
        half = self.piece // 2
        low, high = (
            [lane for start in (0, half) for pair in range(begin, begin + half // 2)
             for lane in (start + pair, self.piece + start + pair)] for begin in (0, half // 2)
        )  # fmt: skip
        columns = []
        for h in (0, 1):
            square = [self._join([part(a, h), part(a + half, h)]) for a in range(half)]
            for _ in range(half.bit_length() - 1):
                pairs = [(square[a], square[a + half // 2]) for a in range(half // 2)]
                square = [self._shuffle(*pair, order) for pair in pairs for order in (low, high)]
            columns += square
        return columns

    def add_folded(self, lanes: Lanes, address: Any, offset: int) -> None:
        """Add W lanes, folded to one register, to a register of memory."""
        pieces = [range(first, first + self.piece) for first in range(0, self.width, self.piece)]
        total = self._load_piece(address, offset)
        for piece in pieces:
            total = self.builder.fadd(total, self._shuffle(lanes.value, lanes.value, piece))
        self.builder.store(total, self._pointer(address, offset, total.type), align=self.size)

    def _load_piece(self, address: Any, offset: int) -> Any:
        kind = ir.VectorType(self.number, self.piece)
        return self.builder.load(self._pointer(address, offset, kind), align=self.size)

    def _join(self, pieces: Sequence[Any]) -> Any:
        if len(pieces) == 1:
            return pieces[0]
        half = len(pieces) // 2
        first, second = self._join(pieces[:half]), self._join(pieces[half:])
        return self._shuffle(first, second, range(2 * first.type.count))

    def exp(self, x: Lanes) -> Lanes:
        """exp of numbers that are not positive; 0 where products with it could be too small for normal numbers."""
        lowest = self.constant(-64.0 if self.bits == 32 else -600.0)
        tiny = x.compare("<", lowest)
        x = tiny.where(lowest, x)
        magic = self.constant(
            1.5 * 2.0**self.mantissa
        )  # adding it rounds to an integer and leaves that in the low bits
        shifted = x * self.constant(1 / math.log(2)) + magic
        whole = shifted - magic
        digits = 2.0 ** (16 if self.bits == 32 else 32)  # few enough for the product with an exponent to be exact
        head = math.floor(math.log(2) * digits) / digits
        tail = float(Decimal(2).ln() - Decimal(head))
        rest = x - whole * self.constant(head) - whole * self.constant(tail)
        degree = 7 if self.bits == 32 else 13
        series = self._horner(rest, [1 / math.factorial(i) for i in range(degree + 1)])
        power = self.builder.add(self._as_integers(shifted), self._integers(self.bias))
        scale = self._as_numbers(self.builder.shl(power, self._integers(self.mantissa)))
        return tiny.where(self.constant(0.0), series * scale)

    def log(self, x: Lanes) -> Lanes:
        """log of normal numbers and of 0; NaN elsewhere."""
        special = x.compare("==", self.constant(0.0)).where(self.constant(-math.inf), self.constant(math.nan))
        return x.compare(">", self.constant(0.0)).where(self.log_product([x]), special)

    def log_product(self, factors: Sequence[Lanes]) -> Lanes:
        """log of a product of positive normal numbers, which itself may overflow."""
        exponents, product = self._integers(0), self.constant(1.0)
        one = self._integers(self.bias << self.mantissa)
        for factor in factors:
            bits = self._as_integers(factor)
            exponents = self.builder.add(exponents, self.builder.lshr(bits, self._integers(self.mantissa)))
            fraction = self.builder.and_(bits, self._integers((1 << self.mantissa) - 1))
            product = product * self._as_numbers(self.builder.or_(fraction, one))
        bits = self._as_integers(product)
        half = self._integers(self._bits_of(math.sqrt(0.5)))
        power = self.builder.lshr(self.builder.sub(bits, half), self._integers(self.mantissa))
        near_one = self._as_numbers(self.builder.sub(bits, self.builder.shl(power, self._integers(self.mantissa))))
        exponents = self.builder.add(exponents, self.builder.sub(power, self._integers(len(factors) * self.bias)))
        s = (near_one - self.constant(1.0)) / (near_one + self.constant(1.0))
        terms = 5 if self.bits == 32 else 11
        series = self._horner(s * s, [2 / (2 * i + 1) for i in range(terms)])
        return s * series + self._small_integers(exponents) * self.constant(math.log(2))

    def sqrt(self, x: Lanes) -> Lanes:
        return self._intrinsic("sqrt", x)

    def magnitude(self, x: Lanes) -> Lanes:
        return self._intrinsic("fabs", x)

    def smallest(self, a: Lanes, b: Lanes) -> Lanes:
        """The smaller of two numbers; NaN only where both are."""
        return self._intrinsic("minnum", a, b)

    def largest(self, a: Lanes, b: Lanes) -> Lanes:
        """The larger of two numbers; NaN only where both are."""
        return self._intrinsic("maxnum", a, b)

    def _intrinsic(self, name: str, *operands: Lanes) -> Lanes:
        kind = ir.FunctionType(self.vector, [self.vector] * len(operands))
        function = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.{name}.v{self.width}f{self.bits}")
        return Lanes(self, self.builder.call(function, [operand.value for operand in operands]))

    def lanes_below(self, count: Any) -> Lanes:
        """True in the first ``count`` lanes."""
        wide = ir.VectorType(ADDRESS, self.width)
        lane_numbers = ir.Constant(wide, list(range(self.width)))
        return Lanes(self, self.builder.icmp_signed("<", lane_numbers, self._spread(count, wide)))

    def compress(self, chosen: Lanes, first: Any, out: Any) -> Any:
        """Write first + lane for every true lane to ``out`` (room for W indices) and return how many there are."""
        builder, wide = self.builder, ir.VectorType(INDEX, 8)
        byte, bytes_ = ir.IntType(8), ir.VectorType(ir.IntType(8), 8)
        lists = [[lane for lane in range(8) if mask >> lane & 1] for mask in range(256)]
        lines = [ir.Constant(ir.ArrayType(byte, 8), (lanes + [0] * 8)[:8]) for lanes in lists]
        table = cgutils.global_constant(builder, "lanes_of_mask", ir.Constant(ir.ArrayType(lines[0].type, 256), lines))
        count_bits = builder.module.declare_intrinsic("llvm.ctpop", [ADDRESS])
        total: Any = ADDRESS(0)
        for start in range(0, self.width, 8):
            part = self._shuffle(chosen.value, chosen.value, range(start, start + 8))
            mask = builder.zext(builder.bitcast(part, byte), ADDRESS)
            entry = builder.bitcast(builder.gep(table, [ADDRESS(0), mask]), bytes_.as_pointer())
            base = self._spread(builder.trunc(builder.add(first, ADDRESS(start)), INDEX), wide)
            places = builder.add(builder.zext(builder.load(entry, align=1), wide), base)
            here = builder.add(out, builder.mul(total, ADDRESS(4)))
            builder.store(places, self._pointer(here, 0, wide), align=4)
            total = builder.add(total, builder.call(count_bits, [mask]))
        return total

    def at(self, address: Any, place: Any, stride: int = 1) -> Any:
        """The address of number ``place * stride``."""
        return self.builder.add(address, self.builder.mul(place, ADDRESS(stride * self.size)))

    def _horner(self, x: Lanes, coefficients: Sequence[float]) -> Lanes:
        total = self.constant(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = total * x + self.constant(coefficient)
        return total

    def _small_integers(self, value: Any) -> Lanes:
        magic = 1.5 * 2.0**self.mantissa
        return self._as_numbers(self.builder.add(value, self._integers(self._bits_of(magic)))) - self.constant(magic)

    def _as_numbers(self, value: Any) -> Lanes:
        return Lanes(self, self.builder.bitcast(value, self.vector))

    def _as_integers(self, lanes: Lanes) -> Any:
        return self.builder.bitcast(lanes.value, self.integers)

    def _integers(self, value: int) -> Any:
        return ir.Constant(self.integers, [value] * self.width)

    def _bits_of(self, value: float) -> int:
        code, number = ("<i", "<f") if self.bits == 32 else ("<q", "<d")
        return int(struct.unpack(code, struct.pack(number, value))[0])

    def _spread(self, number: Any, wide: ir.VectorType) -> Any:
        first = self.builder.insert_element(ir.Constant(wide, ir.Undefined), number, INDEX(0))
        return self._shuffle(first, first, [0] * wide.count)

    def _shuffle(self, a: Any, b: Any, lanes: Iterable[int]) -> Any:
        places = list(lanes)
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(INDEX, len(places)), places))

    def _pointer(self, address: Any, offset: int, kind: ir.Type) -> Any:
        start = self.builder.inttoptr(address, ir.IntType(8).as_pointer())
        size = 4 if kind == INDEX else self.size
        return self.builder.bitcast(self.builder.gep(start, [ADDRESS(offset * size)]), kind.as_pointer())


class WideEmitter(Emitter):
    """An emitter of as many lanes as two registers hold."""

    vector_bytes = VECTOR_BYTES
