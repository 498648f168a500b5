"""Tails heavier than a Gaussian's: each component a mixture of Gaussians of one mean and shape, and several scales.

Student's t with nu degrees of freedom is a Gaussian of covariance V / u with u of a Gamma distribution. Six values of
u, evenly spaced in their logarithm between its quantiles 0.001 and 0.99, stand for all: for nu = 3 the log-density of a
row is then off by 0.0003 nat on average in one dimension, by 0.0016 in three and by 0.01 in seven. Noise stays exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import gammaincinv
from torch import Tensor

from ..kernels.parameters import Parameters
from ..kernels.stats import Stats
from ..rows.batch import Batch

SCALES = 6
LOW, HIGH = 1e-3, 0.99  # quantiles of u
LEAST, MOST = 0.5, 1000.0  # nu that a fit may come to
LOW_END, HIGH_END = 1e-6, 1e-3  # of that range, at its ends, where numbers have no slope; a nu of 999 is one of 1000
SLOW = 1e-3  # of log nu per number: less counts as this where it is said what rows know of the number
STEP = 1e-4  # of log nu, for derivatives
INFORMATION = 0.5  # of one row about log nu, in order of magnitude
FIRST = 5.0  # nu that a fit begins with


class Scales(NamedTuple):
    """Factors c (s,) on V, and the share p (s,) of each."""

    c: Tensor
    p: Tensor


@dataclass(frozen=True)
class StudentT:
    """Tails of Student's t, for ``tails=`` of :func:`xdeconv.fit`.

    Parameters
    ----------
    nu : float, optional
        Degrees of freedom, one number for all components; fitted where it is not given.
    fitted : bool, default False
        Whether a fit may change nu; true where it is not given.

    Examples
    --------
    >>> StudentT(3.0)
    StudentT(nu=3.0, fitted=False)
    """

    nu: float | None = None
    fitted: bool = False

    def __post_init__(self) -> None:
        if self.nu is None:
            object.__setattr__(self, "fitted", True)
        elif isinstance(self.nu, (bool, str)) or not LEAST <= float(self.nu) <= MOST:
            raise ValueError(f"nu must be a number from {LEAST} to {MOST:g}, or None to fit it, got {self.nu!r}")

    @property
    def numbers(self) -> Tensor:
        """What a fit carries: a number (1,) that nu grows with where it is fitted, nothing (0,) otherwise.

        Any number stands for a nu between LEAST and MOST; it is about log(nu - LEAST).
        """
        if not self.fitted:
            return torch.zeros(0, dtype=torch.float64)
        share = ((FIRST if self.nu is None else self.nu) - LEAST) / (MOST - LEAST)
        share = min(max(share, LOW_END), 1 - HIGH_END)
        return torch.tensor([np.log(MOST - LEAST) + np.log(share) - np.log1p(-share)], dtype=torch.float64)

    def at(self, numbers: Tensor) -> StudentT:
        """These tails with the number that a fit has come to.

        Parameters
        ----------
        numbers : torch.Tensor
            (1,), or (0,) where nu is given.

        Returns
        -------
        StudentT
        """
        if not self.fitted:
            return self
        share = float((numbers[0] - np.log(MOST - LEAST)).sigmoid())
        return StudentT(LEAST + (MOST - LEAST) * share, fitted=True)

    @property
    def _by_number(self) -> float:
        """How much the logarithm of nu grows with the number that a fit carries."""
        nu = FIRST if self.nu is None else self.nu
        return (nu - LEAST) * (MOST - nu) / (MOST - LEAST) / nu

    def scales(self) -> Scales:
        """The scales that stand for them."""
        return scales(float(np.log(FIRST if self.nu is None else self.nu)))

    def expanded(self, parameters: Parameters) -> Parameters:
        """Every component as several (..., k s, ...), those of one component beside each other.

        Parameters
        ----------
        parameters : Parameters
            Of k components, or (g, k, ...) of those of several mixtures.

        Returns
        -------
        Parameters
        """
        c, p = (t.to(parameters.means) for t in self.scales())
        log_weights = (parameters.log_weights[..., None] + p.log()).flatten(-2)
        means = parameters.means.repeat_interleave(len(c), -2)
        V = (c[:, None, None] * parameters.covariances[..., None, :, :]).flatten(-4, -3)
        return Parameters(log_weights, means, V)

    def held(self) -> StudentT:
        """The same with a nu that no fit may change.

        Returns
        -------
        StudentT
        """
        return StudentT(FIRST if self.nu is None else self.nu)

    def rows(self, batch: Batch) -> Batch:
        """A batch as expanded components want it: log-priors of components are those of all their scales.

        Parameters
        ----------
        batch : Batch
            The rows.

        Returns
        -------
        Batch
        """
        if batch.log_prior is None:
            return batch
        return replace(batch, log_prior=batch.log_prior.repeat_interleave(SCALES, dim=1))

    def pulled_back(self, stats: Stats, V: Tensor) -> Stats:
        """Sums of expanded components as those of the components: derivatives by the chain rule.

        Parameters
        ----------
        stats : Stats
            Of all scales of all components.
        V : torch.Tensor
            (k, d, d), the shapes of the components.

        Returns
        -------
        Stats
        """
        s, d, k = SCALES, stats.d, len(V)
        log_nu = float(np.log(FIRST if self.nu is None else self.nu))
        c, p = (t.to(V) for t in scales(log_nu))
        q, g, G = stats.q.view(k, s), stats.g.view(k, s, d), stats.G.view(k, s, d, d)
        parts = [stats.packed[:2], q.sum(1), g.sum(1).flatten(), (c[:, None, None] * G).sum(1).flatten()]
        if self.fitted:
            up, down = scales(log_nu + STEP), scales(log_nu - STEP)
            on_c, on_p = ((a - b).to(V) / (2 * STEP) for a, b in zip(up, down, strict=True))
            inside = 0.5 * torch.einsum("kab,ksab->s", V, G)
            slope = (inside @ on_c) + (q.sum(0) / p) @ on_p
            by = self._by_number
            parts += [by * slope[None], max(by, SLOW) ** 2 * INFORMATION * stats.rows[None]]
        parts.append((q / c).sum(1))
        parts += [stats.packed[-1:]] if stats.unseen else []
        return Stats(torch.cat(parts), k, d, stats.whole, int(self.fitted), heavy=True, unseen=stats.unseen)


def as_tails(tails: Any) -> StudentT | None:
    """What a user says of tails: Student's, their nu alone, or none."""
    if tails is None or isinstance(tails, StudentT):
        return tails
    if isinstance(tails, Real) and not isinstance(tails, bool):
        return StudentT(float(tails))
    raise ValueError(f"tails must be an xd.StudentT(...), or its nu, got {tails!r}")


def scales(log_nu: float) -> Scales:
    """Six values of V's factor, and their shares, for Student's t with nu degrees of freedom.

    >>> [round(float(c), 2) for c in scales(float(np.log(3.0))).c]
    [123.47, 36.12, 10.56, 3.09, 0.9, 0.26]
    """
    a = float(np.exp(log_nu)) / 2
    t = np.linspace(np.log(gammaincinv(a, LOW)), np.log(gammaincinv(a, HIGH)), SCALES)
    log_p = a * t - np.exp(t)
    p = np.exp(log_p - log_p.max())
    return Scales(torch.from_numpy(a / np.exp(t)), torch.from_numpy(p / p.sum()))
