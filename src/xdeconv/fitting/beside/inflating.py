"""Fitted factors on errors: what a user asked for, resolved for the rows of a fit, and their sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import kernels
from ...catalog.stream import CatalogSource
from ...kernels.options import Options
from ...kernels.parameters import Parameters
from ...kernels.stats import Stats
from ...mixture.coordinates import indices, names_or_numbers
from ...mixture.inflated import FIRST_JITTER, Inflated
from ...mixture.inflation import Inflation
from ...rows import checks
from ...rows import tables as tabular
from ...rows.batch import Batch
from ...rows.completing import Completing
from ...rows.data import ArraySource, Source
from ...rows.grouping import Grouping, by_values

JUDGED_ROWS = 1 << 14  # of a stream, that say which coordinates have errors that differ
ALIKE = 1e-6  # of an error, relative


def inflated_sums(
    batch: Batch, parameters: Parameters, options: Options, inflation: Inflated
) -> tuple[Stats, Tensor, Tensor]:
    """The sums over rows whose errors are inflated, and slopes and certainty (m,) of the logarithms of factors."""
    numbers = torch.zeros(2, len(inflation.values), len(inflation.of), dtype=torch.float64, device=batch.device)
    sums = []
    for g, part in inflation.parts(batch):
        stats = kernels.accumulate_slopes(*parameters, part, options)
        seen = (~part.x.isnan()).double()
        observed = seen.sum(1) if part.weight is None else seen @ part.weight.double()
        numbers[0, g], numbers[1, g] = inflation.derivatives(g, stats, observed)
        sums.append(stats.without_numbers())
    return reduce(add, sums), numbers[0].flatten(), numbers[1].flatten()


# What a user asked for


def paired(inflation: Any, data: Any) -> Any:
    """What is asked for, with groups of pandas in the order of the rows of a table of pandas."""
    if not isinstance(inflation, Inflation):
        return inflation
    return replace(inflation, by=tabular.aligned(inflation.by, data, "by"))


def grouped_data(data: Any, inflation: Any, given: Any) -> tuple[Any, Any]:
    """The data, with groups by a column of a catalogue that is not one of its coordinates, and what is asked."""
    if inflation is not None and not isinstance(inflation, Inflation):
        raise ValueError(f"inflation must be an xd.Inflation(...), got {inflation!r}")
    if not isinstance(data, CatalogSource):
        return data, inflation
    if inflation is None:
        carried = given.inflation.grouping if given is not None and given.inflation is not None else None
        known = carried is not None and carried.name in data.table.columns
        return data.grouped(carried) if known and carried is not None else data, None
    if not isinstance(inflation.by, str) or inflation.by in data.labels:
        return data, inflation
    edges = inflation.bins
    by = by_values(inflation.by, list(data.values_of(inflation.by))) if edges is None else None
    grouping = by or Grouping(inflation.by, tuple(edges or ()))
    return data.grouped(grouping), replace(inflation, by=grouping, bins=None)


@dataclass(frozen=True)
class GroupedSource(Completing):
    """A stream whose batches get their groups by one of their coordinates as they come."""

    grouping: Grouping

    def stamp(self) -> dict[str, Any]:
        """That of the rows, and what makes groups."""
        return {**self.source.stamp(), "group": self.grouping.as_json()}

    def completed(self, batch: Batch) -> Batch:
        """A batch with its groups."""
        assert self.grouping.coordinate is not None
        index = self.grouping.index(batch.x[self.grouping.coordinate].double().cpu().numpy())
        return replace(batch, group=torch.from_numpy(index).to(batch.device))


def grouped(source: Source, grouping: Grouping) -> Source:
    """Rows with groups by one of their coordinates."""
    return GroupedSource(source, grouping).over(source)


def with_groups_of(source: Source, inflation: Inflated | None) -> Source:
    """Rows with their groups, where one of their coordinates makes them."""
    by = None if inflation is None else inflation.grouping
    return source if by is None or by.coordinate is None else grouped(source, by)


def choose_inflation(
    inflation: Inflation | None, source: Source, labels: Sequence[str] | None, given: Any
) -> tuple[Source, Inflated | None]:
    """The rows with their groups, and the factors to begin with; or those of the mixture that a fit starts from."""
    if inflation is None:
        carried = None if given is None else given.inflation
        return with_groups_of(source, carried), carried
    source, grouping = _groups(inflation, source, labels)
    rows = source.batch if isinstance(source, ArraySource) else source.sample(JUDGED_ROWS, 0)
    of = tuple(range(rows.p) if inflation.of is None else indices(list(inflation.of), _names(rows, labels), rows.p))
    additive = _jittered(inflation, grouping)
    begun = Inflated(((1.0,) * rows.p,) * (1 if grouping is None else len(grouping.names)), of, additive, grouping,
                     projected=rows.projection is not None)  # fmt: skip
    names = names_or_numbers(_names(rows, labels), rows.p)
    _refuse_rows(rows, begun, names, isinstance(source, ArraySource))
    if additive:
        error = rows.variances().double().mean(1).sqrt().numpy()
        values = [[FIRST_JITTER * e if g in additive and a in of else 1.0 for a, e in enumerate(error)]
                  for g in range(len(begun.values))]  # fmt: skip
        begun = replace(begun, values=tuple(map(tuple, values)))
    return source, begun


def held_out_grouped(held_out: Source | None, inflation: Inflated | None) -> Source | None:
    """Rows held out with their groups."""
    if held_out is None or inflation is None or inflation.grouping is None:
        return held_out
    first = held_out.sample(1, 0)
    if first.group is not None:
        return held_out
    if inflation.grouping.coordinate is None:
        raise ValueError(f"errors are inflated by {inflation.grouping.name}, which the rows of validation do not have: "
                         "give a fraction to hold out, or xd.Batch.from_arrays(..., group=...)")  # fmt: skip
    return grouped(held_out, inflation.grouping)


def _names(rows: Batch, labels: Sequence[str] | None) -> tuple[str, ...] | None:
    return tuple(labels) if labels is not None and rows.projection is None else None


def _groups(inflation: Inflation, source: Source, labels: Sequence[str] | None) -> tuple[Source, Grouping | None]:
    """The rows with their groups, and what makes these: a grouping, a coordinate, or a value per row."""
    by = inflation.by
    if isinstance(by, Grouping):
        return source if source.sample(1, 0).group is not None else grouped(source, by), by
    if isinstance(by, str):
        grouping = _of_coordinate(by, inflation.bins, source, labels)
        return grouped(source, grouping), grouping
    if by is not None:
        return _of_values(np.asarray(by), inflation.bins, source)
    if isinstance(source, ArraySource) and source.batch.group is not None:
        return source, Grouping("group", values=tuple(range(int(source.batch.group.max()) + 1)))
    return source, None


def _of_coordinate(name: str, bins: Sequence[float] | None, source: Source, labels: Sequence[str] | None) -> Grouping:
    """Groups by one of the coordinates of rows: bins of it, or its values."""
    if labels is None or name not in labels:
        known = f"one of the coordinates {list(labels)}" if labels else "a coordinate: they have no labels"
        raise ValueError(f"Inflation(by={name!r}) is not {known}; for another column, open the table with "
                         "xd.open(table, columns) or columns=")  # fmt: skip
    place = list(labels).index(name)
    if bins is not None:
        return Grouping(name, tuple(bins), coordinate=place)
    if not isinstance(source, ArraySource):
        raise ValueError(f"Inflation(by={name!r}) of a stream needs bins=")
    return by_values(name, source.batch.x[place].numpy(), place)


def _of_values(values: np.ndarray, bins: Sequence[float] | None, source: Source) -> tuple[Source, Grouping]:
    """Rows in memory in groups by a value that is given for each."""
    if not isinstance(source, ArraySource):
        raise ValueError("Inflation(by=...) of a stream must be the name of a column")
    if values.shape != (source.rows,):
        raise ValueError(f"Inflation(by=...) must have one value per row ({source.rows}), got shape {values.shape}")
    grouping = Grouping("by", tuple(bins)) if bins is not None else by_values("by", values)
    group = checks.group(grouping.index(values), source.rows)
    return replace(source, batch=replace(source.batch, group=group)), grouping


def _jittered(inflation: Inflation, grouping: Grouping | None) -> tuple[int, ...]:
    """The groups that have jitters."""
    if not inflation.jitter or grouping is None:
        return ()
    known: Sequence[Any] = grouping.values if not grouping.edges else range(len(grouping.names))
    places = {value: [g for g, own in enumerate(known) if _means(value, own)] for value in inflation.jitter}
    unknown = [value for value, named in places.items() if not named]
    if unknown:
        raise ValueError(f"Inflation(jitter={unknown}) names no group: they are {list(known)}")
    groups = tuple(sorted({named[0] for named in places.values()}))
    if len(groups) == len(known):
        raise ValueError("all groups have a jitter, which widens components alike: no row can tell the two apart "
                         "unless one group has none")  # fmt: skip
    return groups


def _means(said: Any, value: Any) -> bool:
    """Whether a user means a value of a column, or a number of a bin: on a command line all is words."""
    if said == value or not isinstance(said, str):
        return bool(said == value)
    try:
        return float(said) == value and not isinstance(value, bool)
    except ValueError:
        return said == str(value)


def _refuse_rows(rows: Batch, begun: Inflated, names: Sequence[str], whole: bool) -> None:
    """Refuse factors that rows, the ``whole`` of them or some, cannot tell: of no errors, or of ones all alike."""
    if begun.projected and rows.p > rows.d:
        raise ValueError("inflation of rows with more values than coordinates is not known: their noise is turned")
    if begun.projected and begun.additive:
        raise ValueError("a jitter of projected rows is not known: give factors alone")
    if begun.projected and begun.grouping is not None and begun.grouping.coordinate is not None:
        raise ValueError("projected rows have no coordinates of their own to go by: give by= as an array")
    variances, seen = rows.variances().double().expand(-1, rows.n), ~rows.x.isnan()
    group = torch.zeros(rows.n, dtype=torch.int64) if len(begun.values) == 1 else begun.group_of(rows)
    empty = [g for g in begun.additive if whole and not bool((group == g).any())]
    if empty:
        raise ValueError(f"a jitter is asked for of {begun.groups[empty[0]]}, and no row is of it")
    for a in begun.of:
        if not bool(((variances[a] > 0) & seen[a]).any()):
            raise ValueError(f"{names[a]} has no errors, and nothing to inflate: give them, or Inflation(of=[...]) "
                             "without it")  # fmt: skip
        plain = [g for g in range(len(begun.values)) if g not in begun.additive]
        if not any(_differ(variances[a][seen[a] & (group == g)]) for g in plain):
            if len(plain) > 1 and _differ(variances[a][seen[a]]):
                raise ValueError(f"the errors of {names[a]} are alike within each of the {len(begun.values)} groups, "
                                 "whose factors no row can tell: make fewer by bins=, or leave it out by "
                                 "Inflation(of=[...])")  # fmt: skip
            raise ValueError(f"the errors of {names[a]} are all alike: a factor on them and the widths of components "
                             "widen rows alike, and no row can tell the two apart; leave it out by Inflation(of=[...])"
                             ", or give errors of each row")  # fmt: skip


def _differ(variances: Tensor) -> bool:
    return len(variances) > 1 and float(variances.max()) > (1 + ALIKE) * float(variances.min())
