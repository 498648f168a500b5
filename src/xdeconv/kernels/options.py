"""How to compute, never what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Backend = Literal["auto", "reference", "cpu", "cuda"]
BACKENDS = get_args(Backend)


@dataclass(frozen=True)
class Options:
    """How kernels compute; results are the same but for rounding.

    Parameters
    ----------
    backend : str, default "auto"
        auto (what suits the device), cpu (Numba), cuda (Triton), or reference (plain torch, slow, the definition).
    skip : bool, default True
        Whether pairs of row and component are left out where a bound shows that they do not matter: a row loses at
        most 2^-24 of its density.

    Examples
    --------
    >>> Options(backend="reference")
    Options(backend='reference', skip=True)
    """

    backend: Backend = "auto"
    skip: bool = True

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ValueError(f"backend must be one of {list(BACKENDS)}, got {self.backend!r}")


DEFAULT = Options()
