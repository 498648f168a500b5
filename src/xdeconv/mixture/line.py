"""Mixtures of Gaussians on a line, many side by side: densities, distribution functions and quantiles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..rows import checks

BISECTIONS = 64


class Lines(NamedTuple):
    """n mixtures of k Gaussians for each of c coordinates: weights (n, k), means and sd (n, k, c)."""

    weights: Tensor
    means: Tensor
    sd: Tensor


def cdf(lines: Lines, x: Tensor) -> Tensor:
    """P(value <= x) at x (n, c, m); a component without any width counts half where x is its mean."""
    away = x[:, None] - lines.means[..., None]
    sd = lines.sd[..., None]
    below = torch.special.ndtr(torch.where(sd > 0, away / sd, torch.sign(away) * torch.inf).nan_to_num(0.0))
    return torch.einsum("nk,nkcm->ncm", lines.weights, below)


def pdf(lines: Lines, x: Tensor) -> Tensor:
    """The density at x (n, c, m)."""
    if bool(((lines.sd == 0) & (lines.weights[..., None] > 0)).any()):
        raise ValueError("there is no density: a component has no width in this direction (its cdf exists)")
    z = (x[:, None] - lines.means[..., None]) / lines.sd[..., None]
    each = torch.exp(-0.5 * z * z) / (lines.sd[..., None] * np.sqrt(2 * np.pi))
    return torch.einsum("nk,nkcm->ncm", lines.weights, each)


def quantiles(lines: Lines, levels: Tensor) -> Tensor:
    """Quantiles (n, c, len(levels)) by bisection between the least and the largest quantile of any component."""
    each = lines.means[..., None] + torch.special.ndtri(levels) * lines.sd[..., None]
    low, high = each.amin(1), each.amax(1)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        too_low = cdf(lines, middle) < levels
        low, high = torch.where(too_low, middle, low), torch.where(too_low, high, middle)
    return (low + high) / 2


def checked_levels(q: object) -> np.ndarray:
    """Levels of quantiles as an array; each must lie strictly between 0 and 1."""
    levels = checks.to_array(q, "q")
    if ((levels <= 0) | (levels >= 1) | np.isnan(levels)).any():
        raise ValueError(f"quantiles must lie strictly between 0 and 1, got {q}")
    return levels
