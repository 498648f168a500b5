"""Pool: rows that moves are tried on, what the present mixture makes of them, and which rows matter for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..kernels import Groups
from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters
from ..rows.batch import Batch
from ..system.threads import each
from .aim import ANY, Aim
from .shares import Shares
from .sums import log_joint, log_prob

MATTERS = 1e-3  # responsibility: a row with less is not near a component
NOTHING = -80.0  # log of a responsibility: exp of less is no normal float32, which takes a CPU forty times as long
CHUNK_PAIRS = {"cpu": 1 << 17, "cuda": 1 << 23}  # whose densities are held at a time: in a core's cache, or on a GPU


@dataclass(frozen=True)
class Pool:
    """Rows in the form that trials take, and for each row its log-density and the components that matter for it.

    shares        responsibilities above MATTERS
    mass   (k,)   rows of each component
    loss   (k,)   what the log-likelihood loses when a component goes and the others stay as they are
    """

    batch: Batch
    rows: kernels.RowsForGroups
    weight: Tensor
    log_prob: Tensor
    shares: Shares
    mass: Tensor
    loss: Tensor

    @classmethod
    def of(
        cls, parameters: Parameters, rows: kernels.RowsForGroups, aim: Aim = ANY, options: Options = DEFAULT
    ) -> Pool:
        """What a mixture makes of rows, in chunks: the densities of all pairs are never held together."""
        batch, k = rows.batch, parameters.k
        weight = batch.weights("cpu")
        device = batch.device.type
        size = max(1, CHUNK_PAIRS[device] // k)
        parts = range(0, batch.n, size)

        def seen(first: int) -> _Seen:
            chunk = replace(batch.rows(slice(first, first + size)), weight=None)
            beside = None if chunk.background is None else log_prob(parameters, chunk, aim, options)
            return _Seen.of(log_joint(parameters, chunk, aim, options), weight[first : first + size], beside)

        pieces = each(parts, seen) if device == "cpu" else [seen(first) for first in parts]
        counts = np.array([len(part.values) for part in pieces])
        of_row = np.concatenate([part.rows for part in pieces]) + np.repeat(np.array(parts), counts)
        components = np.concatenate([part.components for part in pieces])
        values = np.concatenate([part.values for part in pieces])
        shares = Shares.of(of_row, components, values, weight.numpy(), k)
        mass, loss = (torch.stack(t).sum(0) for t in ([f.mass for f in pieces], [f.loss for f in pieces]))
        return cls(batch, rows, weight, torch.cat([part.log_prob for part in pieces]), shares, mass, loss)

    @property
    def total(self) -> float:
        """Weight of all rows."""
        return float(self.weight.sum())

    @property
    def loglik(self) -> float:
        """Weighted log-likelihood of all rows."""
        return float(self.weight @ self.log_prob)

    def near_pairs(self, most: int) -> list[tuple[int, ...]]:
        """For each component the pairs with those that share most of their rows with it."""
        mass, k = self.mass.numpy(), len(self.mass)
        closeness = self.shares.overlap / np.minimum(mass[:, None], mass).clip(min=1e-300)
        np.fill_diagonal(closeness, -1.0)
        near = np.argsort(-closeness, axis=1, kind="stable")[:, : min(most, k - 1)].tolist()
        return sorted({(min(a, b), max(a, b)) for a, row in enumerate(near) for b in row})

    def near(self, touched: Sequence[tuple[int, ...]]) -> Neighbourhoods:
        """For each set of components, the rows that it matters for, and the density that all others give them."""
        together = self.shares.together(touched)
        index, had, starts = (torch.from_numpy(part) for part in together)
        density = self.log_prob[index]
        rest = (1 - had).clamp(min=1e-30).log()
        groups = Groups(index, starts, density + rest, self.weight[index])
        return Neighbourhoods(self.rows, groups, density, self.total)


class _Seen(NamedTuple):
    """What a mixture makes of some rows: the pairs that matter, by row, and sums over rows."""

    rows: np.ndarray
    components: np.ndarray
    values: np.ndarray
    mass: Tensor
    loss: Tensor
    log_prob: Tensor

    @classmethod
    def of(cls, log_joint: Tensor, weight: Tensor, whole: Tensor | None) -> _Seen:
        """From the densities (n, k) of all pairs, and those of rows (n,) where they are not the sums of pairs."""
        largest = log_joint.amax(1, keepdim=True) if whole is None else whole[:, None]
        r = (log_joint - torch.where(largest.isinf(), 0.0, largest)).float().clamp_(min=NOTHING).exp_()
        total = r.sum(1, keepdim=True) if whole is None else torch.ones_like(r[:, :1])
        r /= total
        w = weight.to(r)
        mass = (w @ r).double().cpu()
        at = _places(r.flatten() > MATTERS)
        values = r.flatten()[at].double().cpu().numpy()
        i, j = np.divmod(at.cpu().numpy(), r.shape[1])
        beyond = np.log1p(-values.clip(max=1 - 1e-7)) + values  # of small ones the logarithm is minus themselves
        beyond *= weight.numpy()[i]
        loss = torch.from_numpy(np.bincount(j, weights=beyond, minlength=r.shape[1])) - mass
        log_prob = (largest.double() + total.double().log())[:, 0].cpu()
        return cls(i, j, values, mass, loss, log_prob)


def _places(true: Tensor) -> Tensor:
    """Where a line of booleans is true; NumPy finds them four times as fast as torch."""
    return true.nonzero()[:, 0] if true.is_cuda else torch.from_numpy(np.flatnonzero(true.numpy()))


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """starts[0], starts[0] + 1, ..., then those of starts[1]: so many of each as counts say."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)


@dataclass(frozen=True)
class Neighbourhoods:
    """Groups of rows, one per trial, with the log-density that each row has now, and the weight of all rows."""

    rows: kernels.RowsForGroups
    groups: Groups
    log_prob: Tensor
    total: float

    def sample(self, most: int, rng: np.random.Generator) -> Neighbourhoods:
        """At most so many rows of each trial, each standing for several."""
        starts, sizes = self.groups.starts.numpy(), self.groups.sizes.numpy()
        if sizes.max(initial=0) <= most:
            return self
        kept = np.minimum(sizes, most)
        step = sizes / np.maximum(kept, 1)
        place = _ranges(np.zeros_like(kept), kept) + np.repeat(rng.random(len(sizes)), kept)
        chosen = np.repeat(starts[:-1], kept) + (place * np.repeat(step, kept)).astype(np.int64)
        return self._pick(chosen, kept, np.repeat(step, kept))

    def of(self, trials: np.ndarray) -> Neighbourhoods:
        """Some of the trials, by their places."""
        starts, sizes = self.groups.starts.numpy()[trials], self.groups.sizes.numpy()[trials]
        return self._pick(_ranges(starts, sizes), sizes, 1.0)

    def repeated(self, times: int) -> Neighbourhoods:
        """Every trial several times over: copies of one trial follow each other."""
        starts, sizes = self.groups.starts.numpy(), self.groups.sizes.numpy()
        lengths = np.repeat(sizes, times)
        return self._pick(_ranges(np.repeat(starts[:-1], times), lengths), lengths, 1.0)

    def _pick(self, chosen: np.ndarray, sizes: np.ndarray, factor: np.ndarray | float) -> Neighbourhoods:
        at, groups = torch.from_numpy(chosen), self.groups
        starts = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]))
        weight = groups.weight[at] * (torch.from_numpy(factor) if isinstance(factor, np.ndarray) else factor)
        picked = Groups(groups.rows[at], starts, groups.background[at], weight)
        return replace(self, groups=picked, log_prob=self.log_prob[at])
