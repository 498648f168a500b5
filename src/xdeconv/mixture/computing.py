"""Computing: where a question to a model is worked out, in which number type, and in which coordinates.

In float32, rows and model are centred and scaled by the model's own mean and spread, in float64, before they are cast,
as a fit does: positions in degrees with errors of milliarcseconds would else be lost. Likelihoods stay the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..kernels.parameters import Parameters
from ..rows.batch import Batch
from ..rows.data import Source
from ..system.devices import chosen_device, number_type
from ..system.progress import progress_of_call

T = TypeVar("T")
MANY_PAIRS = 10**7  # of a row and a component: from here on a GPU is worth its start
CHUNK_ROWS = 1 << 20  # of rows in memory that go to a GPU at a time


@dataclass(frozen=True)
class Computing:
    """A device, a number type, and parameters that are there; shift and scale (d,) of the coordinates, if other ones.

    ``moved`` says that rows must be, too.
    """

    parameters: Parameters
    device: torch.device
    dtype: torch.dtype
    shift: Tensor | None = None
    scale: Tensor | None = None

    @property
    def moved(self) -> bool:
        return self.device.type != "cpu" or self.dtype != torch.float64

    def batch(self, batch: Batch) -> Batch:
        """Rows of the user's, float64 on the CPU, where they are wanted."""
        if not self.moved:
            return batch
        there = batch.to(self.device)
        framed = there if self.shift is None or self.scale is None else there.standardized(self.shift, self.scale)
        return framed.to(self.device, self.dtype)

    def means_out(self, b: Tensor, keep: Tensor) -> Tensor:
        """Means (..., coordinates) in the user's coordinates, float64 on the CPU."""
        b = b.double().cpu()
        return b if self.shift is None or self.scale is None else b * self.scale[keep] + self.shift[keep]

    def distances_out(self, distance: Tensor, rows: Batch, keep: Tensor) -> Tensor:
        """Means (n, coordinates) from distances (n, d) to the user's rows; where they are not observed, as they are."""
        moved = distance.double().cpu()[:, keep]
        moved = moved if self.scale is None else moved * self.scale[keep]
        x = rows.x.double().T[:, keep] if rows.projection is None else moved.new_full((1, 1), torch.nan)
        origin = moved.new_zeros(len(keep)) if self.shift is None else self.shift[keep]
        return moved + torch.where(x.isnan(), origin, x)

    def covariances_out(self, B: Tensor, keep: Tensor) -> Tensor:
        """Covariances (..., coordinates, coordinates) in the user's coordinates, float64 on the CPU."""
        B = B.double().cpu()
        return B if self.scale is None else B * (self.scale[keep, None] * self.scale[keep])


def computing(parameters: Parameters, rows: Callable[[], int], device: Any, dtype: Any) -> Computing:
    """What was asked for; by default float64 on a CPU, and float32 on a GPU where there is one and much to do."""
    chosen = worthwhile(device, rows, parameters.k)
    kind = number_type(dtype, chosen)
    if kind == torch.float64:
        return Computing(parameters.to(chosen), chosen, kind)
    shift, scale = _frame(parameters)
    framed = Parameters(
        parameters.log_weights,
        (parameters.means - shift) / scale,
        parameters.covariances / (scale[:, None] * scale),
    )
    return Computing(framed.to(chosen), chosen, kind, shift, scale)


def worthwhile(device: Any, rows: Callable[[], int], k: int) -> torch.device:
    """The device that was asked for; by default a GPU where there is one and much to do."""
    if device is None and not (torch.cuda.is_available() and rows() * k >= MANY_PAIRS):
        return torch.device("cpu")
    return chosen_device(device)


def _frame(parameters: Parameters) -> tuple[Tensor, Tensor]:
    """Mean and spread (d,) of a mixture as a whole; 1 where it has none."""
    share = torch.softmax(parameters.log_weights, 0)
    mean = share @ parameters.means
    variance = share @ (parameters.covariances.diagonal(dim1=1, dim2=2) + (parameters.means - mean) ** 2)
    return mean, torch.where(variance > 0, variance.sqrt(), 1.0)


def answers(asked: Source | Batch, answer: Callable[[Batch], T], where: Computing) -> Iterator[T]:
    """answer(batch) of all rows, in order, with progress where it takes long; on a CPU by all cores."""

    def counted(batch: Batch) -> tuple[int, T]:
        return batch.n, answer(batch)

    with progress_of_call(None, asked.n if isinstance(asked, Batch) else asked.known_rows) as progress:
        for rows, found in _answered(asked, counted, where):
            progress.update("rows", done=rows)
            yield found


def _answered(asked: Source | Batch, answer: Callable[[Batch], T], where: Computing) -> Iterator[T]:
    if isinstance(asked, Batch):
        return map(answer, asked.chunks(CHUNK_ROWS) if where.moved else [asked])
    plain = asked.arranged(None, 0)
    return plain.each(answer) if where.device.type == "cpu" else map(answer, plain.batches(0))


def rows_in(asked: Source | Batch) -> int:
    """How many rows there are."""
    return asked.n if isinstance(asked, Batch) else asked.rows
