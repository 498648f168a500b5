"""Batch: rows on a device, column-major, the only form in which data reaches a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import checks
from . import tables as tabular
from .redundant import turned

ROW_TENSORS = ("x", "noise", "projection", "weight", "background")  # numbers that have a place for each row


def packed_size(p: int) -> int:
    """Entries of the packed lower triangle of a (p, p) matrix."""
    return p * (p + 1) // 2


@dataclass(frozen=True)
class Batch:
    """n rows of p observed values, views of d latent ones. The row axis is last and may be strided.

    Noise that belongs to a missing value must be finite and is ignored. :meth:`from_arrays` makes a batch of users'
    arrays.

    Parameters
    ----------
    x : torch.Tensor (p, n)
        Observed values; NaN is missing.
    noise : torch.Tensor, optional
        Variances (p, n), or packed lower triangles (p (p + 1) / 2, n); (..., 1) when all rows share it.
    projection : torch.Tensor (p, d, n), optional
        Matrices through which each row sees the true values; without, p = d.
    weight : torch.Tensor (n,), optional
        How much each row counts.
    log_prior : torch.Tensor (n, k) or (classes, k), optional
        Added to the log-weights.
    label : torch.Tensor (n,), optional
        Which line of ``log_prior`` a row has, where it is a table of classes.
    scale : torch.Tensor (p,), optional
        The user's unit of each value is 1 / scale of the batch's: log-likelihoods are the user's.
    missing : bool, default False
        Whether there may be missing values.
    background : torch.Tensor (n,), optional
        Log-density of what else makes rows, in the user's units; it has the weight that components leave.
    group : torch.Tensor (n,), optional
        Which of several groups a row belongs to, each with factors of its own on errors.
    """

    x: Tensor
    noise: Tensor | None = None
    projection: Tensor | None = None
    weight: Tensor | None = None
    log_prior: Tensor | None = None
    label: Tensor | None = None
    scale: Tensor | None = None
    missing: bool = False
    background: Tensor | None = None
    group: Tensor | None = None

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        noise: Any = None,
        projection: Any = None,
        weight: Any = None,
        log_prior: Any = None,
        *,
        error: Any = None,
        label: Any = None,
        background: Any = None,
        group: Any = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float64,
    ) -> Batch:
        """Check arrays as users have them, and pack them.

        Rows that see more values than there are latent ones are turned (``rows.redundant``): their densities stay.

        Parameters
        ----------
        X : array-like (n, p) or table
            Noisy rows; NaN is missing.
        noise : array-like, optional
            Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
        projection : array-like (n, p, d), optional
            Matrices through which each row sees the true values.
        weight : array-like (n,), optional
            How much each row counts; 1 by default.
        log_prior : array-like (n, k) or (classes, k), optional
            Added to the log-weights, row by row or class by class; -inf rules a component out.
        error : array-like, optional
            Standard deviations (n, p) or (p,), instead of ``noise``.
        label : array-like (n,), optional
            The class of each row, where ``log_prior`` is a table of classes.
        background : array-like (n,), optional
            Log-density of what else makes rows, at each of them.
        group : array-like (n,), optional
            Whole numbers: the group of each row, where groups have factors of their own on errors.
        device : torch.device or str, default "cpu"
            Where the rows are wanted.
        dtype : torch.dtype, default torch.float64
            Their number type.

        Returns
        -------
        Batch
            The rows.

        Examples
        --------
        >>> Batch.from_arrays([[1.0, 2.0], [3.0, float("nan")]], error=[0.1, 0.2])
        Batch(rows=2, p=2, d=2, noise=diagonal shared, missing values)
        """
        noise, error = tabular.aligned(noise, X, "noise"), tabular.aligned(error, X, "error")
        weight, label = tabular.aligned(weight, X, "weight"), tabular.aligned(label, X, "label")
        log_prior = log_prior if label is not None else tabular.aligned(log_prior, X, "log_prior")
        noise, error = tabular.in_units_of(noise, X, 2, "noise"), tabular.in_units_of(error, X, 1, "error")
        x = checks.rows(X)
        n, p = x.shape
        observed = ~np.isnan(x)
        packed = checks.noise(noise, error, observed)
        batch = cls(
            x=_columns(x),
            noise=None if packed is None else _columns(packed),
            projection=checks.projection(projection, n, p),
            weight=checks.weight(weight, n),
            log_prior=checks.log_prior(log_prior, label, n),
            label=checks.label(label, log_prior, n),
            missing=not bool(observed.all()),
            background=checks.background(tabular.aligned(background, X, "background"), n),
            group=checks.group(group, n),
        )
        return batch._turned().to(device=device, dtype=dtype)

    def _turned(self) -> Batch:
        if self.projection is None or self.noise is None:
            return self
        views = turned(self.x, self.covariance(), self.projection, self.full)
        return self if views is None else replace(self, **views._asdict())

    @property
    def n(self) -> int:
        return self.x.shape[1]

    @property
    def p(self) -> int:
        return self.x.shape[0]

    @property
    def d(self) -> int:
        return self.x.shape[0] if self.projection is None else self.projection.shape[1]

    @property
    def device(self) -> torch.device:
        return self.x.device

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    @property
    def full(self) -> bool:
        """Whether the noise has covariances."""
        return self.noise is not None and self.noise.shape[0] == packed_size(self.p) and self.p > 1

    @property
    def shared(self) -> bool:
        """Whether T = R V R^T + S is the same for all rows: one noise or none, nothing missing, no projection."""
        one_noise = self.noise is None or self.noise.shape[1] == 1
        return one_noise and not self.missing and self.projection is None

    def weights(self, device: torch.device | str | None = None) -> Tensor:
        """Weight of each row, 1 where none is given.

        Parameters
        ----------
        device : torch.device or str, optional
            Where they are wanted; by default where the rows are.

        Returns
        -------
        torch.Tensor (n,)
            In float64.
        """
        if self.weight is None:
            return torch.ones(self.n, dtype=torch.float64, device=device or self.device)
        return self.weight.double().to(device)

    def total_weight(self) -> Tensor:
        """Sum of row weights, float64, on the device."""
        if self.weight is None:
            return torch.tensor(float(self.n), dtype=torch.float64, device=self.device)
        return self.weight.sum(dtype=torch.float64)

    def mean_weight(self) -> float:
        """Mean weight of a row: what one nat counts in a sum over rows, whose weights may have any unit."""
        return float(self.total_weight()) / max(self.n, 1)

    def variances(self) -> Tensor:
        """Variances of the noise (p, n or 1); zero where there is none."""
        if self.noise is None:
            return self.x.new_zeros(self.p, 1)
        return self.noise[[packed_size(a) + a for a in range(self.p)]] if self.full else self.noise

    def covariance(self) -> Tensor:
        """Noise as dense matrices (n or 1, p, p)."""
        if self.noise is None:
            return self.x.new_zeros(1, self.p, self.p)
        if not self.full:
            return torch.diag_embed(self.noise.T)
        a, b = torch.tril_indices(self.p, self.p, device=self.device)
        S = self.x.new_zeros(self.noise.shape[1], self.p, self.p)
        S[:, a, b] = S[:, b, a] = self.noise.T
        return S

    def rows(self, select: slice | Tensor) -> Batch:
        """Some of the rows.

        Parameters
        ----------
        select : slice or torch.Tensor
            Which: a slice gives a view, a tensor of indices a copy.

        Returns
        -------
        Batch
            These rows.
        """
        per_row_prior = self.log_prior is not None and self.label is None
        return replace(
            self._map(lambda t: t[..., select] if t.shape[-1] == self.n else t),
            log_prior=self.log_prior[select] if per_row_prior and self.log_prior is not None else self.log_prior,
        )

    def plain(self) -> Batch:
        """The same rows without what names components or is not fitted: log-priors and a background.

        Returns
        -------
        Batch
            Views of the same memory.
        """
        return replace(self, log_prior=None, label=None, background=None)

    def chunks(self, size: int) -> list[Batch]:
        """The rows in order, in several batches: views, not copies.

        Parameters
        ----------
        size : int
            At most so many rows each.

        Returns
        -------
        list of Batch
            One empty batch when there are no rows.
        """
        return [self.rows(slice(start, start + size)) for start in range(0, max(self.n, 1), size)]

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Batch:
        """The same rows on another device or in another type.

        Parameters
        ----------
        device : torch.device or str, optional
            Where to.
        dtype : torch.dtype, optional
            In which type; ``scale`` stays float64.

        Returns
        -------
        Batch
            The same rows.
        """

        overlap = device is not None and torch.device(device).type == "cuda"  # to the host it would be read too early

        def move(t: Tensor) -> Tensor:
            return t.to(device=device, dtype=dtype if t.is_floating_point() else None, non_blocking=overlap)

        moved = self._map(move)
        return replace(
            moved,
            log_prior=None if self.log_prior is None else move(self.log_prior),
            scale=None if self.scale is None else self.scale.to(device),
        )

    def standardized(self, shift: Tensor, scale: Tensor) -> Batch:
        """The batch in the latent coordinates (v - shift) / scale.

        Parameters
        ----------
        shift, scale : torch.Tensor (d,)
            Of each latent coordinate.

        Returns
        -------
        Batch
            In float64; log-likelihoods stay the user's.
        """
        shift, scale = shift.to(self.device, torch.float64), scale.to(self.device, torch.float64)
        x = self.x.double()
        if self.projection is not None:
            R = self.projection.double()
            moved = x - torch.einsum("pdn,d->pn", R, shift)
            return replace(self.to(dtype=torch.float64), x=moved, projection=R * scale[None, :, None])
        a, b = torch.tril_indices(self.p, self.p, device=self.device)
        per_noise = scale[a] * scale[b] if self.full else scale**2
        return replace(
            self.to(dtype=torch.float64),
            x=(x - shift[:, None]) / scale[:, None],
            noise=None if self.noise is None else self.noise.double() / per_noise[:, None],
            scale=scale if self.scale is None else self.scale * scale,
        )

    def _map(self, f: Callable[[Tensor], Tensor]) -> Batch:
        tensors = {name: getattr(self, name) for name in (*ROW_TENSORS, "label", "group")}
        changed: dict[str, Any] = {name: None if t is None else f(t) for name, t in tensors.items()}
        return replace(self, **changed)

    def __repr__(self) -> str:
        kind = "none" if self.noise is None else "full" if self.full else "diagonal"
        if self.noise is not None and self.noise.shape[1] == 1:
            kind += " shared"
        notes = [f"rows={self.n}, p={self.p}, d={self.d}, noise={kind}"]
        notes += ["missing values"] if self.missing else []
        notes += ["projected"] if self.projection is not None else []
        return f"Batch({', '.join(notes)})"


def concatenate(batches: list[Batch]) -> Batch:
    """One batch of all rows; all must have the same kind of noise, projection, weights and priors."""
    first = batches[0]
    shared_noise = all(b.noise is not None and b.noise.shape[1] == 1 for b in batches) and any(b.n > 1 for b in batches)

    def join(name: str) -> Tensor | None:
        parts = [getattr(b, name) for b in batches]
        if parts[0] is None or (name == "noise" and shared_noise):
            return parts[0]
        return torch.cat(parts, dim=0 if name == "log_prior" else -1)

    names = [*ROW_TENSORS, "label", "group"]
    if first.label is None:
        names.append("log_prior")
    joined: dict[str, Any] = {name: join(name) for name in names}
    return replace(first, **joined, missing=any(b.missing for b in batches))


def _columns(rows: np.ndarray) -> Tensor:
    """(n, c) rows as a contiguous (c, n) tensor of its own memory."""
    return torch.from_numpy(np.array(rows.T, order="C"))
