"""Kinds: what a step is compiled for, and how many numbers rows, components and sums have then."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from .lanes import REGISTER_BYTES, VECTOR_BYTES
from .triangles import lower

TILE = 256


def packed(a: int, b: int) -> int:
    """Place of entry (a, b), a >= b, in a packed lower triangle."""
    return a * (a + 1) // 2 + b


@dataclass(frozen=True)
class Kind(ABC):
    """What a kernel is compiled for: dimensions, noise (shared | diagonal | full), projection, missing values, type.

    With ``slopes``, the derivatives by the logarithms of errors are summed too.
    """

    d: int
    p: int
    noise: str
    projected: bool
    missing: bool
    bits: int
    slopes: bool = False

    @property
    @abstractmethod
    def code(self) -> str:
        """The kind as a string, the form in which a compiled function holds it as a constant."""

    @property
    @abstractmethod
    def component_numbers(self) -> int:
        """Numbers of a component, rounded up to whole registers."""

    @property
    @abstractmethod
    def sums(self) -> int:
        """Numbers that are summed for each component: q, g, the packed lower triangle of G, and slopes."""

    @property
    @abstractmethod
    def offset(self) -> int:
        """Place of log alpha in a component."""

    @property
    @abstractmethod
    def tile(self) -> int:
        """Rows of a tile."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Numbers of a row in a group."""

    @property
    @abstractmethod
    def lanes(self) -> int:
        """Numbers that are kept for one sum."""

    @abstractmethod
    def table(
        self, means: np.ndarray, matrix: np.ndarray, offset: np.ndarray, pivots: np.ndarray, dtype: np.dtype
    ) -> np.ndarray:
        """The numbers of components, a line each, in whole groups."""

    @abstractmethod
    def unpacked(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q (k, 1), g (k, d) and packed triangles of G."""

    @abstractmethod
    def slopes_of(self, sums: np.ndarray) -> np.ndarray:
        """Slopes (p,) of all components, of a kind with slopes."""

    @property
    def plain(self) -> Unrolled:
        """The kind of a step that depends on the number type alone."""
        return Unrolled(1, 1, "shared", False, False, self.bits)

    @property
    def width(self) -> int:
        """Rows that are computed side by side."""
        return VECTOR_BYTES * 8 // self.bits

    @property
    def piece(self) -> int:
        """Numbers in one register."""
        return REGISTER_BYTES * 8 // self.bits

    @property
    def noise_numbers(self) -> int:
        return {"shared": 0, "diagonal": self.p, "full": packed(self.p, 0)}[self.noise]

    @property
    def used_numbers(self) -> int:
        return self.p + self.noise_numbers + self.p * self.d * self.projected

    @property
    def row_numbers(self) -> int:
        """Numbers of a row, rounded up to whole registers."""
        return self._whole(self.used_numbers)

    def lines(self, k: int) -> int:
        """Lines of a table of k components, rounded up to whole groups."""
        return -(-k // self.width) * self.width

    def _whole(self, numbers: int) -> int:
        return -(-numbers // self.piece) * self.piece


@dataclass(frozen=True)
class Unrolled(Kind):
    """A kind of data whose dimensions are constants of a compiled step."""

    @property
    def code(self) -> str:
        return f"{self.d} {self.p} {self.noise} {self.projected:d} {self.missing:d} {self.bits} {self.slopes:d}"

    @staticmethod
    def parse(code: str) -> Unrolled:
        """The kind that has a code."""
        d, p, noise, projected, missing, bits, slopes = code.split()
        return Unrolled(int(d), int(p), noise, projected == "1", missing == "1", int(bits), slopes == "1")

    @property
    def component_numbers(self) -> int:
        return self._whole(self.offset + 1)

    @property
    def sums(self) -> int:
        return 1 + self.d + packed(self.d, 0) + self.p * self.slopes

    @property
    def offset(self) -> int:
        return self.d + packed(self.d, 0)

    @property
    def tile(self) -> int:
        return TILE

    @property
    def slots(self) -> int:
        return self.row_numbers

    @property
    def lanes(self) -> int:
        return self.piece

    def table(
        self, means: np.ndarray, matrix: np.ndarray, offset: np.ndarray, pivots: np.ndarray, dtype: np.dtype
    ) -> np.ndarray:
        """The numbers of components, a line each, in whole groups."""
        k, d = means.shape
        a, b = lower(d)
        table = np.zeros((self.lines(k), self.component_numbers), dtype)
        table[:k, : self.offset + 1] = np.concatenate([means, matrix[:, a, b], offset[:, None]], axis=1)
        return table

    def unpacked(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q (k, 1), g (k, d) and packed triangles of G."""
        return sums[:, :1], sums[:, 1 : 1 + self.d], sums[:, 1 + self.d : self.offset + 1]

    def slopes_of(self, sums: np.ndarray) -> np.ndarray:
        """Slopes (p,) of all components."""
        return sums[:, self.offset + 1 :].sum(0)
