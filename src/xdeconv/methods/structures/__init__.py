"""Structures of covariances: what V may look like, each a small class that projects the same sums onto what is free."""

from __future__ import annotations

from typing import Any

from .contract import Covariances, Structure
from .coordinates import Coordinates, LogCholesky
from .low_rank import LowRank
from .plain import Diagonal, Full, Spherical, Tied
from .through_noise import Sight, ThroughNoise, complete_data

__all__ = [
    "FULL",
    "Coordinates",
    "Covariances",
    "Diagonal",
    "Full",
    "LogCholesky",
    "LowRank",
    "Sight",
    "Spherical",
    "Structure",
    "ThroughNoise",
    "Tied",
    "as_structure",
    "complete_data",
]

FULL = Full()
WORDS: dict[str, Structure] = {
    "full": FULL, "tied": Tied(), "diagonal": Diagonal(), "diag": Diagonal(), "spherical": Spherical(),
}  # fmt: skip


def as_structure(covariance: Any) -> Structure:
    """The structure that a user means: a word, or the structure itself.

    >>> as_structure("low-rank:3")
    LowRank(rank=3)
    """
    if isinstance(covariance, Structure):
        return covariance
    if isinstance(covariance, str) and covariance in WORDS:
        return WORDS[covariance]
    word, _, rank = str(covariance).partition(":")
    if word == "low-rank" and rank.isdecimal():
        return LowRank(int(rank))
    known = "full, tied, diagonal, spherical, low-rank:R or an xd.LowRank(R)"
    raise ValueError(f"covariance must be one of {known}, got {covariance!r}")
