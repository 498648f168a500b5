"""Small constant tensors, made once for each device: a recorded CUDA graph must not copy numbers from the host."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=256)
def vector(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers as a tensor, not to be written to."""
    return torch.tensor(values, dtype=dtype, device=device)


def per_coordinate(value: object, like: Tensor) -> Tensor:
    """One number, or one for each coordinate, as a (d,) tensor for matrices (..., d, d)."""
    d = like.shape[-1]
    numbers = tuple(float(v) for v in value) if isinstance(value, (tuple, list)) else (float(value),) * d  # type: ignore[arg-type]
    if len(numbers) != d:
        raise ValueError(f"{len(numbers)} variances were given for {d} dimensions")
    return vector(numbers, like.dtype, like.device)
