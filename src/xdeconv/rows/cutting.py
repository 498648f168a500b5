"""Cutting: rows of a pass put into other batches, shuffled, thinned or joined, by rules that repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from .batch import Batch, concatenate
from .thinning import within


def permutation(n: int, seed: int, epoch: int, device: torch.device | str = "cpu") -> Tensor:
    """A random order of rows, the same for the same seed and epoch; each kind of device has its own.

    Parameters
    ----------
    n : int
        How many rows.
    seed, epoch : int
        What it depends on.
    device : torch.device or str, default "cpu"
        Where it is drawn.

    Returns
    -------
    torch.Tensor (n,)
        Their places.
    """
    generator = torch.Generator(device).manual_seed((seed * 1_000_003 + epoch) % (1 << 63))
    return torch.randperm(n, generator=generator, device=device)


def mixed(pools: Iterator[list[Batch]], size: int, shuffled: Callable[[Batch, int], Batch]) -> Iterator[Batch]:
    """Batches of a size from rows of a pool, shuffled together; what is left over joins the next pool."""
    rest: list[Batch] = []
    for turn, pool in enumerate(pools):
        whole = shuffled(concatenate([*rest, *pool]), turn)
        last = whole.n - whole.n % size
        yield from whole.rows(slice(0, last)).chunks(size) if last else ()
        rest = [whole.rows(slice(last, whole.n))] if last < whole.n else []
    yield from rest


def pooled(batches: Iterator[Batch], rows: int) -> Iterator[list[Batch]]:
    """Batches in lists of so many rows, or a little more."""
    pool: list[Batch] = []
    count = 0
    for batch in batches:
        pool.append(batch)
        count += batch.n
        if count >= rows:
            yield pool
            pool, count = [], 0
    if pool:
        yield pool


def thinned(batches: Iterator[Batch], seed: int, low: float, high: float) -> Iterator[Batch]:
    """The rows of a pass whose hash lies in [low, high)."""
    place = 0
    for batch in batches:
        chosen = within(np.arange(place, place + batch.n), seed, low, high)
        yield batch if chosen.all() else batch.rows(torch.from_numpy(np.flatnonzero(chosen)).to(batch.device))
        place += batch.n
