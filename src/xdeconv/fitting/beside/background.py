"""What else makes rows: a background, and its log-density of every row that a fit goes through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...mixture._mixture import Mixture
from ...mixture.background import REACH, Background, Rows, Uniform
from ...rows import checks
from ...rows.batch import Batch
from ...rows.completing import Completing
from ...rows.data import ArraySource, Source
from ...system.checksums import checksum

Names = Sequence[str] | None
LOOKED_AT = 1 << 17  # rows
FIRST_SHARE = 0.1  # of all rows, that a background has before the first pass


@dataclass(frozen=True)
class BesideSource(Completing):
    """A stream whose batches get the log-densities of a background as they come."""

    background: Background

    def stamp(self) -> dict[str, Any]:
        """That of the rows, and what stands beside them."""
        return {**self.source.stamp(), "background": told(self.background)}

    def completed(self, batch: Batch) -> Batch:
        """A batch with its log-densities."""
        return replace(batch, background=self.background.log_density(batch))


def told(background: Background | None) -> str | None:
    """A background as text that is the same whenever it is."""
    if not isinstance(background, Mixture):
        return None if background is None else repr(background)
    own = checksum(background.shares, background.means, background.covariances)
    return f"{background!r} {own} beside {told(background.background)}"


def beside(source: Source, background: Background | None) -> Source:
    """A source whose batches have the log-densities of a background: once for rows in memory, as they come in streams.

    Rows that carry log-densities of their own keep them.
    """
    if background is None or isinstance(background, Rows):
        return source
    return BesideSource(source, background).over(source)


def as_background(
    background: Any, source: Source, given: Mixture | None, labels: Names = None, units: Names = None
) -> tuple[Source, Background | None]:
    """The rows with their background, and what it is, from what a user said, or the mixture that a fit starts from.

    ``labels`` and ``units`` are those of the coordinates, where they are not the source's.
    """
    carried = isinstance(source, ArraySource) and source.batch.background is not None
    if background is None and carried:
        return source, Rows()
    if background is None and isinstance(given, Mixture) and given.background is not None:
        background = given.background
    if background is None:
        return source, None
    if isinstance(background, Rows):
        if not carried:
            known = "the mixture's background was given as log-densities per row"
            raise ValueError(f"{known}: give background= for these rows")
        return source, background
    if isinstance(background, Background):
        _refuse_other(background, source, labels or source.labels, units or source.units)
        return beside(source, background), background
    if isinstance(background, str) or not isinstance(source, ArraySource):
        wanted = "an xd.Uniform, an xd.Mixture, or log-densities per row of an array or a table in memory"
        raise ValueError(f"background must be {wanted}, got {background!r}")
    density = checks.background(background, source.rows)
    assert density is not None
    return replace(source, batch=replace(source.batch, background=density.to(source.batch.x))), Rows()


def _refuse_other(background: Background, source: Source, labels: Names, units: Names) -> None:
    """Refuse a background of other coordinates, and a box for rows that are projections, before any work."""
    if background.d != source.dim:
        raise ValueError(f"the background has {background.d} dimensions and the data {source.dim}")
    if isinstance(background, Mixture):
        theirs, ours = (background.labels, background.units), (labels, units)
        for what, a, b in zip(("of", "in"), theirs, ours, strict=True):
            if a and b and tuple(a) != tuple(b):
                raise ValueError(f"the background is {what} {list(a)} and the data {what} {list(b)}")
    background.log_density(source.sample(1, 0))


def held_out_beside(held_out: Source | None, background: Background | None) -> Source | None:
    """Rows held out with their background."""
    if held_out is None or background is None:
        return held_out
    lacks = not isinstance(held_out, ArraySource) or held_out.batch.background is None
    if isinstance(background, Rows) and lacks:
        known = "background is given as log-densities per row"
        raise ValueError(f"{known}: give validation=dict(X=..., background=...) too")
    return beside(held_out, background) if lacks else held_out


def describe_rows_outside(background: Background | None, source: Source) -> str:
    """How many rows are out of reach of a box, so that components stretch to explain them; empty if none are."""
    if not isinstance(background, Uniform):
        return ""
    some = source.sample(LOOKED_AT, 0)
    outside = int(background.beyond(some).sum())
    rows = f"{outside:,} of {some.n:,} rows" + (" looked at" if some.n < source.rows else "")
    where = f"outside the background's box by more than {REACH:g} of their errors"
    return f"{rows} lie {where}: components stretch to explain them" if outside else ""


def with_share(mixture: Mixture, background: Background | None) -> Mixture:
    """A mixture to start from, as a fit carries it: its background is that of the rows, if there is one."""
    if background is None:
        return mixture if mixture.background is None else mixture.with_(background=None)
    share = mixture.background_weight if mixture.background is not None else FIRST_SHARE
    return mixture.with_(background=Rows(), background_weight=share)
