"""Where the numbers of rows, components and sums lie when dimensions are a run-time number.

A dimension is filled up *in front* to whole blocks of ``BLOCK``; what is in front is the identity, and products of
panels leave it out. Triangles (S, V, L, G) lie in panels: for each block of lines a, for each column b up to the end of
the diagonal block, BLOCK numbers (a, b). A product of two panels reads both from front to end.

    row        x | S in panels, variances, or nothing | R in panels
    component  m | V or L^-1 in panels (with a projection V as full panels) | log alpha (- log |L|)
               | half the log pivots of V: the sum of those after the leading ones, then each
    sums       q | g | G in panels | slopes, where they are asked for
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from llvmlite import binding
from numba import config

from .kinds import Kind
from .lanes import REGISTER_BYTES, VECTOR_BYTES


def _wide() -> bool:
    """Whether Numba compiles for 32 registers of 64 bytes."""
    features: str | None = config.CPU_FEATURES  # type: ignore[attr-defined]
    return "+avx512f" in (binding.get_host_cpu_features().flatten() if features is None else features).split(",")


WIDE = _wide()
BLOCK = 4 if WIDE else 3  # a block's products and what they need fit in 32 or 16 registers
PART_BYTES = VECTOR_BYTES if WIDE else REGISTER_BYTES  # of a group of rows, in one register
UNROLLED = 15 if WIDE else 11  # beyond, a pair's numbers do not fit in the registers
UNROLLED_SHARED = 16
TILE_BYTES = 1 << 20  # a tile of rows, in the second cache
FEWEST, MOST = 64, 256  # rows of a tile


def unrolled(noise: str) -> int:
    """Dimensions up to which steps compiled for one dimension are faster, as measured."""
    return UNROLLED_SHARED if noise == "shared" else UNROLLED


def blocks(size: int) -> int:
    return -(-size // BLOCK)


def triangle(blocks: int) -> int:
    """Numbers of a triangle in panels."""
    return blocks * (blocks + 1) // 2 * BLOCK * BLOCK


@dataclass(frozen=True)
class Blocked(Kind):
    """A kind of data whose dimensions a compiled step is told when it is called."""

    @property
    def code(self) -> str:
        return f"{self.noise} {self.projected:d} {self.missing:d} {self.bits} {BLOCK} {PART_BYTES} {self.slopes:d}"

    @staticmethod
    def parse(code: str) -> Blocked:
        noise, projected, missing, bits, *_, slopes = code.split()
        return Blocked(1, 1, noise, projected == "1", missing == "1", int(bits), slopes == "1")

    @property
    def latent(self) -> int:
        """Latent dimensions, filled up."""
        return blocks(self.d) * BLOCK

    @property
    def seen(self) -> int:
        """Observed dimensions, filled up."""
        return blocks(self.p) * BLOCK

    @property
    def part(self) -> int:
        """Rows that share a register."""
        return PART_BYTES * 8 // self.bits

    @property
    def tile(self) -> int:
        """Rows of a tile: whole groups."""
        fit = TILE_BYTES // (self.slots * self.bits // 8)
        return min(max(fit // 16 * 16, FEWEST), MOST)

    @property
    def noise_slots(self) -> int:
        return {"shared": 0, "diagonal": self.seen, "full": triangle(blocks(self.p))}[self.noise]

    @property
    def slots(self) -> int:
        """Numbers of a row in a group, with one at the end for what nobody reads."""
        return self.seen + self.noise_slots + self.seen * self.latent * self.projected + 1

    @property
    def matrix_numbers(self) -> int:
        """Numbers of a component's V or L^-1."""
        return self.latent**2 if self.projected else triangle(blocks(self.d))

    @property
    def offset(self) -> int:
        return self.latent + self.matrix_numbers

    @property
    def component_numbers(self) -> int:
        return self._whole(self.offset + 2 + self.latent)

    @property
    def sums(self) -> int:
        used = self._before_slopes + self.seen * self.slopes
        return -(-used // self.width) * self.width

    @property
    def _before_slopes(self) -> int:
        return 1 + self.latent + triangle(blocks(self.d))

    @property
    def leading(self) -> int:
        """Blocks of coordinates that bound a pair: an eighth of its work."""
        return -(-blocks(self.d) // 2)

    @property
    def lanes(self) -> int:
        """Numbers that are kept for one sum."""
        return 1

    @property
    def room(self) -> int:
        """Numbers of memory that a step works with."""
        return sum(self.rooms) * self.width

    @property
    def rooms(self) -> tuple[int, ...]:
        """Registers for z, seen and w; L; the columns of L^-1 R; R V and sums; a component of each row."""
        n, m = self.latent, self.seen
        columns = max(n * m if self.projected else triangle(blocks(self.d)), n * self.tile // self.width)
        totals = self.sums + n * m * self.projected
        return 3 * max(n, m), triangle(blocks(max(self.d, self.p))), columns, totals, self.component_numbers

    @cached_property
    def destinations(self) -> np.ndarray:
        """The slot of every number of a row as it lies in a table, the last one for those that only fill it up."""
        p, pad = self.p, self.seen - self.p
        parts = [pad + np.arange(p)]
        if self.noise == "diagonal":
            parts.append(self.seen + parts[0])
        if self.noise == "full":
            parts.append(self.seen + panel_places(p))
        if self.projected:
            a, e = np.divmod(np.arange(p * self.d), self.d)
            start = self.seen + self.noise_slots
            parts.append(start + full_place(a + pad, e + self.latent - self.d, self.latent))
        slots = np.full(self.row_numbers, self.slots - 1, np.int32)
        places = np.concatenate(parts)
        slots[: len(places)] = places
        return slots

    def table(
        self, means: np.ndarray, matrix: np.ndarray, offset: np.ndarray, pivots: np.ndarray, dtype: np.dtype
    ) -> np.ndarray:
        """The numbers of components, a line each, in whole groups."""
        k, d = means.shape
        pad = self.latent - d
        table = np.zeros((self.lines(k), self.component_numbers), dtype)
        table[:k, pad : self.latent] = means
        square = np.zeros((k, self.latent, self.latent), dtype)
        square[:] = np.eye(self.latent)
        square[:, pad:, pad:] = matrix
        places = full_places(self.latent) if self.projected else square_places(self.latent)
        table[:k, self.latent : self.offset] = square.reshape(k, -1)[:, places]
        table[:k, self.offset] = offset
        table[:k, self.offset + 1] = pivots[:, max(self.leading * BLOCK - pad, 0) :].sum(1)
        table[:k, self.offset + 2 + pad : self.offset + 2 + self.latent] = pivots
        return table

    def unpacked(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q (k, 1), g (k, d) and packed triangles of G."""
        first = 1 + self.latent
        G = sums[:, first : first + triangle(blocks(self.d))][:, panel_places(self.d)]
        return sums[:, :1], sums[:, first - self.d : first], G

    def slopes_of(self, sums: np.ndarray) -> np.ndarray:
        """Slopes (p,) of all components."""
        end = self._before_slopes + self.seen
        return sums[:, end - self.p : end].sum(0)


def panel_place(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where entry (a, b) of a filled-up triangle lies."""
    i, r = np.divmod(a, BLOCK)
    return i * (i + 1) // 2 * BLOCK * BLOCK + b * BLOCK + r


def full_place(a: np.ndarray, b: np.ndarray, columns: int) -> np.ndarray:
    """Where entry (a, b) of a filled-up matrix lies."""
    i, r = np.divmod(a, BLOCK)
    return (i * columns + b) * BLOCK + r


def panel_places(d: int) -> np.ndarray:
    """Where the entries of a packed lower triangle lie."""
    a, b = np.tril_indices(d)
    pad = blocks(d) * BLOCK - d
    return panel_place(a + pad, b + pad)


def square_places(size: int) -> np.ndarray:
    """For each number of a triangle in panels, its place in a (size, size) matrix."""
    places = np.zeros(triangle(blocks(size)), np.int64)
    a, b = np.indices((size, size)).reshape(2, -1)
    inside = b < (a // BLOCK + 1) * BLOCK
    places[panel_place(a, b)[inside]] = (a * size + b)[inside]
    return places


def full_places(size: int) -> np.ndarray:
    """For each number of a matrix in full panels, its place in a (size, size) matrix."""
    places = np.zeros(size * size, np.int64)
    a, b = np.indices((size, size)).reshape(2, -1)
    places[full_place(a, b, size)] = a * size + b
    return places
