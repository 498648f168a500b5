"""Pairs of many dimensions by CUDA C (tiles.cu): triangles in shared memory, each of a few lanes of a warp."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...rows.batch import Batch
from .compiling import TASKS, WARP, Argument, Kernel, Memory, kernel, memory_of
from .filled import SIDE, Components, Rows
from .sharing import of_tiles, slots_on

WARPS = 5  # of a multiprocessor at least: fewer do not hide what a warp waits for
KEPT = {4: {2: 28, 5: 160}, 8: {2: 64}}  # by bytes of a number: tiles of G in a lane's registers, of at most so many


@dataclass(frozen=True)
class Layout:
    """Blocks of four in a dimension, lanes of a pair, bytes of a number, and warps that run at a time.

    The fewer lanes share a pair, the less they wait for each other; the more pairs have to be in shared memory.
    """

    blocks: int
    lanes: int
    size: int
    warps: int

    @classmethod
    def of(cls, blocks: int, size: int, memory: Memory) -> Layout:
        """The fewest lanes with which a multiprocessor has work enough."""
        for lanes in (1, 2, 4, 8, 16, 32):
            warps = memory.warps(cls(blocks, lanes, size, 0).shared)
            if warps >= WARPS:
                break
        return cls(blocks, lanes, size, warps * memory.processors)

    @property
    def tiles(self) -> int:
        """Tiles of a triangle."""
        return self.blocks * (self.blocks + 1) // 2

    @property
    def kept(self) -> int:
        """Tiles of G that a lane keeps in registers, or 0 where they are too many."""
        return next((kept for kept, most in KEPT[self.size].items() if self.tiles <= most), 0)

    @property
    def pairs(self) -> int:
        """Pairs that a warp computes at a time."""
        return WARP // self.lanes

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a warp, as ``numbers_of`` in tiles.cu counts them."""
        quad = 16 // self.size
        quads = (self.tiles * (16 + quad) + 8 * self.blocks + quad) // quad
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
        """log alpha N (k, n), up to a constant of each row."""
        k, padded = len(self.components.means), self.rows.x.shape[1]
        out = self.rows.x.new_empty(k, padded)
        tasks = padded // self.layout.pairs * k
        self._launch("joint", tasks, [self.components.log_weights], [out, k, padded, self.layout.blocks])
        return out[:, : self.n]

    def moments(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """g (k, d) and G (k, d, d), float64, of rows with shares (k, n) of them."""
        (k, n), padded, layout = share.shape, self.rows.x.shape[1], self.layout
        shares = self.rows.x.new_zeros(k, padded)
        shares[:, :n] = share
        chunk = layout.pairs * max(1, padded // layout.pairs * k // (TASKS * layout.warps))
        chunks = -(-padded // chunk)
        g = shares.new_empty(chunks, k, SIDE * layout.blocks)
        G = shares.new_empty(chunks, k, WARP * layout.kept or layout.tiles, SIDE, SIDE)
        how = (layout.blocks, layout.pairs, max(1, layout.kept), share.device)
        out: list[Argument] = [g, G, slots_on(*how) if layout.kept else shares]
        self._launch("moments", chunks * k, [shares], [*out, k, padded, layout.blocks, chunk])
        tiles = G.sum(0, dtype=torch.float64)
        if layout.kept:
            tiles = torch.einsum("ts,ksab->ktab", of_tiles(*how), tiles)
        return g.sum(0, dtype=torch.float64)[:, : self.d], self._whole(tiles)

    def _whole(self, tiles: Tensor) -> Tensor:
        """Symmetric matrices (k, d, d) of tiles (k, tiles, 4, 4) on and below their diagonals."""
        k, blocks = len(tiles), self.layout.blocks
        I, J = torch.tril_indices(blocks, blocks, device=tiles.device)
        G = tiles.new_zeros(k, blocks, blocks, SIDE, SIDE)
        G[:, J, I] = tiles.mT
        G[:, I, J] = tiles
        return G.transpose(2, 3).reshape(k, SIDE * blocks, SIDE * blocks)[:, : self.d, : self.d]

    @cached_property
    def _covariances(self) -> Tensor:
        """V as tiles (k, tiles, 4, 4) on and below the diagonal."""
        k, blocks = len(self.components.means), self.layout.blocks
        I, J = torch.tril_indices(blocks, blocks, device=self.rows.x.device)
        return self.components.covariances.view(k, blocks, SIDE, blocks, SIDE).transpose(2, 3)[:, I, J].contiguous()

    def _launch(self, name: str, tasks: int, first: list[Argument], last: list[Argument]) -> None:
        """Run a kernel over tasks; between the first and the last arguments it reads components and rows."""
        blocks = max(1, min(tasks, TASKS * self.layout.warps))
        arguments = [*first, self.components.means, self._covariances, *self.rows.read(), *last]
        kernel_for(name, self.layout, self.rows)(blocks, self.layout.shared, arguments)


def layout_for(batch: Batch) -> Layout:
    """How pairs of the rows of a batch lie in shared memory."""
    return Layout.of(-(-batch.p // SIDE), batch.x.element_size(), memory_of(batch.device))


def fits(batch: Batch) -> bool:
    """Whether a pair of the rows of a batch fits in the shared memory of their device."""
    return layout_for(batch).warps > 0


def kernel_for(name: str, layout: Layout, rows: Rows) -> Kernel:
    """A kernel of tiles.cu for rows of a kind."""
    constants = (*rows.constants(), ("LANES", str(layout.lanes)), ("KEPT", str(layout.kept)))
    return kernel("tiles.cu", name, constants, rows.x.device)
