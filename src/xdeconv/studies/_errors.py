"""Standard errors of a fitted mixture without refits: the sandwich H^-1 J H^-1, which holds under misfit too."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..catalog._open import open as open_catalog
from ..fitting.beside.background import as_background
from ..fitting.beside.carried import Carried
from ..fitting.beside.inflating import with_groups_of
from ..fitting.beside.selected import choose_selection, refuse_all_rejected, selected_by
from ..fitting.frame import Frame
from ..methods import EM, Method
from ..methods.fixed import Fixed
from ..methods.structures import Structure, as_structure
from ..mixture._mixture import Mixture, refuse_no_mixture
from ..rows.data import Source
from ..system.devices import chosen_device
from .beside import Beside
from .fitted_rows import fitted_fixed, fitted_rows
from .gradients import Gradients
from .sandwich import Sandwich, Solved
from .standard_errors import Errors
from .undetermined import background_undetermined, factors_undetermined, log_widths, undetermined

log = logging.getLogger("xdeconv")
Array = np.ndarray
MATRIX = 3000  # parameters of which all covariances are computed at once
DIFFERENCES = 300  # the same where each needs passes of its own
NUMBERS = 1 << 27  # of rows times parameters, there
LEFT, LEFT_EACH = 0.5, 0.1  # nats in all, or per parameter: with more to gain, a mixture is not where errors are of


def errors(
    data: Any,
    mixture: Mixture,
    *,
    columns: Sequence[str] | None = None,
    noise: Any = None,
    error: Any = None,
    projection: Any = None,
    weight: Any = None,
    log_prior: Any = None,
    label: Any = None,
    background: Any = None,
    selection: Any = None,
    method: Method | None = None,
    device: Any = None,
) -> Errors:
    """How sure a fitted mixture is, without refits: standard errors by one pass over its rows.

    Variances are those of the sandwich H^-1 J H^-1, with H the curvature of the log-likelihood (and prior) and J the
    scatter of the rows' scores: right also where the model is not, as long as the mixture is a maximum and what is
    asked for is nearly linear within its error. See :mod:`xdeconv.studies.information`. Factors on errors, tails and a
    background count as parameters too; of rows that were selected the scores are given that they were kept. That costs
    four passes per parameter, and so do covariances of a structure, whose free numbers alone are parameters.

    Parameters
    ----------
    data : array-like (n, p), table, path, Batch or Source
        The rows that the mixture was fitted to; NaN is missing. Tables and files are read as the fit read its own.
    mixture : Mixture
        The fit.
    columns : sequence of str, optional
        Names of the features: data is then whatever :func:`xdeconv.open` reads.
    noise : array-like, optional
        Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
    error : array-like, optional
        Standard deviations (n, p) or (p,), instead of ``noise``.
    projection : array-like (n, p, d), optional
        Matrices through which each row sees the true values.
    weight : array-like (n,), optional
        How much each row counts; 1 by default.
    log_prior : array-like (n, k), optional
        Added to the log-weights, row by row; -inf rules a component out.
    label : array-like (n,), optional
        The class of each row, where ``log_prior`` is a table of classes.
    background : array-like (n,), optional
        Log-densities of the rows' background, for a fit that was given them; any other is the mixture's own.
    selection : Cut, sequence of Cut, Completeness or callable, optional
        How the rows were selected; by default the mixture's own. A function must be given again to a mixture that was
        loaded from a file.
    method : Method, optional
        That of the fit, where it had a prior; what it held fixed is known.
    device : str, optional
        cpu or cuda; by default cuda where there is one.

    Returns
    -------
    Errors
        Standard errors of weights, means, covariances, densities and functions of the mixture.

    Examples
    --------
    >>> import xdeconv as xd
    >>> X = np.random.default_rng(0).normal(size=(400, 1))
    >>> errors(X, xd.fit(X, 1).mixture).means.round(4)
    array([[0.0498]])
    """
    refuse_no_mixture(mixture)
    if method is not None and not isinstance(method, Method):
        raise ValueError(f"method must be an xd.EM(...) or xd.SGD(...), got {method!r}")
    method = method or EM(fixed=fitted_fixed(mixture))
    data = data if columns is None else open_catalog(data, columns)
    given = {"noise": noise, "error": error, "projection": projection, "weight": weight, "log_prior": log_prior,
             "label": label}  # fmt: skip
    source = fitted_rows(data, mixture, given)
    if source.rows == 0:
        raise ValueError("there are no rows to tell errors by")
    structure = _structure(mixture, method)
    if background is not None and mixture.background is None:
        raise ValueError("background is given, and the mixture was fitted without one")
    source, beside = as_background(background, source, mixture)
    kept = choose_selection(selection, mixture, source, mixture.labels, beside)
    refuse_all_rejected(kept, source)
    return _errors(with_groups_of(source, mixture.inflation), mixture.with_(selection=kept), method, structure,
                   chosen_device(device))  # fmt: skip


def _errors(source: Source, mixture: Mixture, method: Method, structure: Structure, device: torch.device) -> Errors:
    frame = Frame.around(mixture)
    rows, scale = source.standardized(frame.shift, frame.scale, device, torch.float64), frame.scale.tolist()
    own, fixed = method.standardized(scale), method.fixed or Fixed()
    structure.refuse(mixture.k, mixture.d, fixed)
    framed_structure = structure.standardized(scale)
    framed = frame.into(mixture)
    beside, inside = _beside(mixture), replace(_beside(framed), selected=selected_by(framed, device))
    factors = _factors(framed.tensors(device).covariances, fixed)
    way = Sandwich if mixture.n_parameters < _most(mixture, source.rows) else Solved
    sandwich = way.of(rows, framed.tensors(device), factors, own.prior, fixed, inside,
                      framed_structure)  # fmt: skip
    chart = sandwich.chart.restored({name: tensor.cpu() for name, tensor in sandwich.chart.tensors().items()})
    chart = chart.in_units(frame.shift, frame.scale)
    gradients = Gradients(mixture, chart, sandwich.free.cpu(), fixed, beside, structure)
    result = Errors(mixture, (), sandwich, gradients)
    notes = _notes(result)
    for note in notes:
        log.warning(note)
    return replace(result, notes=notes)


def _beside(mixture: Mixture) -> Beside:
    """What a mixture has beside Gaussian components, but for a selection: densities are of all rows, kept or not."""
    return Beside(mixture.background is not None, Carried(mixture.tails, mixture.inflation))


def _most(mixture: Mixture, rows: int) -> float:
    """How many parameters all covariances are computed of."""
    one_pass = mixture.selection is None and mixture.structure == "full"
    return MATRIX if one_pass else min(DIFFERENCES, NUMBERS / max(rows, 1))


def _structure(mixture: Mixture, method: Method) -> Structure:
    """That of the mixture; refused where the method says another, or holds some coordinates of a mean."""
    structure, fixed = as_structure(mixture.structure), method.fixed
    if method.covariance.name not in ("full", structure.name):
        raise ValueError(f"the mixture's covariances are {structure.name} and the method's {method.covariance.name}")
    if fixed is not None and bool((fixed.coordinates(mixture.k, mixture.d, "cpu").any(1)
                                   & ~fixed.mask("means", mixture.k, "cpu")).any()):  # fmt: skip
        raise ValueError("xd.errors knows only means that are held whole: ask xd.bootstrap where some coordinates are")
    return structure


def _factors(covariances: Tensor, fixed: Fixed) -> Tensor:
    """Cholesky factors (k, d, d); of a singular covariance that is held, the widths alone."""
    L, failed = torch.linalg.cholesky_ex(covariances)
    singular = failed > 0
    lost = singular & ~fixed.mask("covariances", len(L), L.device)
    if bool(lost.any()):
        j = int(lost.nonzero()[0, 0])
        raise ValueError(f"component {j} has a singular covariance, which has no errors: fit with a prior, such as "
                         "xd.EM(prior=xd.Prior(w=...)), or hold it with xd.Fixed(covariances=[...])")  # fmt: skip
    widths = covariances.diagonal(dim1=1, dim2=2).clamp(min=1e-300).sqrt()
    return torch.where(singular[:, None, None], torch.diag_embed(widths), L)


def _notes(result: Errors) -> tuple[str, ...]:
    notes = []
    if result.sandwich.left > max(LEFT, LEFT_EACH * result.sandwich.chart.size):
        notes.append(f"the mixture is about {result.sandwich.left:.2g} nats below a maximum of these rows' likelihood: "
                     "errors are of a maximum; fit on with xd.fit(..., mixture=mixture)")  # fmt: skip
    if not result.whole:
        return tuple(notes)
    widths = result.of(log_widths).standard_error
    notes += undetermined(result.mixture, result.weights, result.means, widths)
    notes += background_undetermined(result.mixture, result.background_weight)
    return (*notes, *factors_undetermined(result.mixture, result.inflation))
