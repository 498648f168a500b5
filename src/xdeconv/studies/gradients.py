"""Gradients of what is computed from a mixture, by the coordinates of a chart around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..kernels.parameters import Parameters
from ..methods.chart import Chart
from ..methods.fixed import Fixed
from ..methods.structures import FULL, Structure
from ..mixture._mixture import Mixture
from ..rows.batch import Batch
from .beside import Beside
from .information import scores_of

Array = np.ndarray
CHUNK = 1 << 22  # numbers in the gradients on covariances that are pulled back together
STEP = 1e-4  # of weights, means over widths, widths and numbers, relative, for functions without autograd


@dataclass(frozen=True)
class Gradients:
    """A mixture in the user's units, and the chart that its errors are computed in.

    Parameters
    ----------
    mixture : Mixture
        The fit.
    chart : Chart
        The coordinates of the fit, around the mixture in the user's units.
    free : Tensor (P,)
        Which of them are not held.
    fixed : Fixed
        Parameters that were held.
    beside : Beside
        What the model has beside Gaussian components.
    structure : Structure
        What covariances may look like.
    """

    mixture: Mixture
    chart: Chart
    free: Tensor
    fixed: Fixed
    beside: Beside
    structure: Structure = FULL

    def pulled(self, on_weights: Tensor, on_means: Tensor, on_covariances: Tensor) -> Tensor:
        """Gradients by weights (m, k), means (m, k, d) and covariances (m, k, d, d) as ones by the chart's (m, P)."""
        d, L = self.mixture.d, self.chart.factors
        shares = torch.from_numpy(np.array(self.mixture.shares))
        free = self.free[: len(shares)]
        if self.beside.background:  # weights among components, by weights among all rows
            of_all = on_weights @ torch.from_numpy(np.array(self.mixture.weights))
            on_weights = torch.cat([on_weights, of_all[:, None]], 1) / (1 - shares[-1]).clamp(min=1e-300)
        alpha = torch.where(free, shares, 0.0)
        share = alpha / alpha.sum().clamp(min=1e-300)
        on_logits = alpha * on_weights - share * (on_weights @ alpha)[:, None]
        A = L.mT @ on_covariances @ L
        a, b = torch.tril_indices(d, d)
        entries = (A + A.mT)[..., a, b]
        none = entries.new_zeros(len(entries), len(self.beside.numbers))
        parts = on_logits, torch.einsum("kab,mka->mkb", L, on_means), entries, none
        return self._in_chart(torch.cat([part.flatten(1) for part in parts], 1))

    def of_rows(self, batch: Batch) -> tuple[Array, Tensor]:
        """Log-densities (n,) of rows and their gradients (n, P)."""
        free = self.free[: len(self.mixture.shares)]
        value, raw = scores_of(batch, Parameters(*self.mixture.tensors()), self.chart.factors, free, self.beside)
        return value.numpy(), self._in_chart(raw)

    def by_autograd(self, function: Callable[..., Any]) -> tuple[Array, Tensor]:
        """The value of a function of three tensors, and its gradients (m, P)."""
        arrays = (self.mixture.weights, self.mixture.means, self.mixture.covariances)
        inputs = [torch.tensor(array, requires_grad=True) for array in arrays]
        value = function(*inputs)
        if not isinstance(value, Tensor) or not value.requires_grad:
            raise ValueError("with autograd=True, the function must compute a torch tensor from those it is given")
        grads = [torch.autograd.grad(v, inputs, retain_graph=True, allow_unused=True) for v in value.reshape(-1)]
        columns = [torch.stack([torch.zeros_like(x) if g[i] is None else g[i] for g in grads])
                   for i, x in enumerate(inputs)]  # fmt: skip
        return value.detach().numpy(), self.pulled(*columns)

    def by_differences(self, function: Callable[[Mixture], Any]) -> tuple[Array, Tensor]:
        """The value of a function of a mixture, and its gradients (m, P)."""
        value = np.asarray(function(self.mixture), dtype=np.float64)
        gradient = np.zeros((value.size, self.chart.size))
        for e in np.flatnonzero(self.free.numpy()):
            x = torch.zeros(self.chart.size, dtype=torch.float64)
            x[e] = 1.0
            x[e] = STEP / self.chart.changes(x).amax()
            ends = [np.asarray(function(self._at(way * x)), dtype=np.float64).reshape(-1) for way in (1, -1)]
            gradient[:, e] = (ends[0] - ends[1]) / (2 * float(x[e]))
        return value, torch.from_numpy(gradient)

    def _in_chart(self, raw: Tensor) -> Tensor:
        """Gradients (m, P) from those on logits, shifts, entries of factors C of V = L C C^T L^T, and numbers."""
        k, d = self.chart.means.shape
        sizes = [len(self.chart.log_weights), k * d, k * d * (d + 1) // 2, len(self.chart.numbers)]
        logits, shifts, entries, numbers = raw.split(sizes, 1)
        root = self.chart.information.sqrt()
        on_shape = self._on_shape(entries.reshape(-1, k, sizes[2] // k))
        shifts, numbers = shifts / root[:k].repeat_interleave(d), numbers / self.chart.certainty.sqrt()
        return torch.cat([logits / root, shifts, on_shape, numbers], 1) * self.free

    def _on_shape(self, entries: Tensor) -> Tensor:
        """Gradients on what stands for covariances, from those (m, k, d (d + 1) / 2) on the entries of C."""
        (k, d), shape = self.chart.means.shape, self.chart.shape
        zero = entries.new_zeros(shape.size)
        if self.structure == FULL:
            return entries.flatten(1) * shape.unscaled(zero + 1)
        a, b = torch.tril_indices(d, d)
        whole = entries.new_zeros(len(entries), k, d, d)
        whole[..., a, b] = whole[..., b, a] = entries
        inverse = torch.linalg.solve_triangular(self.chart.factors, torch.eye(d, dtype=zero.dtype), upper=False)
        every = torch.ones(k, dtype=torch.bool)
        on_shape = torch.func.vmap(lambda G: shape.gradient(zero, G, every), chunk_size=max(1, CHUNK // (k * d * d)))
        return on_shape(inverse.mT @ whole @ inverse)

    def _at(self, x: Tensor) -> Mixture:
        """The mixture at some place of the chart, in the user's units."""
        m, state = self.mixture, self.chart.state(x, self.fixed, 0.0)
        weights, b = state.weights[: m.k], float(1 - state.weights[: m.k].sum()) if self.beside.background else 0.0
        now = self.beside.carried.at(state.extra)
        return replace(m, weights=(weights / weights.sum()).numpy(), means=state.means.numpy(),
                       covariances=state.covariances.numpy(), background_weight=min(max(b, 0.0), 1.0),
                       tails=now.tails, inflation=now.inflation)  # fmt: skip
