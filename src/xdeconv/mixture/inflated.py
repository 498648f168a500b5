"""Errors that are too small: factors on them, fitted with the mixture, that the mixture keeps and applies.

The noise of a row becomes F S F with F diagonal, one factor per observed coordinate, or per coordinate and group of
rows. With S so inflated and G_i = sum_j r_ij (u u^T - T^-1) in observed coordinates, dL / d log f_a is
sum_i (S_i G_i)_aa (:func:`xdeconv.kernels.accumulate_slopes`). Widths of components and factors can be told apart
because errors differ from row to row. A jitter, a variance that is added to all rows of a group, can be told from the
widths only by groups that have none.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..kernels.stats import Stats
from ..rows.batch import Batch
from ..rows.grouping import Grouping
from .coordinates import names_or_numbers
from .inflation import Inflation

Array = np.ndarray
FIRST_JITTER = 0.3  # of a coordinate's mean error: where the fit of a jitter begins


@dataclass(frozen=True)
class Inflated:
    """The factors that a fit has found, as its mixture keeps them.

    Parameters
    ----------
    values : tuple of tuple of float
        (groups, p): factors, and jitters as standard deviations, in the units of the errors; 1 where none was fitted.
    of : tuple of int
        The coordinates that were fitted.
    additive : tuple of int
        The groups that have jitters.
    grouping : Grouping, optional
        What makes groups; one group without.
    spread : tuple of tuple of float, optional
        Standard errors of the values; NaN where they are not known.
    rows : tuple of float
        Weight of the rows of each group in the fit.
    projected : bool
        Whether they are of the values of projected rows, not of the mixture's coordinates.

    Examples
    --------
    >>> Inflated(((1.3, 1.0),), (0,)).factors
    array([[1.3, 1. ]])
    """

    values: tuple[tuple[float, ...], ...]
    of: tuple[int, ...]
    additive: tuple[int, ...] = ()
    grouping: Grouping | None = None
    spread: tuple[tuple[float, ...], ...] | None = None
    rows: tuple[float, ...] = ()
    projected: bool = False

    # What users ask

    @property
    def factors(self) -> Array:
        """What errors are multiplied by (groups, p)."""
        factors = np.array(self.values)
        factors[list(self.additive)] = 1.0
        return factors

    @property
    def jitters(self) -> Array:
        """Standard deviations that are added in quadrature (groups, p), in the units of the errors."""
        jitters = np.zeros((len(self.values), self.p))
        for g in self.additive:
            jitters[g, list(self.of)] = np.array(self.values[g])[list(self.of)]
        return jitters

    @property
    def standard_errors(self) -> Array:
        """Of factors and jitters (groups, p), from the curvature of the log-likelihood; NaN where there is none."""
        return np.full((len(self.values), self.p), np.nan) if self.spread is None else np.array(self.spread)

    @property
    def groups(self) -> tuple[str, ...]:
        """What the groups are."""
        return ("all rows",) if self.grouping is None else self.grouping.names

    @property
    def p(self) -> int:
        """Observed coordinates."""
        return len(self.values[0])

    def describe(self, names: Sequence[str] | None) -> list[str]:
        """A line for each group that has rows.

        Parameters
        ----------
        names : sequence of str, optional
            Of the coordinates.

        Returns
        -------
        list of str
        """
        known = names_or_numbers(names if len(names or ()) == self.p else None, self.p)
        lines = []
        for g, (line, spread) in enumerate(zip(self.values, self.standard_errors, strict=True)):
            if self.rows and not self.rows[g]:
                continue
            sign = "+" if g in self.additive else "x"
            parts = [f"{known[a]} {sign}{line[a]:.4g}" + _told(spread[a]) for a in self.of]
            lines.append(f"{self.groups[g]}: {', '.join(parts)}")
        return lines

    def as_json(self) -> dict[str, Any]:
        """What a file keeps."""
        kept = {"values": self.values, "of": self.of, "additive": self.additive, "spread": self.spread,
                "rows": self.rows, "projected": self.projected}  # fmt: skip
        return {**kept, "grouping": None if self.grouping is None else self.grouping.as_json()}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Inflated:
        """The factors that a file keeps.

        Parameters
        ----------
        kept : mapping
            As :meth:`as_json` made it.

        Returns
        -------
        Inflated
        """
        grouping = None if kept["grouping"] is None else Grouping.from_json(kept["grouping"])
        spread = None if kept["spread"] is None else _tuples(kept["spread"])
        numbers = {name: tuple(kept[name]) for name in ("of", "additive", "rows")}
        made = cls(_tuples(kept["values"]), **numbers, spread=spread, projected=bool(kept["projected"]),
                   grouping=grouping)  # fmt: skip
        _refuse_misshapen(made)
        return made

    # Other coordinates

    def transformed(self, scale: Array) -> Inflated:
        """For coordinates times ``scale`` (d,): factors have no unit, jitters have.

        Parameters
        ----------
        scale : array (d,)
            Of each coordinate.

        Returns
        -------
        Inflated
        """
        if not self.additive:
            return self
        on = [[g in self.additive and a in self.of for a in range(self.p)] for g in range(len(self.values))]
        unit = np.where(on, np.asarray(scale), 1.0)
        spread = None if self.spread is None else _tuples(unit * self.standard_errors)
        return replace(self, values=_tuples(unit * np.array(self.values)), spread=spread)

    def restricted(self, keep: Sequence[int]) -> Inflated:
        """Of some of the mixture's coordinates; those of projected values stay as they are.

        Groups by a coordinate that is left out are no longer known of rows that do not say theirs.

        Parameters
        ----------
        keep : sequence of int
            Which.

        Returns
        -------
        Inflated
        """
        if self.projected:
            return self
        grouping = self.grouping
        if grouping is not None and grouping.coordinate is not None:
            place = list(keep).index(grouping.coordinate) if grouping.coordinate in keep else None
            grouping = replace(grouping, coordinate=place)
        of = tuple(i for i, a in enumerate(keep) if a in self.of)
        spread = None if self.spread is None else _tuples(self.standard_errors[:, list(keep)])
        values = _tuples(np.array(self.values)[:, list(keep)])
        return replace(self, values=values, of=of, spread=spread, grouping=grouping)

    def given(self, row: Batch) -> Inflated:
        """Those of the group of one row, where the row tells it.

        Parameters
        ----------
        row : Batch
            One row, in the user's units.

        Returns
        -------
        Inflated
        """
        by = self.grouping
        told = by is not None and by.coordinate is not None and not bool(row.x[by.coordinate].isnan().any())
        if by is None or (row.group is None and not told):
            return self
        g = int(self.group_of(row)[0])
        return replace(
            self,
            values=self.values[g : g + 1],
            additive=(0,) if g in self.additive else (),
            grouping=None,
            spread=None if self.spread is None else self.spread[g : g + 1],
            rows=self.rows[g : g + 1],
        )

    # What a fit carries

    def asked(self, inflation: Inflation) -> Inflation:
        """What was asked for, for rows that have their groups already.

        Parameters
        ----------
        inflation : Inflation
            As a user gave it.

        Returns
        -------
        Inflation
        """
        return replace(inflation, by=self.grouping, bins=None, of=self.of)

    @property
    def numbers(self) -> Tensor:
        """The logarithms (m,) of what is fitted."""
        return torch.from_numpy(np.log(np.array(self.values)[:, list(self.of)])).flatten()

    def at(self, numbers: Tensor) -> Inflated:
        """The same with the numbers that a fit has come to.

        Parameters
        ----------
        numbers : torch.Tensor (m,)
            Logarithms.

        Returns
        -------
        Inflated
        """
        values = np.array(self.values)
        values[:, list(self.of)] = numbers.detach().double().cpu().exp().view(len(values), -1).numpy()
        return replace(self, values=_tuples(values))

    def derivatives(self, g: int, stats: Stats, observed: Tensor) -> tuple[Tensor, Tensor]:
        """Slopes and certainty by the numbers of one group, from the sums over its rows.

        Parameters
        ----------
        g : int
            The group.
        stats : Stats
            Of :func:`xdeconv.kernels.accumulate_slopes`.
        observed : torch.Tensor (p,)
            Weight of the rows that observe each coordinate.

        Returns
        -------
        tuple of torch.Tensor
        """
        of = torch.tensor(self.of, device=stats.packed.device)
        if g not in self.additive:
            return stats.slopes[of], stats.certainty[of]
        J = torch.tensor(self.values[g], dtype=torch.float64, device=of.device) ** 2
        return (J * stats.G.diagonal(dim1=1, dim2=2).sum(0))[of], 2 * observed.to(stats.packed)[of]

    # Rows

    def rows_of(self, batch: Batch) -> Batch:
        """A batch with its errors inflated; rows without errors are exact and stay so.

        Parameters
        ----------
        batch : Batch
            The rows, with their errors as they are quoted.

        Returns
        -------
        Batch
        """
        if batch.noise is None or not bool((batch.noise != 0).any()):
            return batch
        self._refuse_other(batch)
        f, j = (torch.tensor(values.T) for values in (self.factors, self.jitters))
        if len(self.values) == 1:
            return inflated(batch, f, j)
        group = self.group_of(batch).cpu()
        self._warn_of_new(group)
        return inflated(batch, f[:, group], j[:, group])

    def parts(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        """The rows of each group, with their errors inflated.

        Parameters
        ----------
        batch : Batch
            The rows.

        Yields
        ------
        tuple of int and Batch
        """
        f, j = (torch.tensor(values.T) for values in (self.factors, self.jitters))
        if len(self.values) == 1:
            yield 0, inflated(batch, f, j)
            return
        group = self.group_of(batch)
        for g in range(len(self.values)):
            some = torch.nonzero(group == g)[:, 0]
            if len(some):
                yield g, inflated(batch.rows(some), f[:, g : g + 1], j[:, g : g + 1])

    def group_of(self, batch: Batch) -> Tensor:
        """The group (n,) of each row.

        Parameters
        ----------
        batch : Batch
            The rows, in the user's units unless they carry their groups.

        Returns
        -------
        torch.Tensor
        """
        if batch.group is not None:
            if batch.n and int(batch.group.max()) >= len(self.values):
                raise ValueError(f"rows are of group {int(batch.group.max())}, and there are {len(self.values)} groups")
            return batch.group
        grouping = self.grouping
        assert grouping is not None
        if grouping.coordinate is None:
            raise ValueError(
                f"errors are inflated by {grouping.name}, and these rows do not have it: give a table that does, or "
                "xd.Batch.from_arrays(..., group=...) with places in mixture.inflation.groups; or inflate their noise "
                "yourself and take with_(inflation=None)"
            )
        return torch.from_numpy(grouping.index(batch.x[grouping.coordinate].cpu().numpy())).to(batch.device)

    def _warn_of_new(self, group: Tensor) -> None:
        """Warn of rows of groups that no row of the fit was of, for which nothing was fitted."""
        new = [g for g in group.unique().tolist() if self.rows and not self.rows[g]]
        if new:
            said = f"rows are of {', '.join(self.groups[g] for g in new)}, and no row of the fit was"
            warnings.warn(f"{said}: their errors are taken as they are quoted", UserWarning, stacklevel=2)

    def _refuse_other(self, batch: Batch) -> None:
        if batch.p != self.p or (batch.projection is not None) != self.projected:
            ours = f"{self.p} projected values" if self.projected else f"{self.p} coordinates"
            raise ValueError(
                f"the mixture has factors on the errors of {ours}, which do not fit rows of {batch.p} "
                f"{'projected ' if batch.projection is not None else ''}values: inflate their noise yourself and take "
                "with_(inflation=None)"
            )


def inflated(batch: Batch, f: Tensor, j: Tensor) -> Batch:
    """A batch whose errors are multiplied by f and have j added in quadrature, (p, 1) or (p, n) each."""
    noise = batch.noise
    if noise is None:
        return batch
    f, j = f.to(noise), j.to(noise)
    if not batch.full:
        return replace(batch, noise=noise * f**2 + j**2)
    a, b = torch.tril_indices(batch.p, batch.p, device=batch.device)
    return replace(batch, noise=noise * f[a] * f[b] + torch.where((a == b)[:, None], j[a] ** 2, 0.0))


def _refuse_misshapen(made: Inflated) -> None:
    """Refuse factors of a file that are not of its groups and coordinates."""
    shape = np.shape(made.values)
    fits = len(shape) == 2 and shape[0] == len(made.groups)
    fits &= made.spread is None or np.shape(made.spread) == shape
    fits &= not made.rows or np.asarray(made.rows, dtype=float).shape == shape[:1]
    for places, size in ((made.of, shape[-1]), (made.additive, shape[0])):
        fits &= all(type(place) is int and 0 <= place < size for place in places)
    if not fits:
        raise ValueError(f"inflation of shape {shape} is not of {len(made.groups)} groups")


def _tuples(values: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(line) for line in np.asarray(values, dtype=float).tolist())


def _told(spread: float) -> str:
    return f" +- {spread:.2g}" if np.isfinite(spread) else ""
