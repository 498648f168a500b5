"""Pairs of a few more than ten dimensions by CUDA C (registers.cu): a lane has a row, its triangle is in registers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...rows.batch import Batch, packed_size
from .compiling import TASKS, WARP, Argument, Kernel, kernel, memory_of
from .filled import Components, Rows

LARGEST = {4: 20, 8: 14}  # dimensions that fit in registers, by bytes of a number


@dataclass(frozen=True)
class Registers:
    """All pairs of some rows with noise or gaps of their own and no projection."""

    components: Components
    rows: Rows
    n: int
    d: int

    @classmethod
    def of(cls, log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch) -> Registers:
        """The pairs of components with the rows of a batch."""
        whole = Components.of(log_weights, means, covariances, batch.dtype, side=1)
        return cls(whole, Rows.of(batch, WARP), batch.n, batch.d)

    def log_joint(self) -> Tensor:
        """log alpha N (k, n), up to a constant of each row."""
        k, padded = len(self.components.means), self.rows.x.shape[1]
        out = self.rows.x.new_empty(k, padded)
        self._launch("joint", padded // WARP * k, 0, [self.components.log_weights], [out, k, padded])
        return out[:, : self.n]

    def moments(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """g (k, d) and G (k, d, d), float64, of rows with shares (k, n) of them."""
        (k, n), padded, d = share.shape, self.rows.x.shape[1], self.d
        shares = self.rows.x.new_zeros(k, padded)
        shares[:, :n] = share
        chunk = WARP * max(1, padded // WARP * k // (TASKS * warps_on(share.device)))
        chunks, numbers = -(-padded // chunk), d + packed_size(d)
        out = shares.new_empty(chunks, k, numbers)
        shared = WARP * numbers * shares.element_size()
        self._launch("moments", chunks * k, shared, [shares], [out, k, padded, chunk])
        sums = out.sum(0, dtype=torch.float64)
        a, b = torch.tril_indices(d, d, device=out.device)
        G = sums.new_zeros(k, d, d)
        G[:, a, b] = G[:, b, a] = sums[:, d:]
        return sums[:, :d], G

    @cached_property
    def _covariances(self) -> Tensor:
        """V packed (k, d (d + 1) / 2)."""
        a, b = torch.tril_indices(self.d, self.d, device=self.rows.x.device)
        return self.components.covariances[:, a, b].contiguous()

    def _launch(self, name: str, tasks: int, shared: int, first: list[Argument], last: list[Argument]) -> None:
        """Run a kernel over tasks; between the first and the last arguments it reads components and rows."""
        blocks = max(1, min(tasks, TASKS * warps_on(self.rows.x.device)))
        arguments = [*first, self.components.means, self._covariances, *self.rows.read(), *last]
        kernel_for(name, self.d, self.rows)(blocks, shared, arguments)


def fits(batch: Batch) -> bool:
    """Whether triangles of the rows of a batch fit in registers."""
    return batch.d <= LARGEST[batch.x.element_size()]


def warps_on(device: torch.device) -> int:
    """Warps that run at a time: two for each scheduler, as registers allow."""
    return 8 * memory_of(device).processors


def kernel_for(name: str, d: int, rows: Rows) -> Kernel:
    """A kernel of registers.cu for rows of a kind."""
    return kernel("registers.cu", name, (*rows.constants(), ("DIM", str(d))), rows.x.device)
