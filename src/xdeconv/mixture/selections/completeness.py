"""Any selection function: the chance that a row was kept as an average over rows that are drawn once and kept.

Draws x' of a proposal q stay where they are while a population p is fitted: P is the mean of omega p / q over them, so
that it is smooth in the parameters and repeatable, and its derivatives are sums of the same draws with these weights.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...rows.batch import Batch
from ...system.functions import named
from ..background import Background
from ..matrices import square_root
from .contract import FEWEST, Array, Population, Selecting, refuse_bare, standard_errors
from .drawing import Drawn


@dataclass(frozen=True)
class Completeness(Selecting):
    """Rows were kept with a probability that is any function of them, for ``selection=`` of :func:`xdeconv.fit`.

    Parameters
    ----------
    function : callable
        From rows (n, d) to probabilities (n,), or from rows and their errors (n, d); NaN is missing.
    noise : callable, optional
        A model of the noise given the true value, for noise that depends on it (of faint stars, say): from true values
        (n, d) to variances (n, d) or covariances (n, d, d). The chance to be kept is then that of the whole population,
        the same for all rows; otherwise it is that of rows with the noise of each.
    shift, scale : tuple of float, optional
        Of coordinates other than those that the functions know, which a fit sets.

    Examples
    --------
    >>> selection = Completeness(lambda X, error: X[:, 0] > 5 * error[:, 0])
    >>> selection.drawn
    True
    """

    function: Callable[..., Any]
    noise: Callable[[Array], Any] | None = None
    shift: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name, value in (("function", self.function), ("noise", self.noise)):
            if not callable(value) and not (value is None and name == "noise"):
                raise ValueError(f"{name} of a Completeness must be a function of rows, got {value!r}")

    @property
    def drawn(self) -> bool:
        """Chances are averages over draws."""
        return True

    def told(self, labels: Sequence[str] | None = None) -> str:
        """The names of its functions, and what they are made of."""
        return "Completeness(" + ", ".join(named(f) for f in (self.function, self.noise) if f is not None) + ")"

    def refuse_failing(self, batch: Batch) -> None:
        """Refuse functions that fail for rows, the model of noise for what these observe."""
        super().refuse_failing(batch)
        if self.noise is not None:
            complete = batch.x.T[~batch.x.isnan().any(0)]
            self.covariances(complete.double().cpu().numpy())

    def refuse(self, some: Batch, background: Background | None) -> None:
        """Refuse a background without a density elsewhere."""
        refuse_bare(background)

    def transformed(self, shift: Array, scale: Array) -> Completeness:
        """That of shift + scale * v: values go back before the function sees them."""
        before, by = self._frame(len(shift))
        moved = tuple((shift + scale * before).tolist()), tuple((scale * by).tolist())
        return Completeness(self.function, self.noise, *moved)

    def _frame(self, d: int) -> tuple[Array, Array]:
        shift = np.zeros(d) if self.shift is None else np.array(self.shift)
        return shift, np.ones(d) if self.scale is None else np.array(self.scale)

    def probability(self, batch: Batch) -> Tensor:
        """omega (n,), checked."""
        shift, scale = self._frame(batch.p)
        X = (batch.x.double().cpu().numpy().T - shift) / scale
        error = (standard_errors(batch).cpu().numpy().T / np.abs(scale)) * np.ones_like(X)
        return torch.from_numpy(self._checked(X, error)).to(batch.device)

    def _checked(self, X: Array, error: Array) -> Array:
        try:
            returned = self.function(X, error) if _takes_errors(self.function) else self.function(X)
        except Exception as problem:
            problem.add_note(f"This was raised by the function given for selection=, for an array of rows {X.shape}.")
            raise
        if returned is None:
            raise ValueError("selection returned nothing: it must return a probability for each row")
        try:
            if np.iscomplexobj(returned):
                raise TypeError("complex numbers")
            chance = np.asarray(returned).astype(np.float64)
        except (TypeError, ValueError) as problem:
            first = np.asarray(returned, dtype=object).ravel()[:1].tolist()
            raise ValueError(f"selection must return probabilities, got {first} for the first row") from problem
        if chance.shape != (len(X),):
            raise ValueError(
                f"selection returned an array of shape {chance.shape} for {len(X)} rows: it must be ({len(X)},)"
            )
        bad = ~((chance >= 0) & (chance <= 1))
        if bad.any():
            row = int(bad.argmax())
            raise ValueError(f"selection returned {chance[row]:g} for a row {X[row]}: it must lie between 0 and 1")
        return chance

    def covariances(self, v: Array) -> Array:
        """The noise (n, d, d) that the model has of true values (n, d), both in these coordinates.

        Parameters
        ----------
        v : array (n, d)
            True values.

        Returns
        -------
        numpy.ndarray
        """
        assert self.noise is not None
        shift, scale = self._frame(v.shape[1])
        given = np.asarray(self.noise((v - shift) / scale), dtype=np.float64)
        S = given[:, :, None] * np.eye(v.shape[1]) if given.shape == v.shape else given
        if S.shape != (*v.shape, v.shape[1]):
            raise ValueError(f"noise of a Completeness must return variances {v.shape} or covariances "
                             f"{(*v.shape, v.shape[1])}, got shape {given.shape}")  # fmt: skip
        bad = ~(np.isfinite(S).all((1, 2)) & (np.diagonal(S, axis1=1, axis2=2) >= 0).all(1))
        if bad.any():
            row = int(bad.argmax())
            true = (v[row] - shift) / scale
            raise ValueError(f"noise of a Completeness returned {given[row]} for a true value {true}: variances must "
                             "be finite and at least 0")  # fmt: skip
        return S * scale[:, None] * scale

    def noisy_rows(self, v: Array, like: Batch, rng: Any) -> Batch:
        """Rows that observe true values, with the noise that they have by the model, or that of others."""
        if self.noise is None:
            return super().noisy_rows(v, like, rng)
        S = self.covariances(v)
        x = v + np.einsum("npq,nq->np", square_root(S), rng.standard_normal(v.shape))
        return Batch.from_arrays(x, S)

    def needs_noise(self, noisy: bool) -> bool:
        """Not where it has a model of it."""
        return self.noise is None and noisy

    def around(self, proposal: Population, size: int, seed: int, fewest: int = FEWEST) -> Drawn:
        """Draws from a population."""
        return Drawn(self, proposal, size, seed, fewest)


@dataclass(frozen=True)
class Lost(Selecting):
    """A function that a file could not hold."""

    @property
    def drawn(self) -> bool:
        """Nothing can be."""
        return False

    def told(self, labels: Sequence[str] | None = None) -> str:
        """That it is not known."""
        return "a function that is not known"

    def refuse(self, some: Batch, background: Background | None) -> None:
        """Refuse everything."""
        raise _lost()

    def transformed(self, shift: Array, scale: Array) -> Lost:
        """The same."""
        return self

    def probability(self, batch: Batch) -> Tensor:
        """Not known."""
        raise _lost()

    def around(self, proposal: Population, size: int, seed: int, fewest: int = FEWEST) -> Drawn:
        """Not known."""
        raise _lost()


def _lost() -> ValueError:
    return ValueError(
        "the rows of this model were selected by a function, which a file cannot hold: give selection= again"
    )


def _takes_errors(function: Callable[..., Any]) -> bool:
    """Whether a function takes rows and errors, or rows alone."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    return len(plain) > 1 or any(p.kind is p.VAR_POSITIONAL for p in parameters)
