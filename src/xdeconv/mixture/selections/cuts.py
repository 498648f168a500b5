"""Cuts on single coordinates, in closed form: half-spaces and boxes, in units of a row's own error too.

A component gives row i the chance P_ij that a Gaussian of mean m_j and covariance V_j + S_i lies between the row's
edges, in the coordinates that are cut. Its gradient by m is that by the edges, and its Hessian H by m gives the
derivative by V: dP = tr(H dV) / 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...rows.batch import Batch
from ..background import Background, Uniform
from .contract import FLOOR, Array, Chances, Kept, Population, Selecting, refuse_bare, standard_errors
from .intervals import Box, box

CHUNK = 1 << 18  # pairs of a row and a component at a time
SMALLEST = 1e-300


class Edge(NamedTuple):
    """One side of a cut: x > or < offset + slope * error, of one coordinate."""

    coordinate: int
    lower: bool
    offset: float
    slope: float


class Sides(NamedTuple):
    """Between which edges (n or 1, m) rows were kept, in m coordinates."""

    coordinates: list[int]
    low: Tensor
    high: Tensor


@dataclass(frozen=True)
class Cuts(Selecting, Chances):
    """Some cuts together, of coordinates by index.

    Parameters
    ----------
    edges : tuple of Edge
        All sides.
    """

    edges: tuple[Edge, ...]

    @property
    def coordinates(self) -> list[int]:
        """Which coordinates are cut."""
        return sorted({edge.coordinate for edge in self.edges})

    @property
    def by_error(self) -> bool:
        """Whether an edge depends on a row's error."""
        return any(edge.slope for edge in self.edges)

    @property
    def drawn(self) -> bool:
        """Nothing is drawn."""
        return False

    def needs_noise(self, noisy: bool) -> bool:
        """Where an edge is in errors, or the rows of the fit had some."""
        return noisy or self.by_error

    def told(self, labels: Sequence[str] | None = None) -> str:
        """Itself as text."""
        return " & ".join(_told(edge, labels) for edge in self.edges)

    def sides(self, batch: Batch) -> Sides:
        """The edges that rows have.

        Parameters
        ----------
        batch : Batch
            Noisy rows.

        Returns
        -------
        Sides
        """
        sd, where = standard_errors(batch), self.coordinates
        low = torch.full((sd.shape[1], len(where)), -torch.inf, dtype=torch.float64, device=batch.device)
        high = -low
        for edge in self.edges:
            c, at = where.index(edge.coordinate), edge.offset + edge.slope * sd[edge.coordinate]
            if edge.lower:
                low[:, c] = torch.maximum(low[:, c], at)
            else:
                high[:, c] = torch.minimum(high[:, c], at)
        return Sides(where, low, high)

    def probability(self, batch: Batch) -> Tensor:
        """1 for rows inside, 0 for others, and for those that miss a value that is cut on."""
        where, low, high = self.sides(batch)
        x = batch.x[where].double().T
        return ((x >= low) & (x <= high)).all(1).double()

    def transformed(self, shift: Array, scale: Array) -> Cuts:
        """The cuts of shift + scale * v."""
        ends = [(float(shift[edge.coordinate]), float(scale[edge.coordinate])) for edge in self.edges]
        return Cuts(tuple(_moved(edge, *end) for edge, end in zip(self.edges, ends, strict=True)))

    def around(self, proposal: Population, size: int, seed: int, fewest: int = 0) -> Cuts:
        """Itself: nothing is drawn."""
        return self

    def refuse(self, some: Batch, background: Background | None) -> None:
        """Refuse cuts on coordinates that there are not, and a background of which nobody knows what they keep."""
        if max(self.coordinates) >= some.d:
            raise ValueError(f"selection cuts on column {max(self.coordinates)} and the data have {some.d}")
        refuse_bare(background)
        if background is not None:
            self._beside(background, some)

    def log_kept(self, batch: Batch) -> Tensor:
        """Zero: rows that were not kept are refused before."""
        return torch.zeros(batch.n, dtype=torch.float64, device=batch.device)

    def log_chance(self, population: Population, batch: Batch) -> Tensor:
        """log P (n,), float64."""
        parts = [_floored(self._of(population, rows)[1]) for rows in batch.chunks(_rows(population))]
        return torch.cat(parts).expand(batch.n)

    def kept(self, population: Population, batch: Batch) -> Kept:
        """What these cuts keep of rows like these."""
        k, d = population.parameters.means.shape
        zeros = population.parameters.means.new_zeros
        q, g, G = zeros(k), zeros(k, d), zeros(k, d, d)
        where = self.coordinates
        logs = []
        for rows in batch.chunks(_rows(population)):
            inside, log_chance = self._of(population, rows)
            log_chance = _floored(log_chance)
            w = rows.weights()
            each = (w.sum()[None] if len(log_chance) == 1 else w) / log_chance.exp()
            q += each @ inside.value
            g[:, where] += torch.einsum("n,nkc->kc", each, inside.slope)
            H = torch.einsum("n,nkcd->kcd", each, inside.curvature)
            G[:, torch.tensor(where)[:, None], torch.tensor(where)] += H
            logs.append(log_chance.expand(rows.n))
        shares = population.parameters.log_weights.exp()
        q, g, G = shares * q, shares[:, None] * g, shares[:, None, None] * G
        return Kept(torch.cat(logs), self.log_kept(batch), q, g, G)

    def _of(self, population: Population, batch: Batch) -> tuple[Box, Tensor]:
        """Chances of components with their derivatives, and log P (n,), or (1,) where all rows are alike."""
        where, low, high = self.sides(batch)
        (log_weights, means, V), noise = population.parameters, batch.covariance().double()
        T = V[:, where][:, :, where] + noise[:, where][:, :, where][:, None]
        inside = box(low[:, None] - means[:, where], high[:, None] - means[:, where], T)
        log_chance = (inside.value @ log_weights.exp()).clamp(min=SMALLEST).log()
        if population.background is not None and float(population.beside) > 0:
            other = self._beside(population.background, batch) + population.beside.log()
            log_chance = torch.logaddexp(log_chance, other)
        return inside, log_chance

    def _beside(self, background: Background, batch: Batch) -> Tensor:
        """log P (n,) or (1,) of a background."""
        if not isinstance(background, Uniform):
            return self._of(Population(background.scaled(batch.device), background.background), batch)[1]  # type: ignore[attr-defined]
        where, low, high = self.sides(batch)
        noise = batch.covariance().double()[:, where][:, :, where]
        if len(where) > 1 and bool((noise - torch.diag_embed(noise.diagonal(dim1=1, dim2=2))).any()):
            raise ValueError("how much of a Uniform background several cuts keep is not known in closed form where "
                             "their errors are correlated: give selection= a function")  # fmt: skip
        sd = noise.diagonal(dim1=1, dim2=2).sqrt()
        ends = torch.tensor([background.low, background.high], dtype=torch.float64, device=batch.device)[:, where]
        inside = _below(high, ends, sd) - _below(low, ends, sd)
        return inside.clamp(min=SMALLEST).log().sum(1)


def _floored(log_chance: Tensor) -> Tensor:
    return (log_chance.exp() + FLOOR).log()


def _below(edge: Tensor, ends: Tensor, sd: Tensor) -> Tensor:
    """How much of a uniform distribution with Gaussian errors lies below an edge."""
    low, high = ends
    safe = torch.where(sd > 0, sd, 1.0)

    def part(z: Tensor) -> Tensor:
        smooth = z * torch.special.ndtr(z) + torch.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
        return torch.where(z.isinf(), z.clamp(min=0.0), smooth)

    finite = edge.clamp(-1e30, 1e30)
    soft = safe * (part((finite - low) / safe) - part((finite - high) / safe))
    inside = torch.where(sd > 0, soft, (finite - low).clamp(min=0.0) - (finite - high).clamp(min=0.0))
    return torch.where(edge == torch.inf, 1.0, torch.where(edge == -torch.inf, 0.0, inside / (high - low)))


def _moved(edge: Edge, shift: float, scale: float) -> Edge:
    """An edge of shift + scale * v, whose errors are abs(scale) times as large."""
    lower = edge.lower if scale > 0 else not edge.lower
    return Edge(edge.coordinate, lower, shift + scale * edge.offset, edge.slope if scale > 0 else -edge.slope)


def _told(edge: Edge, labels: Sequence[str] | None) -> str:
    name = labels[edge.coordinate] if labels else f"column {edge.coordinate}"
    if not edge.offset and edge.slope:
        return f"{name} / error {'>' if edge.lower else '<'} {edge.slope:g}"
    more = f" + {edge.slope:g} error" if edge.slope else ""
    return f"{name} {'>' if edge.lower else '<'} {edge.offset:g}{more}"


def _rows(population: Population) -> int:
    return max(1, CHUNK // len(population.parameters.means))
