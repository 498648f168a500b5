"""Pairs of many dimensions by CUDA C (lines.cu): a lane has a line of a pair's matrix, or several, in registers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...rows.batch import Batch, packed_size
from .compiling import TASKS, WARP, Argument, Kernel, kernel, memory_of
from .filled import SIDE, Components, Rows, up


@dataclass(frozen=True)
class Form:
    """Lanes of a pair, lines of a lane, and whether sums are kept in registers."""

    lanes: int
    lines: int
    kept: bool

    @property
    def threads(self) -> int:
        """Of a block."""
        return max(WARP, self.lanes)

    @property
    def pairs(self) -> int:
        """Pairs that a block computes at a time."""
        return self.threads // self.lanes

    def shared(self, dim: int, size: int) -> int:
        """Bytes of shared memory of a block, as lines.cu counts them; ``size`` is that of a number."""
        kept = 0 if self.kept else dim * self.lanes * self.lines
        return (up(packed_size(dim)) + 2 * (dim + SIDE) + 2 * dim + kept) * self.pairs * size


FORMS = {  # by bytes of a number: up to so many dimensions
    4: {24: None, 32: Form(16, 2, False), 48: Form(16, 3, False), 64: Form(64, 1, True)},
    8: {24: None, 32: Form(16, 2, False), 64: Form(64, 1, False)},
}


@dataclass(frozen=True)
class Lines:
    """All pairs of some rows with noise or gaps of their own and no projection."""

    form: Form
    components: Components
    rows: Rows
    n: int
    d: int

    @classmethod
    def of(cls, log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, form: Form) -> Lines:
        """The pairs of components with the rows of a batch."""
        whole = Components.of(log_weights, means, covariances, batch.dtype)
        return cls(form, whole, Rows.of(batch, form.pairs).one_after_another(), batch.n, batch.d)

    @property
    def dim(self) -> int:
        """Dimensions, filled up."""
        return self.rows.x.shape[1]

    def log_joint(self) -> Tensor:
        """log alpha N (k, n), up to a constant of each row."""
        k, padded = len(self.components.means), len(self.rows.x)
        out = self.rows.x.new_empty(k, padded)
        self._launch("joint", padded // self.form.pairs * k, [self.components.log_weights], [out, k, padded])
        return out[:, : self.n]

    def moments(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """g (k, d) and G (k, d, d), float64, of rows with shares (k, n) of them."""
        (k, n), padded, pairs = share.shape, len(self.rows.x), self.form.pairs
        shares = self.rows.x.new_zeros(k, padded)
        shares[:, :n] = share
        chunk = pairs * max(1, padded // pairs * k // (TASKS * self._blocks))
        out = shares.new_empty(-(-padded // chunk), pairs, k, self.dim, self.dim + SIDE)
        self._launch("moments", len(out) * k, [shares], [out, k, padded, chunk])
        sums = out.sum((0, 1), dtype=torch.float64)
        G = sums[:, : self.d, : self.d]
        return sums[:, : self.d, self.dim], (G + G.mT) / 2

    @cached_property
    def _covariances(self) -> Tensor:
        """V packed (k, size), filled up to whole blocks."""
        a, b = torch.tril_indices(self.dim, self.dim, device=self.rows.x.device)
        packed = self.components.covariances[:, a, b]
        return torch.nn.functional.pad(packed, (0, up(packed.shape[1]) - packed.shape[1])).contiguous()

    @property
    def _blocks(self) -> int:
        """Blocks that run at a time, as far as shared memory allows."""
        memory = memory_of(self.rows.x.device)
        return max(1, memory.warps(self.form.shared(self.dim, self.rows.x.element_size()))) * memory.processors

    def _launch(self, name: str, tasks: int, first: list[Argument], last: list[Argument]) -> None:
        """Run a kernel over tasks; between the first and the last arguments it reads components and rows."""
        arguments = [*first, self.components.means, self._covariances, *self.rows.read(), *last]
        shared = self.form.shared(self.dim, self.rows.x.element_size())
        kernel_for(name, self.dim, self.form, self.rows)(max(1, min(tasks, TASKS * self._blocks)), shared, arguments)


def kernel_for(name: str, dim: int, form: Form, rows: Rows) -> Kernel:
    """A kernel of lines.cu for rows of a kind."""
    sizes = {"DIM": dim, "LANES": form.lanes, "LINES": form.lines, "THREADS": form.threads, "KEPT": int(form.kept)}
    constants = (*rows.constants(), *((word, str(value)) for word, value in sizes.items()))
    return kernel("lines.cu", name, constants, rows.x.device, form.threads)


def form_for(batch: Batch) -> Form | None:
    """The form that is fastest, where lines are faster than tiles: as measured on an H200."""
    forms = FORMS[batch.x.element_size()]
    return next((form for most, form in forms.items() if batch.d <= most), None)
