"""Which parameters of which components are held as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .prior import Prior

SHOWN = 8  # numbers that a message repeats
Choice = bool | Sequence[bool] | Sequence[int] | Sequence[Sequence[bool]]


@dataclass(frozen=True)
class Fixed:
    """Weights, means or covariances that stay as they are.

    Parameters
    ----------
    weights, covariances : bool, or sequence of bool or int
        True for all components, one boolean per component, or the indices of some.
    means : bool, sequence of bool or int, or (k, d) booleans
        The same, or a boolean for every coordinate of every mean.

    Examples
    --------
    >>> Fixed(means=[0, 2]).mask("means", 3, "cpu").tolist()
    [True, False, True]
    >>> Fixed(means=[[True, False], [False, False]]).coordinates(2, 2, "cpu").tolist()
    [[True, False], [False, False]]
    """

    weights: Choice = False
    means: Choice = False
    covariances: Choice = False

    def __post_init__(self) -> None:
        for name in ("weights", "means", "covariances"):
            object.__setattr__(self, name, _plain(getattr(self, name), name))

    def on_weights(self, weights: int, k: int, device: torch.device | str) -> Tensor:
        """Which weights are held.

        Parameters
        ----------
        weights : int
            k, or k + 1 with a background.
        k : int
            How many components there are.
        device : torch.device or str
            Where the booleans are wanted.

        Returns
        -------
        torch.Tensor (weights,)
            Booleans; a background's weight, which comes last, is never held.
        """
        mask = self.mask("weights", k, device)
        return mask if weights == k else torch.cat([mask, mask.new_zeros(weights - k)])

    def mask(self, what: str, k: int, device: torch.device | str) -> Tensor:
        """Which components hold ``what``, in all coordinates.

        Parameters
        ----------
        what : str
            weights, means or covariances.
        k : int
            How many components there are.
        device : torch.device or str
            Where the booleans are wanted.

        Returns
        -------
        torch.Tensor (k,)
            Booleans.
        """
        choice = getattr(self, what)
        if isinstance(choice, bool):
            return torch.full((k,), choice, device=device)
        values = torch.as_tensor(choice, device=device)
        if values.ndim == 2:
            if len(values) != k:
                raise ValueError(f"Fixed({what}=...) has booleans for {len(values)} components and there are {k}")
            return values.all(1)
        if values.dtype == torch.bool:
            if len(values) != k:
                raise ValueError(f"Fixed({what}=...) has {len(values)} booleans for {k} components")
            return values
        if len(values) and (int(values.min()) < 0 or int(values.max()) >= k):
            raise ValueError(f"Fixed({what}={list(choice)}) names a component outside 0..{k - 1}")
        mask = torch.zeros(k, dtype=torch.bool, device=device)
        mask[values.long()] = True
        return mask

    def coordinates(self, k: int, d: int, device: torch.device | str) -> Tensor:
        """Which coordinates of which means are held.

        Parameters
        ----------
        k : int
            How many components there are.
        d : int
            Dimensions.
        device : torch.device or str
            Where the booleans are wanted.

        Returns
        -------
        torch.Tensor (k, d)
            Booleans.
        """
        whole = self.mask("means", k, device)[:, None].expand(k, d)
        if isinstance(self.means, bool) or not isinstance(next(iter(self.means), None), tuple):
            return whole
        values = torch.as_tensor(self.means, device=device)
        if values.shape != (k, d):
            raise ValueError(f"Fixed(means=...) has booleans of shape {tuple(values.shape)} for means {(k, d)}")
        return values

    def refuse(self, k: int, d: int) -> None:
        """Refuse choices that do not fit.

        Parameters
        ----------
        k, d : int
            Components and dimensions.
        """
        self.coordinates(k, d, "cpu")
        for what in ("weights", "covariances"):
            self.mask(what, k, "cpu")

    def log_weights(self, logits: Tensor, held: Tensor, k: int) -> Tensor:
        """Log-weights: held ones as they were, a softmax of the logits among the others.

        Parameters
        ----------
        logits : torch.Tensor (k,) or (k + 1,)
            Of the free ones.
        held : torch.Tensor
            Log-weights as they were.
        k : int
            How many of them are components.

        Returns
        -------
        torch.Tensor
            Logarithms of the weights.
        """
        if self.weights is False:
            return logits.log_softmax(0)
        fixed = self.on_weights(len(logits), k, logits.device)
        left = 1 - torch.where(fixed, held.exp(), 0.0).sum()
        return torch.where(fixed, held, torch.where(fixed, -torch.inf, logits).log_softmax(0) + left.log())


def refuse_other_kinds(method: Any) -> None:
    """Refuse a method whose prior is not a Prior or whose fixed is not a Fixed."""
    for name, kind in (("prior", Prior), ("fixed", Fixed)):
        value = getattr(method, name)
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"{name} must be an xd.{kind.__name__}(...), got {value!r}")


def share_among_free(weights: Tensor, held: Tensor, fixed: Tensor) -> Tensor:
    """Weights (k,) with fixed ones as they were and the others sharing the rest in proportion."""
    free = torch.where(fixed, 0.0, weights)
    left = 1 - torch.where(fixed, held, 0.0).sum()
    total = free.sum()
    return torch.where(fixed, held, torch.where(total > 0, free * left / total, free))


def _shown(choice: Any, values: np.ndarray) -> str:
    """A choice in a message: what many numbers are, in place of them all."""
    if values.size > SHOWN:
        return f"{values.dtype} of shape {values.shape}"
    return repr(choice) if values.dtype != object else "lines of different lengths"


def _plain(choice: Any, what: str) -> Choice:
    """A choice as it can be compared and written down: a bool, or tuples of bool or int."""
    if isinstance(choice, (bool, np.bool_)):
        return bool(choice)
    try:
        values = np.asarray(choice)
    except ValueError:  # lines of different lengths
        values = np.empty(0, dtype=object)
    shapes = (1, 2) if what == "means" else (1,)
    if values.size == 0 and values.ndim == 1 and values.dtype != object:
        return ()
    if values.ndim not in shapes or values.dtype.kind not in "biu" or (values.ndim == 2 and values.dtype != bool):
        more = ", or (k, d) booleans" if what == "means" else ""
        raise ValueError(f"Fixed({what}=...) must be True, one boolean per component, indices of components{more}; "
                         f"got {_shown(choice, values)}")  # fmt: skip
    return tuple(tuple(line) for line in values.tolist()) if values.ndim == 2 else tuple(values.tolist())
