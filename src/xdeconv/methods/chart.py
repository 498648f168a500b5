"""Chart: a mixture's free parameters as one vector, in coordinates where EM's step is the gradient.

Around an anchor with rows q_j, means m_j and V_j = L_j L_j^T, the coordinates are the logits of the weights, the shifts
of the means u_j = L_j^-1 (m - m_j), and the log-Cholesky factors C_j of V = L_j C_j C_j^T L_j^T, each multiplied by the
square root of the information that complete data would hold of it: q_j for logits, shifts and entries below the
diagonal of C_j, 2 q_j for its log-diagonal. There EM's step is the gradient to first order (Xu & Jordan 1996), so that
a quasi-Newton method has only to learn what noise, gaps and overlap take away from that information.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels.parameters import Parameters
from ..kernels.stats import Stats
from .fixed import Fixed
from .prior import Prior


@dataclass(frozen=True)
class Chart:
    """Coordinates (k (1 + d + d (d + 1) / 2),) around an anchor; ``information`` (k,) is that of complete data."""

    log_weights: Tensor
    means: Tensor
    factors: Tensor
    information: Tensor

    @classmethod
    def around(cls, parameters: Parameters, q: Tensor, prior: Prior | None) -> Chart:
        """The chart whose origin is a mixture with positive definite covariances and q (k,) rows per component."""
        information = q.clamp(min=1e-3 * float(q.mean())) + (0.0 if prior is None else prior.c)
        factors, failed = torch.linalg.cholesky_ex(parameters.covariances)
        factors = torch.where((failed > 0)[:, None, None], torch.nan, factors)
        return cls(parameters.log_weights, parameters.means, factors, information)

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        k, d = self.means.shape
        return k * (1 + d + d * (d + 1) // 2)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What coordinates stand for: logits (k,), shifts (k, d) and log-Cholesky entries (k, d (d + 1) / 2)."""
        k, d = self.means.shape
        root = self.information.sqrt()
        logits, shifts, entries = x.split([k, k * d, self.size - k * (1 + d)])
        return logits / root, shifts.view(k, d) / root[:, None], entries.view(k, -1) / (root[:, None] * self._ratio())

    def unscaled(self, x: Tensor) -> Tensor:
        """Coordinates as logits, shifts and entries in one vector, without the scale of their information."""
        return torch.cat([part.reshape(-1) for part in self.parts(x)])

    def parameters(self, x: Tensor, fixed: Fixed) -> Parameters:
        """The mixture at coordinates x."""
        logits, shifts, _ = self.parts(x)
        L = self.factors @ self._relative(x)
        log_weights = fixed.log_weights(self.log_weights + logits, self.log_weights)
        return Parameters(log_weights, self.means + (self.factors @ shifts[..., None])[..., 0], L @ L.mT)

    def gradient(self, x: Tensor, weights: Tensor, stats: Stats, prior: Prior | None, fixed: Fixed) -> Tensor:
        """The gradient of log-likelihood and log-prior in these coordinates, from the sums at x; zero where held."""
        k, d = self.means.shape
        C = self._relative(x)
        L = self.factors @ C
        q, G = stats.q, stats.G
        if prior is not None:
            eye = torch.eye(d, dtype=L.dtype, device=L.device).expand_as(L)
            root = torch.linalg.solve_triangular(L, eye, upper=False)
            q, G = q + (prior.concentration - 1), G + prior.gradient(root.mT @ root)
        free = ~fixed.mask("weights", k, q.device)
        shares = torch.where(free, weights, 0.0)
        shares = shares / shares.sum().clamp(min=1e-300)
        on_logits = torch.where(free, q - torch.where(free, q, 0.0).sum() * shares, 0.0)
        on_shifts = (self.factors.mT @ stats.g[..., None])[..., 0] * ~fixed.mask("means", k, q.device)[:, None]
        on_entries = self.factors.mT @ G @ L
        diagonal = torch.diag_embed(on_entries.diagonal(dim1=1, dim2=2) * (C.diagonal(dim1=1, dim2=2) - 1))
        a, b = torch.tril_indices(d, d, device=q.device)
        on_entries = (on_entries + diagonal)[:, a, b] * ~fixed.mask("covariances", k, q.device)[:, None]
        root = self.information.sqrt()
        parts = on_logits / root, on_shifts / root[:, None], on_entries / (root[:, None] * self._ratio())
        return torch.cat([part.reshape(-1) for part in parts])

    def longest(self, direction: Tensor) -> float:
        """How many times a direction may be gone before weights, means or widths change by more than they should."""
        most = torch.stack([part.abs().amax() for part in self.parts(direction)])
        limits = torch.tensor([2.0, 2.0, 1.0], dtype=most.dtype, device=most.device)
        return float((limits / most.clamp(min=1e-300)).amin())

    def _ratio(self) -> Tensor:
        """The information of log-Cholesky entries over that of shifts, as square roots (d (d + 1) / 2,)."""
        d = self.means.shape[1]
        a, b = torch.tril_indices(d, d, device=self.means.device)
        return torch.where(a == b, 2.0**0.5, 1.0).to(self.means.dtype)

    def _relative(self, x: Tensor) -> Tensor:
        """C (k, d, d): factors over the anchor's."""
        k, d = self.means.shape
        a, b = torch.tril_indices(d, d, device=x.device)
        entries = self.parts(x)[2]
        C = x.new_zeros(k, d, d)
        C[:, a, b] = torch.where(a == b, entries.exp(), entries)
        return C
