"""How to compute, never what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Backend = Literal["auto", "reference", "cpu", "cuda"]


@dataclass(frozen=True)
class Options:
    """Which backend, whether to skip pairs that provably do not matter, and whether bits must repeat on a GPU."""

    backend: Backend = "auto"
    skip: bool = True
    deterministic: bool = False


DEFAULT = Options()
