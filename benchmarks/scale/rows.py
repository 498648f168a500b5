"""Simulated Gaia rows as a source: made chunk by chunk whenever they are wanted, none kept, none read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from xdeconv.rows.batch import Batch, concatenate
from xdeconv.rows.data import Source, permutation
from xdeconv.simulate import _gaia as simulate
from xdeconv.simulate.stars import CHUNK


@dataclass(frozen=True)
class SimulatedSource(Source):
    """The first rows of :func:`xdeconv.simulate.gaia`: fewer are a prefix of more, and any order is random."""

    size: int
    seed: int = 0
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    batch_rows: int | None = None
    dim: int = 7
    labels: tuple[str, ...] = simulate.LABELS
    units: tuple[str, ...] = simulate.UNITS

    @property
    def rows(self) -> int:
        return self.size

    def arranged(self, batch_rows: int | None, seed: int) -> SimulatedSource:
        """The same rows, in batches of a size or chunk by chunk."""
        return replace(self, batch_rows=batch_rows)

    def batches(self, epoch: int, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """One pass over a rank's rows."""
        start, stop = rank * self.rows // world, (rank + 1) * self.rows // world
        for c in range(start // CHUNK, -(-stop // CHUNK)):
            first, last = max(start - c * CHUNK, 0), min(stop - c * CHUNK, CHUNK)
            if last > first:
                part = self._chunk(c, last).rows(slice(first, last))
                yield from part.chunks(self.batch_rows) if self.batch_rows else [part]

    def sample(self, size: int, seed: int) -> Batch:
        """Up to ``size`` rows from random chunks."""
        chunks = -(-self.rows // CHUNK)
        found: list[Batch] = []
        for c in permutation(chunks, seed, -2).tolist():
            wanted = min(size - sum(b.n for b in found), CHUNK, self.rows - c * CHUNK)
            if wanted <= 0:
                break
            found.append(self._chunk(c, wanted))
        return concatenate(found)

    def _chunk(self, c: int, rows: int) -> Batch:
        return simulate.gaia_chunk(self.seed, c, rows, device=self.device, dtype=self.dtype).batch
