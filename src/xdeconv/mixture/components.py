"""Components: what a mixture is made of, checked and immutable, and what it says as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..kernels.parameters import Parameters
from ..rows import checks
from ..rows.batch import Batch
from . import line
from .background import Background
from .coordinates import Coordinate, checked_names, indices
from .inflated import Inflated
from .matrices import checked_parameters, n_parameters, of_one_covariance
from .selections.contract import Population, Selecting, refuse_bare
from .selections.given import as_selecting
from .tails import StudentT, as_tails

Array = np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class Components(Background):
    """Gaussians with weights, and what stands beside them; the parameters are those of :class:`xdeconv.Mixture`."""

    weights: Array
    means: Array
    covariances: Array
    labels: tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None
    meta: Mapping[str, Any] | None = None
    background: Background | None = None
    background_weight: float = 0.0
    tails: StudentT | None = None
    structure: str = "full"
    inflation: Inflated | None = None
    selection: Selecting | None = None

    def __post_init__(self) -> None:
        weights, means, V = checked_parameters(self.weights, self.means, self.covariances)
        for name, array in (("weights", weights), ("means", means), ("covariances", V)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "labels", checked_names(self.labels, self.d, "labels", unique=True))
        object.__setattr__(self, "units", checked_names(self.units, self.d, "units", unique=False))
        object.__setattr__(self, "meta", MappingProxyType(_checked_meta(self.meta)))
        object.__setattr__(self, "background_weight", _checked_background(self))
        object.__setattr__(self, "tails", as_tails(self.tails))
        if self.inflation is not None and not isinstance(self.inflation, Inflated):
            raise ValueError(f"inflation must be the factors of a fit, mixture.inflation, got {self.inflation!r}")
        object.__setattr__(self, "selection", self.selected_by(self.selection))
        of_one_covariance(self.structure, self.d)  # which refuses a word that it does not know

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are made by the constructor, so that they are as immutable."""
        return type(self), tuple(dict(value) if name == "meta" else value for name, value in vars(self).items())

    def selected_by(self, selection: Any = None) -> Selecting | None:
        """How rows were selected: as is said here, or else as the mixture says.

        Parameters
        ----------
        selection : Cut, sequence of Cut, Completeness or callable, optional
            What is said.

        Returns
        -------
        Selecting or None
        """
        kept = self.selection if selection is None else as_selecting(selection, self.labels, self.d)
        if kept is not None and self.inflation is not None:
            raise ValueError("a mixture with factors on errors has no selection: a cut was made with the errors as "
                             "they are quoted, and rows scatter by others. For cuts that look at no errors, inflate "
                             "these yourself and take with_(inflation=None)")  # fmt: skip
        return kept

    @property
    def k(self) -> int:
        """Number of components."""
        return len(self.weights)

    @property
    def d(self) -> int:
        """Number of dimensions."""
        return self.means.shape[1]

    @property
    def n_parameters(self) -> int:
        """Number of free parameters."""
        beside = (self.background is not None) + (self.tails is not None and self.tails.fitted)
        beside += 0 if self.inflation is None else len(self.inflation.numbers)
        return n_parameters(self.k, self.d, self.structure) + beside

    @property
    def shares(self) -> Array:
        """Weights among all rows: (k,) of the components; with a background (k + 1,), its own last."""
        if self.background is None:
            return self.weights
        return np.append((1 - self.background_weight) * self.weights, self.background_weight)

    def __repr__(self) -> str:
        names = f", labels={list(self.labels)}" if self.labels else ""
        beside = "" if self.background is None else f", background={self.background_weight:.3g}"
        beside += "" if self.tails is None or self.tails.nu is None else f", nu={self.tails.nu:.3g}"
        beside += "" if self.inflation is None else ", inflated errors"
        shape = "" if self.structure == "full" else f", covariance={self.structure}"
        kept = "" if self.selection is None else ", selected"
        return f"Mixture(k={self.k}, d={self.d}{names}{shape}{beside}{kept})"

    def with_(self, **changes: Any) -> Self:
        """A copy with other labels, units, meta, structure, background or selection.

        Parameters
        ----------
        **changes : dict
            labels, units, meta, structure, selection, background or background_weight; ``background=None`` leaves the
            components alone.

        Returns
        -------
        Mixture
        """
        if "background" in changes and changes["background"] is None:
            changes["background_weight"] = 0.0
        return replace(self, **changes)

    def indices(self, coordinates: Sequence[Coordinate] | Coordinate) -> list[int]:
        """Positions of coordinates given by label or index.

        Parameters
        ----------
        coordinates : str, int, or a sequence of them
            Which ones.

        Returns
        -------
        list of int
        """
        return indices(coordinates, self.labels, self.d)

    # As a whole

    def mean(self) -> Array:
        """The mean (d,) of all components together.

        >>> from xdeconv import Mixture
        >>> Mixture([0.25, 0.75], [[0.0], [4.0]], [[[1.0]], [[1.0]]]).mean()
        array([3.])
        """
        return self.weights @ self.means

    def covariance(self) -> Array:
        """The covariance (d, d) of all components together.

        >>> from xdeconv import Mixture
        >>> Mixture([0.5, 0.5], [[-2.0], [2.0]], [[[1.0]], [[1.0]]]).covariance()
        array([[5.]])
        """
        away = self.means - self.mean()
        c, p = (torch.ones(1), torch.ones(1)) if self.tails is None else self.tails.scales()
        wider = float(c @ p) * self.covariances
        return np.einsum("k,kde->de", self.weights, wider + away[:, :, None] * away[:, None, :])

    def cdf(self, x: Any) -> Array:
        """P(true value <= x) of a mixture's components in one dimension.

        Parameters
        ----------
        x : array_like
            Values of any shape.

        Returns
        -------
        numpy.ndarray
            Of the shape of x.

        Examples
        --------
        >>> from xdeconv import Mixture
        >>> float(Mixture([1.0], [[3.0]], [[[4.0]]]).cdf(3.0))
        0.5
        """
        lines, points = self._line("cdf"), checks.to_array(x, "x")
        return line.cdf(lines, torch.from_numpy(points.reshape(1, 1, -1).copy())).numpy().reshape(points.shape)

    def quantile(self, q: Any) -> Array:
        """The true value below which a fraction q of a mixture's components lies, in one dimension.

        Parameters
        ----------
        q : array_like
            Levels strictly between 0 and 1, of any shape.

        Returns
        -------
        numpy.ndarray
            Of the shape of q.

        Examples
        --------
        >>> from xdeconv import Mixture
        >>> float(Mixture([1.0], [[3.0]], [[[4.0]]]).quantile(0.5))
        3.0
        """
        lines, levels = self._line("quantile"), line.checked_levels(q)
        return line.quantiles(lines, torch.from_numpy(levels.reshape(-1).copy())).numpy().reshape(levels.shape)

    def _line(self, what: str) -> line.Lines:
        if self.d != 1:
            raise ValueError(f"{what} is of one dimension and the mixture has {self.d}: take marginal([...]) first")
        log_weights, means, covariances = self._components()
        return line.Lines(log_weights.exp()[None], means[None], covariances[None, :, 0].sqrt())

    # As kernels want it

    def log_density(self, batch: Batch) -> Tensor:
        """Log-density (n,) of a batch of noisy rows, with the background, whatever their log-priors.

        Parameters
        ----------
        batch : Batch
            Of this mixture's coordinates; log-priors name components of a fit that it is the background of.

        Returns
        -------
        torch.Tensor
        """
        rows = replace(batch, log_prior=None, label=None)
        return kernels.log_prob(*self.scaled(batch.device), self.seen(rows))

    def seen(self, batch: Batch) -> Batch:
        """A batch as kernels want it: with the log-densities of this mixture's background.

        Parameters
        ----------
        batch : Batch
            Of this mixture's coordinates.

        Returns
        -------
        Batch
        """
        density = None if self.background is None else self.background.log_density(batch)
        return self._scaled_rows(replace(batch, background=density))

    def _scaled_rows(self, batch: Batch) -> Batch:
        batch = self.widened(batch)
        return batch if self.tails is None else self.tails.rows(batch)

    def widened(self, batch: Batch) -> Batch:
        """Rows with the errors that the mixture takes them to have: inflated by its fitted factors, if it has any.

        Parameters
        ----------
        batch : Batch
            Rows with their errors as they are quoted.

        Returns
        -------
        Batch
        """
        return batch if self.inflation is None else self.inflation.rows_of(batch)

    def _components(self) -> Parameters:
        """The components alone, whose weights sum to 1."""
        return self.with_(background=None).scaled()

    def scaled(self, device: torch.device | str = "cpu") -> Parameters:
        """Parameters as kernels want them for densities: with tails, six components for each.

        Parameters
        ----------
        device : torch.device or str
            Where they are wanted.

        Returns
        -------
        Parameters
        """
        own = self.tensors(device)
        return own if self.tails is None else self.tails.expanded(own)

    def population(self, device: torch.device | str = "cpu") -> Population:
        """What makes rows, as a selection function wants it.

        Parameters
        ----------
        device : torch.device or str
            Where it is wanted.

        Returns
        -------
        Population
        """
        refuse_bare(self.background)
        return Population(self.scaled(device), self.background)

    def tensors(self, device: torch.device | str = "cpu") -> Parameters:
        """Log-weights, means and covariances as float64 tensors, as kernels want them.

        Beside a background, the weights are those among all rows.

        Parameters
        ----------
        device : torch.device or str
            Where they are wanted.

        Returns
        -------
        Parameters
            Which unpacks into the three.
        """
        with np.errstate(divide="ignore"):
            arrays = np.log(self.shares[: self.k]), self.means, self.covariances
        return Parameters(*(torch.tensor(array, device=device) for array in arrays))


def _checked_background(mixture: Components) -> float:
    """The weight of a background, if it is one and has the mixture's dimensions."""
    beside, b = mixture.background, mixture.background_weight
    if beside is None:
        if b:
            raise ValueError(f"background_weight is {b!r} and there is no background")
        return 0.0
    if not isinstance(beside, Background):
        raise ValueError(f"background must be an xd.Uniform or an xd.Mixture, got {beside!r}")
    if beside.d not in (0, mixture.d):
        raise ValueError(f"the background has {beside.d} dimensions and the mixture {mixture.d}")
    if not 0 <= float(b) <= 1:
        raise ValueError(f"background_weight must lie between 0 and 1, got {b!r}")
    return float(b)


def _checked_meta(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """Facts that JSON can hold, as a copy."""
    try:
        return json.loads(json.dumps(dict(meta or {})))
    except (TypeError, ValueError) as problem:
        raise ValueError(f"meta must be what JSON can hold: {problem}") from problem
