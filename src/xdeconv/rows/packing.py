"""Packing: rows in a compact form, one block of memory per chunk, that a kernel's batch is unpacked from.

Lines of the noise that are zero in all rows of a chunk are left out, which is exact: Gaia's photometry has no
correlations, so that 17 of its 28 entries are kept. The rounded form keeps standard deviations and 16-bit correlations
instead. With R the correlations, it holds (1 - s) R + s I to within 1 / (2 STEPS) per entry, that is within
(p - 1) / (2 STEPS) in the spectral norm (Gershgorin); s is twice that, so what is positive semi-definite before is
positive definite after, and no correlation changes by more than s + 1 / (2 STEPS): 2e-4 in seven dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .batch import Batch, packed_size

STEPS = 32767  # of a correlation between 0 and 1


@dataclass(frozen=True)
class Layout:
    """How a chunk's columns lie in its memory: x, noise or standard deviations, weight, correlations.

    slots    the lines of the batch's noise that are kept; all others are zero
    lines    of the batch's noise; 0 when it has none of its own
    rounded  whether correlations are 16-bit numbers
    """

    p: int
    dtype: torch.dtype
    lines: int
    slots: tuple[int, ...]
    rounded: bool
    weighted: bool
    missing: bool

    @classmethod
    def of(cls, batch: Batch, rounded: bool = False) -> Layout:
        """The most compact exact layout of a batch, or the rounded one."""
        if not packable(batch):
            raise ValueError("rows with projections, log-priors, a background or groups have no compact form")
        own = batch.noise is not None and not _one_for_all(batch)
        lines = len(batch.noise) if own and batch.noise is not None else 0
        slots: list[int] = []
        if own and batch.noise is not None:
            slots = [i for i, used in enumerate((batch.noise != 0).any(1).tolist()) if used]
        missing = bool(batch.x.isnan().any()) if batch.missing else False
        rounded = rounded and batch.full and own
        return cls(batch.p, batch.dtype, lines, tuple(slots), rounded, batch.weight is not None, missing)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The pairs (a, b), a > b, whose correlations are kept."""
        pairs = [(a, b) for a in range(self.p) for b in range(a)]
        return tuple(pair for pair in pairs if packed_size(pair[0]) + pair[1] in self.slots)

    @property
    def fields(self) -> dict[str, tuple[int, torch.dtype]]:
        """Lines and type of each column, in the order of memory."""
        noise = self.p if self.rounded else len(self.slots)
        fields = {"x": (self.p, self.dtype), "noise": (noise, self.dtype), "weight": (int(self.weighted), self.dtype)}
        return fields | {"correlation": (len(self.pairs) if self.rounded else 0, torch.int16)}

    @property
    def row_bytes(self) -> int:
        """Memory of one row."""
        return sum(lines * kind.itemsize for lines, kind in self.fields.values())

    def views(self, memory: Tensor, rows: int) -> dict[str, Tensor]:
        """The columns (lines, rows) in a block of memory (bytes,)."""
        parts, at = {}, 0
        for name, (lines, kind) in self.fields.items():
            size = lines * rows * kind.itemsize
            parts[name] = memory[at : at + size].view(kind).view(lines, rows)
            at += size
        return parts


@dataclass(frozen=True)
class Chunk:
    """Some rows in one block of memory, on a device or pinned on the host; the ``complete`` ones come first."""

    memory: Tensor
    rows: int
    layout: Layout
    complete: int

    def to(self, device: torch.device) -> Chunk:
        """The same rows elsewhere; from pinned memory the copy does not wait."""
        return replace(self, memory=self.memory.to(device, non_blocking=True))

    def unpacked(self, shared: Tensor | None, scale: Tensor | None) -> Batch:
        """The rows as a batch, with the noise that all rows share, if any, and the users' units."""
        views = self.layout.views(self.memory, self.rows)
        noise = _noise(self.layout, views) if self.layout.lines else shared
        weight = views["weight"][0] if self.layout.weighted else None
        return Batch(views["x"], noise, weight=weight, scale=scale, missing=self.layout.missing)


def packable(batch: Batch) -> bool:
    """Whether rows have a compact form: x, noise and weights, and nothing else."""
    return all(part is None for part in (batch.projection, batch.log_prior, batch.background, batch.group))


def pack(batch: Batch, rounded: bool = False) -> Chunk:
    """A batch as a chunk on its own device: rows that miss nothing first, since kernels are faster with those alone."""
    layout, complete = Layout.of(batch, rounded), batch.n
    if layout.missing:
        gaps = batch.x.isnan().any(0)
        batch, complete = batch.rows(gaps.byte().argsort(stable=True)), batch.n - int(gaps.sum())
    memory = torch.empty(batch.n * layout.row_bytes, dtype=torch.uint8, device=batch.device)
    views = layout.views(memory, batch.n)
    views["x"].copy_(batch.x)
    if batch.weight is not None:
        views["weight"][0].copy_(batch.weight)
    if layout.lines and batch.noise is not None:
        if layout.rounded:
            _round(batch.noise, layout, views)
        else:
            for line, slot in zip(views["noise"], layout.slots, strict=True):
                line.copy_(batch.noise[slot])
    return Chunk(memory, batch.n, layout, complete)


def _one_for_all(batch: Batch) -> bool:
    return batch.noise is not None and batch.noise.shape[1] == 1 and batch.n != 1


def _shrinkage(p: int) -> float:
    return (p - 1) / STEPS


def _round(noise: Tensor, layout: Layout, views: dict[str, Tensor]) -> None:
    """Write standard deviations and rounded correlations."""
    for a, line in enumerate(views["noise"]):
        torch.sqrt(noise[packed_size(a) + a], out=line)
    for (a, b), line in zip(layout.pairs, views["correlation"], strict=True):
        size = (views["noise"][a] * views["noise"][b]).clamp_(min=torch.finfo(noise.dtype).tiny)
        correlation = (noise[packed_size(a) + b] / size).clamp_(-1.0, 1.0)
        line.copy_((correlation * (STEPS * (1 - _shrinkage(layout.p)))).round_())


def _noise(layout: Layout, views: dict[str, Tensor]) -> Tensor:
    """Noise as kernels want it (lines, rows)."""
    kept = views["noise"]
    if not layout.rounded and len(layout.slots) == layout.lines:
        return kept
    noise = kept.new_zeros(layout.lines, kept.shape[1])
    if not layout.rounded:
        for line, slot in zip(kept, layout.slots, strict=True):
            noise[slot].copy_(line)
        return noise
    for a in range(layout.p):
        torch.mul(kept[a], kept[a], out=noise[packed_size(a) + a])
    for (a, b), line in zip(layout.pairs, views["correlation"], strict=True):
        torch.mul(kept[a], kept[b], out=noise[packed_size(a) + b]).mul_(line).mul_(1 / STEPS)
    return noise


def row_bytes(batch: Batch) -> dict[str, int]:
    """Memory of a row, exact and rounded, judged by some rows."""
    return {name: Layout.of(batch, name == "rounded").row_bytes for name in ("exact", "rounded")}


def common(batch: Batch) -> dict[str, Any]:
    """What all rows of a source share: noise, if there is one for all, and the users' units."""
    return {"shared": batch.noise if _one_for_all(batch) else None, "scale": batch.scale}
