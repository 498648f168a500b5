"""Which parameters of which components are held as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .prior import Prior

Choice = bool | Sequence[bool] | Sequence[int]


@dataclass(frozen=True)
class Fixed:
    """Weights, means or covariances of chosen components: True for all, k booleans, or indices.

    >>> Fixed(means=[0, 2]).mask("means", 3, "cpu").tolist()
    [True, False, True]
    """

    weights: Choice = False
    means: Choice = False
    covariances: Choice = False

    def on_weights(self, weights: int, k: int, device: torch.device | str) -> Tensor:
        """Which of so many weights are held; with one more than components, the last is a background's and is not."""
        mask = self.mask("weights", k, device)
        return mask if weights == k else torch.cat([mask, mask.new_zeros(weights - k)])

    def mask(self, what: str, k: int, device: torch.device | str) -> Tensor:
        """Booleans (k,): which components hold ``what``."""
        choice = getattr(self, what)
        if isinstance(choice, bool):
            return torch.full((k,), choice, device=device)
        values = torch.as_tensor(choice, device=device)
        if values.dtype == torch.bool:
            if len(values) != k:
                raise ValueError(f"Fixed({what}=...) has {len(values)} booleans for {k} components")
            return values
        if len(values) and (int(values.min()) < 0 or int(values.max()) >= k):
            raise ValueError(f"Fixed({what}={list(choice)}) names a component outside 0..{k - 1}")
        mask = torch.zeros(k, dtype=torch.bool, device=device)
        mask[values.long()] = True
        return mask

    def log_weights(self, logits: Tensor, held: Tensor, k: int) -> Tensor:
        """Log-weights (k,), or (k + 1,): held ones as they were, a softmax of the logits among the others."""
        if self.weights is False:
            return logits.log_softmax(0)
        fixed = self.on_weights(len(logits), k, logits.device)
        left = 1 - torch.where(fixed, held.exp(), 0.0).sum()
        return torch.where(fixed, held, torch.where(fixed, -torch.inf, logits).log_softmax(0) + left.log())


def refuse_other_kinds(method: Any) -> None:
    """Refuse a method whose prior is no Prior or whose fixed is no Fixed."""
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
