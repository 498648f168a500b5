"""What the loop over tiles is given: scratch memory, addresses of it, compiled steps, and a few whole numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import types

from . import large
from .blocks import Blocked
from .kinds import Kind
from .panels import HEADER
from .tiles import STATES, TILE
from .tiles import compiled as compiled_plain

WINDOW = 4096  # rows that are sorted by their noise, and whose sums are added up in the kernel's type
LEVELS, PATTERNS = 256, 16  # of noise and of missing values that the sorting tells apart
LINE = 64  # bytes of a cache line
LOG_PROB, LOG_JOINT, SUMS = range(3)


class Scratch(NamedTuple):
    """Memory of one thread."""

    state: Any  # (STATES, TILE)
    table: Any  # (TILE, row numbers): rows one after the other
    rows: Any  # the same in groups of W rows, column by column
    joint: Any  # (k, TILE): log alpha N, later exp, later responsibilities
    some: Any  # groups of the rows that one component needs
    values: Any  # (TILE,): their entries of joint
    bound: Any  # (k, component numbers): components that bound a tile
    least: Any  # (d, W): the least noise of a tile, lane by lane
    most: Any  # (d, W): the most
    noise: Any  # (d,): at least the noise of every row of a tile
    offsets: Any  # (k,): log alpha - log |T| / 2 of the bounding components
    lanes: Any  # (k, sums, numbers of a register)
    order: Any  # (WINDOW,): rows in the order of their noise
    keys: Any  # (WINDOW,)
    counts: Any  # (LEVELS PATTERNS + 1,)
    every: Any  # (TILE or more,): 0, 1, 2 ...
    index: Any  # (TILE + 2 W,): places in a tile
    best: Any  # (TILE,): components
    count: Any  # (1,): how many places the index holds
    work: Any  # what steps for any dimensions are told
    room: Any  # and work in


class Places(NamedTuple):
    """Addresses of the memory that steps read and write."""

    state: Any
    table: Any
    rows: Any
    joint: Any
    some: Any
    values: Any
    bound: Any
    least: Any
    most: Any
    noise: Any
    offsets: Any
    lanes: Any
    every: Any
    index: Any
    best: Any
    count: Any
    work: Any
    components: Any


class Steps(NamedTuple):
    """Addresses of compiled steps, 0 for those that are not needed."""

    groups_of_table: int
    joint_of_rows: int
    largest: int = 0
    exponentials: int = 0
    logarithms: int = 0
    responsible: int = 0
    sums_of_rows: int = 0
    gathered: int = 0
    noise_range: int = 0
    bounds: int = 0
    bound_of_rows: int = 0
    best: int = 0
    joint_of_best: int = 0
    chosen: int = 0
    scattered: int = 0


class Shape(NamedTuple):
    """What is wanted and how, and how many bytes a component and its sums take."""

    want: int
    skip: int
    full: int
    component_bytes: int
    sums_bytes: int
    tile: int
    offset: int


def compiled(kind: Kind, step: str) -> int:
    """The address of a compiled step."""
    return large.compiled(kind, step) if isinstance(kind, Blocked) else compiled_plain(kind, step)


@cache
def steps(kind: Kind, want: int, skip: bool, bounded: bool) -> Steps:
    """The steps that are needed, compiled."""
    need: dict[str, int] = {}
    if want == SUMS:
        need["sums_of_rows"] = compiled(kind, "sums_of_rows")
    kind = replace(kind, slopes=False)  # which no other step knows of
    if want != LOG_JOINT:
        need |= {name: compiled(kind.plain, name) for name in ("largest", "logarithms")}
        tails = want == SUMS and skip
        need["exponentials"] = compiled(kind.plain, "exponentials_and_tails" if tails else "exponentials")
    if want == SUMS:
        need |= {name: compiled(kind.plain, name) for name in ("responsible", "gathered")}
    if bounded:
        need |= {name: compiled(kind, name) for name in ("noise_range", "bounds", "bound_of_rows", "joint_of_best")}
        need |= {name: compiled(kind.plain, name) for name in ("best", "chosen", "scattered")}
    return Steps(compiled(kind, "groups_of_table"), compiled(kind, "joint_of_rows"), **need)


@cache
def shape(kind: Kind, want: int, skip: bool) -> Shape:
    """What the loops must know of a kind."""
    size = kind.bits // 8
    return Shape(want, int(skip), int(kind.noise == "full"), kind.component_numbers * size,
                 kind.sums * kind.lanes * size, kind.tile, kind.offset)  # fmt: skip


def scratch(kind: Kind, k: int, new: Callable[[int, np.dtype], np.ndarray], components: np.ndarray) -> Scratch:
    """Scratch memory from ``new(numbers, dtype)``, which may return anything: nothing is read before it is written."""
    lines, W, number = kind.lines(k), kind.width, np.dtype(f"f{kind.bits // 8}")
    whole, address = np.dtype(np.int32), np.dtype(np.int64)
    shapes = [
        (STATES, TILE), (kind.tile, kind.row_numbers), (kind.tile * kind.slots,), (k, TILE), (kind.tile * kind.slots,),
        (TILE,), (lines, kind.component_numbers), (kind.d, W), (kind.d, W), (kind.d,), (lines,),
        (k, kind.sums, kind.lanes), (WINDOW,), (WINDOW,), (LEVELS * PATTERNS + 1,), (max(TILE, lines),),
        (TILE + 2 * W,), (TILE,), (1,), (len(HEADER),), (kind.room if isinstance(kind, Blocked) else 1,),
    ]  # fmt: skip
    memory = Scratch(
        *_pieces(list(zip(shapes, [number] * 12 + [whole] * 6 + [address] * 2 + [number], strict=True)), new)
    )
    memory.every[:] = np.arange(len(memory.every))
    memory.lanes[:] = 0
    if isinstance(kind, Blocked):
        memory.rows[:] = memory.some[:] = 0  # what fills up a dimension stays so
        memory.work[:] = _header(kind, memory.room.ctypes.data)
        return memory._replace(bound=components)
    return memory


def _pieces(
    wanted: list[tuple[tuple[int, ...], np.dtype]], new: Callable[[int, np.dtype], np.ndarray]
) -> list[np.ndarray]:
    """Arrays of some shapes and types in one piece of memory, each at a cache line."""
    sizes = [-(-math.prod(shape) * dtype.itemsize // LINE) * LINE for shape, dtype in wanted]
    memory = new(sum(sizes), np.dtype(np.uint8))
    starts = itertools.accumulate(sizes, initial=0)
    return [np.ndarray(shape, dtype, memory, start) for (shape, dtype), start in zip(wanted, starts, strict=False)]


def _header(kind: Blocked, room: int) -> list[int]:
    sizes = np.cumsum([0, *kind.rooms[:-1]]) * kind.width * (kind.bits // 8)
    return [
        kind.latent, kind.seen, kind.latent - kind.d, kind.seen - kind.p, kind.row_numbers, kind.component_numbers,
        kind.slots, kind.sums, kind.tile // kind.part, kind.destinations.ctypes.data, kind.offset, kind.leading,
        *(room + int(size) for size in sizes),
    ]  # fmt: skip


def places(memory: Scratch, components: np.ndarray) -> Places:
    """The addresses of scratch memory and of the table of components."""
    fields = {name: getattr(memory, name).ctypes.data for name in Places._fields if name != "components"}
    return Places(**fields, components=components.ctypes.data)


def memory_types(number: Any) -> list[Any]:
    """The types of scratch memory for a number type."""
    axes = {"state": 2, "table": 2, "joint": 2, "bound": 2, "least": 2, "most": 2, "lanes": 3}
    integers = dict.fromkeys(("order", "keys", "counts", "every", "index", "best"), types.int32)
    kinds = integers | {"count": types.int64, "work": types.int64}
    return [types.Array(kinds.get(name, number), axes.get(name, 1), "C") for name in Scratch._fields]


def array(kind: Any, axes: int, layout: Any = "C") -> Any:
    """The type of an array; of layout "A", views of bigger arrays are welcome."""
    return types.Array(kind, axes, layout)


def room_types(number: Any) -> tuple[Any, ...]:
    """The types of what all loops are told first: steps, shape, places and memory."""
    addresses = (types.NamedUniTuple(types.int64, len(kind._fields), kind) for kind in (Steps, Shape, Places))
    return (*addresses, types.NamedTuple(memory_types(number), Scratch))


def signature(number: Any) -> Any:
    """The types of ``loops.chunk``'s arguments for a number type; views of bigger arrays are welcome as data."""
    whole, real = types.int64, types.float64
    return types.void(
        *room_types(number),
        array(number, 2), array(number, 2), array(number, 2, "A"), array(number, 2, "A"), array(number, 2, "A"),
        array(number, 1, "A"), array(number, 2, "A"), array(whole, 1, "A"), array(real, 1), array(real, 1),
        array(real, 1, "A"), whole, whole, array(number, 1), array(number, 2), array(real, 2), array(real, 1),
    )  # fmt: skip
