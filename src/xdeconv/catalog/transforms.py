"""Transforms: features made of raw columns, with the derivatives that carry their noise; hooks for formulas."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .evaluating import Columns
from .expressions import Expression

Array = np.ndarray
_one_at_a_time = threading.RLock()  # what users write need not be ready for several threads


@dataclass(frozen=True)
class Hook:
    """A user's function of columns, called with them by name: function(phot_g_mean_mag=..., ...) -> (n,)."""

    function: Callable[..., Any]
    columns: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.columns

    @property
    def text(self) -> str:
        return f"{getattr(self.function, '__name__', 'function')}({', '.join(self.columns)})"

    def value(self, columns: Columns) -> Any:
        """Its value in each row."""
        with _one_at_a_time:
            return self.function(**{name: columns[name] for name in self.columns})


@dataclass(frozen=True)
class Plain:
    """A column as it is, whatever characters its name has."""

    column: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def text(self) -> str:
        return self.column

    def value(self, columns: Columns) -> Any:
        """Its value in each row."""
        return columns[self.column]


Formula = Expression | Hook | Plain


class Transform(ABC):
    """Features made of raw columns, with their derivatives."""

    inputs: tuple[str, ...]  # raw columns
    outputs: tuple[str, ...]  # features
    units: tuple[str, ...]  # of the features, "" where unknown
    exact: tuple[str, ...] = ()  # inputs whose errors do not matter
    uncertain: tuple[str, ...] = ()  # inputs that are measured: it is a mistake if one of them has no error
    projected = False  # whether the values are views of the features, along :meth:`directions`
    views: tuple[str, ...] = ()  # names of the values where they are views

    @abstractmethod
    def __call__(self, columns: Columns) -> list[tuple[Array, Mapping[str, Any]]]:
        """Of each feature, its value (n,) and its derivative (n,) with respect to the inputs that it depends on."""

    def wants(self, name: str) -> str:
        """The unit that an input must be in; "" where any will do."""
        return ""

    def needs(self, output: str) -> tuple[str, ...]:
        """The inputs that one output depends on."""
        return self.inputs

    def with_noise_at(self, value: float) -> Transform | None:
        """The same with the slopes that outputs would have at one value; None where they depend on more than it."""
        return None

    def directions(self, columns: Columns) -> Array:
        """What takes the features to the values: (values, features, n)."""
        raise NotImplementedError(f"{type(self).__name__} is not a projection")


@dataclass(frozen=True)
class Formulated(Transform):
    """One feature by an expression; derivatives are exact. Inputs that are ``angles`` must be in degrees."""

    name: str
    expression: Expression
    unit: str = ""
    angles: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.expression.names

    @property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.name,)

    @property
    def units(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.unit,)

    def wants(self, name: str) -> str:
        return "deg" if name in self.angles else ""

    def __call__(self, columns: Columns) -> list[tuple[Array, Mapping[str, Any]]]:
        return [self.expression.partials(columns)]


@dataclass(frozen=True)
class Joined(Transform):
    """Features that are made by one word, of which some may be wanted and others not."""

    parts: tuple[Transform, ...]

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys(name for part in self.parts for name in part.inputs))

    @property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(name for part in self.parts for name in part.outputs)

    @property
    def units(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(unit for part in self.parts for unit in part.units)

    def wants(self, name: str) -> str:
        """The unit that an input must be in."""
        return next((unit for part in self.parts if (unit := part.wants(name))), "")

    def needs(self, output: str) -> tuple[str, ...]:
        """The inputs that one output depends on."""
        return next(part.needs(output) for part in self.parts if output in part.outputs)

    def __call__(self, columns: Columns) -> list[tuple[Array, Mapping[str, Any]]]:
        return [made for part in self.parts for made in part(columns)]


@dataclass(frozen=True)
class Converted(Transform):
    """A transform of columns that are first brought to the units that it wants, each by a factor."""

    made: Transform
    factors: tuple[tuple[str, float], ...]

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.made.inputs

    @property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.made.outputs

    @property
    def units(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.made.units

    @property
    def exact(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.made.exact

    @property
    def uncertain(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.made.uncertain

    @property
    def projected(self) -> bool:  # type: ignore[override]
        return self.made.projected

    @property
    def views(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.made.views

    def needs(self, output: str) -> tuple[str, ...]:
        return self.made.needs(output)

    def with_noise_at(self, value: float) -> Transform | None:
        made = self.made.with_noise_at(value)
        return None if made is None else Converted(made, self.factors)

    def directions(self, columns: Columns) -> Array:
        return self.made.directions(self._brought(columns))

    def __call__(self, columns: Columns) -> list[tuple[Array, Mapping[str, Any]]]:
        factors = dict(self.factors)
        return [
            (value, {name: slope * factors.get(name, 1.0) for name, slope in slopes.items()})
            for value, slopes in self.made(self._brought(columns))
        ]

    def _brought(self, columns: Columns) -> dict[str, Array]:
        return {**columns, **{name: columns[name] * factor for name, factor in self.factors}}


@dataclass(frozen=True)
class Differenced(Transform):
    """Features by a function of the input columns that returns one array a feature; derivatives by differences."""

    function: Callable[..., Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    units: tuple[str, ...]

    def __call__(self, columns: Columns) -> list[tuple[Array, Mapping[str, Any]]]:
        point = [np.asarray(columns[name], dtype=float) for name in self.inputs]
        slopes: list[dict[str, Array]] = [{} for _ in self.outputs]
        for i, name in enumerate(self.inputs):
            step = 6e-6 * np.maximum(np.abs(np.nan_to_num(point[i])), 1.0)
            above, below = (self._at([*point[:i], point[i] + s, *point[i + 1 :]]) for s in (step, -step))
            for slope, high, low in zip(slopes, above, below, strict=True):
                slope[name] = (high - low) / (2 * step)
        return list(zip(self._at(point), slopes, strict=True))

    def _at(self, point: Sequence[Array]) -> list[Array]:
        with np.errstate(all="ignore"), _one_at_a_time:
            values = self.function(*point)
        return [np.asarray(values)] if len(self.outputs) == 1 else [np.asarray(part) for part in values]
