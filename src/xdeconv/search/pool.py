"""Pool: rows that moves are tried on, what the present mixture makes of them, and which rows matter for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from .. import kernels
from ..kernels import Groups
from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters
from ..rows.batch import Batch

MATTERS = 1e-3  # responsibility: a row with less is not near a component
CHUNK_PAIRS = 1 << 23  # pairs of row and component whose densities are held at a time


@dataclass(frozen=True)
class Pool:
    """Rows in the form that trials take, and for each row its log-density and the components that matter for it.

    share  (n, k) sparse, by component: responsibilities above MATTERS
    mass   (k,)   rows of each component
    loss   (k,)   what the log-likelihood loses when a component goes and the others stay as they are
    """

    batch: Batch
    rows: kernels.RowsForGroups
    weight: Tensor
    log_prob: Tensor
    share: sparse.csc_array
    mass: Tensor
    loss: Tensor

    @classmethod
    def of(cls, parameters: Parameters, rows: kernels.RowsForGroups, options: Options = DEFAULT) -> Pool:
        """What a mixture makes of rows, in chunks: the densities of all pairs are never held together."""
        batch, k = rows.batch, parameters.k
        weight = torch.ones(batch.n, dtype=torch.float64) if batch.weight is None else batch.weight.double().cpu()
        log_prob, parts = [], []
        mass, loss = torch.zeros(k, dtype=torch.float64), torch.zeros(k, dtype=torch.float64)
        done, beside = 0, batch.background is not None
        for chunk in batch.chunks(max(1, CHUNK_PAIRS // k)):
            log_joint = kernels.log_joint(*parameters, replace(chunk, weight=None), options)
            density = kernels.log_prob(*parameters, chunk, options)[:, None] if beside else log_joint.logsumexp(1, True)
            r = (log_joint - density).exp_()
            w = weight[done : done + chunk.n].to(r)
            mass += (w @ r).double().cpu()
            loss += (w @ torch.log1p(-r.clamp(max=1 - 1e-7))).double().cpu()
            i, j = (r > MATTERS).nonzero(as_tuple=True)
            parts.append((i.cpu() + done, j.cpu(), r[i, j].double().cpu()))
            log_prob.append(density[:, 0].double().cpu())
            done += chunk.n
        rows_of, components, values = (torch.cat(part).numpy() for part in zip(*parts, strict=True))
        share = sparse.csc_array((values, (rows_of, components)), shape=(batch.n, k))
        return cls(batch, rows, weight, torch.cat(log_prob), share, mass, loss)

    @property
    def total(self) -> float:
        """Weight of all rows."""
        return float(self.weight.sum())

    def overlap(self) -> np.ndarray:
        """sum_i w_i r_ia r_ib (k, k)."""
        weighted = self.share.multiply(self.weight.numpy()[:, None]).tocsc()
        return (weighted.T @ self.share).toarray()

    def near_pairs(self, each: int) -> list[tuple[int, ...]]:
        """For each component the pairs with those that share most of their rows with it."""
        mass, k = self.mass.numpy(), len(self.mass)
        closeness = self.overlap() / np.minimum(mass[:, None], mass).clip(min=1e-300)
        np.fill_diagonal(closeness, -1.0)
        near = np.argsort(-closeness, axis=1, kind="stable")[:, : min(each, k - 1)].tolist()
        return sorted({(min(a, b), max(a, b)) for a, row in enumerate(near) for b in row})

    def near(self, touched: Sequence[tuple[int, ...]]) -> Neighbourhoods:
        """For each set of components, the rows that it matters for, and the density that all others give them."""
        rows, shares = [], []
        for components in touched:
            own = self.share[:, list(components)]
            both = sparse.csc_array(own.sum(axis=1).reshape(-1, 1)) if len(components) > 1 else own
            rows.append(both.indices if len(components) == 1 else both.nonzero()[0])
            shares.append(both.data)
        return self._neighbourhoods(rows, shares)

    def _neighbourhoods(self, rows: list[np.ndarray], shares: list[np.ndarray]) -> Neighbourhoods:
        index = torch.from_numpy(np.concatenate(rows).astype(np.int64))
        rest = torch.from_numpy(1 - np.concatenate(shares)).clamp(min=1e-30)
        starts = torch.from_numpy(np.concatenate([[0], np.cumsum([len(r) for r in rows])]))
        density = self.log_prob[index]
        groups = Groups(index, starts, density + rest.log(), self.weight[index])
        return Neighbourhoods(self.rows, groups, density, self.total)


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
        keys = rng.random(len(self.log_prob))
        group = np.repeat(np.arange(len(sizes)), sizes)
        order = np.lexsort((keys, group))
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order)) - np.repeat(starts[:-1], sizes)
        chosen = np.flatnonzero(rank < most)
        factor = np.maximum(1.0, sizes / most)[group[chosen]]
        return self._pick(chosen, np.minimum(sizes, most), factor)

    def repeated(self, times: int) -> Neighbourhoods:
        """Every trial several times over: copies of one trial follow each other."""
        starts, sizes = self.groups.starts.numpy(), self.groups.sizes.numpy()
        lengths = np.repeat(sizes, times)
        ends = np.cumsum(lengths)
        chosen = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        return self._pick(chosen + np.repeat(np.repeat(starts[:-1], times), lengths), lengths, 1.0)

    def of(self, which: np.ndarray) -> Neighbourhoods:
        """The neighbourhoods of some trials."""
        starts, sizes = self.groups.starts.numpy(), self.groups.sizes.numpy()
        chosen = np.concatenate([np.arange(starts[t], starts[t] + sizes[t]) for t in which] or [np.zeros(0, int)])
        return self._pick(chosen, sizes[which], 1.0)

    def _pick(self, chosen: np.ndarray, sizes: np.ndarray, factor: np.ndarray | float) -> Neighbourhoods:
        at, groups = torch.from_numpy(chosen), self.groups
        starts = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]))
        weight = groups.weight[at] * (torch.from_numpy(factor) if isinstance(factor, np.ndarray) else factor)
        picked = Groups(groups.rows[at], starts, groups.background[at], weight)
        return replace(self, groups=picked, log_prob=self.log_prob[at])
