"""Numerical trouble in a fit: how it is noticed, and the small prior that leads out of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..kernels.parameters import Parameters
from ..methods import Fixed, Method, State
from ..methods.constants import per_coordinate
from ..methods.prior import Prior

ROUNDING = 1e-5  # of the mean log-likelihood in float32, relative
ALMOST_SINGULAR = 1e-9
COLLAPSED = 1e-24  # of the variance of the whole mixture: a component has no size any more
RESCUE = 1e-6  # of a typical component's variances
LEAST = 1e-8  # of the variance of the whole mixture, for typical ones
NOTHING, OF_ONE = 1e-30, 1e-9  # a variance that is none: in any unit, and where that of the rows is 1
REMEDY = (
    "A component that shrinks onto rows without noise (repeated rows, constant columns, far outliers) needs a prior: "
    "method=xd.EM(prior=xd.Prior(w=...))"
)


class NumericalTrouble(ArithmeticError):
    """A pass met NaN, a covariance that is not positive definite, or a likelihood that fell."""


def nothing_of(standardized: bool) -> float:
    """The variance of a whole column, in the frame of the fit, below which the column is constant."""
    return OF_ONE if standardized else NOTHING


def refuse_trouble(after: State, loglik: float, nothing: float = NOTHING) -> None:
    """Raise NumericalTrouble unless likelihood and parameters are sound; constant columns have less than ``nothing``.

    A singular covariance is sound where the likelihood is finite: noise may hide that a component has no width in some
    direction. Parameters are float64 whatever rows are, so that float32 says nothing else of them.
    """
    if not np.isfinite(loglik):
        raise NumericalTrouble("the likelihood is not finite")
    log_weights, means, V = (tensor.detach().cpu().numpy() for tensor in after.parameters())
    if not (np.isfinite(means).all() and np.isfinite(V).all() and not np.isnan(log_weights).any()):
        raise NumericalTrouble("a parameter is not finite")
    variances = np.diagonal(V, axis1=-2, axis2=-1)
    widened, place = V.copy(), range(V.shape[-1])
    widened[:, place, place] += np.maximum(ALMOST_SINGULAR * variances, 1e-300)
    try:
        np.linalg.cholesky(widened)
    except np.linalg.LinAlgError as problem:
        failed = int(torch.linalg.cholesky_ex(torch.from_numpy(widened)).info.argmax())
        raise NumericalTrouble(f"the covariance of component {failed} is not positive definite") from problem
    weights = np.exp(log_weights)
    whole = weights @ variances + weights @ np.square(means - weights @ means)
    gone = (variances > 0) & (variances < COLLAPSED * np.where(whole > nothing, whole, 1.0))
    if gone.any():
        raise NumericalTrouble(f"component {int(np.argwhere(gone)[0, 0])} has shrunk to nothing")


def whole_variance(state: State) -> torch.Tensor:
    """Variances (d,) of the mixture as a whole."""
    log_weights, means, V = state.parameters()
    weights = log_weights.exp()
    return weights @ V.diagonal(dim1=-2, dim2=-1) + weights @ (means - weights @ means).square()


def refuse_fall(before: float, after: float) -> None:
    """Raise NumericalTrouble when a likelihood that must rise fell by more than rounding."""
    if before - after > ROUNDING * (1 + abs(after)):
        raise NumericalTrouble(f"the likelihood fell by {before - after:.3g} per row")


def rescued(
    method: Method, state: Any, weak: bool, nothing: float = NOTHING
) -> tuple[Method, Any, tuple[float, ...]] | None:
    """The method with a prior far below the variances of a typical component, the state with none below it, and w.

    None if the method has a prior already, unless that is the weak one that was not enough, or cannot have one.
    """
    if method.prior is not None and not weak:
        return None
    log_weights, means, V = state.parameters()
    order = V.diagonal(dim1=-2, dim2=-1).sort(dim=0)
    share = log_weights.exp()[order.indices].cumsum(0)
    typical = order.values.gather(0, (share < 0.5).sum(0, keepdim=True).clamp(max=len(V) - 1))[0]
    whole = whole_variance(state)
    w = RESCUE * torch.maximum(typical, LEAST * torch.where(whole > nothing, whole, 1.0))
    if method.prior is not None:
        w = torch.maximum(w, per_coordinate(method.prior.w, V))
    helped = method.with_prior(Prior(w=tuple(w.tolist())))
    if helped is None:
        return None
    held = (method.fixed or Fixed()).mask("covariances", len(V), V.device)[:, None, None]
    widened = Parameters(log_weights, means, torch.where(held, V, V + torch.diag_embed(w)))
    return helped, helped.moved(state, widened), tuple(w.tolist())
