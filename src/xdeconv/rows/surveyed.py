"""Rows that were gone through once before a fit: what they weigh, and a reserve that every sample comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .batch import Batch, concatenate, packed_size
from .cutting import permutation, thinned
from .data import Source, View
from .unobserved import refuse_unobserved, shown

SURVEY_ROWS = 1 << 17  # of the largest sample that comes from the reserve
LEAST, MOST = 2.4, 4.0  # times as many rows the reserve may have, at least and at most
RESERVE_BYTES = 1 << 27  # that it may take, where that is no less than the least
SHARE = 0.75  # of what the reserve may have that is aimed at, where rows are counted, so that it seldom has too many
SEED = 6_700_417  # of the reserve: nobody else's, so that rows held out by a hash are no other part of it
Frame = tuple[Tensor, Tensor, torch.device, torch.dtype]


def reserve_rows(numbers: int) -> float:
    """Rows that a reserve may have: more where a row has few numbers."""
    fitting = RESERVE_BYTES / (8 * max(numbers, 1))
    return SURVEY_ROWS * min(max(fitting / SURVEY_ROWS, LEAST), MOST)


def reserve_share(numbers: int, rows: int | None) -> float:
    """Of the rows, how many are kept from the first on."""
    return 1.0 if rows is None else min(1.0, SHARE * reserve_rows(numbers) / max(rows, 1))


class Survey:
    """One pass over a source, made when something of it is first asked.

    Rows that never show a coordinate are refused unless they are a fit's that has a mixture to begin with, ``blind``;
    of a ``part`` others are held out.
    """

    def __init__(self, source: Source, blind: bool = True, part: bool = False) -> None:
        self.source, self.blind, self.part = source, blind, part
        self.weight, self.empty = 0.0, 0.0
        self.shown = torch.zeros(source.dim, dtype=torch.bool)

    @cached_property
    def reserve(self) -> Batch:
        """Rows from all over; on the way, all are weighed."""
        numbers = self.source.dim + packed_size(self.source.dim)
        share = reserve_share(numbers, self.source.rows)
        passed = map(self._weigh, self.source.arranged(None, 0).batches(0))
        kept = [batch for batch in thinned(passed, SEED, 0.0, share) if batch.n]
        if not kept:
            raise ValueError(f"{type(self.source).__name__} has no rows")
        if not self.blind:
            refuse_unobserved(kept[0], self.source.labels, self.part, self.shown)
        return concatenate(kept)

    def _weigh(self, batch: Batch) -> Batch:
        self.weight += float(batch.total_weight())
        self.empty += float(batch.x.isnan().all(0).sum()) if batch.missing else 0.0
        self.shown |= shown(batch)
        return batch

    @property
    def made(self) -> bool:
        """Whether the rows have been read."""
        return "reserve" in vars(self)


@dataclass(frozen=True)
class SurveyedSource(View):
    """A stream, in a frame or not, whose samples of any seed come from one survey of the rows as they are."""

    survey: Survey
    frame: Frame | None = None

    @classmethod
    def of(cls, source: Source, blind: bool = True, part: bool = False) -> Source:
        """The source as it is, where a sample costs no pass, or surveyed."""
        return source if source.cheap_samples or source.remote else cls(source, Survey(source, blind, part))

    @property
    def cheap_samples(self) -> bool:
        return True

    @property
    def resident_bytes(self) -> int:
        return self.source.resident_bytes

    @property
    def weighed(self) -> tuple[float, float] | None:
        """The weight of all rows, and how many have nothing observed, where they have been read."""
        return (self.survey.weight, self.survey.empty) if self.survey.made else None

    def sample(self, size: int, seed: int) -> Batch:
        """Up to ``size`` rows from all over, shuffled."""
        if size > SURVEY_ROWS:
            return self.source.sample(size, seed)
        reserve = self.survey.reserve
        rows = reserve.rows(permutation(reserve.n, seed, -2)[:size].to(reserve.device))
        if self.frame is None:
            return rows
        shift, scale, device, dtype = self.frame
        return rows.standardized(shift, scale).to(device, dtype)

    def split(self, fraction: float, seed: int) -> tuple[Source, Source]:
        """Rows to fit, which have a survey of their own, and rows to hold out."""
        train, held = self.source.split(fraction, seed)
        return SurveyedSource.of(train, self.survey.blind, part=True), held

    def standardized(self, shift: Tensor, scale: Tensor, device: torch.device, dtype: torch.dtype) -> Source:
        """The rows in the latent coordinates (v - shift) / scale, in their own way."""
        frame = (shift, scale, device, dtype)
        return replace(self, source=self.source.standardized(*frame), frame=frame)

    # The rows themselves

    def arranged(self, batch_rows: int | None, seed: int) -> Source:
        """The same rows, cut otherwise."""
        return replace(self, source=self.source.arranged(batch_rows, seed))

    def batches(self, epoch: int, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """One pass."""
        return self.source.batches(epoch, rank=rank, world=world)

    def sum(self, function: Callable[[Batch], Tensor], *, rank: int = 0, world: int = 1) -> Tensor:
        """The sum of function(batch) over a rank's rows."""
        return self.source.sum(function, rank=rank, world=world)

    def pool_bytes(self, batch_rows: int | None) -> int:
        """Memory of the rows that are shuffled together."""
        return self.source.pool_bytes(batch_rows)

    def stamp(self) -> dict[str, Any]:
        """What changes when the rows do."""
        return self.source.stamp()
