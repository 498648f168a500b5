"""A start beside a background: components where rows exceed it, which k-means cannot know.

Many candidates, on random rows and of several widths, are tried together: one after the other, the one is taken that
raises the likelihood most beside the background and those taken before.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ... import kernels
from ...kernels.options import DEFAULT
from ...mixture._mixture import Mixture
from ...rows.batch import Batch
from ..initial import moments

ROWS = 4096
EACH = 8  # random rows tried per component, in every width
FEWEST = 64
WIDTHS = (0.03, 0.1, 0.3)  # of a coordinate's spread
SHARES = (0.02, 0.1, 0.4)  # of the rows that a component may get as it comes
PASSES = 20
FAR = 80.0  # nats that a background may be behind the best candidate of a row, so that float32 holds the ratio


def excess_start(batch: Batch, k: int, share: float, seed: int) -> Mixture:
    """A mixture of k components for rows that carry a background, with weights, in the coordinates of the batch."""
    rng = np.random.default_rng([seed, 0xBE51DE])
    some = batch.rows(torch.from_numpy(rng.permutation(batch.n)[:ROWS]).to(batch.device))
    rows = replace(some, log_prior=None, label=None)  # which name components, not candidates
    means, V = _candidates(rows, max(FEWEST, EACH * k), rng)
    unit = torch.zeros(len(means), dtype=torch.float64, device=means.device)
    log_normal = kernels.log_joint(unit, means, V, rows, DEFAULT).double()
    assert rows.background is not None
    background = torch.maximum(rows.background.double(), log_normal.amax(1) - FAR)
    weight = rows.weights()
    log_over = log_normal - background[:, None]
    chosen = _chosen(log_over.float().clamp_(min=-FAR).exp_(), (weight / weight.mean()).float(), k)
    weights = _weights(log_over[:, chosen], weight, share)
    return Mixture.from_tensors(weights[:k] / weights[:k].sum(), means[chosen], V[chosen])


def _candidates(rows: Batch, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Means (c, d), on rows with something observed, and covariances (c, d, d)."""
    x = rows.x.T.double()
    center, spread = moments(x, rows.weights())
    seen = (~x.isnan()).any(1).nonzero()[:, 0]
    at = seen[torch.from_numpy(rng.integers(len(seen), size=count)).to(x.device)]
    places = torch.where(x[at].isnan(), center, x[at])
    widths = [torch.diag_embed((width * spread) ** 2).expand(count, -1, -1) for width in WIDTHS]
    return places.repeat(len(WIDTHS), 1), torch.cat(widths)


def _chosen(over: Tensor, weight: Tensor, k: int) -> list[int]:
    """The k candidates that gain most, one after the other: densities (n, c) are over that of what was there before.

    They are changed in place to be over what has been taken too: so each share costs a logarithm, and each round none.
    """
    taken: list[int] = []
    for _ in range(k):
        best = (-torch.inf, 0, 0.0)
        for share in SHARES:
            value = weight @ torch.add(1 - share, over, alpha=share).log_()
            value[taken] = -torch.inf
            top = int(value.argmax())
            best = max(best, (float(value[top]), top, share))
        _, top, share = best
        taken.append(top)
        over /= torch.add(1 - share, over[:, top], alpha=share)[:, None]
    return taken


def _weights(log_over: Tensor, weight: Tensor, share: float) -> Tensor:
    """Weights (k + 1,) of components that stay where they are, and of the background, by EM.

    Log-densities (n, k) are over that of the background.
    """
    n, k = log_over.shape
    everything = torch.cat([log_over, log_over.new_zeros(n, 1)], 1)
    density = (everything - everything.amax(1, keepdim=True)).exp_()
    weights = torch.tensor([(1 - share) / k] * k + [share], dtype=torch.float64, device=log_over.device)
    for _ in range(PASSES):
        q = weights * (density.T @ (weight / (density @ weights)))
        weights = q / weight.sum() + 1e-6
        weights = weights / weights.sum()
    return weights
