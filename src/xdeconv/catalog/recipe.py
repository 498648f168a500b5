"""Recipe: for each feature, where its value, error and correlations come from. Columns in, values and noise out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..rows.grouping import Grouping
from ..rows.tables import Inexact, exact_floats
from .evaluating import Columns
from .latitudes import cosines
from .transforms import Formula, Plain, Transform

Array = np.ndarray
SINGLE = 1e-6  # what float32 makes of 99.999 is 99.999


@dataclass(frozen=True)
class Deviation:
    """The standard deviation of a noise source: a formula of columns or a number, in the unit of the value."""

    source: Formula | float
    factor: float = 1.0
    latitude: str | None = None  # the column whose cosine an error of longitude is to be divided by
    inflate: Formula | None = None
    note: str = ""
    degrees: float = 1.0  # what turns the latitude into degrees

    @property
    def names(self) -> tuple[str, ...]:
        """The columns it reads."""
        parts = () if isinstance(self.source, float) else self.source.names
        return (*parts, *((self.latitude,) if self.latitude else ()), *(self.inflate.names if self.inflate else ()))

    @property
    def text(self) -> str:
        """Where it comes from, in words."""
        source = f"{self.source:g}" if isinstance(self.source, float) else _shortened(self.source.text)
        return (
            source + (f" ({self.note})" if self.note else "") + (f" times {self.inflate.text}" if self.inflate else "")
        )

    def value(self, columns: Columns) -> Any:
        """The standard deviation in each row, or one for all."""
        if isinstance(self.source, Plain) and self.factor == 1.0 and self.latitude is None and self.inflate is None:
            return as_read(columns[self.source.column], self.source.column)
        sd = self.source if isinstance(self.source, float) else self._read(self.source, columns)
        sd = sd * self.factor if self.factor != 1.0 else sd
        if self.latitude:
            latitude = np.asarray(columns[self.latitude], dtype=float)
            sd = sd / cosines(latitude if self.degrees == 1.0 else latitude * self.degrees)
        return sd if self.inflate is None else sd * self._read(self.inflate, columns)

    def _read(self, formula: Formula, columns: Columns) -> Array:
        return floats(np.asarray(formula.value(columns)), formula.text)


def _shortened(text: str) -> str:
    """A formula for a reader: numbers of many digits with a few."""
    return re.sub(r"\d+\.\d{6,}", lambda number: f"{float(number[0]):.5g}", text)


def floats(values: Array, name: str) -> Array:
    """A column of numbers as float64; text, dates and whole numbers that a float cannot hold are refused by name."""
    if values.dtype.kind in "OUS":
        example = _example([text for text in values.tolist() if text is not None])
        such = "" if example is None else f", such as {str(example)[:40]!r}"
        raise Inexact(f"column {name}", f"is text{such}, and a feature, an error or a weight must be a number")
    return exact_floats(values, f"column {name}")


def _example(texts: list[Any]) -> Any:
    """The first of some texts that is not a number, or the first; None of none."""
    return next((text for text in texts if not _is_number(text)), next(iter(texts), None))


def _is_number(text: Any) -> bool:
    try:
        float(text)
    except (TypeError, ValueError):
        return False
    return True


def as_read(values: Array, name: str) -> Array:
    """A column of numbers as it was read where that is float32, else as :func:`floats` has it."""
    return values if values.dtype == np.float32 and values.dtype.isnative else floats(values, name)


@dataclass(frozen=True)
class Quantity:
    """A raw column: what is subtracted, what missing values get, what stands for one, and its noise.

    The noise is {source: coefficient}.
    """

    column: str
    terms: Mapping[str, float] = field(default_factory=dict)
    offset: Formula | float | None = None
    fill: float | None = None
    missing: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns it reads."""
        return (self.column, *(() if self.offset is None or isinstance(self.offset, float) else self.offset.names))

    def value(self, columns: Columns) -> Array:
        """Its value in each row, float64, NaN where missing."""
        x = floats(columns[self.column], self.column)
        if self.missing is not None:
            x = np.where(np.abs(x - self.missing) <= SINGLE * abs(self.missing), np.nan, x)
        if self.offset is not None:
            x = x - (self.offset if isinstance(self.offset, float) else self.offset.value(columns))
        return x if self.fill is None else np.where(np.isnan(x), self.fill, x)

    def line(self, columns: Columns) -> Array:
        """Its value in each row as it was read, float32 or float64, where nothing is to be done to it."""
        plain = self.offset is None and self.fill is None and self.missing is None
        return as_read(columns[self.column], self.column) if plain else self.value(columns)


@dataclass(frozen=True)
class Recipe:
    """How columns become features and their noise.

    features      labels, in order: raw columns or outputs of transforms
    quantities    the raw columns that features are made of
    deviations    standard deviations of noise sources
    correlations  of pairs of sources: a column's name or a number
    log_prior     columns of log-priors, one per component
    declared      columns and features that were said to have no error
    group         what makes groups of rows, by a column
    """

    features: tuple[str, ...]
    units: tuple[str, ...]
    quantities: Mapping[str, Quantity]
    deviations: Mapping[str, Deviation]
    correlations: Mapping[tuple[str, str], str | float]
    transforms: tuple[Transform, ...] = ()
    weight: str | None = None
    log_prior: tuple[str, ...] = ()
    catalogues: tuple[str, ...] = ()
    declared: frozenset[str] = frozenset()
    group: Grouping | None = None

    @property
    def unexplained(self) -> tuple[str, ...]:
        """Features, or measured columns that these are made of, that have no noise although nobody said so."""
        measured = {name: t.uncertain for t in self.transforms if t.uncertain for name in t.outputs}
        each = [measured.get(name, (name,)) for name in self.features if not self._declared(name)]
        return tuple(dict.fromkeys(name for names in each for name in names if self._is_bare(name)))

    def _is_bare(self, name: str) -> bool:
        """Whether a feature, or a column that one is made of, has no noise that anybody spoke of."""
        return name not in self.declared and not self._sources(name)

    def _declared(self, feature: str) -> bool:
        inputs = self.inputs(feature)
        return feature in self.declared or (bool(inputs) and all(name in self.declared for name in inputs))

    def inputs(self, feature: str) -> tuple[str, ...]:
        """The raw columns that a feature is made of; with a projection, that it is seen in."""
        made = next((t for t in self.transforms if feature in t.outputs), None)
        if made is None:
            return (feature,)
        return made.inputs if made.projected else made.needs(feature)

    @property
    def projection(self) -> Transform | None:
        """The transform whose values are views of its features, if there is one."""
        return next((t for t in self.transforms if t.projected), None)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Every column that must be read."""
        names = [name for quantity in self.quantities.values() for name in quantity.names]
        names += [name for deviation in self.deviations.values() for name in deviation.names]
        names += [column for column in self.correlations.values() if isinstance(column, str)]
        names += [*([self.weight] if self.weight else []), *self.log_prior, *([self.group.name] if self.group else [])]
        return tuple(dict.fromkeys(names))

    @cached_property
    def kind(self) -> str:
        """none, shared (diagonal, one for all rows), diagonal, or full noise."""
        if not self.deviations:
            return "none"
        terms = [self._sources(feature) for feature in self.features]
        shared_sources = any(a & b for i, a in enumerate(terms) for b in terms[:i])
        if self.correlations or shared_sources:
            return "full"
        plain = not self.transforms and all(
            isinstance(d.source, float) and not d.names for d in self.deviations.values()
        )
        return "shared" if plain else "diagonal"

    def _sources(self, feature: str) -> set[str]:
        """The noise sources of a feature."""
        return {source for name in self.inputs(feature) for source in self.quantities[name].terms}

    def evaluate(self, columns: Columns) -> Evaluated:
        """Values, noise sources and slopes of some rows."""
        inputs = {name for transform in self.transforms for name in transform.inputs}
        raw = {name: self.quantities[name].value(columns) for name in inputs}
        values: dict[str, Array] = {}
        slopes: dict[str, Mapping[str, Any]] = {}
        for transform in self.transforms:
            for name, (value, partials) in zip(transform.outputs, transform(raw), strict=True):
                values[name], slopes[name] = np.asarray(value, dtype=float), self._through(partials)
        for name in self.features:
            if name not in values:
                values[name], slopes[name] = self.quantities[name].line(columns), self.quantities[name].terms
        deviations = {name: deviation.value(columns) for name, deviation in self.deviations.items()}
        correlations = {pair: as_read(columns[c], c) if isinstance(c, str) else float(c)
                        for pair, c in self.correlations.items()}  # fmt: skip
        return Evaluated(
            [values[name] for name in self.features], [slopes[name] for name in self.features], deviations, correlations
        )

    def _through(self, partials: Mapping[str, Any]) -> dict[str, Any]:
        """Derivatives with respect to noise sources from those with respect to raw columns."""
        total: dict[str, Any] = {}
        for name, slope in partials.items():
            for source, coefficient in self.quantities[name].terms.items():
                total[source] = total.get(source, 0.0) + coefficient * slope
        return total

    def directions(self, columns: Columns) -> Array | None:
        """What takes the features to the values, (p, p, n), where these are views of them; else None."""
        made = self.projection
        if made is None:
            return None
        raw = {name: self.quantities[name].value(columns) for name in made.inputs}
        n = len(next(iter(raw.values())))
        R = np.broadcast_to(np.eye(len(self.features))[:, :, None], (len(self.features),) * 2 + (n,)).copy()
        at = [self.features.index(name) for name in made.outputs]
        R[np.ix_(at, at)] = made.directions(raw)
        return R


@dataclass(frozen=True)
class Frame:
    """Coordinates (v - shift) / scale, (p,) each."""

    shift: Array
    scale: Array


@dataclass(frozen=True)
class Evaluated:
    """Some rows: features (p of (n,)), the slope of each with respect to noise sources, deviations and correlations.

    Columns that need no arithmetic are as they were read, float32 among them.
    """

    x: Sequence[Array]
    slopes: Sequence[Mapping[str, Any]]
    deviations: Mapping[str, Any]
    correlations: Mapping[tuple[str, str], Any]

    def constants(self) -> Array:
        """Variances (p,) of features whose deviations are numbers."""
        each = [sum((k * self.deviations[s]) ** 2 for s, k in slope.items()) for slope in self.slopes]
        return np.array(each, dtype=float)
