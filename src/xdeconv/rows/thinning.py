"""Fair samples of rows by a hash of their place: the same in every pass and on every machine, with nothing kept."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def hashed(keys: Array, seed: int) -> Array:
    """Uniform 64-bit numbers from whole numbers (splitmix64), the same on every machine."""
    with np.errstate(over="ignore"):
        z = keys.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def within(keys: Array, seed: int, low: float, high: float) -> Array:
    """Which keys have a hash in [low, high), of numbers between 0 and 1."""
    u = hashed(keys, seed)
    return (u >= np.uint64(low * 2.0**64)) & (u < np.uint64(min(high * 2.0**64, 2.0**64 - 2048)))
