"""Judging mixtures: which rows a fit may see, which rows judge it, and what they say, one mixture beside another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import torch

from ... import kernels
from ...mixture._mixture import Mixture
from ...rows.cutting import permutation
from ...rows.data import ArraySource, Source
from ...system.devices import chosen_device, number_type
from ..beside.background import beside
from ..beside.inflating import with_groups_of
from ..beside.selected import selected_by
from ..frame import Frame
from ..gathering import hold_out


@dataclass(frozen=True)
class Verdict:
    """Mean log-likelihoods per unit of weight (s,) of several mixtures on the same rows, and their covariance (s, s).

    Rows that are hard are hard for all: a difference of two means is known far better than either.
    """

    means: np.ndarray
    covariance: np.ndarray
    weight: float

    def differences(self) -> tuple[np.ndarray, np.ndarray]:
        """Each mean minus the highest (s,), and the standard errors of these differences (s,), row by row paired."""
        top, C = int(np.argmax(self.means)), self.covariance
        variance = np.diag(C) + C[top, top] - C[top] - C[:, top]
        return self.means - self.means[top], np.sqrt(np.maximum(variance, 0.0))


def judged(
    mixtures: Sequence[Sequence[Mixture]], judges: Sequence[Source], device: Any = None, dtype: Any = None,
    options: kernels.Options | None = None,
) -> Verdict:  # fmt: skip
    """What rows say of several mixtures at once; ``mixtures[f]`` are judged by ``judges[f]``, all rows counting alike.

    Parameters
    ----------
    mixtures : sequence of sequences of Mixture
        As many for each of the judges.
    judges : sequence of Source
        Rows that the mixtures were not fitted to.
    device, dtype, options
        As :func:`xdeconv.fit` takes them.

    Returns
    -------
    Verdict
    """
    chosen = chosen_device(device)
    kind = number_type(dtype, chosen)
    origin, total = None, [0.0] * 5
    for some, judge in zip(mixtures, judges, strict=True):
        for w, rows in _scored(some, judge, chosen, kind, options):
            origin = rows.mean(axis=1) if origin is None else origin
            total = [a + b for a, b in zip(total, _sums(w, rows - origin[:, None]), strict=True)]
    return _verdict(origin, *total)


def _scored(
    mixtures: Sequence[Mixture], source: Source, device: torch.device, dtype: torch.dtype,
    options: kernels.Options | None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:  # fmt: skip
    """Weights (n,) and log-densities (s, n) of rows, batch by batch."""
    first = mixtures[0]
    source = with_groups_of(beside(source, first.background), first.inflation)
    frame = Frame.around(first)
    moved = source.standardized(frame.shift, frame.scale, device, dtype).arranged(None, 0)
    framed = [frame.into(mixture) for mixture in mixtures]
    parameters, options = [mixture.scaled(device) for mixture in framed], options or kernels.Options()
    selected = [selected_by(mixture, device) for mixture in framed]
    for batch in moved.batches(0):
        logs = [kernels.log_prob(*p, mixture.widened(batch), options).double()
                for p, mixture in zip(parameters, framed, strict=True)]  # fmt: skip
        gains = [0.0 if s is None else s.gain(p, batch) for p, s in zip(parameters, selected, strict=True)]
        rows = [(row + gain).cpu().numpy() for row, gain in zip(logs, gains, strict=True)]
        yield batch.weights("cpu").numpy(), np.stack(rows)


def _sums(w: np.ndarray, rows: np.ndarray) -> tuple[Any, ...]:
    """Sums of w, w^2, w l, w^2 l and w^2 l l^T, with l log-densities about an origin, so that little cancels."""
    return w.sum(), w @ w, rows @ w, rows @ w**2, (rows * w**2) @ rows.T


def _verdict(origin: Any, weight: Any, squares: Any, first: Any, second: Any, outer: Any) -> Verdict:
    if not weight > 0:
        raise ValueError("the rows that judge have no weight: give some of them a weight above 0")
    away = first / weight
    spread = outer - second[:, None] * away - away[:, None] * second + squares * away[:, None] * away
    return Verdict(origin + away, spread / weight**2, float(weight))


def parts_of(
    source: Source, criterion: str, folds: int, validation: Any, seed: int
) -> tuple[list[tuple[Source, Source]], dict[str, Any]]:
    """Rows to fit and rows that judge, for each trial of a number of components; and the settings that say so."""
    if criterion == "cv":
        return _folds(source, folds, seed), {"folds": folds}
    if criterion != "held-out":
        return [(source, source)], {}
    train, judge = hold_out(source, validation, seed)
    if judge is None:
        raise ValueError("criterion='held-out' judges by validation=: a fraction of the rows, or rows of their own")
    return [(train, judge)], {"validation": float(validation) if isinstance(validation, Real) else judge.stamp()}


def _folds(source: Source, folds: int, seed: int) -> list[tuple[Source, Source]]:
    if not isinstance(source, ArraySource):
        raise ValueError(f"cross-validation needs rows in memory and {type(source).__name__} streams them: "
                         "use criterion='held-out', or read fewer rows")  # fmt: skip
    if not isinstance(folds, int) or not 2 <= folds <= source.rows:
        raise ValueError(f"folds must be a whole number from 2 to the number of rows, {source.rows}, got {folds!r}")
    place = permutation(source.rows, seed, -2).to(source.batch.device) % folds
    chosen = [((place != fold).nonzero()[:, 0], (place == fold).nonzero()[:, 0]) for fold in range(folds)]
    return [(_rows(source, train), _rows(source, judge)) for train, judge in chosen]


def _rows(source: ArraySource, which: torch.Tensor) -> ArraySource:
    return replace(source, batch=source.batch.rows(which))
