"""ResidentSource: rows held in compact chunks, on the GPU or in pinned host memory, and where a fit keeps its rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..system.memory import free
from ..system.ranks import made_by_first
from .batch import Batch, concatenate
from .cutting import mixed, permutation
from .data import ArraySource, Source, StandardizedSource
from .packing import Chunk, common, pack, packable, row_bytes
from .prefetch import overlapped

Cache = Literal["device", "host", "none"]
CHUNK_ROWS = 1 << 22  # of a chunk on a device
PINNED_BYTES = 1 << 28  # of a chunk on the host: pinned memory comes in powers of two
MIXED_ROWS = 1 << 23  # rows of several chunks that are shuffled together
SAMPLED = 64  # chunks that a sample comes from
DEVICE_SHARE, HOST_SHARE = 0.7, 0.6  # of the free memory that rows may take
JUDGED_ROWS = 1 << 14  # rows that tell how compact the others will be
SMALL_BYTES = 1 << 28  # arrays smaller than this go to a GPU as they are
GIB = 2.0**30


@dataclass(frozen=True)
class ResidentSource(Source):
    """Rows in chunks; batches come on ``device``. Of several ranks, each holds its ``part`` = (rank, world) alone."""

    chunks: tuple[Chunk, ...]
    device: torch.device
    origin: Source
    shared: Tensor | None = None
    scale: Tensor | None = None
    part: tuple[int, int] = (0, 1)
    batch_rows: int | None = None
    seed: int = 0

    @property
    def rows(self) -> int:
        """Rows of all ranks together."""
        return self.origin.rows if self.part[1] > 1 else sum(chunk.rows for chunk in self.chunks)

    @property
    def dim(self) -> int:
        return self.origin.dim

    @property
    def labels(self) -> tuple[str, ...] | None:
        return self.origin.labels

    @property
    def units(self) -> tuple[str, ...] | None:
        return self.origin.units

    @property
    def resident_bytes(self) -> int:
        """Memory of the rows held here."""
        return sum(chunk.memory.numel() for chunk in self.chunks)

    def arranged(self, batch_rows: int | None, seed: int) -> ResidentSource:
        """The same rows: in shuffled batches, or chunk by chunk."""
        return replace(self, batch_rows=batch_rows, seed=seed)

    def batches(self, epoch: int, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """One pass over a rank's rows, in an order that depends on the seed, the epoch and the kind of device alone."""
        if self.part[1] > 1 and (rank, world) != self.part:
            raise ValueError(f"this process holds part {self.part} of the rows, and part {(rank, world)} was asked for")
        share = (0, 1) if self.part[1] > 1 else (rank, world)
        if self.batch_rows is None:
            return self._apart(share)
        order = permutation(len(self.chunks), self.seed, epoch).tolist()
        return self._mixed(self._unpacked([self.chunks[i] for i in order], share), epoch, self.batch_rows)

    def sample(self, size: int, seed: int) -> Batch:
        """Up to ``size`` rows from all over, shuffled; where only a part is held here, from the source behind it."""
        if self.part[1] > 1:
            return self.origin.sample(size, seed)
        order = permutation(len(self.chunks), seed, -3).tolist()[:SAMPLED]
        share = min(1.0, size / sum(self.chunks[i].rows for i in order))
        parts = []
        for i, batch in zip(order, self._unpacked([self.chunks[i] for i in order], (0, 1)), strict=True):
            wanted = min(batch.n, round(share * batch.n) + 1)
            parts.append(batch.rows(permutation(batch.n, seed, i, self.device)[:wanted]))
        whole = self._alike(concatenate(parts))
        return whole.rows(permutation(whole.n, seed, -4, self.device)[:size])

    def _apart(self, share: tuple[int, int]) -> Iterator[Batch]:
        """Chunk by chunk, the rows that miss nothing and those that do in batches of their own."""
        rank, world = share
        for chunk, batch in zip(self.chunks, self._unpacked(self.chunks, share), strict=True):
            complete = min(max(0, chunk.complete - rank * chunk.rows // world), batch.n)
            if complete:
                yield replace(batch.rows(slice(0, complete)), missing=False)
            if complete < batch.n:
                yield batch.rows(slice(complete, batch.n))

    def _unpacked(self, chunks: Iterable[Chunk], share: tuple[int, int]) -> Iterator[Batch]:
        """Chunks as batches; from the host, the next one is copied while the last one is worked on."""
        rank, world = share

        def ready(chunk: Chunk) -> Batch:
            batch = chunk.to(self.device).unpacked(self.shared, self.scale)
            return batch.rows(slice(rank * batch.n // world, (rank + 1) * batch.n // world))

        if self.chunks and self.chunks[0].memory.is_cuda:
            return map(ready, chunks)
        return overlapped(chunks, ready, self.device)

    def _mixed(self, batches: Iterator[Batch], epoch: int, size: int) -> Iterator[Batch]:
        """Batches of a size from rows of several chunks, shuffled together."""
        together = max(1, MIXED_ROWS // max(chunk.rows for chunk in self.chunks))

        def shuffled(pool: Batch, turn: int) -> Batch:
            return self._alike(pool).rows(permutation(pool.n, self.seed + 7919 * (turn + 1), epoch, self.device))

        return mixed(iter(lambda: list(islice(batches, together)), []), size, shuffled)

    def _alike(self, batch: Batch) -> Batch:
        """Batches of one kind, whether these rows miss anything or not: a recorded step fits them all."""
        return replace(batch, missing=any(chunk.layout.missing for chunk in self.chunks))


def hold(
    source: Source, where: Cache, device: torch.device, *, rounded: bool = False, rank: int = 0, world: int = 1
) -> ResidentSource:
    """Read a rank's rows once and keep them, chunk by chunk: never more than a chunk is in memory twice."""
    chunks: list[Chunk] = []
    known: dict[str, Any] = {}
    for batch in _regrouped(source.arranged(None, 0).batches(0, rank=rank, world=world), where):
        known = known or common(batch)
        chunk = pack(batch, rounded)
        chunks.append(replace(chunk, memory=(_settled if where == "device" else _on_host)(chunk.memory)))
    return ResidentSource(tuple(chunks), device, source, part=(rank, world), **known)


def _regrouped(batches: Iterable[Batch], where: Cache) -> Iterator[Batch]:
    """The same rows in batches of a chunk's size."""
    waiting: list[Batch] = []
    size = 0
    for batch in batches:
        if size == 0 and batch.n:
            size = CHUNK_ROWS if where == "device" else max(1, PINNED_BYTES // row_bytes(batch)["exact"])
        for part in batch.chunks(size) if batch.n else ():
            waiting.append(part)
            if sum(b.n for b in waiting) >= size:
                whole = concatenate(waiting)
                yield whole.rows(slice(0, size))
                waiting = [whole.rows(slice(size, whole.n))] if whole.n > size else []
    if waiting:
        yield concatenate(waiting)


def _settled(memory: Tensor) -> Tensor:
    """A copy in a block of its own, after what packing left free went back: rows hold no piece of a larger block."""
    torch.cuda.empty_cache()
    return memory.clone()


def _on_host(memory: Tensor) -> Tensor:
    """A copy in pinned memory, or in plain memory where there is no GPU."""
    return torch.empty(memory.shape, dtype=memory.dtype, pin_memory=memory.is_cuda).copy_(memory)


# Where a fit keeps its rows


@dataclass(frozen=True)
class Place:
    """Coordinates (v - shift) / scale, device, type and rank of a fit, and what the user said of its cache."""

    shift: Tensor
    scale: Tensor
    device: torch.device
    dtype: torch.dtype
    cache: Cache | None = None
    rank: int = 0
    world: int = 1
    seed: int = 0


def checked_cache(cache: Any, device: torch.device) -> Cache | None:
    """The word, if it is one that makes sense on the device."""
    if cache is not None and cache not in get_args(Cache):
        raise ValueError(f"cache must be one of {list(get_args(Cache))}, got {cache!r}")
    if cache == "device" and device.type != "cuda":
        raise ValueError(f"cache='device' keeps rows on a GPU, and this fit runs on the {device.type}")
    return cache


def placed(source: Source, place: Place) -> tuple[Source, str]:
    """A source in a fit's coordinates, kept where its size or the user says; and a line about that, if it matters."""
    where = (place.shift, place.scale, place.device, place.dtype)
    if isinstance(source, ArraySource):
        if place.device.type == "cpu" or not packable(source.batch) or (place.cache is None and _small(source)):
            return source.standardized(*where), ""
        stream: Source = StandardizedSource(source, *where)
    else:
        stream = source.standardized(*where)
    cache = place.cache or ("none" if source.read_again else None)
    if cache == "none" or (cache is None and place.device.type == "cpu"):
        return stream, "rows are read again in every pass" if place.cache else ""
    return _kept(stream, cache, place)


def _kept(stream: Source, cache: Cache | None, place: Place) -> tuple[Source, str]:
    """Exact where it fits; rounded only where the user asked for a place that exact rows do not fit in."""
    each = made_by_first(lambda: row_bytes(stream.sample(JUDGED_ROWS, place.seed)), place.device)
    mine = -(-stream.rows // place.world)
    room = {"device": _device_room(place.device), "host": _host_room()}
    places: list[Cache] = ["device", "host"] if cache is None else [cache]
    tries = [(where, "exact") for where in places]
    tries += [(cache, "rounded")] if cache is not None and place.dtype == torch.float32 else []
    for where, form in tries:
        if mine * each[form] <= room[where]:
            held = hold(stream, where, place.device, rounded=form == "rounded", rank=place.rank, world=place.world)
            return held, describe(held, where, form == "rounded" and each["rounded"] < each["exact"])
    sizes = ", ".join(f"{mine * size / GIB:.1f} GiB {form}" for form, size in each.items())
    rooms = ", ".join(f"{free / GIB:.1f} GiB on the {where}" for where, free in room.items() if free)
    problem = f"{mine:,} rows take {sizes}, and there is room for {rooms}"
    if cache is not None:
        raise ValueError(f"cache={cache!r}: {problem}; use cache='none', or more ranks")
    return stream, f"{problem}: they are read again in every pass"


def describe(held: ResidentSource, where: str, rounded: bool) -> str:
    """Where the rows are, and in which form."""
    rows = sum(chunk.rows for chunk in held.chunks)
    form = "correlations rounded to 16 bits and shrunk by 2e-4 or less" if rounded else "exact"
    place = "on the GPU" if where == "device" else "in host memory"
    size = f"{held.resident_bytes / GIB:.2f} GiB, {held.resident_bytes / max(rows, 1):.0f} bytes per row"
    return f"{rows:,} rows are kept {place}: {size}, {form}"


def _small(source: ArraySource) -> bool:
    batch = source.batch
    return sum(t.numel() * t.element_size() for t in (batch.x, batch.noise) if t is not None) <= SMALL_BYTES


def _device_room(device: torch.device) -> float:
    if device.type != "cuda":
        return 0.0
    torch.cuda.empty_cache()
    return DEVICE_SHARE * torch.cuda.mem_get_info(device)[0]


def _host_room() -> float:
    """A share of the free memory for each process on this machine."""
    return HOST_SHARE * free() / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
