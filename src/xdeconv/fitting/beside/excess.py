"""A start beside a background: components where rows exceed it, which k-means cannot know.

Many candidates, on random rows and of several widths, are tried together: one after the other, the one is taken that
raises the likelihood most beside the background and those taken before.
"""

from __future__ import annotations

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


def excess_start(batch: Batch, k: int, share: float, seed: int) -> Mixture:
    """A mixture of k components for rows that carry a background, with weights, in the coordinates of the batch."""
    rng = np.random.default_rng([seed, 0xBE51DE])
    rows = batch.rows(torch.from_numpy(rng.permutation(batch.n)[:ROWS]).to(batch.device))
    means, V = _candidates(rows, max(FEWEST, EACH * k), rng)
    unit = torch.zeros(len(means), dtype=torch.float64, device=means.device)
    log_normal = kernels.log_joint(unit, means, V, rows, DEFAULT).double()
    assert rows.background is not None
    density = rows.background.double()
    weight = torch.ones_like(density) if rows.weight is None else rows.weight.double()
    chosen: list[int] = []
    for _ in range(k):
        best, density = _next(log_normal, density, weight, chosen)
        chosen.append(best)
    weights = _weights(log_normal[:, chosen], rows.background.double(), weight, share)
    return Mixture.from_tensors(weights[:k] / weights[:k].sum(), means[chosen], V[chosen])


def _candidates(rows: Batch, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Means (c, d), on rows with something observed, and covariances (c, d, d)."""
    x = rows.x.T.double()
    weight = torch.ones(rows.n, dtype=torch.float64, device=x.device) if rows.weight is None else rows.weight.double()
    center, spread = moments(x, weight)
    seen = (~x.isnan()).any(1).nonzero()[:, 0]
    at = seen[torch.from_numpy(rng.integers(len(seen), size=count)).to(x.device)]
    places = torch.where(x[at].isnan(), center, x[at])
    widths = [torch.diag_embed((width * spread) ** 2).expand(count, -1, -1) for width in WIDTHS]
    return places.repeat(len(WIDTHS), 1), torch.cat(widths)


def _next(log_normal: Tensor, density: Tensor, weight: Tensor, taken: list[int]) -> tuple[int, Tensor]:
    """The candidate that gains most beside a density (n,), and the density with it."""
    best = (-torch.inf, 0, 0.0)
    for share in SHARES:
        together = torch.logaddexp(density[:, None] + np.log1p(-share), log_normal + np.log(share))
        value = weight @ torch.where(together == -torch.inf, -1e300, together)
        value[taken] = -torch.inf
        top = int(value.argmax())
        best = max(best, (float(value[top]), top, share))
    _, top, share = best
    return top, torch.logaddexp(density + np.log1p(-share), log_normal[:, top] + np.log(share))


def _weights(log_normal: Tensor, background: Tensor, weight: Tensor, share: float) -> Tensor:
    """Weights (k + 1,) of components that stay where they are, and of the background, by EM."""
    everything = torch.cat([log_normal, background[:, None]], 1)
    k = log_normal.shape[1]
    log_weights = torch.tensor([(1 - share) / k] * k + [share], dtype=torch.float64, device=log_normal.device).log()
    for _ in range(PASSES):
        r = torch.softmax(everything + log_weights, 1).nan_to_num(0.0)
        log_weights = ((weight @ r) / weight.sum() + 1e-6).log().log_softmax(0)
    return log_weights.exp()
