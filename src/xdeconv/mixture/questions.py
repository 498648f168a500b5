"""Questions to a mixture about rows: each takes what a fit takes, and goes through it batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..kernels.parameters import Parameters
from ..rows.batch import Batch
from ..rows.data import Source
from .asking import Asked, name_of
from .components import Components
from .computing import answers, computing, rows_in
from .outliers.p_value import p_values
from .posterior import Posterior
from .selections.contract import refuse_rejected
from .undefined import refuse_undefined

Array = np.ndarray
SCORED, FEWEST = 64, 1 << 17  # draws per row, and of few rows: log P is then known to 1e-3 or better


class Questions(Components):
    """What a mixture can be asked about noisy rows."""

    def log_prob(
        self,
        X: Any,
        noise: Any = None,
        projection: Any = None,
        *,
        error: Any = None,
        background: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> Array:
        """Log-density of each noisy row: natural logarithm, missing values marginalised exactly.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows; a long file is never held whole.
        noise : array_like, optional
            Variances (n, p), covariances (n, p, p), or one for all rows: (p,) or (1, p, p).
        projection : array_like, optional
            (n, p, d): rows are views ``projection @ v`` of true values v.
        error : array_like, optional
            Standard deviations (n, p) or (p,), instead of noise.
        background : array_like, optional
            (n,), log-densities of these rows, for a model that was fitted with such.
        device : {"cpu", "cuda"}, optional
            Where to compute: by default the GPU, where there is one and rows times components are 10^7 or more.
        dtype : {"float64", "float32"}, optional
            The number type: by default float64 on a CPU and float32 on a GPU.

        Returns
        -------
        numpy.ndarray
            (n,).
        """
        given = {"error": error, "background": background, "device": device, "dtype": dtype}
        return self._each(kernels_log_prob, X, noise, projection, **given)

    def score(
        self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None, weight: Any = None,
        background: Any = None, selection: Any = None, device: Any = None, dtype: Any = None,) -> float:  # fmt: skip
        """Mean log-density per unit of row weight; of a mixture with a selection, given that the rows were kept.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows; a long file is never held whole.
        noise, projection, error : array_like, optional
            As in :meth:`log_prob`.
        weight : array_like, optional
            (n,), how much each row counts.
        background : array_like, optional
            (n,), log-densities of these rows, for a model that was fitted with such.
        selection : Cut, sequence of Cut, Completeness or callable, optional
            How the rows were selected; by default the mixture's own. A function must be given again to a mixture that
            was loaded from a file.
        device : {"cpu", "cuda"}, optional
            Where to compute: by default the GPU, where there is one and rows times components are 10^7 or more.
        dtype : {"float64", "float32"}, optional
            The number type: by default float64 on a CPU and float32 on a GPU.

        Returns
        -------
        float
        """
        kept = self.selected_by(selection)
        chances = None if kept is None else kept.around(self.population(), SCORED, 0, FEWEST)
        total, weights, first = 0.0, 0.0, 0
        given = {"error": error, "background": background, "device": device, "dtype": dtype}
        for log_prob, batch in self._answers(kernels_log_prob, X, noise, projection, weight, **given):
            refuse_undefined(log_prob, first)
            if kept is not None and chances is not None:
                refuse_rejected(kept, batch, first, self.labels)
                log_prob = log_prob + chances.log_kept(batch) - chances.log_chance(self.population(), batch)
            total += float(log_prob.sum() if batch.weight is None else batch.weight @ log_prob)
            weights += float(batch.total_weight())
            first += batch.n
        if not weights:
            why = "there are no rows to score" if not first else "the rows to score have no weight in all"
            raise ValueError(f"{why}{name_of(X)}")
        return total / weights

    def kept_probability(
        self, X: Any, noise: Any = None, *, error: Any = None, selection: Any = None,
    ) -> Array:  # fmt: skip
        """The chance that a row with the noise and the gaps of each row would have been kept, whatever its values.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        noise, error : array_like, optional
            As in :meth:`log_prob`.
        selection : Cut, sequence of Cut, Completeness or callable, optional
            How rows are selected; by default the mixture's own.

        Returns
        -------
        numpy.ndarray
            (n,); 1 for a mixture without a selection.

        Examples
        --------
        >>> from xdeconv import Cut, Mixture
        >>> mixture = Mixture([1.0], [[1.0]], [[[1.0]]], selection=Cut(0, above=1.0))
        >>> mixture.kept_probability([[2.0]])
        array([0.5])
        """
        kept = self.selected_by(selection)
        chances = None if kept is None else kept.around(self.population(), SCORED, 0, FEWEST)

        def chance(_: Parameters, batch: Batch) -> Tensor:
            if chances is None:
                return torch.ones(batch.n, dtype=torch.float64)
            return chances.log_chance(self.population(), batch).exp()

        return self._each(chance, X, noise, error=error, device="cpu")

    def responsibilities(
        self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None, log_prior: Any = None,
        background: Any = None, device: Any = None, dtype: Any = None,) -> Array:  # fmt: skip
        """Probability that each row comes from each component; with a background, what is left of 1 is its own.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        noise, projection, error : array_like, optional
            As in :meth:`log_prob`.
        log_prior : array_like, optional
            (n, k), added to the logarithms of the weights.
        background : array_like, optional
            (n,), log-densities of these rows, for a model that was fitted with such.
        device : {"cpu", "cuda"}, optional
            Where to compute: by default the GPU, where there is one and rows times components are 10^7 or more.
        dtype : {"float64", "float32"}, optional
            The number type: by default float64 on a CPU and float32 on a GPU.

        Returns
        -------
        numpy.ndarray
            (n, k).
        """

        def shares(parameters: Parameters, batch: Batch) -> Tensor:
            inside = kernels.log_joint(*parameters, batch)
            if self.tails is not None:
                inside = inside.unflatten(1, (self.k, -1)).logsumexp(2)
            if batch.background is None:
                return torch.softmax(inside, dim=1)
            return (inside - kernels.log_prob(*parameters, batch)[:, None]).exp()

        given = {"log_prior": log_prior, "error": error, "background": background, "device": device, "dtype": dtype}
        return self._each(shares, X, noise, projection, **given)

    def background_probability(
        self,
        X: Any,
        noise: Any = None,
        projection: Any = None,
        *,
        error: Any = None,
        background: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> Array:
        """Probability that each row is the background's, and not of any component.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        noise, projection, error : array_like, optional
            As in :meth:`log_prob`.
        background : array_like, optional
            (n,), log-densities of these rows, for a model that was fitted with such.
        device : {"cpu", "cuda"}, optional
            Where to compute: by default the GPU, where there is one and rows times components are 10^7 or more.
        dtype : {"float64", "float32"}, optional
            The number type: by default float64 on a CPU and float32 on a GPU.

        Returns
        -------
        numpy.ndarray
            (n,); 0 for a mixture without a background.

        Examples
        --------
        >>> from xdeconv import Mixture, Uniform
        >>> cluster = Mixture([1.0], [[5.0]], [[[0.01]]], background=Uniform(0.0, 10.0), background_weight=0.5)
        >>> cluster.background_probability([[5.0], [6.0]]).round(3)
        array([0.024, 1.   ])
        """
        given = {"error": error, "background": background, "device": device, "dtype": dtype}
        return self._each(self._beside, X, noise, projection, **given)

    def _beside(self, parameters: Parameters, batch: Batch) -> Tensor:
        if batch.background is None:
            return torch.zeros(batch.n, dtype=torch.float64)
        log_weight = np.log(self.background_weight or 1e-300)
        return (batch.background + log_weight - kernels.log_prob(*parameters, batch)).exp().clamp(max=1.0)

    def outlier(self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None) -> Array:
        """The density's own p-value of each row: how often the mixture makes a row that is less likely.

        It is P(f(X') <= f(x)) with f the density of rows with this row's noise, gaps and projection, and X' drawn
        from f: uniform between 0 and 1 for rows of the mixture, whatever their noise, and 1 when nothing is observed.
        The background, if there is one, is left out: it is the p-value of a row among those of the components.
        See :mod:`xdeconv.mixture.outliers.p_value` for how it is computed, to a few per cent of its value.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        noise, projection, error : array_like, optional
            As in :meth:`log_prob`.

        Returns
        -------
        numpy.ndarray
            (n,).

        Examples
        --------
        >>> from xdeconv import Mixture
        >>> Mixture([1.0], [[0.0]], [[[1.0]]]).outlier([[1.96]]).round(3)
        array([0.05])
        """
        parameters = self._components()

        def improbable(_: Parameters, batch: Batch) -> Tensor:
            return torch.from_numpy(p_values(parameters, batch))

        return self.with_(background=None)._each(improbable, X, noise, projection, error=error, device="cpu")

    def component_tail(
        self,
        X: Any,
        noise: Any = None,
        projection: Any = None,
        *,
        error: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> Array:
        """Tail probability of each row, component by component; not uniform where components overlap.

        It is sum_j r_j P(chi2 with as many degrees of freedom as values are observed > Mahalanobis distance to j), with
        r the responsibilities; 1 when nothing is observed.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        noise, projection, error : array_like, optional
            As in :meth:`log_prob`.
        device : {"cpu", "cuda"}, optional
            Where to compute: by default the GPU, where there is one and rows times components are 10^7 or more.
        dtype : {"float64", "float32"}, optional
            The number type: by default float64 on a CPU and float32 on a GPU.

        Returns
        -------
        numpy.ndarray
            (n,).
        """
        parameters = self._components()

        def tails(_: Parameters, batch: Batch) -> Tensor:
            where = computing(parameters, lambda: batch.n, device, dtype)
            return torch.from_numpy(Posterior(parameters, batch, where=where).component_tail())

        return self.with_(background=None)._each(tails, X, noise, projection, error=error, device="cpu")

    def posterior(
        self,
        X: Any,
        noise: Any = None,
        projection: Any = None,
        *,
        error: Any = None,
        log_prior: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> Posterior:
        """What each row's true values are, given the row, its noise and this mixture, and that no background made it.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows, which are held in memory.
        noise, projection, error : array_like, optional
            As in :meth:`log_prob`.
        log_prior : array_like, optional
            (n, k), added to the logarithms of the weights.
        device : {"cpu", "cuda"}, optional
            Where to compute: by default the GPU, where there is one and rows times components are 10^7 or more.
        dtype : {"float64", "float32"}, optional
            The number type: by default float64 on a CPU and float32 on a GPU.

        Returns
        -------
        Posterior
        """
        batch = self.batch(X, noise, projection, log_prior=log_prior, error=error)
        parameters = self._components()
        where = computing(parameters, lambda: batch.n, device, dtype)
        return Posterior(parameters, self._scaled_rows(batch), self.labels, where=where)

    # The rows

    def batch(self, X: Any, *arrays: Any, **named: Any) -> Batch:
        """Checked rows of this mixture's coordinates, in memory, float64 on the CPU.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        *arrays : array_like
            noise, projection, weight and log_prior, in this order.
        **named : array_like
            The same by name, error and label.

        Returns
        -------
        Batch
        """
        return self._asked.batch(X, _given(*arrays, **named))

    def batches(self, X: Any, *arrays: Any, **named: Any) -> Iterator[Batch]:
        """The same rows as :meth:`batch`, a long file or source piece by piece, in order.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        *arrays : array_like
            noise, projection, weight and log_prior, in this order.
        **named : array_like
            The same by name, error and label.

        Returns
        -------
        iterator of Batch
        """
        return self._asked.batches(X, _given(*arrays, **named))

    def asked_rows(self, X: Any, *arrays: Any, **named: Any) -> Source | Batch:
        """The same rows as :meth:`batch`, a file or source as it is.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        *arrays : array_like
            noise, projection, weight and log_prior, in this order.
        **named : array_like
            The same by name, error and label.

        Returns
        -------
        Source or Batch
        """
        return self._asked.rows(X, _given(*arrays, **named))

    @property
    def _asked(self) -> Asked:
        return Asked.of(self)

    # The answers

    def _each(
        self, question: Callable[[Parameters, Batch], Tensor], X: Any, *arrays: Any, device: Any = None,
        dtype: Any = None, **named: Any,
    ) -> Array:  # fmt: skip
        """The answers to a question about each row, asked batch by batch."""
        parts: list[Array] = []
        first = 0
        for answer, batch in self._answers(question, X, *arrays, device=device, dtype=dtype, **named):
            parts.append(refuse_undefined(answer, first).numpy())
            first += batch.n
        if not parts:
            parts.append(question(self.scaled(), Batch(torch.zeros(self.d, 0, dtype=torch.float64))).numpy())
        return np.concatenate(parts)

    def _answers(
        self, question: Callable[[Parameters, Batch], Tensor], X: Any, *arrays: Any, device: Any = None,
        dtype: Any = None, **named: Any,
    ) -> Iterator[tuple[Tensor, Batch]]:  # fmt: skip
        """Answers, float64 on the CPU, with the rows that they are about."""
        asked = self.asked_rows(X, *arrays, **named)
        where = computing(self.scaled(), lambda: rows_in(asked), device, dtype)

        def answer(batch: Batch) -> tuple[Tensor, Batch]:
            plain = batch.to("cpu", torch.float64)
            return question(where.parameters, where.batch(self.seen(plain))).double().cpu(), plain

        return answers(asked, answer, where)


def kernels_log_prob(parameters: Parameters, batch: Batch) -> Tensor:
    """Log-densities (n,) of rows under a mixture's parameters."""
    return kernels.log_prob(*parameters, batch)


def _given(
    noise: Any = None, projection: Any = None, weight: Any = None, log_prior: Any = None, *, error: Any = None,
    label: Any = None, background: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """What stands beside the rows, by name."""
    return {"noise": noise, "projection": projection, "weight": weight, "log_prior": log_prior, "error": error,
            "label": label, "background": background}  # fmt: skip
