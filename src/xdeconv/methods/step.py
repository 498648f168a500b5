"""EM's step of each component in NumPy: a call of torch costs more than what it computes here."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .products import product

ROUNDING = 2.0**-51


def takes(V: Tensor) -> bool:
    """Whether covariances are where and what NumPy reads."""
    return V.device.type == "cpu" and V.dtype == torch.float64


@np.errstate(all="ignore")  # NaN is what tells of failure
def step_of(V: Tensor, share: Tensor, g: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """Shifts (k, d) of means and covariances (k, d, d) after a step, as ``methods.em.moved_in_frame`` defines them."""
    old, s, pull, eye = V.numpy(), share.numpy()[:, None, None], G.numpy(), np.eye(V.shape[-1])
    L, sound = _factors(old)
    singular = not sound.all()
    frame, core = (np.where(sound, L, old), np.where(sound, eye, old)) if singular else (L, eye)
    u = s * product(frame.mT, g.numpy()[:, :, None])
    middle = core + s * product(frame.mT, product(pull, frame)) - u * u.mT
    lost = ~_factors(middle)[1] & sound
    if lost.any():
        terms = (s * product(abs(frame.mT), product(abs(pull), abs(frame)))).trace(axis1=1, axis2=2)[:, None, None]
        middle = middle + np.where(lost, ROUNDING * (1 + terms + product(u.mT, u)), 0.0) * eye
    factor = np.where(sound, L, eye) if singular else L
    delta, moved = product(factor, u)[:, :, 0], product(factor, middle, factor.mT)
    return torch.from_numpy(delta), torch.from_numpy(np.where(s > 0, moved, old))


def _factors(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cholesky factors (k, d, d), and which there are (k, 1, 1)."""
    L, failed = torch.linalg.cholesky_ex(torch.from_numpy(A))
    return L.numpy(), failed.numpy()[:, None, None] == 0
