"""The gradient times the inverse curvature of the last steps: the two loops of L-BFGS.

In torch they are six calls per step remembered, which with fifty steps was 40 % of an update.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

ALONE = 4096  # numbers, whose products one thread adds up; BLAS has several from 10,000 on


@np.errstate(all="ignore")  # NaN is what tells of failure
def direction_of(gradient: Tensor, steps: Tensor, changes: Tensor) -> Tensor:
    """The direction (size,), given the last steps (m, size) and how the gradient fell along them, the latest last.

    Complete data hold no less information than these: the first guess of the inverse curvature is at least 1.
    """
    v = gradient.detach().cpu().numpy().copy()
    S, Y = (t.detach().cpu().numpy() for t in (steps, changes))
    inner, used = np.einsum("mi,mi->m", S, Y), np.empty(len(S))
    for i in reversed(range(len(S))):
        used[i] = _dot(S[i], v) / inner[i]
        v -= used[i] * Y[i]
    v *= max(inner[-1] / _dot(Y[-1], Y[-1]), 1.0)
    for i in range(len(S)):
        v += (used[i] - _dot(Y[i], v) / inner[i]) * S[i]
    return torch.from_numpy(v).to(gradient.device)


def _dot(a: np.ndarray, b: np.ndarray) -> np.float64:
    """Summed in one order: the libraries of a matrix product divide long sums among threads."""
    return a @ b if len(a) <= ALONE else np.einsum("i,i->", a, b)
