"""The gradient times the inverse curvature of the last steps: the two loops of L-BFGS, compiled.

In torch they are six calls per step remembered, which with fifty steps was 40 % of an update.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import types
from torch import Tensor

from ..system.keeping import compiled_sum


def direction_of(gradient: Tensor, steps: Tensor, changes: Tensor) -> tuple[Tensor, float]:
    """The direction (size,), given the last steps (m, size) and how the gradient fell along them, the latest last.

    Complete data hold no less information than these: the first guess of the inverse curvature is at least 1. With it
    comes the largest inverse curvature along any of the steps.
    """
    direction, room = gradient.detach().to("cpu", copy=True), np.zeros((3, len(steps)))
    S, Y = (t.detach().cpu().numpy() for t in (steps, changes))
    _two_loops()(direction.numpy(), S, Y, room)
    return direction.to(gradient.device), float(room[2, 0])


@cache
def _two_loops() -> Callable[..., None]:
    numbers = types.float64
    return compiled_sum(
        _turn, types.void(numbers[::1], numbers[:, ::1], numbers[:, ::1], numbers[:, ::1]), "directions"
    )


def _turn(v, S, Y, room):  # type: ignore[no-untyped-def]
    """Turn v in place; room (3, m) is to work in, and its last line begins with the largest inverse curvature."""
    m, size = S.shape
    for i in range(m - 1, -1, -1):
        length, curvature, along = 0.0, 0.0, 0.0
        for a in range(size):
            length += S[i, a] * S[i, a]
            curvature += S[i, a] * Y[i, a]
            along += S[i, a] * v[a]
        room[0, i] = curvature
        room[1, i] = along / curvature
        room[2, 0] = max(room[2, 0], length / curvature)
        for a in range(size):
            v[a] -= room[1, i] * Y[i, a]
    squared = 0.0
    for a in range(size):
        squared += Y[m - 1, a] * Y[m - 1, a]
    scale = room[0, m - 1] / squared
    for a in range(size):
        v[a] *= 1.0 if scale < 1.0 else scale  # NaN stays
    for i in range(m):
        along = 0.0
        for a in range(size):
            along += Y[i, a] * v[a]
        for a in range(size):
            v[a] += (room[1, i] - along / room[0, i]) * S[i, a]
