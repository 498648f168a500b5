"""Pairs of many dimensions by CUDA C (tiles.cu): triangles in shared memory, each of a few lanes of a warp."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ...rows.batch import Batch
from .compiling import WARP, Argument, CannotCompile, Kernel, kernel
from .filled import SIDE, Components, Rows

log = logging.getLogger("xdeconv")
SOURCE = Path(__file__).with_name("tiles.cu")
WARPS = 5  # of a multiprocessor at least: fewer do not hide what a warp waits for
RESERVED = 1024  # bytes of shared memory that each block takes beside its own
MOST_KEPT = {4: 5, 8: 2}  # tiles of G that a lane keeps in registers, by bytes of a number
TASKS = 4  # of a warp: more parts, more sums to add


@dataclass(frozen=True)
class Memory:
    """Shared memory in bytes, of a block and of a multiprocessor, and how many of these there are."""

    block: int
    processor: int
    processors: int


@cache
def memory_of(device: torch.device) -> Memory:
    """What a device has."""
    properties = torch.cuda.get_device_properties(device)
    return Memory(
        properties.shared_memory_per_block_optin,  # type: ignore[attr-defined]
        properties.shared_memory_per_multiprocessor,
        properties.multi_processor_count,
    )


@dataclass(frozen=True)
class Layout:
    """Blocks of four in a dimension, lanes of a pair, and warps that run at a time.

    The fewer lanes share a pair, the less they wait for each other; the more pairs have to be in shared memory.
    """

    blocks: int
    lanes: int
    size: int
    warps: int

    @classmethod
    def of(cls, blocks: int, size: int, memory: Memory) -> Layout:
        """The fewest lanes with which a multiprocessor has work enough; ``size`` is that of a number in bytes."""
        for lanes in (1, 2, 4, 8, 16, 32):
            layout = cls(blocks, lanes, size, 0)
            warps = min(32, memory.processor // (layout.shared + RESERVED))
            if layout.shared <= memory.block and (warps >= WARPS or lanes == WARP):
                break
        return cls(blocks, lanes, size, warps * memory.processors)

    @property
    def tiles(self) -> int:
        """Tiles of a triangle."""
        return self.blocks * (self.blocks + 1) // 2

    @property
    def kept(self) -> int:
        """Tiles of G that a lane keeps in registers, or 0 where they are too many."""
        each = -(-self.tiles // WARP)
        each = next(count for count in (1, 2, 5, each) if count >= each)
        return each if each <= MOST_KEPT[self.size] else 0

    @property
    def sets(self) -> int:
        """Parts of a warp that keep a G each."""
        return max(1, WARP // self.tiles)

    @property
    def pairs(self) -> int:
        """Pairs that a warp computes at a time."""
        return WARP // self.lanes

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a warp, as ``numbers_of`` in tiles.cu counts them."""
        quad = 16 // self.size
        quads = (self.tiles * (16 + quad) + 8 * self.blocks) // quad
        return (quads | 1) * 16 * self.pairs


@dataclass(frozen=True)
class Tiles:
    """All pairs of some rows with noise or gaps of their own and no projection."""

    layout: Layout
    components: Components
    rows: Rows
    n: int
    d: int

    @classmethod
    def of(cls, log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch) -> Tiles:
        """The pairs of components with the rows of a batch."""
        layout = layout_for(batch)
        whole = Components.of(log_weights, means, covariances, batch.dtype)
        return cls(layout, whole, Rows.of(batch, layout.pairs), batch.n, batch.d)

    def log_joint(self) -> Tensor:
        """log alpha N (k, n)."""
        k, padded = len(self.components.means), self.rows.x.shape[1]
        out = self.rows.x.new_empty(k, padded)
        self._launch("joint", padded // self.layout.pairs * k, [self.components.log_weights], [out, k, padded])
        return out[:, : self.n] - self.rows.constant

    def moments(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """g (k, d) and G (k, d, d), float64, of rows with shares (k, n) of them."""
        (k, n), padded, layout = share.shape, self.rows.x.shape[1], self.layout
        shares = self.rows.x.new_zeros(k, padded)
        shares[:, :n] = share
        chunk = layout.pairs * max(1, padded // layout.pairs * k // (TASKS * layout.warps))
        chunks = -(-padded // chunk)
        g = shares.new_empty(chunks, k, SIDE * layout.blocks)
        G = shares.new_empty(chunks, layout.sets, k, layout.tiles, SIDE, SIDE)
        self._launch("moments", chunks * k, [shares], [g, G, k, padded], [chunk])
        return g.sum(0, dtype=torch.float64)[:, : self.d], self._whole(G.sum((0, 1), dtype=torch.float64))

    def _whole(self, tiles: Tensor) -> Tensor:
        """Symmetric matrices (k, d, d) of tiles (k, tiles, 4, 4) on and below their diagonals."""
        k, blocks = len(tiles), self.layout.blocks
        I, J = torch.tril_indices(blocks, blocks, device=tiles.device)
        G = tiles.new_zeros(k, blocks, blocks, SIDE, SIDE)
        G[:, J, I] = tiles.mT
        G[:, I, J] = tiles
        return G.transpose(2, 3).reshape(k, SIDE * blocks, SIDE * blocks)[:, : self.d, : self.d]

    def _covariances(self) -> Tensor:
        """V as tiles (k, tiles, 4, 4) on and below the diagonal."""
        k, blocks = len(self.components.means), self.layout.blocks
        I, J = torch.tril_indices(blocks, blocks, device=self.rows.x.device)
        return self.components.covariances.view(k, blocks, SIDE, blocks, SIDE).transpose(2, 3)[:, I, J].contiguous()

    def _launch(
        self, name: str, tasks: int, first: list[Argument], last: list[Argument], more: tuple[Argument, ...] | list = ()
    ) -> None:
        """Run a kernel over tasks; between the first and the last arguments it reads components and rows."""
        rows, layout = self.rows, self.layout
        read = [self.components.means, self._covariances(), rows.x, rows.x if rows.seen is None else rows.seen, rows.S]
        blocks = max(1, min(tasks, TASKS * layout.warps))
        arguments = [*first, *read, *last, layout.blocks, *more]
        kernel_for(name, layout, rows)(blocks, layout.shared, arguments)


def layout_for(batch: Batch) -> Layout:
    """How pairs of the rows of a batch lie in shared memory."""
    return Layout.of(-(-batch.p // SIDE), batch.x.element_size(), memory_of(batch.device))


def constants_of(layout: Layout, rows: Rows) -> tuple[tuple[str, str], ...]:
    """What one kind of rows is compiled with."""
    constants = {
        "REAL": {4: "float", 8: "double"}[layout.size],
        "FULL": int(rows.full),
        "MASKED": int(rows.seen is not None),
        "LANES": layout.lanes,
        "KEPT": layout.kept,
    }
    return tuple((name, str(value)) for name, value in constants.items())


def kernel_for(name: str, layout: Layout, rows: Rows) -> Kernel:
    """A kernel of tiles.cu for rows of a kind."""
    return kernel(SOURCE, name, constants_of(layout, rows), rows.x.device)


@cache
def compiles(device: torch.device) -> bool:
    """Whether kernels can be compiled for a device, tried once."""
    if device.type != "cuda":
        return False
    try:
        constants = (("REAL", "float"), ("FULL", "1"), ("MASKED", "0"), ("LANES", "1"), ("KEPT", "1"))
        kernel(SOURCE, "joint", constants, device)
    except CannotCompile as why:
        log.info("CUDA C cannot be compiled (%s): more than ten dimensions run by Triton, more slowly", why)
        return False
    return True
