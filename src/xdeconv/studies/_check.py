"""Whether a model and the errors of rows are right: one verdict per coordinate, and where they are not.

Each observed value has a probability of less under the model and its own noise (:func:`xdeconv.plot.pit`), uniform if
both are right. Whether errors or the model are off is told by factors on both (:mod:`xdeconv.studies.scales`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import kstest

from ..fitting.beside.inflating import grouped_data
from ..fitting.beside.selected import choose_selection, refuse_all_rejected
from ..mixture._mixture import Mixture, refuse_no_mixture
from ..mixture.coordinates import Coordinate, names_or_numbers
from ..plot.probabilities import pit
from ..rows.batch import Batch
from ..rows.data import ArraySource, Source
from ..system.threads import small_algebra
from .drawing import drawn
from .scales import Scale, scales
from .sizes import Sizes

Array = np.ndarray
SURE = 1e-3  # p-value below which something is off
SIZE = 0.02  # a factor nearer to 1 is not worth a word
NEARER = 0.5  # a factor that leaves more than so much of a misfit does not explain it
BINS = 5


@dataclass(frozen=True)
class Group:
    """Rows with a quantity between ``low`` and ``high``: how many, mean and sd of their normal scores, and a KS test.

    Of a text, as ``survey = A``, these are NaN. Scores have mean 0 and sd 1 if all is right: sd above 1 means errors or
    the model are too narrow there.
    """

    quantity: str
    low: float
    high: float
    rows: int
    mean: float
    sd: float
    p_value: float
    statistic: float = np.nan

    def span(self, digits: int, said: str = " ") -> str:
        """The quantity, and from where to where."""
        of_numbers = f"{said}{self.low:.{digits}g} to {self.high:.{digits}g}"
        return self.quantity + ("" if np.isnan(self.low) else of_numbers)


@dataclass(frozen=True)
class Verdict:
    """What rows say of one coordinate.

    Parameters
    ----------
    coordinate : str
        Its label.
    rows : int
        How many rows show it.
    statistic, p_value : float
        Of Kolmogorov and Smirnov's test that the probabilities are uniform.
    errors, widths : Scale or None
        The factor by which errors, and widths of components, would have to grow; None where there are no errors, where
        the two cannot be told apart or explain nothing, and where rows were selected by a function, or beside a
        background.
    text : str
        One line.
    groups : tuple of Group
        The same by the size of the errors, and by what was asked for. Errors that grow with the value in a way that is
        known, as those of velocities across the sky do, are taken at one value for all rows.
    """

    coordinate: str
    rows: int
    statistic: float
    p_value: float
    errors: Scale | None
    widths: Scale | None
    text: str
    groups: tuple[Group, ...]


@dataclass(frozen=True, repr=False)
class Check:
    """One verdict per coordinate; ``str`` and ``repr`` are a table.

    Parameters
    ----------
    verdicts : tuple of Verdict
        One per coordinate.
    """

    verdicts: tuple[Verdict, ...]

    def __repr__(self) -> str:
        return "\n".join(line for verdict in self.verdicts for line in _lines(verdict))


def check(
    data: Any,
    mixture: Mixture,
    coordinates: Sequence[Coordinate] | None = None,
    *,
    by: Mapping[str, Any] | Sequence[str] | None = None,
    bins: int = BINS,
    noise: Any = None,
    error: Any = None,
    projection: Any = None,
    selection: Any = None,
    predicted: bool = False,
    seed: int = 0,
) -> Check:
    """Whether a model and the errors of rows are right, coordinate by coordinate.

    Parameters
    ----------
    data : array-like (n, p), table, path, Batch or Source
        Rows, best ones that the fit has not seen; at most 50,000 of them are used.
    mixture : Mixture
        The fit.
    coordinates : sequence of str or int, optional
        Which coordinates; all by default.
    by : mapping or sequence of str, optional
        {name: values (n,)}: quantities that rows are also grouped by, such as a magnitude; or names of columns.
    bins : int, default 5
        Groups of each quantity, of as many rows each.
    noise : array-like, optional
        Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
    error : array-like, optional
        Standard deviations (n, p) or (p,), instead of ``noise``.
    projection : array-like (n, p, d), optional
        Matrices through which each row sees the true values; verdicts are of what rows show.
    selection : Cut, sequence of Cut, Completeness or callable, optional
        How the rows were selected; by default the mixture's own. A function must be given again to a mixture that was
        loaded from a file.
    predicted : bool, default False
        Whether each value is judged by what the row's other values predict of it, as a radial velocity by the proper
        motion, rather than by itself. Errors and widths are not told apart then.
    seed : int, default 0
        Which of many rows are used.

    Returns
    -------
    Check
        One verdict per coordinate.

    Examples
    --------
    >>> from xdeconv import Mixture
    >>> mixture = Mixture([1.0], [[0.0]], [[[1.0]]], labels=["x"])
    >>> noise = np.random.default_rng(0).uniform(0.1, 4.0, size=(2000, 1))
    >>> rows = mixture.sample(2000, seed=0, noise=noise)
    >>> check(rows, mixture, noise=noise / 4).verdicts[0].text
    'errors are too small by about a factor of 2.0'
    """
    refuse_no_mixture(mixture)
    if selection is not None:
        mixture = mixture.with_(selection=selection)
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins!r}")
    asked = grouped_data(mixture.asked_rows(data, noise, projection, error=error), None, mixture)[0]
    views, units = (asked.views, asked.units) if isinstance(asked, Source) else (None, None)
    batch, columns = drawn(mixture, asked, by, seed)
    if batch.n == 0:
        raise ValueError("there are no rows to check by")
    choose_selection(None, mixture, ArraySource(batch), mixture.labels, mixture.background)
    refuse_all_rejected(mixture.selection, ArraySource(batch))
    sizes = Sizes.of(mixture, asked, lambda source: drawn(mixture, source, by, seed)[0], batch)
    named = batch.projection is None
    chosen = mixture.indices(range(mixture.d) if coordinates is None else coordinates) if named else range(batch.p)
    names = names_or_numbers(mixture.labels if named else views, batch.p)
    judged = _Rows(mixture, batch, sizes, columns, bins, predicted, units or mixture.units)
    with small_algebra():
        u = pit(mixture, batch, predicted=predicted)
        return Check(tuple(_verdict(judged, a, names[a], u[:, a]) for a in chosen))


@dataclass(frozen=True)
class _Rows:
    """The rows that a model is judged by, the columns that they are grouped by, in so many groups each."""

    mixture: Mixture
    batch: Batch
    sizes: Sizes
    columns: Mapping[str, Array]
    bins: int
    predicted: bool
    units: Sequence[str] | None

    def scales(self, a: int, seen: Array) -> tuple[Scale | None, Scale | None]:
        """The factors on errors and on widths; None where each value is judged by the others of its row."""
        return (None, None) if self.predicted else scales(
            self.mixture, self.batch, a, seen, self.sizes.slope(a)
        )  # fmt: skip

    def scaled(self, a: int, errors: float, widths: float) -> Array:
        """The probability of less than value ``a`` (n,) with errors and widths times these factors."""
        wide, V = self.mixture.widened(self.batch), widths**2 * self.mixture.covariances
        noise = None if wide.noise is None else errors**2 * wide.noise
        scaled = replace(self.mixture, covariances=V, inflation=None, meta={})  # which may be asked without errors
        return pit(scaled, replace(wide, noise=noise), predicted=self.predicted)[:, a]


def _verdict(rows: _Rows, a: int, name: str, u: Array) -> Verdict:
    seen = np.isfinite(u)
    if not seen.any():
        return Verdict(name, 0, np.nan, np.nan, None, None, "no row shows it", ())
    sd = rows.sizes.deviations[:, a]
    test = kstest(u[seen], "uniform")
    f, g = rows.scales(a, seen)
    by = rows.sizes.named(name, a, rows.units)
    groups = _groups(by, sd, u, rows.bins) if len(np.unique(sd[seen])) > 1 else []
    p_value, explained = float(test.pvalue), _explained(rows, a, f, g, groups, sd)
    groups += [group for by, values in rows.columns.items() for group in _groups(by, values, u, rows.bins)]
    noisy = bool((sd[seen] > 0).any())
    if not explained:
        f = g = None
    text = _said(f, g, p_value, groups, noisy) if explained else _hang_together(name, p_value)
    return Verdict(name, int(seen.sum()), float(test.statistic), p_value, f, g, text, tuple(groups))


def _explained(rows: _Rows, a: int, f: Scale | None, g: Scale | None, groups: Sequence[Group], sd: Array) -> bool:
    """Whether factors on errors can bring rows of small and of large errors nearer to the model, each by themselves.

    They cannot where errors depend on the values. Then rows of large errors are those of large values: factors of 13
    and 28 were found for errors that were right, and rows of small errors are spread less than if they had none.
    """
    if not groups or rows.mixture.selection is not None:  # what a cut keeps depends on the errors in any case
        return True
    if not _off(f):
        narrow = [group.sd < 1 and group.p_value * len(groups) < SURE for group in groups]
        exact = _groups("", sd, rows.scaled(a, 0.0, 1.0), rows.bins) if any(narrow) else []
        still = [group.sd < 1 and group.p_value * len(groups) < SURE for group in exact]
        return not any(before and after for before, after in zip(narrow, still, strict=False))
    u = rows.scaled(a, 1.0 if f is None else f.factor, 1.0 if g is None else g.factor)
    after = _groups("", sd, u, rows.bins)
    nearer = max(group.statistic for group in after) < NEARER * max(group.statistic for group in groups)
    return nearer or min(group.p_value for group in after) * len(after) > SURE


def _hang_together(name: str, p_value: float) -> str:
    together = "; all rows together agree with it" if p_value >= SURE else ""
    return (f"rows with larger errors of {name} have other values, which no factor on errors explains: errors depend "
            f"on the values, or the model is off{together}")  # fmt: skip


def _groups(quantity: str, values: Array, u: Array, bins: int) -> list[Group]:
    """Rows in groups of as many each, by a quantity, or of one text each."""
    if values.dtype == object:
        texts = sorted({text for text in values.tolist() if text is not None})
        each = ((text, (values == text) & np.isfinite(u)) for text in texts)
        return [_group(f"{quantity} = {text}", np.nan, np.nan, u[own]) for text, own in each if own.any()]
    known = np.isfinite(values) & np.isfinite(u)
    if not known.any():
        return []
    values, u = values[known], u[known]
    edges = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)))
    place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(len(edges) - 2, 0))
    groups = []
    for i in range(max(len(edges) - 1, 1)):
        own = place == i
        if own.any():
            groups.append(_group(quantity, float(edges[i]), float(edges[min(i + 1, len(edges) - 1)]), u[own]))
    return groups


def _group(quantity: str, low: float, high: float, u: Array) -> Group:
    """Some rows by their probabilities (n,)."""
    test, scores = kstest(u, "uniform"), ndtri(np.clip(u, 1e-300, 1 - 1e-16))
    p_value, statistic = float(test.pvalue), float(test.statistic)
    return Group(quantity, low, high, len(u), float(scores.mean()), float(scores.std()), p_value, statistic)


def _said(f: Scale | None, g: Scale | None, p_value: float, groups: Sequence[Group], noisy: bool) -> str:
    """One line: errors, then the model, then where."""
    parts = []
    if _off(f):
        assert f is not None
        how, factor = ("small", f.factor) if f.factor > 1 else ("large", 1 / f.factor)
        parts.append(f"errors are too {how} by about a factor of {factor:.1f}" if factor >= 1.15 else
                     f"errors are too {how} by about {100 * (factor - 1):.0f} %")  # fmt: skip
    if _off(g):
        assert g is not None
        parts.append(f"the model is too {'narrow' if g.factor > 1 else 'wide'}, by {100 * abs(g.factor - 1):.0f} %")
    worst = min(groups, key=lambda group: group.p_value, default=None)
    if parts:
        return "; ".join(parts)
    if p_value < SURE:
        return "the model is off in place or shape"
    if worst is not None and worst.p_value * len(groups) < SURE:
        how = "widely" if worst.sd > 1 else "narrowly"
        where = f"where {worst.span(3, ' is ')}"
        return f"rows are spread more {how} than errors and model say {where}"
    return "errors and model are right" if noisy and (f is not None or g is None) else "the model is right"


def _off(scale: Scale | None) -> bool:
    return scale is not None and scale.p_value < SURE and abs(scale.factor - 1) > SIZE


def _lines(verdict: Verdict) -> list[str]:
    from ..system.text import measured

    if not verdict.rows:
        return [f"{verdict.coordinate}: {verdict.text}"]
    scales = [f"{name} x {measured(s.factor, s.standard_error)}" for name, s in
              (("errors", verdict.errors), ("widths", verdict.widths)) if s is not None]  # fmt: skip
    numbers = ", ".join(
        [f"{verdict.rows:,} values", f"KS {verdict.statistic:.4f}", f"p {verdict.p_value:.2g}", *scales]
    )
    lines = [f"{verdict.coordinate}: {verdict.text} ({numbers})"]
    for group in verdict.groups:
        lines.append(f"    {group.span(4)}: {group.rows:,} rows, "
                     f"mean {group.mean:+.3f}, sd {group.sd:.3f}, p {group.p_value:.2g}")  # fmt: skip
    return lines
