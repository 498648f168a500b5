"""Rows and components filled up to whole blocks of four dimensions, as kernels of many dimensions read them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...rows.batch import Batch, packed_size

SIDE = 4  # of a block: 8 would load half as much, and takes Triton ten times as long to compile


@dataclass(frozen=True)
class Rows:
    """Rows as kernels read them: observed values filled up to whole blocks, gaps masked, the row axis last.

    x (p, n); seen (p, n) or nothing; S packed (p (p + 1) / 2, n) or diagonal (p, n), the identity where nothing is
    observed; R (p, d, n) or nothing.
    """

    x: Tensor
    seen: Tensor | None
    S: Tensor
    full: bool
    R: Tensor | None

    def one_after_another(self) -> Rows:
        """The same with the row axis first, packed triangles filled up to whole fours."""
        packed = self.S.T
        S = torch.nn.functional.pad(packed, (0, up(packed.shape[1]) - packed.shape[1])).contiguous()
        seen = None if self.seen is None else self.seen.T.contiguous()
        return replace(self, x=self.x.T.contiguous(), seen=seen, S=S)

    def read(self) -> list[Tensor]:
        """x, seen and S in the order of CUDA C; x stands for what is absent."""
        return [self.x, self.x if self.seen is None else self.seen, self.S]

    def constants(self) -> tuple[tuple[str, str], ...]:
        """What CUDA C is compiled with for rows of this kind."""
        real = {torch.float32: "float", torch.float64: "double"}[self.x.dtype]
        return ("REAL", real), ("FULL", str(int(self.full))), ("MASKED", str(int(self.seen is not None)))

    @classmethod
    def of(cls, batch: Batch, lanes: int, side: int = SIDE) -> Rows:
        """A batch, its rows filled up to a multiple of ``lanes``; what fills up has unit noise and nothing observed."""
        p, n, observed, padded = batch.p, batch.n, up(batch.p, side), up(batch.n, lanes)
        there = torch.zeros(observed, padded, dtype=torch.bool, device=batch.device)
        there[:p, :n] = ~batch.x.isnan()
        seen = there.to(batch.dtype)
        x = batch.x.new_zeros(observed, padded)
        x[:p, :n] = torch.where(there[:p, :n], batch.x, 0.0)
        S = _noise(batch, seen)
        R = None
        if batch.projection is not None:
            R = batch.x.new_zeros(observed, up(batch.d), padded)
            R[:p, : batch.d, :n] = batch.projection * seen[:p, None, :n]
        return cls(x, seen if batch.missing else None, S, batch.full, R)


def _noise(batch: Batch, seen: Tensor) -> Tensor:
    """Noise, the identity where nothing is observed."""
    observed, padded = seen.shape
    each = torch.arange(observed, device=batch.device)
    S = batch.x.new_zeros(packed_size(observed) if batch.full else observed, padded)
    if batch.noise is not None:
        S[: len(batch.noise), : batch.n] = batch.noise
        if batch.missing:
            a, b = torch.tril_indices(observed, observed, device=batch.device) if batch.full else (each, each)
            S = S * seen[a] * seen[b]
    S[each * (each + 3) // 2 if batch.full else each] += 1 - seen
    return S


@dataclass(frozen=True)
class Components:
    """log alpha (k,), m (k, d) and V (k, d, d), filled up to whole blocks with zeros, in a type of number."""

    log_weights: Tensor
    means: Tensor
    covariances: Tensor

    @classmethod
    def of(
        cls, log_weights: Tensor, means: Tensor, covariances: Tensor, dtype: torch.dtype, side: int = SIDE
    ) -> Components:
        """The same parameters, filled up to blocks of a side."""
        k, d = means.shape
        whole = up(d, side)
        m = torch.zeros(k, whole, dtype=dtype, device=means.device)
        V = torch.zeros(k, whole, whole, dtype=dtype, device=means.device)
        m[:, :d], V[:, :d, :d] = means, covariances
        return cls(log_weights.to(dtype).contiguous(), m, V)


def up(n: int, unit: int = SIDE) -> int:
    """The smallest multiple of the unit that is at least n, and not 0."""
    return max(1, -(-n // unit)) * unit
