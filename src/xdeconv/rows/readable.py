"""Readable: what every source says of its rows, and a pass over them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..system.checksums import checksum
from .batch import Batch, packed_size

T = TypeVar("T")
POOL_ROWS = 1 << 20  # rows that are shuffled together where a source does not shuffle by itself


class Readable(ABC):
    """Rows that can be gone through again and again; :class:`xdeconv.Source` adds what can be made of them."""

    # What must be said

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many rows there are, on all ranks together."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Latent dimensions d."""

    @abstractmethod
    def batches(self, epoch: int, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """One pass over all rows, in the same order every time, in batches of bounded size.

        Parameters
        ----------
        epoch : int
            The number of the pass; only sources that shuffle need it.
        rank, world : int
            Of ``world`` processes, each gets its own disjoint part of the rows.

        Returns
        -------
        iterator of Batch
            Rows in float64 on the CPU, in the user's units.
        """

    # What may be said

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the d coordinates, if they have any."""
        return None

    @property
    def units(self) -> tuple[str, ...] | None:
        """Units of the d coordinates, if they have any."""
        return None

    @property
    def views(self) -> tuple[str, ...] | None:
        """Names of the p values that rows show, if they have any: where these are not the coordinates themselves."""
        return self.labels

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of the rows: rows dropped, files skipped."""
        return ()

    @property
    def known_rows(self) -> int | None:
        """How many rows there are, where that is known before they are read."""
        return self.rows

    @property
    def has_log_prior(self) -> bool:
        """Whether batches have log-priors, which name components, so that none is moved."""
        return False

    @property
    def read_again(self) -> bool:
        """Whether the user wants the rows read in every pass, wherever they would fit."""
        return False

    @property
    def cheap_samples(self) -> bool:
        """Whether a sample costs less than a pass; otherwise one reading serves all samples of a fit."""
        return False

    @property
    def remote(self) -> bool:
        """Whether the rows live elsewhere and :meth:`sum` sends the work there."""
        return False

    @property
    def resident_bytes(self) -> int:
        """Memory of the rows that it holds here; 0 for a stream."""
        return 0

    def look_around(self, *, split: bool = False) -> None:  # noqa: B027
        """Find out about rows that a fit will not hold in memory, before it asks; called on every rank.

        By default nothing is done: rows are asked when something is wanted of them.

        Parameters
        ----------
        split : bool, default False
            Whether some of the rows are to be held out: then only their number matters yet.
        """

    @property
    def weighed(self) -> tuple[float, float] | None:
        """The weight of all rows, and how many have nothing observed, where that is known without reading them."""
        return None

    def pool_bytes(self, batch_rows: int | None) -> int:
        """Memory of the rows that are shuffled together.

        Parameters
        ----------
        batch_rows : int or None
            Rows of a batch; None for a pass in order.

        Returns
        -------
        int
            Bytes: of the pool, the pool shuffled, and the next one.
        """
        rows = 0 if batch_rows is None else min(self.rows, max(batch_rows, POOL_ROWS))
        return 3 * 8 * rows * (self.dim + packed_size(self.dim))

    def stamp(self) -> dict[str, Any]:
        """What changes when the rows do, as JSON.

        Returns
        -------
        dict
            By default their number, their names and a checksum of the first batch.
        """
        first = next(iter(self.batches(0)), None)
        return {"rows": self.rows, "dim": self.dim, "labels": list(self.labels or ()),
                "checksum": None if first is None else fingerprint(first)}  # fmt: skip

    # What a pass gives

    def sum(self, function: Callable[[Batch], Tensor], *, rank: int = 0, world: int = 1) -> Tensor:
        """The sum of function(batch) over a rank's rows.

        Parameters
        ----------
        function : callable
            From a batch to a tensor of numbers, which add up.
        rank, world : int
            Which part of the rows.

        Returns
        -------
        torch.Tensor
            Float64, added in the order of the batches; a plain 0 where there are none.
        """
        total = torch.zeros((), dtype=torch.float64)
        for batch in self.batches(0, rank=rank, world=world):
            term = function(batch)
            total = total.to(term.device) + term
        return total

    def each(self, function: Callable[[Batch], T]) -> Iterator[T]:
        """function(batch) of each batch of a pass, in order.

        Parameters
        ----------
        function : callable
            Of a batch, which may be called by any thread.

        Returns
        -------
        iterator
            By default one after the other.
        """
        return map(function, self.batches(0))


def fingerprint(batch: Batch) -> int:
    """A checksum of all that a batch holds."""
    b = batch
    tensors = (b.x, b.noise, b.projection, b.weight, b.log_prior, b.label, b.background, b.group)
    return checksum(*(t.cpu().numpy() for t in tensors if t is not None))
