"""Gathering: the rows of a fit, from whatever a user gave: those to fit, those held out, what stands beside them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from ..catalog import remembering
from ..catalog._open import open_source, warn_of_guesses
from ..catalog.stream import CatalogSource
from ..mixture._mixture import Mixture
from ..mixture.asking import OPEN, Asked, is_path, remembered
from ..mixture.background import Background
from ..mixture.inflated import Inflated
from ..mixture.inflation import Inflation
from ..mixture.selections.contract import Selecting
from ..rows import tables as tabular
from ..rows.batch import Batch
from ..rows.data import ArraySource, Source, as_source
from ..rows.surveyed import SurveyedSource
from ..rows.unobserved import refuse_unobserved
from .beside.background import as_background, held_out_beside
from .beside.inflating import choose_inflation, grouped_data, held_out_grouped, paired
from .beside.selected import choose_selection, refuse_all_rejected

log = logging.getLogger("xdeconv")
ARRAYS = ("noise", "error", "projection", "weight", "log_prior", "label", "background")


@dataclass(frozen=True)
class Gathered:
    """The rows to fit, those held out, what stands beside both, what a model remembers of them, how they were kept."""

    source: Source
    held_out: Source | None
    background: Background | None
    facts: Mapping[str, Any]
    inflation: Inflated | None = None
    selection: Selecting | None = None


def gathered(
    data: Any, columns: Sequence[str] | None, arrays: Mapping[str, Any], *, hold: bool, background: Any = None,
    labels: Any = None, units: Any = None, mixture: Mixture | None = None, validation: Any = None, seed: int = 0,
    inflation: Inflation | None = None, selection: Any = None,
) -> Gathered:  # fmt: skip
    """The rows of a fit; ``hold`` says whether a small stream may be held in memory."""
    background, inflation = tabular.aligned(background, data, "background"), paired(inflation, data)
    if columns is None and mixture is not None and _knows(mixture, data, arrays):
        data = Asked.of(mixture).rows(data, {}, fitted=True)
    else:
        data = opened(data, columns, arrays, stacklevel=5)
    validation = opened_alike(validation, data, stacklevel=5)
    data, inflation = grouped_data(data, inflation, mixture)
    if isinstance(data, Source):
        data.look_around(split=isinstance(validation, Real))
    source = SurveyedSource.of(as_source(data, hold, **arrays), blind=mixture is not None)
    facts = remembered(data if isinstance(data, (Source, Batch)) else source)
    if source.rows == 0:
        raise ValueError("there are no rows to fit")
    known = source.labels if labels is None else labels
    looked_at = isinstance(data, Source) and not isinstance(data, ArraySource)  # by itself, while it reads
    if mixture is None and isinstance(source, ArraySource) and not looked_at:
        refuse_unobserved(source.batch, known)
    source, beside = as_background(background, source, mixture, labels, units)
    source, factors = choose_inflation(inflation, source, known, mixture)
    chosen = choose_selection(selection, mixture, source, labels, beside)
    if chosen is not None and factors is not None:
        raise ValueError("selection= and inflation= cannot be fitted together: a cut was made with the errors as they "
                         "are quoted, and rows scatter by others. Fit the factors to rows that were not cut, and give "
                         "them as inflate= of xd.open")  # fmt: skip
    refuse_all_rejected(chosen, source, labels)
    source, held_out = hold_out(source, validation, seed)
    blind = mixture is not None or (isinstance(data, CatalogSource) and data.keep_empty)
    if isinstance(source, ArraySource) and isinstance(validation, Real) and not blind:
        refuse_unobserved(source.batch, known, part=True)
    source.look_around()
    held_out = held_out_grouped(held_out_beside(held_out, beside), factors)
    refuse_all_rejected(chosen, None if isinstance(validation, Real) else held_out, labels)
    if held_out is not None:
        log.info("%s rows to fit, %s rows held out", f"{source.rows:,}", f"{held_out.rows:,}")
    return Gathered(source, held_out, beside, facts, factors, chosen)


def hold_out(source: Source, validation: Any, seed: int) -> tuple[Source, Source | None]:
    """Training and validation sources, from whatever the user gave for validation."""
    if validation is None:
        return source, None
    if isinstance(validation, (Real, str)):
        if isinstance(validation, (bool, str)) or not 0 < float(validation) < 1:
            raise ValueError(f"validation must be rows, or a fraction between 0 and 1, got {validation!r}")
        return source.split(float(validation), seed)
    held_out = _as_rows(validation)
    if held_out.labels and source.labels and tuple(held_out.labels) != tuple(source.labels):
        raise ValueError(f"validation is of {list(held_out.labels)} and the data of {list(source.labels)}")
    if held_out.units and source.units and tuple(held_out.units) != tuple(source.units):
        raise ValueError(f"validation is in {list(held_out.units)} and the data in {list(source.units)}")
    if held_out.rows == 0:
        raise ValueError("validation has no rows")
    if held_out.dim != source.dim:
        raise ValueError(f"validation has {held_out.dim} dimensions and the data {source.dim}")
    if _noise(source) is True and _noise(held_out) is False:
        log.warning("the data have noise and validation has none: its rows are taken as exact values")
    return source, held_out


def _as_rows(validation: Any) -> Source:
    """Rows of any kind, a dict of arrays among them; a pair is what people write for it, and is refused with advice."""
    wanted = "a fraction, a Batch, a Source, a table, or a dict of X and noise=, error=, projection=, weight="
    if isinstance(validation, (tuple, list)) and len(validation) and np.ndim(validation[0]) > 1:
        raise ValueError(f"validation is a {type(validation).__name__} of arrays: give dict(X=..., noise=...) instead")
    if not isinstance(validation, Mapping) or "X" not in validation:
        if isinstance(validation, Mapping) and set(validation) & set(ARRAYS):
            raise ValueError(f"validation has {list(validation)} and no X: it must be {wanted}")
        return as_source(validation)
    unknown = [name for name in validation if name not in ("X", *ARRAYS)]
    if unknown:
        raise ValueError(f"validation has {unknown}, which is none of {['X', *ARRAYS]}")
    return as_source(**{"data" if name == "X" else name: value for name, value in validation.items()})


def _noise(source: Source) -> bool | None:
    """Whether the rows have noise; None for a stream, whose columns say so."""
    return source.batch.noise is not None if isinstance(source, ArraySource) else None


def _knows(mixture: Mixture, data: Any, arrays: Mapping[str, Any]) -> bool:
    """Whether a mixture to fit on knows how a table or a file is read, and nobody says otherwise."""
    said = any(value is not None for value in arrays.values())
    return bool((mixture.meta or {}).get(OPEN)) and not said and (is_path(data) or tabular.names(data) is not None)


def opened_alike(validation: Any, data: Any, stacklevel: int) -> Any:
    """Rows held out of a catalogue, a table or a file: read as those to fit are."""
    arrays = isinstance(validation, Mapping) and "X" in validation
    table = is_path(validation) or (tabular.names(validation) is not None and not arrays)
    if not table or not isinstance(data, CatalogSource):
        return validation
    said = data.opening()
    source = open_source(validation, **remembering.arguments(said, data.labels), weight=said.get("weight"))
    warn_of_guesses(source, stacklevel)
    return source


def opened(data: Any, columns: Sequence[str] | None, arrays: Mapping[str, Any], stacklevel: int) -> Any:
    """A file, or a table of which columns are named, as a catalogue that finds errors by name; all else as it is.

    Warnings name the line that is ``stacklevel`` calls away.
    """
    if columns is None and not is_path(data):
        return data
    if isinstance(data, (Batch, Source)):
        kind = type(data).__name__
        raise ValueError(f"columns={list(columns or ())} are of a table or a file, and a {kind} has its own: name them "
                         "in xd.open, or leave them out")  # fmt: skip
    given = [name for name, value in arrays.items() if value is not None]
    if given:
        raise ValueError(f"a table's errors are found by name: {', '.join(given)} cannot be given beside columns=. "
                         f"To say it otherwise, give xd.open(data, columns, {given[0]}=...)")  # fmt: skip
    source = open_source(data, columns)
    warn_of_guesses(source, stacklevel)
    return source
