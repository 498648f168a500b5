"""Selection functions: the chance that a row was kept, given what was observed of it and its noise.

A row x_i with noise S_i was kept with probability omega(x_i, S_i). Given that it was, its log-likelihood is

    log p(x_i | S_i) + log omega(x_i, S_i) - log P_i,      P_i = integral of p(x | S_i) omega(x, S_i) dx.

It is given the row's own noise, which must not depend on the true value: then a cut on x / error is exact. With
alpha_j P_ij the part of P_i that component j makes, the rows that a survey would keep are shared as s_ij =
alpha_j P_ij / P_i, and the derivatives of log P_i are the mean of those of log p over the rows kept. So the sums that
methods learn from are those of the rows less those of the rows kept, in the mean, plus 1 / P_i rows of the mixture
itself, which have q = alpha and g = G = 0: the rows that were rejected are back, and methods stay as they are.

P_i is taken as 1e-9 more than it is. Of few rows, the likelihood may rise without end, by some thousandths of a nat for
each tenth of P, as a component leaves for where nothing is kept and only its tail is seen: so it has a maximum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...kernels.parameters import Parameters
from ...kernels.stats import Stats
from ...rows.batch import Batch
from ..background import Background, Rows
from ..matrices import square_root

Array = np.ndarray
TRIES = 10_000
FEWEST = 1 << 15  # draws of a batch
FLOOR = 1e-9  # that is added to chances


class Population(NamedTuple):
    """What makes rows: Gaussians with their weights among all rows, and a background that has what they leave."""

    parameters: Parameters
    background: Background | None = None

    @property
    def beside(self) -> Tensor:
        """The background's weight."""
        return (1 - self.parameters.log_weights.exp().sum()).clamp(min=0.0)


class Kept(NamedTuple):
    """Of rows: log P (n,) and log omega (n,); of all together, the sums over the rows that would be kept, in the mean.

    q (k,), g (k, d) and G (k, d, d) are as :class:`xdeconv.kernels.stats.Stats` has them, with row weights.
    """

    log_chance: Tensor
    log_kept: Tensor
    q: Tensor
    g: Tensor
    G: Tensor


class Selecting(ABC):
    """A selection function in the coordinates of a model, for rows without projections."""

    @abstractmethod
    def probability(self, batch: Batch) -> Tensor:
        """omega: the probability that each row was kept.

        Parameters
        ----------
        batch : Batch
            Noisy rows.

        Returns
        -------
        torch.Tensor (n,)
            Float64.
        """

    @abstractmethod
    def transformed(self, shift: Array, scale: Array) -> Selecting:
        """That of shift + scale * v.

        Parameters
        ----------
        shift, scale : array (d,)
            Of each coordinate.

        Returns
        -------
        Selecting
            Of the other coordinates.
        """

    @abstractmethod
    def around(self, proposal: Population, size: int, seed: int, fewest: int = FEWEST) -> Chances:
        """How the chances of rows are to be computed for populations that are like one.

        Parameters
        ----------
        proposal : Population
            What it is drawn from, where something is drawn.
        size : int
            Draws per row, in proportion.
        seed : int
            Of the draws.
        fewest : int, default 32768
            At least so many draws of a batch.

        Returns
        -------
        Chances
        """

    @property
    @abstractmethod
    def drawn(self) -> bool:
        """Whether chances are averages over draws."""

    @abstractmethod
    def refuse(self, some: Batch, background: Background | None) -> None:
        """Refuse a number of dimensions, errors or a background that it is not made for.

        Parameters
        ----------
        some : Batch
            Some of the rows.
        background : Background or None
            What else makes rows.
        """

    @abstractmethod
    def told(self, labels: Sequence[str] | None = None) -> str:
        """Itself as text that is the same whenever it is.

        Parameters
        ----------
        labels : sequence of str, optional
            Names of the coordinates.

        Returns
        -------
        str
        """

    def refuse_failing(self, batch: Batch) -> None:
        """Refuse functions that fail for rows.

        Parameters
        ----------
        batch : Batch
            Noisy rows.
        """
        self.probability(batch)

    def needs_noise(self, noisy: bool) -> bool:
        """Whether what is kept cannot be told without the errors of rows.

        Parameters
        ----------
        noisy : bool
            Whether the rows of the fit had errors.

        Returns
        -------
        bool
        """
        return noisy

    def drawn_rows(self, draw: Callable[[int, np.random.Generator], Array], like: Batch, rng: Any) -> Array:
        """Noisy rows that were kept, each drawn again until it was.

        Parameters
        ----------
        draw : callable
            From a number and a generator to true values (size, d).
        like : Batch
            Rows whose noise they have.
        rng : numpy.random.Generator
            Where randomness comes from.

        Returns
        -------
        numpy.ndarray (n, d)
        """
        rows, left = np.empty((like.n, like.p)), np.arange(like.n)
        for _ in range(TRIES):
            if not len(left):
                return rows
            some = like.rows(torch.from_numpy(left))
            x = self.noisy_rows(draw(len(left), rng), some, rng)
            chance = self.probability(x).numpy()
            kept = rng.random(len(left)) < chance
            rows[left[kept]] = x.x.numpy().T[kept]
            left = left[~kept]
        raise ValueError(f"row {left[0]} was not kept in {TRIES} draws: its errors leave it almost no chance")

    def noisy_rows(self, v: Array, like: Batch, rng: Any) -> Batch:
        """Rows that observe true values with the noise of others.

        Parameters
        ----------
        v : array (n, d)
            True values.
        like : Batch
            Rows whose noise they have.
        rng : numpy.random.Generator
            Where randomness comes from.

        Returns
        -------
        Batch
        """
        root = square_root(like.covariance().double().numpy())
        x = v + np.einsum("npq,nq->np", root, rng.standard_normal(v.shape))
        return replace(like, x=torch.from_numpy(x.T.copy()))


class Chances(ABC):
    """The chance P_i that a row with the noise of row i is kept, for populations that are fitted."""

    @abstractmethod
    def log_chance(self, population: Population, batch: Batch) -> Tensor:
        """log P (n,), float64.

        Parameters
        ----------
        population : Population
            What makes rows.
        batch : Batch
            Rows whose noise and gaps count.

        Returns
        -------
        torch.Tensor
        """

    @abstractmethod
    def kept(self, population: Population, batch: Batch) -> Kept:
        """What a survey keeps of rows like these.

        Parameters
        ----------
        population : Population
            What makes rows.
        batch : Batch
            Rows whose noise, gaps and weights count.

        Returns
        -------
        Kept
        """

    def worth(self, population: Population, batch: Batch) -> float:
        """What draws are worth for a population, over what they were worth for the one that they are of.

        Parameters
        ----------
        population : Population
            What makes rows.
        batch : Batch
            Rows whose noise and gaps count.

        Returns
        -------
        float
            1 where nothing is drawn.
        """
        return 1.0

    @abstractmethod
    def log_kept(self, batch: Batch) -> Tensor:
        """log omega (n,), float64.

        Parameters
        ----------
        batch : Batch
            Noisy rows.

        Returns
        -------
        torch.Tensor
        """

    def corrected(self, stats: Stats, population: Population, batch: Batch) -> Stats:
        """Sums of rows as methods want them: with the rows that were rejected.

        Parameters
        ----------
        stats : Stats
            Of the rows.
        population : Population
            What they were computed for.
        batch : Batch
            The rows.

        Returns
        -------
        Stats
            Whose ``rows`` count those that were rejected too; ``seen`` does not.
        """
        kept = self.kept(population, batch)
        w = batch.weights()
        back = (w * (-kept.log_chance).exp()).sum()
        loglik = stats.loglik + (w * (kept.log_kept - kept.log_chance)).sum()
        q = stats.q + population.parameters.log_weights.exp() * back - kept.q
        rows = (1 + FLOOR) * back
        parts = [rows[None], loglik[None], q, (stats.g - kept.g).flatten(), (stats.G - kept.G).flatten()]
        unseen = (rows - stats.rows)[None]
        return replace(stats, packed=torch.cat([*parts, unseen]), unseen=True)


def refuse_bare(background: Background | None) -> None:
    """Refuse a background without a density elsewhere."""
    if isinstance(background, Rows):
        raise ValueError("selection needs to know how much of the background was kept, and log-densities per row do "
                         "not say: give background= an xd.Uniform or an xd.Mixture")  # fmt: skip


def refuse_rejected(selection: Selecting, batch: Batch, first: int = 0, labels: Sequence[str] | None = None) -> None:
    """Refuse rows that the selection itself would have rejected; ``first`` is the number of the first one."""
    gone = selection.probability(batch) <= 0
    if bool(gone.any()):
        raise rejection(selection, first + int(gone.nonzero()[0, 0]), int(gone.sum()), labels)


def rejection(selection: Selecting, row: int, count: int, labels: Sequence[str] | None = None) -> ValueError:
    """What is said of rows that the selection itself would have rejected, by the first of them."""
    more = "" if count == 1 else f" (and {count - 1} more)"
    return ValueError(f"row {row}{more} would not have been kept by selection={selection.told(labels)}: it must be the "
                      "one that made the table; drop these rows (those that miss what a cut looks at among them), or "
                      "mend it")  # fmt: skip


def standard_errors(batch: Batch) -> Tensor:
    """Standard deviations (p, n or 1) of a batch's noise, float64; zero where there is none."""
    return batch.variances().double().sqrt()
