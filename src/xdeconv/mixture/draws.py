"""Draws of components and of where their values lie about their means: by NumPy, or by torch where and as was asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..system.devices import chosen_device, number_type

Array = np.ndarray
CHUNK_ROWS = 1 << 20  # that a device draws at a time


def draws(
    weights: Array, roots: Array, size: int, rng: np.random.Generator, device: Any = None, dtype: Any = None
) -> tuple[Array, Array]:
    """Components (size,), and draws (size, d) about their means, float64; roots (k, d, d) are of their covariances."""
    where = chosen_device(device or "cpu")
    kind = number_type(dtype, where)
    if where.type == "cpu" and kind == torch.float64:
        component = rng.choice(len(weights), size=size, p=weights)
        return component, np.einsum("nde,ne->nd", roots[component], rng.standard_normal((size, roots.shape[1])))
    generator = torch.Generator(where).manual_seed(int(rng.integers(1 << 62)))
    shares, root = torch.from_numpy(weights).to(where), torch.from_numpy(roots).to(where, kind)
    parts = [_part(shares, root, min(CHUNK_ROWS, size - first), generator) for first in range(0, size, CHUNK_ROWS)]
    components, away = zip(*(parts or [_part(shares, root, 0, generator)]), strict=True)
    return np.concatenate(components), np.concatenate(away)


def _part(shares: torch.Tensor, root: torch.Tensor, size: int, generator: torch.Generator) -> tuple[Array, Array]:
    at = torch.rand(size, generator=generator, dtype=torch.float64, device=root.device)
    component = torch.searchsorted(shares.cumsum(0), at).clamp(max=len(shares) - 1)
    z = torch.randn(size, root.shape[1], generator=generator, dtype=root.dtype, device=root.device)
    away = torch.einsum("nde,ne->nd", root[component], z)
    return component.cpu().numpy(), away.double().cpu().numpy()
