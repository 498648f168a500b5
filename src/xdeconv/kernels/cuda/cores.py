"""Pairs of many dimensions by CUDA C (cores.cu): a warp has pairs in blocks of 8 x 8, which tensor cores multiply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ...rows.batch import Batch
from .compiling import TASKS, WARP, Argument, Kernel, capability_of, kernel, memory_of
from .filled import Components, Rows

BLOCK = 8  # lines of a block, which is what a tensor core multiplies
LARGEST = 64  # dimensions whose blocks fit in registers
DOUBLE = 8  # bytes of a number in shared memory
QUICK = ((8, 0), (9, 0))  # devices whose tensor cores multiply doubles as fast as others multiply single precision


@dataclass(frozen=True)
class Form:
    """Pairs of a warp, whether sums are kept in registers, products of 16 x 8, and warps of a block."""

    pairs: int
    kept: bool
    wide: bool = False
    warps: int = 4

    def shared(self, blocks: int, moments: bool) -> int:
        """Bytes of shared memory of a block of warps, as cores.cu counts them, for so many blocks of a line."""
        desk = BLOCK * 10 + 2 + 5 * BLOCK * blocks
        kept = BLOCK**2 * tiles_of(blocks) if moments and not self.kept else 0
        return (desk * self.pairs + kept) * DOUBLE * self.warps


WIDE = (9, 0)  # devices that multiply 16 x 8 at once
# by bytes of a number, up to so many dimensions: as measured on an H200 (40: between 32 and 64)
FORMS: dict[int, dict[int, Form | None]] = {
    4: {28: None, 32: Form(4, True), 40: Form(1, True), 64: Form(1, False, warps=1)},
    8: {32: Form(4, True), 40: Form(1, True), 64: Form(1, False, warps=1)},
}


@dataclass(frozen=True)
class Cores:
    """All pairs of some rows with noise or gaps of their own and no projection."""

    form: Form
    components: Components
    rows: Rows
    n: int
    d: int

    @classmethod
    def of(cls, log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, form: Form) -> Cores:
        """The pairs of components with the rows of a batch."""
        whole = Components.of(log_weights, means, covariances, batch.dtype, BLOCK)
        return cls(form, whole, _in_blocks(Rows.of(batch, form.pairs, BLOCK)), batch.n, batch.d)

    @property
    def blocks(self) -> int:
        """Blocks of a line."""
        return self.rows.x.shape[1] // BLOCK

    def log_joint(self) -> Tensor:
        """log alpha N (k, n), up to a constant of each row."""
        k, padded = len(self.components.means), len(self.rows.x)
        out = self.rows.x.new_empty(k, padded)
        self._launch("joint", padded // self.form.pairs * k, [self.components.log_weights], [out, k, padded])
        return out[:, : self.n]

    def moments(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """g (k, d) and G (k, d, d), float64, of rows with shares (k, n) of them."""
        (k, n), padded, tiles, pairs = share.shape, len(self.rows.x), tiles_of(self.blocks), self.form.pairs
        shares = self.rows.x.new_zeros(k, padded)
        shares[:, :n] = share
        chunk = pairs * max(1, padded // pairs * k // (TASKS * warps_on(share.device)))
        out = shares.new_empty(-(-padded // chunk), k, BLOCK**2 * tiles + BLOCK * self.blocks, dtype=torch.float64)
        self._launch("moments", len(out) * k, [shares], [out, k, padded, chunk])
        sums = out.sum(0)
        return sums[:, BLOCK**2 * tiles :][:, : self.d], self._whole(sums[:, : BLOCK**2 * tiles])

    def _whole(self, sums: Tensor) -> Tensor:
        """Symmetric matrices (k, d, d) of blocks on and below their diagonals."""
        k, blocks = len(sums), self.blocks
        I, J = torch.tril_indices(blocks, blocks, device=sums.device)
        G = sums.new_zeros(k, blocks, blocks, BLOCK, BLOCK)
        G[:, I, J] = sums.view(k, -1, BLOCK, BLOCK)
        G = G.transpose(2, 3).reshape(k, BLOCK * blocks, BLOCK * blocks)[:, : self.d, : self.d].tril()
        return G + G.tril(-1).mT

    @cached_property
    def _covariances(self) -> Tensor:
        """V in blocks (k, tiles, 8, 8) on and below the diagonal."""
        k, blocks = len(self.components.means), self.blocks
        I, J = torch.tril_indices(blocks, blocks, device=self.rows.x.device)
        return self.components.covariances.view(k, blocks, BLOCK, blocks, BLOCK).transpose(2, 3)[:, I, J].contiguous()

    def _launch(self, name: str, tasks: int, first: list[Argument], last: list[Argument]) -> None:
        """Run a kernel over tasks; between the first and the last arguments it reads components and rows."""
        warps = max(1, min(tasks, TASKS * warps_on(self.rows.x.device)))
        arguments = [*first, self.components.means, self._covariances, *self.rows.read(), *last]
        shared = self.form.shared(self.blocks, name == "moments")
        kernel_for(name, self.blocks, self.form, self.rows)(-(-warps // self.form.warps), shared, arguments)


def _in_blocks(rows: Rows) -> Rows:
    """The same rows one after the other, their noise in blocks on and below the diagonal (n, tiles * 64)."""
    a, b = of_blocks(rows.x.shape[0] // BLOCK, rows.x.device)
    S = rows.S[a * (a + 1) // 2 + b] if rows.full else rows.S
    seen = None if rows.seen is None else rows.seen.T.contiguous()
    return replace(rows, x=rows.x.T.contiguous(), seen=seen, S=S.T.contiguous())


def of_blocks(blocks: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Line and column, the larger first, of each number of the blocks on and below a diagonal."""
    I, J = (BLOCK * index[:, None, None] for index in torch.tril_indices(blocks, blocks, device=device))
    each = torch.arange(BLOCK, device=device)
    line, column = torch.broadcast_tensors(I + each[:, None], J + each)
    return torch.maximum(line, column).flatten(), torch.minimum(line, column).flatten()


def tiles_of(blocks: int) -> int:
    """Blocks on and below a diagonal of so many."""
    return blocks * (blocks + 1) // 2


def warps_on(device: torch.device) -> int:
    """Warps that run at a time: four for each scheduler, as registers allow."""
    return 16 * memory_of(device).processors


def kernel_for(name: str, blocks: int, form: Form, rows: Rows) -> Kernel:
    """A kernel of cores.cu for rows of a kind."""
    sizes = {"NB": blocks, "PAIRS": form.pairs, "KEPT": int(form.kept), "WIDE": int(form.wide), "WARPS": form.warps}
    constants = (*rows.constants(), *((word, str(value)) for word, value in sizes.items()))
    return kernel("cores.cu", name, constants, rows.x.device, WARP * form.warps)


def form_for(batch: Batch) -> Form | None:
    """The form that is fastest, on devices whose tensor cores are quick in double precision, where it is any."""
    capability = capability_of(batch.device)
    if capability not in QUICK:
        return None
    forms = FORMS[batch.x.element_size()]
    form = next((form for most, form in forms.items() if batch.d <= most), None)
    return None if form is None else replace(form, wide=capability >= WIDE)
