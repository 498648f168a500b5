"""Rows whose batches get something more as they come: groups, the log-density of a background."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from .batch import Batch
from .data import ArraySource, Source, View


@dataclass(frozen=True)
class Completing(View):
    """A stream whose batches are completed as they come; what they get, :meth:`completed` says."""

    @abstractmethod
    def completed(self, batch: Batch) -> Batch:
        """A batch, in the user's units, with what it gets."""

    @property
    def read_again(self) -> bool:
        """Compact forms of rows have no place for more."""
        return True

    @property
    def remote(self) -> bool:
        return self.source.remote

    def over(self, source: Source) -> Source:
        """Other rows with the same: at once where they are in memory, as they come from a stream."""
        if isinstance(source, ArraySource):
            return replace(source, batch=self.completed(source.batch))
        return replace(self, source=source)

    def arranged(self, batch_rows: int | None, seed: int) -> Source:
        """The same rows, cut otherwise."""
        return replace(self, source=self.source.arranged(batch_rows, seed))

    def batches(self, epoch: int, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """One pass."""
        return map(self.completed, self.source.batches(epoch, rank=rank, world=world))

    def sample(self, size: int, seed: int) -> Batch:
        """Some rows from all over, shuffled."""
        return self.completed(self.source.sample(size, seed))

    def split(self, fraction: float, seed: int) -> tuple[Source, Source]:
        """Rows to fit, and rows to hold out."""
        train, held = self.source.split(fraction, seed)
        return self.over(train), self.over(held)

    def sum(self, function: Callable[[Batch], Tensor], *, rank: int = 0, world: int = 1) -> Tensor:
        """The sum of function(batch) over a rank's rows, where they live."""
        return self.source.sum(lambda batch: function(self.completed(batch)), rank=rank, world=world)
