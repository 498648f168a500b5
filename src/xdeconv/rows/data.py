"""Sources: rows that can be gone through again and again, in an order that is a pure function of (seed, epoch)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch

from . import tables as tabular
from .batch import Batch
from .prefetch import prefetched_to

CHUNK_ROWS = 1 << 22  # rows of a batch when no size is asked for


@runtime_checkable
class Source(Protocol):
    """Rows that a fit goes through once an epoch."""

    @property
    def rows(self) -> int:
        """How many there are."""

    @property
    def dim(self) -> int:
        """Latent dimensions d."""

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the d coordinates."""

    @property
    def units(self) -> tuple[str, ...] | None:
        """Units of the d coordinates."""

    def arranged(self, batch_rows: int | None, seed: int) -> Source:
        """The same rows: shuffled batches of a size (the last may be smaller), or all rows in their own order."""

    def batches(self, epoch: int, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """One pass; of ``world`` ranks, each gets its own disjoint part."""


@dataclass(frozen=True)
class ArraySource:
    """Rows held in memory, on the host or on a device."""

    batch: Batch
    labels: tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None
    batch_rows: int | None = None
    seed: int = 0

    @property
    def rows(self) -> int:
        return self.batch.n

    @property
    def dim(self) -> int:
        return self.batch.d

    def arranged(self, batch_rows: int | None, seed: int) -> ArraySource:
        """The same rows, cut into shuffled batches, or whole and in order."""
        return replace(self, batch_rows=batch_rows, seed=seed)

    def batches(self, epoch: int, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """One pass, in an order that depends on the seed and the epoch alone."""
        if self.batch_rows is None:
            start, stop = rank * self.rows // world, (rank + 1) * self.rows // world
            yield from self.batch.rows(slice(start, stop)).chunks(CHUNK_ROWS)
            return
        order = permutation(self.rows, self.seed, epoch).to(self.batch.device)
        shuffled = self.batch.rows(order[rank::world])
        yield from shuffled.chunks(self.batch_rows)


def permutation(n: int, seed: int, epoch: int) -> torch.Tensor:
    """A random order of n rows, the same for the same seed and epoch."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % (1 << 63))
    return torch.randperm(n, generator=generator)


def sample_rows(source: Source, size: int, seed: int) -> Batch:
    """Up to ``size`` rows of a source, shuffled: all of them if there are no more."""
    from .batch import concatenate

    if isinstance(source, ArraySource):
        if source.rows <= size:
            return source.batch
        return source.batch.rows(permutation(source.rows, seed, 0)[:size].to(source.batch.device))
    if hasattr(source, "sample"):  # a stream knows better than to read whatever comes first
        return source.sample(size, seed)
    found: list[Batch] = []
    missing = min(size, source.rows)
    for batch in source.arranged(max(1, missing), seed).batches(0):
        found.append(batch.rows(slice(0, missing)))
        missing -= found[-1].n
        if missing <= 0:
            break
    return found[0] if len(found) == 1 else concatenate(found)


@dataclass(frozen=True)
class StandardizedSource:
    """A source in latent coordinates (v - shift) / scale, on a device and in a type; likelihoods stay the user's."""

    source: Source
    shift: torch.Tensor
    scale: torch.Tensor
    device: torch.device
    dtype: torch.dtype

    @property
    def rows(self) -> int:
        return self.source.rows

    @property
    def dim(self) -> int:
        return self.source.dim

    @property
    def labels(self) -> tuple[str, ...] | None:
        return self.source.labels

    @property
    def units(self) -> tuple[str, ...] | None:
        return self.source.units

    def arranged(self, batch_rows: int | None, seed: int) -> StandardizedSource:
        """The same rows, cut otherwise."""
        return replace(self, source=self.source.arranged(batch_rows, seed))

    def batches(self, epoch: int, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """One pass; each batch is standardised in float64 and only then cast, while the last one is worked on."""
        return prefetched_to(self.source.batches(epoch, rank=rank, world=world), self.convert, self.device)

    def sample(self, size: int, seed: int) -> Batch:
        """Up to ``size`` rows, shuffled."""
        return self.convert(sample_rows(self.source, size, seed))

    def convert(self, batch: Batch) -> Batch:
        """One batch, standardised in float64, then cast and moved."""
        return batch.standardized(self.shift, self.scale).to(self.device, self.dtype)


def standardized(
    source: Source, shift: torch.Tensor, scale: torch.Tensor, device: torch.device, dtype: torch.dtype
) -> Source:
    """A source in other coordinates: held ones are converted once, streams batch by batch."""
    if hasattr(source, "standardized"):  # a stream that can do it while it reads
        return source.standardized(shift, scale, device, dtype)
    moved = StandardizedSource(source, shift, scale, device, dtype)
    if isinstance(source, ArraySource):
        return replace(source, batch=moved.convert(source.batch))
    return moved


def as_source(data: object, hold: bool = True, **arrays: object) -> Source:
    """A Source, small ones held in memory if ``hold``; a Batch, an array or a table of numbers as rows in memory."""
    given = [name for name, value in arrays.items() if value is not None]
    if isinstance(data, (Batch, Source)):
        if given:
            raise ValueError(f"{type(data).__name__} carries its own {', '.join(given)}: give them there")
        if isinstance(data, Batch):
            return ArraySource(data)
        return data.held() if hold and hasattr(data, "held") else data
    columns = tabular.names(data)
    arrays = {name: tabular.in_order(value, columns or ()) if columns else value for name, value in arrays.items()}
    batch = Batch.from_arrays(data, **arrays)  # type: ignore[arg-type]
    if batch.projection is not None:
        return ArraySource(batch)
    return ArraySource(batch, tuple(columns) if columns else None, tabular.column_units(data))


def split(source: Source, fraction: float, seed: int) -> tuple[Source, Source]:
    """Two sources: all but a random ``fraction`` of the rows, and that fraction."""
    if not 0 < fraction < 1:
        raise ValueError(f"the fraction to hold out must lie between 0 and 1, got {fraction}")
    if not isinstance(source, ArraySource):
        divide = getattr(source, "split", None)
        if divide is None:
            raise ValueError(f"{type(source).__name__} cannot hold out a fraction: give validation rows of their own")
        return divide(fraction, seed)
    order = permutation(source.rows, seed, -1)
    held = max(1, round(fraction * source.rows))
    if held >= source.rows:
        raise ValueError(f"{source.rows} rows are too few to hold out {fraction:.3g} of them")
    parts = order[held:].sort().values, order[:held].sort().values
    train, test = (replace(source, batch=source.batch.rows(part.to(source.batch.device))) for part in parts)
    return train, test
