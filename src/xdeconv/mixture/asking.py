"""Rows that a question is about: whatever a fit takes, read as the fit read its own rows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..catalog import remembering
from ..catalog._open import open_source
from ..catalog.stream import CatalogSource
from ..rows import checks, units
from ..rows import tables as tabular
from ..rows.batch import Batch, concatenate
from ..rows.data import ArraySource, Source
from .coordinates import Names
from .facts import table

OPEN, ERRORS = "open", "errors"  # what a model's meta remembers of the rows that it was fitted to
UNUSED = "the rows have errors of {}, which are not used: the model was fitted without them"


def remembered(source: Source | Batch) -> dict[str, Any]:
    """What a model should remember of the rows that it is fitted to, as JSON, for its ``meta``.

    Parameters
    ----------
    source : Source or Batch
        The rows, as the user gave them: a catalogue before it is held in memory.

    Returns
    -------
    dict
        ``open``: the arguments of :func:`xdeconv.open`, for catalogues; ``errors``: which of the d coordinates had
        errors. Neither for a source that cannot tell.

    Examples
    --------
    >>> remembered(open_source({"x": [1.0], "x_error": [0.1], "y": [2.0]}, ["x", "y"]))
    {'open': {'columns': ['x', 'y']}, 'errors': [True, False]}
    """
    if isinstance(source, CatalogSource):
        noisy = remembering.noisy(source.recipe)
        return {OPEN: source.opening(), ERRORS: [bool(noisy[name]) for name in source.labels]}
    if isinstance(source, ArraySource):
        return {ERRORS: noisy_coordinates(source.batch)}
    return {ERRORS: noisy_coordinates(source)} if isinstance(source, Batch) else {}


def noisy_coordinates(batch: Batch) -> list[bool]:
    """Which coordinates have errors, or no value that could be exact; with a projection, all or none."""
    noisy = [bool(v.any()) or bool(x.isnan().all()) for v, x in zip(batch.variances() > 0, batch.x, strict=True)]
    return noisy if batch.projection is None else [any(noisy)] * batch.d


@dataclass(frozen=True)
class Asked:
    """What a model knows of its rows: d coordinates, their names and units, and what was remembered."""

    d: int
    labels: Names
    units: Names
    meta: Mapping[str, Any]

    @classmethod
    def of(cls, mixture: Any) -> Asked:
        """What a mixture knows."""
        return cls(mixture.d, mixture.labels, mixture.units, mixture.meta or {})

    @property
    def opening(self) -> dict[str, Any]:
        """How the rows of the fit were read, as far as a model can be trusted that may be of somebody else."""
        return remembering.checked(self.meta.get(OPEN) or {}, "the model")

    def batches(self, X: Any, given: Mapping[str, Any]) -> Iterator[Batch]:
        """The rows in order, float64 on the CPU, a long catalogue piece by piece."""
        asked = self.rows(X, given)
        if isinstance(asked, Batch):
            return iter([asked])
        return (batch.to("cpu", torch.float64) for batch in asked.arranged(None, 0).batches(0))

    def batch(self, X: Any, given: Mapping[str, Any]) -> Batch:
        """All the rows in memory."""
        batches = list(self.batches(X, given))
        if not batches:
            return Batch(torch.zeros(self.d, 0, dtype=torch.float64))
        return batches[0] if len(batches) == 1 else concatenate(batches)

    def rows(self, X: Any, given: Mapping[str, Any], fitted: bool = False) -> Source | Batch:
        """Checked rows of the model's coordinates; ``fitted`` ones are those of the fit, with its weights."""
        named, X = [name for name, value in given.items() if value is not None], tabular.streamed(X)
        if isinstance(X, (Batch, Source)):
            if named:
                kind = "a Batch" if isinstance(X, Batch) else f"a {type(X).__name__}"
                raise ValueError(f"{kind} carries its own noise, projection, weight and priors: give them there")
            return self._checked_batch(X) if isinstance(X, Batch) else self._checked_source(X)
        if is_path(X) or (self._reads(X) and not {"noise", "error", "projection"} & set(named)):
            return self._opened(X, {name: given[name] for name in named}, fitted)
        return self._arrays(X, given)

    def _reads(self, X: Any) -> bool:
        """Whether X is a table in which the model's columns can be looked for."""
        return tabular.names(X) is not None and bool(self.labels or self.meta.get(OPEN))

    # Catalogues

    def _opened(self, X: Any, given: Mapping[str, Any], fitted: bool) -> Source | Batch:
        stray = sorted({"noise", "error", "projection"} & set(given))
        if stray:
            raise ValueError(f"a file's errors are found in it by name: {', '.join(stray)} cannot be given beside it")
        weight = self.opening.get("weight") if fitted and "weight" not in given else None
        source = self._checked_source(self._open(X, {} if weight is None else {"weight": weight}))
        if not given:
            return source
        labelled = given.get("label") is not None  # whose log-priors are of classes, not of rows
        given = {name: value if name == "log_prior" and labelled else tabular.aligned(value, X, name)
                 for name, value in given.items()}  # fmt: skip
        whole = source.load().batch
        return replace(
            whole,
            weight=checks.weight(given.get("weight"), whole.n),
            log_prior=checks.log_prior(given.get("log_prior"), given.get("label"), whole.n),
            label=checks.label(given.get("label"), given.get("log_prior"), whole.n),
        )

    def _open(self, X: Any, more: Mapping[str, Any]) -> CatalogSource:
        """The rows read as those of the fit were; errors of what the fit took as exact are said to be left out."""
        columns, choices = self.columns(), self.opening
        names = tabular.names(X)
        if names is not None and not choices and not set(columns) <= set(names):
            raise ValueError(f"the table has columns {names}, the mixture is of {columns}")
        source, unused = self.opened(X, more)
        if unused:
            _say(UNUSED.format(", ".join(unused)))
        return source

    def opened(self, X: Any, said: Mapping[str, Any], **options: Any) -> tuple[CatalogSource, list[str]]:
        """A catalogue read as the rows of the fit were, unless something else is ``said``.

        Beside it, the columns whose errors are not used, since the fit took these as exact.
        """
        own = self.opening
        columns = said.get("columns") or own.get("columns") or list(self.labels or ())
        known = remembering.arguments(own, columns)
        merged = {name: {**known.get(name, {}), **given} for name, given in said.items() if isinstance(given, dict)}
        chosen = {**known, **said, **merged}
        source = open_source(X, **chosen, **options)
        noisy = remembering.noisy(source.recipe)
        exact = [name for name in self.exact(columns) if name not in said.get("error", {})]
        unused = list(dict.fromkeys(raw for name in exact for raw in noisy[name]))
        if unused:
            chosen["error"] = {**chosen.get("error", {}), **dict.fromkeys(unused)}
            source = open_source(X, **chosen, **options)
        return source, unused

    def columns(self) -> list[str]:
        """The features of a catalogue that are this model's coordinates."""
        chosen = self.opening.get("columns") or self.labels
        if not chosen or len(chosen) != self.d:
            raise ValueError("the model does not know its columns: give labels with mixture.with_(labels=[...])")
        return list(chosen)

    def _checked_source(self, source: Any) -> Any:
        ours = self.opening.get("columns") or self.labels
        if source.dim != self.d or (ours and source.labels and list(source.labels) != list(ours)):
            raise ValueError(f"the rows are of {list(source.labels or ())}, the mixture of {list(self.labels or ())}")
        units.refuse_others(source.units, self.units, self.labels)
        facts = remembered(source).get(ERRORS)
        if facts is not None:
            self._warn_of_exact(facts)
        return source

    # Rows in memory

    def _checked_batch(self, batch: Batch) -> Batch:
        if batch.d != self.d:
            raise ValueError(f"the Batch has {batch.d} columns and the mixture {self.d} dimensions")
        self._warn_of_exact(noisy_coordinates(batch))
        return batch.to(device="cpu", dtype=torch.float64)

    def _arrays(self, X: Any, given: Mapping[str, Any]) -> Batch:
        projected = given.get("projection") is not None
        X, given = (X, given) if projected else self._in_order(X, given)
        batch = Batch.from_arrays(X, **given)
        if batch.d != self.d:
            what = "projection" if projected else "X"
            raise ValueError(f"{what} has {batch.d} columns and the mixture {self.d} dimensions")
        if not projected:
            units.refuse_others(tabular.column_units(X), self.units, self.labels)
        if given.get("noise") is None and given.get("error") is None:
            self._warn_of_exact([False] * self.d)
        return batch

    def _in_order(self, X: Any, given: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
        """Tables by our labels; noise that is not a table cannot follow when the columns of X change places."""
        names = tabular.names(X)
        if not self.labels or names is None:
            return X, given
        if not set(self.labels) <= set(names):
            raise ValueError(f"the table has columns {names}, the mixture is of {list(self.labels)}")
        ordered = tabular.in_order(X, self.labels)
        noise = [given[name] for name in ("noise", "error") if given.get(name) is not None]
        if ordered is not X and any(tabular.named_after(a, self.labels) is None for a in noise):
            order = f"the table's columns are {names}, the mixture's {list(self.labels)}"
            raise ValueError(f"{order}: put the table in that order, or give its errors as a table of those names too")
        return ordered, {name: tabular.in_order(value, self.labels) for name, value in given.items()}

    # Errors that the fit had

    @property
    def noisy(self) -> bool:
        """Whether the fit is known to have had errors."""
        return any(self._errors())

    def exact(self, columns: Sequence[str]) -> list[str]:
        """The features that are known to have had no errors in the fit, of all of them in its order."""
        known = self._errors() if len(columns) == self.d else ()
        return [name for name, noisy in zip(columns, known, strict=False) if noisy is False]

    def _errors(self) -> Sequence[bool | None]:
        """Whether each coordinate had errors in the fit; None where that is not known."""
        known = self.meta.get(ERRORS)
        return known if isinstance(known, (list, tuple)) and len(known) == self.d else [None] * self.d

    def _warn_of_exact(self, noisy: Sequence[bool]) -> None:
        lost = [a for a, (then, now) in enumerate(zip(self._errors(), noisy, strict=True)) if then and not now]
        if lost:
            names = ", ".join(self.labels[a] if self.labels else f"column {a}" for a in lost)
            _say(f"the model was fitted with errors of {names}, and these rows have none: their values are taken as "
                 "exact. Give error= or noise= (zero where values are exact)")  # fmt: skip


def restricted(meta: Mapping[str, Any], keep: Sequence[int], d: int) -> dict[str, Any]:
    """What a model of some of the coordinates remembers."""
    kept = dict(meta)
    errors = kept.get(ERRORS)
    if isinstance(errors, list) and len(errors) == d:
        kept[ERRORS] = [errors[a] for a in keep]
    columns = table(kept, OPEN).get("columns")
    if isinstance(columns, list) and len(columns) == d:
        kept[OPEN] = {**kept[OPEN], "columns": [columns[a] for a in keep]}
    return kept


def is_path(X: Any) -> bool:
    """Whether X names files: a path, a glob, or a list of them."""
    if isinstance(X, (list, tuple)):
        return len(X) > 0 and all(isinstance(item, (str, os.PathLike)) for item in X)
    return isinstance(X, (str, os.PathLike))


def name_of(X: Any) -> str:
    """How a message names rows of files; nothing where they are not of files."""
    if isinstance(X, CatalogSource):
        return f" in {X.table.name}"
    return f" in {', '.join(map(str, X if isinstance(X, (list, tuple)) else [X]))}" if is_path(X) else ""


def _say(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=8)
