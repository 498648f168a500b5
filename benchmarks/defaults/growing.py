"""Growing a mixture: more components from fewer, by splitting those that fit their rows worst."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from xdeconv import kernels
from xdeconv.mixture._mixture import Mixture
from xdeconv.rows.batch import Batch
from xdeconv.search.halves import half_shifts


def grown(mixture: Mixture, k: int, batch: Batch) -> Mixture:
    """A mixture of k components: some are split in two with the same moments, as the rows of a batch like best.

    >>> one = Mixture([1.0], [[0.0]], [[[1.0]]])
    >>> grown(one, 2, Batch.from_arrays([[-1.0], [1.0]])).means.round(2).tolist()
    [[0.8], [-0.8]]
    """
    if k < mixture.k:
        raise ValueError(f"a mixture of {mixture.k} components cannot grow to {k}")
    while mixture.k < k:
        mixture = _split(mixture, min(k - mixture.k, mixture.k), batch)
    return mixture


def halves(mixture: Mixture) -> tuple[np.ndarray, np.ndarray]:
    """Shifts (k, d, d) and covariances (k, d, d, d) of the halves of each component along each of its axes."""
    shifts = half_shifts(torch.from_numpy(np.array(mixture.covariances))).numpy()
    return shifts, mixture.covariances[:, None] - shifts[..., :, None] * shifts[..., None, :]


def _split(mixture: Mixture, count: int, batch: Batch) -> Mixture:
    """``count`` components split, each along its best axis: those that gain most, then the heaviest."""
    shifts, V = halves(mixture)
    gains = _gains(mixture, shifts, V, batch)
    axis, every = gains.argmax(1), np.arange(mixture.k)
    gain = gains[every, axis]
    chosen = np.lexsort((mixture.weights, np.where(gain > 0, gain, 0.0)))[::-1][:count]
    away, half = shifts[chosen, axis[chosen]], V[chosen, axis[chosen]]
    weights, means, covariances = (a.copy() for a in (mixture.weights, mixture.means, mixture.covariances))
    weights[chosen] /= 2
    means[chosen] += away
    covariances[chosen] = half
    return replace(
        mixture,
        weights=np.concatenate([weights, weights[chosen]]),
        means=np.concatenate([means, mixture.means[chosen] - away]),
        covariances=np.concatenate([covariances, half]),
        meta={},
    )


def _gains(mixture: Mixture, shifts: np.ndarray, V: np.ndarray, batch: Batch) -> np.ndarray:
    """What the log-likelihood of a batch gains (k, d) when one component is split along one axis."""
    log_weights, means, covariances = mixture.tensors(batch.device)
    joint = kernels.log_joint(log_weights, means, covariances, batch).double()
    log_prob = mixture.log_density(batch).double()[:, None]
    others = torch.log1p(-(joint - log_prob).exp().clamp(max=1.0))
    weight = torch.ones(batch.n, device=batch.device) if batch.weight is None else batch.weight

    def gain(axis: int) -> Tensor:
        away, half = (torch.from_numpy(a[:, axis]).to(batch.device) for a in (shifts, V))
        both = torch.cat([log_weights, log_weights]) - np.log(2), torch.cat([means + away, means - away])
        split = kernels.log_joint(*both, torch.cat([half, half]), batch).double()
        inside = torch.logaddexp(split[:, : mixture.k], split[:, mixture.k :])
        return weight.double() @ torch.logaddexp(others, inside - log_prob)

    return torch.stack([gain(axis) for axis in range(mixture.d)], 1).nan_to_num(0.0).cpu().numpy()
