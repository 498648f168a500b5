"""Transforms: features made of raw columns, with the derivatives that carry their noise; hooks for formulas."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .expressions import Columns, Expression

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


Formula = Expression | Hook


class Transform(Protocol):
    """Features made of raw columns, with their derivatives."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Raw columns."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Features."""

    @property
    def units(self) -> tuple[str, ...]:
        """Units of the features, "" where unknown."""

    def __call__(self, columns: Columns) -> list[tuple[Array, Mapping[str, Any]]]:
        """Of each feature, its value (n,) and its derivative (n,) with respect to the inputs that it depends on."""


@dataclass(frozen=True)
class Formulated:
    """One feature by an expression; derivatives are exact."""

    name: str
    expression: Expression
    unit: str = ""

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.expression.names

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def units(self) -> tuple[str, ...]:
        return (self.unit,)

    def __call__(self, columns: Columns) -> list[tuple[Array, Mapping[str, Any]]]:
        return [self.expression.partials(columns)]


@dataclass(frozen=True)
class Differenced:
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
            found = self.function(*point)
        return [np.asarray(found)] if len(self.outputs) == 1 else [np.asarray(part) for part in found]
