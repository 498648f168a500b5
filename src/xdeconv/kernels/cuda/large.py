"""More than ten dimensions on a GPU: the log-densities of all pairs, then their sums.

Where one noise serves all rows, a pair costs d^2 operations instead of d^3: rows are whitened by matrix products. Rows
with noise or gaps of their own go through CUDA C (``registers``, ``tiles``) where it compiles, others through Triton.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ...rows.batch import Batch, packed_size
from ..joint import constant, with_prior
from ..options import Options
from ..stats import Stats
from . import compiling, cores, lines, registers, tiles
from .cores import Cores
from .densities import NEGLIGIBLE
from .filled import SIDE, Components, Rows
from .lines import Lines
from .panels import joint_kernel, moments_kernel
from .registers import Registers
from .tiles import Tiles

NUMBERS = 1 << 28  # of pairs or of noise, that are in memory at a time
ROOM = 1 << 31  # bytes of memory that programs work in


@dataclass(frozen=True)
class Launch:
    """Rows of a program, and programs that run at a time."""

    lanes: int
    programs: int


def accumulate(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options, launch: Launch
) -> Stats:
    """The five sums over the rows of a batch."""
    k, d = means.shape
    total = Stats.zeros(k, d, batch.device)
    for part in _slices(batch, k):
        pairs = _pairs_of(log_weights, means, covariances, part, launch)
        joint = _joint(pairs, part)
        log_prob, level = _densities(joint, part)
        share = (joint - level).exp_()
        if part.log_prior is not None:
            share = torch.where(joint == -torch.inf, 0.0, share)
        if options.skip:
            share = torch.where(share < NEGLIGIBLE[batch.dtype] / k, 0.0, share)
        weight = torch.ones_like(log_prob) if part.weight is None else part.weight
        share = share if part.weight is None else share.mul_(weight)
        g, G = pairs.moments(share)
        q = share.sum(1, dtype=torch.float64)
        sums = torch.stack([weight.double().sum(), (weight.double() * log_prob.double()).sum()])
        total = total + Stats(torch.cat([sums, q, g.flatten(), G.flatten()]), k, d)
    return total


def log_prob(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options, launch: Launch
) -> Tensor:
    """Log-density of each row (n,)."""
    return torch.cat([
        _densities(_joint(_pairs_of(log_weights, means, covariances, part, launch), part), part)[0]
        for part in _slices(batch, len(means))
    ])  # fmt: skip


def log_joint(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options, launch: Launch
) -> Tensor:
    """log alpha_j + log N(x_i | R_i m_j, T_ij), (n, k)."""
    return torch.cat([
        (_joint(_pairs_of(log_weights, means, covariances, part, launch), part) - constant(part)).T
        for part in _slices(batch, len(means))
    ])  # fmt: skip


def _joint(pairs: Pairs, batch: Batch) -> Tensor:
    """log (alpha N) (k, n) with priors, up to a constant of each row."""
    return with_prior(pairs.log_joint().T, batch).T


def _densities(joint: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Log-density of each row (n,), with the background where there is one, and the same up to the row's constant."""
    level = joint.logsumexp(0)
    inside = level - constant(batch)
    if batch.background is None:
        return inside, level
    whole = torch.logaddexp(inside, batch.background.to(inside.dtype))
    return whole, whole + constant(batch)


def _slices(batch: Batch, k: int) -> Iterator[Batch]:
    """Rows whose pairs and noise fit in memory."""
    yield from batch.chunks(max(1, NUMBERS // (4 * k + 2 * packed_size(batch.p) + batch.p * batch.d)))


def _pairs_of(log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, launch: Launch) -> Pairs:
    log_weights, means, covariances = (t.to(batch.device) for t in (log_weights, means, covariances))
    if batch.shared:
        return Whitened.of(log_weights, means, covariances, batch)
    if batch.projection is None and compiling.compiles(batch.device):
        found = _compiled(log_weights, means, covariances, batch)
        if found is not None:
            return found
    return Blocks.of(log_weights, means, covariances, batch, launch)


def _compiled(log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch) -> Pairs | None:
    """By CUDA C, in the way that is fastest in so many dimensions; not where a pair does not fit in shared memory."""
    if registers.fits(batch):
        return Registers.of(log_weights, means, covariances, batch)
    blocks = cores.form_for(batch)
    if blocks is not None:
        return Cores.of(log_weights, means, covariances, batch, blocks)
    form = lines.form_for(batch)
    if form is not None:
        return Lines.of(log_weights, means, covariances, batch, form)
    return Tiles.of(log_weights, means, covariances, batch) if tiles.fits(batch) else None


@dataclass(frozen=True)
class Blocks:
    """All pairs of some rows with noise, gaps or a view of their own."""

    components: Components
    rows: Rows
    launch: Launch
    n: int
    d: int

    @classmethod
    def of(cls, log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, launch: Launch) -> Blocks:
        components = Components.of(log_weights, means, covariances, batch.dtype)
        return cls(components, Rows.of(batch, launch.lanes), launch, batch.n, means.shape[1])

    def log_joint(self) -> Tensor:
        """log alpha N (k, n), up to a constant of each row."""
        k, padded = len(self.components.means), self.rows.x.shape[1]
        joint = self.rows.x.new_empty(k, padded)
        room, programs, numbers = self._room(padded // self.launch.lanes * k, moments=False)
        joint_kernel[(programs,)](
            self.components.log_weights, self.components.means, self.components.covariances, *self._read(), room,
            joint, k, padded, *self._sizes(), numbers, LANES=self.launch.lanes, **self._flags, num_warps=1,
            enable_fp_fusion=False,
        )  # fmt: skip
        return joint[:, : self.n]

    def moments(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """g (k, d) and G (k, d, d), float64, of rows with shares (k, n) of them."""
        (k, n), (observed, latent), padded = share.shape, self._sizes(), self.rows.x.shape[1]
        shares = self.rows.x.new_zeros(k, padded)
        shares[:, :n] = share
        chunk = self.launch.lanes * max(1, -(-padded // self.launch.lanes) * k // (4 * self.launch.programs))
        chunks = -(-padded // chunk)
        out = shares.new_empty(chunks, k, latent + packed_size(latent))
        room, programs, numbers = self._room(chunks * k, moments=True)
        moments_kernel[(programs,)](
            shares, self.components.means, self.components.covariances, *self._read(), room, out, k, padded, observed,
            latent, numbers, chunk, LANES=self.launch.lanes, **self._flags, num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
        sums = out.sum(0, dtype=torch.float64)
        a, b = torch.tril_indices(self.d, self.d, device=out.device)
        G = sums.new_zeros(k, self.d, self.d)
        G[:, a, b] = G[:, b, a] = sums[:, latent:][:, a * (a + 1) // 2 + b]
        return sums[:, : self.d], G

    def _read(self) -> tuple[Tensor, ...]:
        """The rows in the order of a kernel's arguments; x stands for what is absent."""
        rows = self.rows
        return rows.x, rows.x if rows.seen is None else rows.seen, rows.S, rows.x if rows.R is None else rows.R

    @property
    def _flags(self) -> dict[str, int]:
        """The constants of a kernel."""
        rows = self.rows
        noise, masked = 2 if rows.full else 1, int(rows.seen is not None and rows.R is None)
        return {"NOISE": noise, "MASKED": masked, "PROJECTED": int(rows.R is not None), "SIDE": SIDE}

    def _sizes(self) -> tuple[int, int]:
        """Observed and latent dimensions, filled up."""
        return self.rows.x.shape[0], self.components.means.shape[1]

    def _room(self, tasks: int, moments: bool) -> tuple[Tensor, int, int]:
        """Memory to work in, how many programs it serves, and the numbers of each program's lane."""
        observed, latent = self._sizes()
        numbers = observed * (observed + 1) + (observed * latent if self.rows.R is not None else 0)
        numbers += latent * (observed + 2 + latent) if moments else 0
        size = numbers * self.launch.lanes
        programs = max(1, min(tasks, self.launch.programs, ROOM // (size * self.rows.x.element_size())))
        return self.rows.x.new_empty(programs * size), programs, numbers


@dataclass(frozen=True)
class Whitened:
    """All pairs of rows that share one noise: z = W (x - m) with W = L^-1, once per component."""

    log_weights: Tensor
    means: Tensor
    whitening: Tensor
    batch: Batch

    @classmethod
    def of(cls, log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch) -> Whitened:
        T = covariances.double() + batch.covariance().double()
        L, failed = torch.linalg.cholesky_ex(T)
        L = torch.where((failed > 0)[:, None, None], torch.nan, L)
        eye = torch.eye(len(T[0]), dtype=T.dtype, device=T.device).expand_as(T)
        offset = log_weights.double() - L.diagonal(dim1=1, dim2=2).log().sum(1)
        return cls(offset, means.double(), torch.linalg.solve_triangular(L, eye, upper=False), batch)

    def log_joint(self) -> Tensor:
        """log alpha N (k, n), up to a constant of each row."""
        lines = [-0.5 * (self._z(j) ** 2).sum(0) + self.log_weights[j] for j in self._each()]
        return torch.stack(lines).to(self.batch.dtype)

    def moments(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """g (k, d) and G (k, d, d), float64, of rows with shares (k, n) of them."""
        first, second = [], []
        for j in self._each():
            z = self._z(j)
            first.append((z @ share[j]).double())
            second.append(((z * share[j]) @ z.T).double())
        q, W = share.sum(1, dtype=torch.float64), self.whitening
        spread = torch.stack(second) - torch.diag_embed(q[:, None].expand(-1, W.shape[1]))
        return (W.mT @ torch.stack(first)[..., None])[..., 0], W.mT @ spread @ W

    def _each(self) -> range:
        return range(len(self.means))

    def _z(self, j: int) -> Tensor:
        kind = self.batch.dtype
        return self.whitening[j].to(kind) @ (self.batch.x - self.means[j].to(kind)[:, None])


Pairs = Blocks | Whitened | Registers | Cores | Lines | Tiles
