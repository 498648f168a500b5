"""Covariances B C C^T B^T and the gradient on C, in NumPy: C are log-Cholesky factors relative to an anchor's B.

Their entries (k, d (d + 1) / 2) are those of the lower triangle, row by row, logarithms on its diagonal.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from ..products import product


@np.errstate(all="ignore")  # steps may go too far: NaN tells
def covariances_at(B: Tensor, entries: Tensor, least: Tensor) -> Tensor:
    """B C C^T B^T (k, d, d) of bases (k, d, d); C has at least ``least`` (k, d) on its diagonal."""
    basis, own, floor = _read(B, entries, least)
    L = product(basis, _factors(own, floor))
    return torch.from_numpy(product(L, L.mT)).to(B.device)


@np.errstate(all="ignore")
def gradient_at(B: Tensor, entries: Tensor, least: Tensor, G: Tensor) -> Tensor:
    """B^T G B C for the entries of C (k, d (d + 1) / 2), on the diagonal times C, and 0 where C is at its least."""
    basis, own, floor, pull = _read(B, entries, least, G)
    C = _factors(own, floor)
    lines, columns, diagonal = _triangle(floor.shape[1])
    out = product(basis.mT, product(pull, product(basis, C)))[:, lines, columns]
    widths = C[:, lines[diagonal], lines[diagonal]]
    out[:, diagonal] *= np.where(widths > floor, widths, 0.0)
    return torch.from_numpy(out).to(B.device)


def _read(*tensors: Tensor) -> list[np.ndarray]:
    return [t.detach().cpu().numpy() for t in tensors]


def _factors(entries: np.ndarray, least: np.ndarray) -> np.ndarray:
    """C (k, d, d), lower triangles; NaN stays NaN."""
    k, d = least.shape
    lines, columns, diagonal = _triangle(d)
    C = np.zeros((k, d, d))
    C[:, lines, columns] = entries
    C[:, lines[diagonal], lines[diagonal]] = np.maximum(np.exp(entries[:, diagonal]), least)
    return C


@cache
def _triangle(d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lines and columns of the entries, and which of them are on the diagonal."""
    lines, columns = np.tril_indices(d)
    return lines, columns, np.flatnonzero(lines == columns)
