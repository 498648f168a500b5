"""Sources: rows that can be gone through again and again, in an order that is a pure function of (seed, epoch).

To write one, subclass :class:`Source` and say how many rows there are, of how many dimensions, and what the batches of
a pass are; everything else that a fit may ask has an answer that works, and that a source which knows better overrides.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import tables as tabular
from .batch import Batch, concatenate
from .cutting import mixed, permutation, pooled, thinned
from .prefetch import prefetched_to
from .readable import POOL_ROWS, Readable, fingerprint
from .thinning import within

__all__ = ["ArraySource", "Source", "as_source", "permutation"]
CHUNK_ROWS = 1 << 22  # rows of a batch when no size is asked for
SPARE = 6.0  # standard deviations of what a hash finds, so that it hardly ever finds too few


class Source(Readable):
    """Rows that a fit goes through once in every pass.

    ``rows``, ``dim`` and ``batches`` must be written, as properties and a method; the rest works without.

    Examples
    --------
    >>> class Ramp(Source):
    ...     rows, dim = 1000, 1
    ...     def batches(self, epoch, *, rank=0, world=1):
    ...         yield Batch.from_arrays([[float(i)] for i in range(rank, 1000, world)], error=[0.5])
    >>> Ramp().sample(3, seed=0)
    Batch(rows=3, p=1, d=1, noise=diagonal shared)
    """

    def arranged(self, batch_rows: int | None, seed: int) -> Source:
        """The same rows, cut otherwise.

        Parameters
        ----------
        batch_rows : int or None
            Rows of a shuffled batch (the last may be smaller); None for all rows in their own order.
        seed : int
            What the order of every pass depends on, beside its number.

        Returns
        -------
        Source
            By default rows are shuffled in pools of 2^20.
        """
        return self if batch_rows is None else PooledSource(self, batch_rows, seed)

    def sample(self, size: int, seed: int) -> Batch:
        """Some rows from all over, shuffled.

        Parameters
        ----------
        size : int
            At most so many; all rows if there are no more.
        seed : int
            The same seed gives the same rows.

        Returns
        -------
        Batch
            By default from one pass over all rows.
        """
        share = min(1.0, (size + SPARE * (size + SPARE) ** 0.5) / max(self.rows, 1))
        whole = _joined(list(thinned(self.arranged(None, 0).batches(0), seed, 0.0, share)), self)
        return whole.rows(permutation(whole.n, seed, -2)[:size].to(whole.device))

    def split(self, fraction: float, seed: int) -> tuple[Source, Source]:
        """Rows to fit, and rows to hold out.

        Parameters
        ----------
        fraction : float
            Of the rows, to be held out.
        seed : int
            The same seed holds out the same rows.

        Returns
        -------
        tuple of Source
            All but the fraction, and the fraction.
        """
        refuse_fraction(fraction)
        held = PartSource.of(self, seed, 0.0, fraction)
        train = PartSource(self, seed, fraction, 1.0, self.rows - held.rows)
        if not (train.rows and held.rows):
            raise ValueError(f"{self.rows} rows are too few to hold out {fraction:.3g} of them")
        return train, held

    def standardized(self, shift: Tensor, scale: Tensor, device: torch.device, dtype: torch.dtype) -> Source:
        """The source in the latent coordinates (v - shift) / scale; log-likelihoods stay the user's.

        Parameters
        ----------
        shift, scale : torch.Tensor (d,)
            Float64, on the CPU.
        device : torch.device
            Where batches are wanted.
        dtype : torch.dtype
            Their number type.

        Returns
        -------
        Source
            By default batches are converted as they come.
        """
        return StandardizedSource(self, shift, scale, device, dtype)

    def with_noise_at(self, value: float) -> Source | None:
        """The same rows with the noise that they would have if all their values were one.

        Parameters
        ----------
        value : float
            The value.

        Returns
        -------
        Source or None
            By default None: noise is not known to depend on the values.
        """
        return None

    def held(self) -> Source:
        """The rows in memory where that is the better place for them; by default they stay a stream.

        Returns
        -------
        Source
            The same rows.
        """
        return self

    def load(self) -> ArraySource:
        """All rows in memory, in their own order.

        Returns
        -------
        ArraySource
            The same rows.
        """
        return ArraySource(_joined(list(self.arranged(None, 0).batches(0)), self), self.labels, self.units)


@dataclass(frozen=True)
class ArraySource(Source):
    """Rows held in memory, on the host or on a device.

    Parameters
    ----------
    batch : Batch
        The rows.
    labels : tuple of str, optional
        Names of the d coordinates.
    units : tuple of str, optional
        Units of the d coordinates.
    batch_rows : int, optional
        Rows of a shuffled batch; without, a pass is in order.
    seed : int, default 0
        What the order of every pass depends on, beside its number.
    notes : tuple of str
        What a user should know of the rows.
    """

    batch: Batch
    labels: tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None
    batch_rows: int | None = None
    seed: int = 0
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return self.batch.n

    @property
    def dim(self) -> int:
        return self.batch.d

    @property
    def has_log_prior(self) -> bool:
        return self.batch.log_prior is not None

    @property
    def cheap_samples(self) -> bool:
        return True

    @property
    def resident_bytes(self) -> int:
        """In float64, whatever they are in."""
        tensors = (self.batch.x, self.batch.noise, self.batch.projection, self.batch.weight)
        return sum(8 * t.numel() for t in tensors if t is not None)

    def pool_bytes(self, batch_rows: int | None) -> int:
        """Nothing beside the rows themselves."""
        return 0

    def stamp(self) -> dict[str, Any]:
        """A checksum of all there is."""
        return {"rows": self.rows, "dim": self.dim, "labels": list(self.labels or ()),
                "checksum": fingerprint(self.batch)}  # fmt: skip

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

    def sample(self, size: int, seed: int) -> Batch:
        """Some rows, shuffled, or all of them as they are if there are no more."""
        if self.rows <= size:
            return self.batch
        return self.batch.rows(permutation(self.rows, seed, 0)[:size].to(self.batch.device))

    def split(self, fraction: float, seed: int) -> tuple[ArraySource, ArraySource]:
        """Rows to fit, and rows to hold out, in memory too."""
        refuse_fraction(fraction)
        order = permutation(self.rows, seed, -1)
        held = max(1, round(fraction * self.rows))
        if held >= self.rows:
            raise ValueError(f"{self.rows} rows are too few to hold out {fraction:.3g} of them")
        parts = order[held:].sort().values, order[:held].sort().values
        train, test = (replace(self, batch=self.batch.rows(part.to(self.batch.device))) for part in parts)
        return train, test

    def standardized(self, shift: Tensor, scale: Tensor, device: torch.device, dtype: torch.dtype) -> ArraySource:
        """The rows in the latent coordinates (v - shift) / scale, converted once."""
        return replace(self, batch=self.batch.standardized(shift, scale).to(device, dtype))

    def load(self) -> ArraySource:
        """Itself."""
        return self


def as_source(data: object, hold: bool = True, **arrays: object) -> Source:
    """Anything that has rows, as a source.

    Parameters
    ----------
    data : array-like (n, p), table, Batch or Source
        Rows; NaN is missing.
    hold : bool, default True
        Whether a source may be held in memory where it is small.
    **arrays : array-like
        noise, error, projection, weight, log_prior, label and background of an array or a table.

    Returns
    -------
    Source
        A source as it is or held, everything else as rows in memory.
    """
    given = [name for name, value in arrays.items() if value is not None]
    if isinstance(data, (Batch, Source)):
        if given:
            raise ValueError(f"{type(data).__name__} carries its own {', '.join(given)}: give them there")
        if isinstance(data, Batch):
            return ArraySource(data)
        return data.held() if hold else data
    columns = tabular.names(data)
    arrays = {name: tabular.in_order(value, columns or ()) if columns else value for name, value in arrays.items()}
    batch = Batch.from_arrays(data, **arrays)  # type: ignore[arg-type]
    if batch.projection is not None:
        return ArraySource(batch)
    notes = errors_as_features(columns or (), "columns={} finds errors by their names", stacklevel=5)
    return ArraySource(batch, tuple(columns) if columns else None, tabular.column_units(data), notes=notes)


def errors_as_features(columns: Sequence[str], remedy: str, stacklevel: int) -> tuple[str, ...]:
    """Warn of columns that are called errors of others and are features like them; {} in the remedy are the others."""
    errors = tabular.errors_among(columns)
    if not errors:
        return ()
    features = [name for name in columns if name not in errors.values()]
    said = (f"{', '.join(errors.values())}: called errors of {', '.join(errors)}, and taken as features like them. "
            + remedy.format(features))  # fmt: skip
    warnings.warn(said, UserWarning, stacklevel=stacklevel)
    return (said,)


def refuse_fraction(fraction: float) -> None:
    """Refuse to hold out all rows, none, or more than there are."""
    if not 0 < fraction < 1:
        raise ValueError(f"the fraction to hold out must lie between 0 and 1, got {fraction}")


# Views of another source: the same rows, otherwise


@dataclass(frozen=True)
class View(Source):
    """A source made of another one: what it does not change is asked there."""

    source: Source

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

    @property
    def notes(self) -> tuple[str, ...]:
        return self.source.notes

    @property
    def has_log_prior(self) -> bool:
        return self.source.has_log_prior

    @property
    def read_again(self) -> bool:
        return self.source.read_again

    @property
    def weighed(self) -> tuple[float, float] | None:
        return self.source.weighed

    def look_around(self, *, split: bool = False) -> None:
        """Find out about the rows, on every rank."""
        self.source.look_around(split=split)


@dataclass(frozen=True)
class PooledSource(View):
    """Batches of a size from rows in order, shuffled in pools of 2^20."""

    batch_rows: int
    seed: int

    def arranged(self, batch_rows: int | None, seed: int) -> Source:
        """The same rows, cut otherwise."""
        return self.source.arranged(batch_rows, seed)

    def batches(self, epoch: int, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """One pass; the order within a pool depends on the seed and the epoch."""

        def shuffled(pool: Batch, turn: int) -> Batch:
            return pool.rows(permutation(pool.n, self.seed + 7919 * (turn + 1), epoch).to(pool.device))

        pools = pooled(self.source.batches(epoch, rank=rank, world=world), max(POOL_ROWS, self.batch_rows))
        return mixed(pools, self.batch_rows, shuffled)


@dataclass(frozen=True)
class PartSource(View):
    """The rows whose hash of their place lies in [low, high): the same in every pass, and fair."""

    seed: int
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, source: Source, seed: int, low: float, high: float) -> PartSource:
        """The part, counted."""
        starts = range(0, source.rows, CHUNK_ROWS)
        places = (np.arange(start, min(start + CHUNK_ROWS, source.rows)) for start in starts)
        return cls(source, seed, low, high, sum(int(within(some, seed, low, high).sum()) for some in places))

    @property
    def rows(self) -> int:
        return self.count

    @property
    def weighed(self) -> None:
        """Nobody has weighed a part."""

    def batches(self, epoch: int, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """One pass: every rank reads all rows, because only their places tell which are wanted."""
        whole = self.source.arranged(None, 0).batches(0)
        for batch in thinned(whole, self.seed, self.low, self.high):
            yield batch if world == 1 else batch.rows(torch.arange(rank, batch.n, world, device=batch.device))


@dataclass(frozen=True)
class StandardizedSource(View):
    """A source in latent coordinates (v - shift) / scale, on a device and in a type; likelihoods stay the user's."""

    shift: Tensor
    scale: Tensor
    device: torch.device
    dtype: torch.dtype

    def arranged(self, batch_rows: int | None, seed: int) -> StandardizedSource:
        """The same rows, cut otherwise."""
        return replace(self, source=self.source.arranged(batch_rows, seed))

    def batches(self, epoch: int, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """One pass; each batch is standardised in float64 and only then cast, while the last one is worked on."""
        return prefetched_to(self.source.batches(epoch, rank=rank, world=world), self.convert, self.device)

    def sample(self, size: int, seed: int) -> Batch:
        """Up to ``size`` rows, shuffled."""
        return self.convert(self.source.sample(size, seed))

    def convert(self, batch: Batch) -> Batch:
        """One batch, standardised in float64, then cast and moved."""
        return batch.standardized(self.shift, self.scale).to(self.device, self.dtype)


def _joined(batches: list[Batch], source: Source) -> Batch:
    """One batch of all rows."""
    if not batches:
        raise ValueError(f"{type(source).__name__} has no rows")
    return batches[0] if len(batches) == 1 else concatenate(batches)
