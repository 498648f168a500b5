"""Rows that were selected: what a fit adds to their sums and to their likelihood, in its frame."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...kernels.parameters import Parameters
from ...kernels.stats import Stats
from ...mixture._mixture import Mixture
from ...mixture.background import Background
from ...mixture.selections.contract import FEWEST, Chances, Population, Selecting, rejection
from ...mixture.selections.given import as_selecting
from ...rows.batch import Batch
from ...rows.data import ArraySource, Source


@dataclass(frozen=True)
class Selected:
    """The chances of rows to be kept, beside a background."""

    chances: Chances
    background: Background | None

    @classmethod
    def of(
        cls, selection: Selecting, background: Background | None, proposal: Mixture | None, size: int, seed: int,
        device: torch.device, fewest: int = FEWEST,
    ) -> Selected:  # fmt: skip
        """Chances for mixtures like a proposal, all in one frame."""
        parameters = _NOTHING if proposal is None else proposal.scaled(device)
        return cls(selection.around(Population(parameters, background), size, seed, fewest), background)

    def corrected(self, stats: Stats, parameters: Parameters, batch: Batch) -> Stats:
        """Sums with the rows that were rejected."""
        return self.chances.corrected(stats, self._population(parameters), batch)

    def gain(self, parameters: Parameters, batch: Batch) -> Tensor:
        """What knowing that rows were kept adds to their log-likelihoods (n,)."""
        return self.chances.log_kept(batch) - self.chances.log_chance(self._population(parameters), batch)

    def worth(self, mixture: Mixture, batch: Batch) -> float:
        """What draws are worth for a mixture in the frame, over what they were for the one that they are of."""
        return self.chances.worth(self._population(mixture.scaled(batch.device)), batch)

    def _population(self, parameters: Parameters) -> Population:
        return Population(parameters.to(dtype=torch.float64), self.background)


JUDGED = 8  # draws per row, where chances are averages
NOTED, FEW = 1, 1 << 13  # and of few rows, where it matters whether a chance is above a thousandth


def selected_by(mixture: Mixture, device: torch.device, size: int = JUDGED, fewest: int = FEWEST) -> Selected | None:
    """The chances of rows by a mixture's own selection; None where it has none."""
    if mixture.selection is None:
        return None
    return Selected.of(mixture.selection, mixture.background, mixture, size, 0, device, fewest)


_NOTHING = Parameters(torch.zeros(0), torch.zeros(0, 0), torch.zeros(0, 0, 0))


def choose_selection(
    selection: Any, given: Mixture | None, source: Source, labels: Any, background: Background | None
) -> Selecting | None:
    """The selection function: the user's, or that of the mixture that a fit starts from; refused before any work."""
    known = labels or source.labels or (given.labels if isinstance(given, Mixture) else None)
    if selection is None:
        chosen = given.selection if isinstance(given, Mixture) else None
    else:
        chosen = as_selecting(selection, known, source.dim)
    if chosen is None:
        return None
    if source.has_log_prior:
        raise ValueError("selection= and log_prior= cannot be given together: how much of a row's own prior was kept "
                         "is not known")  # fmt: skip
    sample = source.sample(1, 0)
    if sample.projection is not None:
        raise ValueError("selection= is of observed coordinates and these rows are projections: fit the coordinates "
                         "that the cut was made on")  # fmt: skip
    if sample.noise is None and chosen.needs_noise(noisy=False):
        raise ValueError(f"selection={chosen.told(known)} cuts on a value over its error and these rows have no "
                         "errors: give error= or noise=")  # fmt: skip
    chosen.refuse(sample, background)
    return chosen


BEYOND, SOME = 3.0, 1024  # times as far from the middle as rows are, that a function is tried at


def refuse_all_rejected(selection: Selecting | None, source: Source | None, labels: Any = None) -> None:
    """Refuse rows that the selection would have rejected, by their places, and a function that fails beside them."""
    if selection is None or source is None:
        return
    at, first, count = 0, -1, 0
    for batch in source.arranged(None, 0).batches(0):
        rows = batch.to("cpu", torch.float64)
        if at == 0:
            selection.refuse_failing(rows.rows(slice(0, SOME)))
            selection.probability(_beyond(rows.rows(slice(0, SOME))))
        gone = (selection.probability(rows) <= 0).nonzero()[:, 0]
        first = at + int(gone[0]) if first < 0 and len(gone) else first
        at, count = at + batch.n, count + len(gone)
    if count:
        raise rejection(selection, first, count, labels or source.labels)


def _beyond(batch: Batch) -> Batch:
    """Rows further out, where draws may fall."""
    middle = batch.x.nanmean(1, keepdim=True)
    return replace(batch, x=middle + BEYOND * (batch.x - middle))


LITTLE = 1e-3  # of what it stands for, that is kept: too little to be corrected for
LOOKED_AT = 1 << 14  # rows of a stream


@dataclass(frozen=True)
class Remains:
    """What a survey leaves of the rows of a mixture, in the mean, with the noise of those of a fit.

    ``chance`` (n,) is that of each row to be kept; of a row, ``part`` (k,) is what is left of each component, and
    ``share`` (k,) what each has of all that is left.
    """

    chance: Tensor
    part: Tensor
    share: Tensor
    whole: bool

    @classmethod
    def of(cls, mixture: Mixture, source: Source, seed: int) -> Remains | None:
        """None where nothing was selected."""
        selected = selected_by(mixture, torch.device("cpu"), NOTED, FEW)
        if selected is None:
            return None
        whole = isinstance(source, ArraySource)
        some = source.batch if isinstance(source, ArraySource) else source.sample(LOOKED_AT, seed)
        batch = some.to("cpu", torch.float64)
        kept = selected.chances.kept(mixture.population(), batch)
        chance = kept.log_chance.exp()
        w = batch.weights()
        q = kept.q.view(mixture.k, -1).sum(1)  # of all scales of tails
        every = (w / chance.clamp(min=1e-300)).sum() * torch.tensor(mixture.shares[: mixture.k])
        return cls(chance, q / every.clamp(min=1e-300), q / w.sum(), whole)

    def notes(self, drawn: str | None) -> tuple[str, ...]:
        """What must be said of a fit to rows that were selected: of the draws, and what little was kept of."""
        notes, few = [] if drawn is None else [drawn], self.chance < LITTLE
        if bool(few.any()):
            row, count = int(self.chance.argmin()), int(few.sum())
            more = f" (and {count - 1} more)" if count > 1 else ""
            which = f"row {row}{more}" if self.whole else f"{count} rows of a sample"
            rare = f"a row with such errors is kept with a chance of {float(self.chance.min()):.1g} by this mixture"
            notes.append(f"{which}: {rare}, too little to be corrected for")
        for j in (self.part < LITTLE).nonzero()[:, 0].tolist():
            little = f"component {j}: only {float(self.part[j]):.1g} of it was kept"
            notes.append(f"{little}, so that its weight is hardly known")
        return tuple(notes)
