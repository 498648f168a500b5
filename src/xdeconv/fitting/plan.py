"""Plan: every setting of a fit, resolved from what the user said, the size of the data and the device.

xd.fit, XDGMM and the command all end here: none of them works out a default of its own."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
import torch

from ..kernels.options import Options
from ..methods import EM, Accelerated, Averaged, Method, Structure, as_structure, described
from ..methods.accelerated import DOUBLE, SINGLE
from ..methods.structures import FULL
from ..mixture._mixture import Mixture, refuse_no_mixture
from ..mixture.background import Background
from ..mixture.coordinates import checked_names
from ..mixture.inflated import Inflated
from ..mixture.selections.contract import Selecting
from ..mixture.tails import StudentT, as_tails
from ..rows.checks import whole_number
from ..rows.data import Source
from ..rows.resident import Cache, checked_cache
from ..search.moves import Moves
from ..system.checksums import checksum
from ..system.devices import chosen_device, number_type
from .beside.background import told
from .checkpoint import Checkpoint, as_checkpoint
from .gathering import Gathered
from .initial import Start
from .words import as_words, choose_method

log = logging.getLogger("xdeconv")
NAMED_FILES = 100  # that settings name one by one
FULL_PASSES, MINIBATCH_PASSES = 1000, 20


@dataclass(frozen=True)
class Plan:
    """Every setting of a fit, resolved.

    ``weak`` says that a prior of the method is the fit's own, not the user's, and ``counted`` that the number of passes
    is known before it has converged.
    """

    components: int
    given: Mixture | None
    method: Method
    moves: Moves | None
    start: Start
    restarts: int
    seed: int
    epochs: int
    batch_rows: int | None
    tol: float
    patience: int | None
    standardize: bool
    checkpoint: Checkpoint | None
    device: torch.device
    dtype: torch.dtype
    options: Options
    labels: tuple[str, ...] | None
    units: tuple[str, ...] | None
    cache: Cache | None = None
    weak: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    background: Background | None = None
    tails: StudentT | None = None
    inflation: Inflated | None = None
    selection: Selecting | None = None
    said: tuple[str, ...] = ()
    counted: bool = False

    @property
    def expected(self) -> int | None:
        """How many passes there will be; None where it converges when it converges."""
        return self.epochs * self.restarts if self.counted else None

    def describe(self, rows: int) -> str:
        """What a fit of so many rows is about to do."""
        kind = type(self.method).__name__
        kind = kind if self.batch_rows is None else f"{kind}, {self.batch_rows:,} rows per step"
        still = self.moves is None or self.components == 1  # one component has nowhere to move to
        return f"fitting {rows:,} rows by {kind}, {'without' if still else 'with'} moves"

    def settings(self, source: Source, held_out: Source | None) -> dict[str, Any]:
        """What must be the same for a checkpoint to be of use, as JSON: words, rows and how they are read."""
        given = None
        if self.given is not None:
            given = checksum(self.given.shares, self.given.means, self.given.covariances)
        return {
            "components": self.components, "method": self.method.describe(), "start": described(self.start),
            "moves": None if self.moves is None else described(self.moves), "tol": self.tol,
            "given": given, "seed": self.seed, "restarts": self.restarts, "batch_rows": self.batch_rows,
            "standardize": self.standardize, "rows": source.rows, "dim": source.dim, "device": self.device.type,
            "dtype": str(self.dtype), "data": stamp_of(source),
            "validation": None if held_out is None else stamp_of(held_out), "background": told(self.background),
            "tails": None if self.tails is None else repr(self.tails),
            "inflation": None if self.inflation is None else repr(self.inflation),
            "selection": None if self.selection is None else self.selection.told(),
        }  # fmt: skip

    def end(self) -> dict[str, Any]:
        """What decides how many passes there are, which ranks must say alike and a fit that resumes need not."""
        resumes = self.checkpoint is not None and self.checkpoint.resume
        return {"epochs": self.epochs, "patience": self.patience, "resume": resumes}

    def method_for(self, dtype: torch.dtype) -> Method:
        """The method as it runs in a number type: full passes of EM accelerated, steps on batches averaged."""
        method = self.method
        forgets = isinstance(method, EM) and method.step == 1.0  # all that was before
        if self.batch_rows is not None:
            return Averaged(method) if method.average and not forgets else method
        if not isinstance(method, EM) or not forgets or not method.accelerate or method.inflate:
            return method
        return Accelerated(method, SINGLE if dtype == torch.float32 else DOUBLE)


def resolve(
    rows: Gathered, components: Any, given: Mixture | None, *, covariance: Any, tails: Any, labels: Any, units: Any,
    patience: int | None, checkpoint: Any, start: Any, restarts: int, seed: int, method: Any, moves: Any,
    batch_rows: int | None, epochs: int | None, tol: float, standardize: bool, cache: Cache | None, device: Any,
    dtype: Any, options: Options | None, said: tuple[str, ...] = (),
) -> Plan:  # fmt: skip
    """The plan of a fit of these rows, from the words of :func:`xdeconv.fit`."""
    source, there, words = rows.source, chosen_device(device), as_words(method)
    number = number_type(dtype, there)
    k = count_components(components, given, source)
    batch_rows = None if batch_rows is None else whole_number(batch_rows, "batch_rows", 1)
    heavier = choose_tails(tails, given)
    search = choose_moves(moves, words if isinstance(words, Method) else None, source, given)
    searched = Moves().pool_rows if given is not None else 0 if search is None else search.pool_rows
    chosen = choose_method(source, k, there, words, batch_rows, seed, searched)
    return Plan(
        components=k,
        given=given,
        method=choose_covariance(covariance, chosen.method, given, k, source.dim),
        moves=search,
        start=_checked_start(start),
        restarts=whole_number(restarts, "restarts", 1),
        seed=seed,
        epochs=whole_number(_passes(chosen.batch_rows) if epochs is None else epochs, "epochs", 1),
        batch_rows=chosen.batch_rows,
        tol=not_negative(tol, "tol"),
        patience=None if patience is None else whole_number(patience, "patience", 1),
        standardize=standardize,
        checkpoint=as_checkpoint(checkpoint),
        device=there,
        dtype=number,
        options=_checked_options(options),
        labels=source.labels if labels is None else checked_names(labels, source.dim, "labels", unique=True),
        units=source.units if units is None else checked_names(units, source.dim, "units", unique=False),
        cache=checked_cache(cache, there),
        weak=chosen.weak,
        facts=rows.facts,
        background=rows.background,
        tails=heavier,
        inflation=rows.inflation,
        selection=rows.selection,
        said=said,
        counted=epochs is not None or chosen.batch_rows is not None,
    )


def refuse_contradictions(mixture: Mixture | None, restarts: int, seed: Any) -> None:
    """Refuse words that do not go together, before any row is read."""
    if mixture is not None:
        refuse_no_mixture(mixture)
    if mixture is not None and restarts > 1:
        raise ValueError("restarts try new starts: give mixture= or restarts=, not both")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0, got {seed!r}")


def choose_moves(
    moves: Moves | str | None, method: Method | None, source: Source, given: Mixture | None
) -> Moves | None:
    """The search: the user's, or by default one unless components have names: fixed, with log-priors, or given."""
    named: dict[str, Moves | None] = {"none": None, "auto": Moves(), "bovy": Moves(criterion="bovy")}
    held = (method is not None and method.fixed is not None) or source.has_log_prior
    if moves is None:
        moves = "none" if held or given is not None else "auto"
    if not isinstance(moves, (str, Moves)) or (isinstance(moves, str) and moves not in named):
        raise ValueError(f"moves must be one of {list(named)} or an xd.Moves, got {moves!r}")
    resolved = named[moves] if isinstance(moves, str) else moves
    if resolved is not None and held:
        raise ValueError("moves replace components: Fixed parameters and log_prior, which name them, need moves='none'")
    return resolved


def choose_tails(tails: Any, given: Mixture | None) -> StudentT | None:
    """The tails of components: the user's, or those of the mixture that a fit starts from."""
    if tails is None:
        return None if given is None else given.tails
    return as_tails(tails)


def choose_covariance(
    covariance: Structure | str | None, method: Method, given: Mixture | None, k: int, d: int
) -> Method:
    """The method for covariances of the structure that was asked for: by name, by the method or by the mixture."""
    structure = method.covariance
    if covariance is not None:
        structure = as_structure(covariance)
        if structure != method.covariance != FULL:
            raise ValueError(f"covariance={structure.name!r} and the method's {method.covariance.name!r}: give one")
    elif given is not None and structure == FULL:
        structure = as_structure(given.structure)
    structure.refuse(k, d, method.fixed)
    if structure == method.covariance:
        return method
    changed = method.with_covariance(structure)
    if changed is None:
        raise ValueError(f"{type(method).__name__} knows only full covariances: covariance={structure.name!r}")
    return changed


def stamp_of(source: Source) -> dict[str, Any]:
    """What changes when the rows do; of very many files, one checksum of all that there is to say."""
    stamp = source.stamp()
    files = stamp.get("files", ())
    if len(files) <= NAMED_FILES:
        return stamp
    return {
        **stamp,
        "files": {"count": len(files), "checksum": checksum(json.dumps(files))},
    }


def count_components(components: Any, mixture: Mixture | None, source: Source) -> int:
    if components is None and mixture is None:
        raise ValueError("give components (how many) or mixture (to start from)")
    if mixture is None:
        return whole_number(components, "components", 1)
    if components is not None and components != mixture.k:
        raise ValueError(f"mixture has {mixture.k} components and components={components!r}: give one of them")
    if mixture.d != source.dim:
        raise ValueError(f"mixture has {mixture.d} dimensions and the data {source.dim}")
    if mixture.labels and source.labels and mixture.labels != tuple(source.labels):
        raise ValueError(f"mixture is of {list(mixture.labels)} and the data of {list(source.labels)}")
    if mixture.units and source.units and mixture.units != tuple(source.units):
        raise ValueError(f"mixture is in {list(mixture.units)} and the data in {list(source.units)}")
    return mixture.k


def not_negative(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < np.inf:
        raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
    return float(value)


def _checked_options(options: Any) -> Options:
    if options is not None and not isinstance(options, Options):
        raise ValueError(f"options must be an xd.Options(...), got {options!r}")
    return options or Options()


def _passes(batch_rows: int | None) -> int:
    return MINIBATCH_PASSES if batch_rows else FULL_PASSES


def _checked_start(start: Any) -> Start:
    if isinstance(start, Mixture):
        raise ValueError("start says how to choose the first mixture: to start from one, give mixture=")
    if not isinstance(start, (str, Start)):
        raise ValueError(f"start must be kmeans, kmeans++, random or an xd.Start, got {start!r}")
    return Start(centers=start) if isinstance(start, str) else start  # type: ignore[arg-type]
