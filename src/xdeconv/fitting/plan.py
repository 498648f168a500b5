"""Plan: every setting of a fit, resolved from what the user said, the size of the data and the device."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch

from ..kernels.options import Options
from ..methods import EM, Method, describe, suited_batch, suited_step
from ..mixture._mixture import Mixture
from ..rows.data import ArraySource, Source, as_source, split
from ..rows.resident import Cache
from ..search.moves import Moves
from ..system.files import checksum
from .history import Epoch
from .initial import Start

log = logging.getLogger("xdeconv")
MANY_ROWS = {"cpu": 5_000_000, "cuda": 500_000_000}  # of a stream: with more, updates come before a pass is over
ARRAYS = ("noise", "error", "projection", "weight", "log_prior", "label")


@dataclass(frozen=True)
class Plan:
    """Every setting of a fit, resolved."""

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
    patience: int
    standardize: bool
    checkpoint: str | os.PathLike[str] | None
    checkpoint_seconds: float
    resume: bool
    device: torch.device
    dtype: torch.dtype
    options: Options
    labels: tuple[str, ...] | None
    units: tuple[str, ...] | None
    cache: Cache | None = None

    def settings(self, source: Source) -> dict[str, Any]:
        """What must be the same for a checkpoint to be of use, as JSON."""
        given = None
        if self.given is not None:
            given = checksum(self.given.weights, self.given.means, self.given.covariances)
        return {
            "components": self.components, "method": describe(self.method), "start": describe(self.start),
            "moves": None if self.moves is None else describe(self.moves),
            "given": given, "seed": self.seed, "restarts": self.restarts, "batch_rows": self.batch_rows,
            "standardize": self.standardize, "rows": source.rows, "dim": source.dim, "device": self.device.type,
            "dtype": str(self.dtype), "data": data_checksum(source),
        }  # fmt: skip

    def ascends(self) -> bool:
        """Whether the likelihood must rise with every pass, so that a fall means trouble."""
        return self.method == EM() and self.batch_rows is None


def choose_method(
    source: Source,
    k: int,
    device: torch.device,
    method: Method | None,
    moves: Moves | str | None,
    batch_rows: int | None,
) -> tuple[Method, Moves | None, int | None]:
    """The method, moves and batch size: the user's, or what suits the size of the data and the device."""
    named: dict[str, Moves | None] = {"none": None, "auto": Moves(), "bovy": Moves(criterion="bovy")}
    if isinstance(moves, str) and moves not in named:
        raise ValueError(f"moves must be one of {list(named)} or an xd.Moves, got {moves!r}")
    if moves is None:
        moves = "none" if method is not None or _has_log_prior(source) else "auto"
    if not isinstance(moves, (str, Moves)):
        raise ValueError(f"moves must be one of {list(named)} or an xd.Moves, got {moves!r}")
    resolved = named[moves] if isinstance(moves, str) else moves
    if resolved is not None and (getattr(method, "fixed", None) is not None or _has_log_prior(source)):
        raise ValueError("moves replace components: Fixed parameters and log_prior, which name them, need moves='none'")
    if method is not None:
        return method, resolved, batch_rows
    if batch_rows is None and in_batches(source, device):
        batch_rows = suited_batch(k, source.dim)
    if batch_rows is None:
        log.info("fitting %s rows by batch EM with moves", f"{source.rows:,}")
        return EM(), resolved, None
    log.info("fitting %s rows by minibatch EM with moves, %s rows a step", f"{source.rows:,}", f"{batch_rows:,}")
    return EM(step=suited_step(batch_rows, k, source.dim)), resolved, batch_rows


def in_batches(source: Source, device: torch.device) -> bool:
    """Whether a stream is so long that updates should come before a pass is over, and is read here at all."""
    if isinstance(source, ArraySource) or source.rows <= MANY_ROWS[device.type]:
        return False
    return device.type == "cuda" or not hasattr(getattr(source, "table", None), "sum")


def _has_log_prior(source: Source) -> bool:
    return isinstance(source, ArraySource) and source.batch.log_prior is not None


def data_checksum(source: Source) -> int | None:
    """The checksum of rows in memory, so that a checkpoint is not resumed with other rows; None for a stream."""
    if not isinstance(source, ArraySource):
        return None
    batch = source.batch
    tensors = (batch.x, batch.noise, batch.projection, batch.weight, batch.log_prior, batch.label)
    return checksum(*(t.cpu().numpy() for t in tensors if t is not None))


def count_components(components: int | None, mixture: Mixture | None, source: Source) -> int:
    if components is None and mixture is None:
        raise ValueError("give components (how many) or mixture (to start from)")
    if mixture is None:
        return at_least(1, components, "components")
    if not isinstance(mixture, Mixture):
        raise ValueError(f"mixture must be an xd.Mixture, such as xd.load(path), got {mixture!r}")
    if components is not None and components != mixture.k:
        raise ValueError(f"mixture has {mixture.k} components and components={components!r}: give one of them")
    if mixture.d != source.dim:
        raise ValueError(f"mixture has {mixture.d} dimensions and the data {source.dim}")
    if mixture.labels and source.labels and mixture.labels != tuple(source.labels):
        raise ValueError(f"mixture is of {list(mixture.labels)} and the data of {list(source.labels)}")
    if mixture.units and source.units and mixture.units != tuple(source.units):
        raise ValueError(f"mixture is in {list(mixture.units)} and the data in {list(source.units)}")
    return mixture.k


def at_least(least: int, value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def not_negative(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < np.inf:
        raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
    return float(value)


def hold_out(source: Source, validation: Any, seed: int) -> tuple[Source, Source | None]:
    """Training and validation sources, from whatever the user gave for validation."""
    if validation is None:
        return source, None
    if isinstance(validation, (Real, str)):
        if isinstance(validation, (bool, str)) or not 0 < float(validation) < 1:
            raise ValueError(f"validation must be rows, or a fraction between 0 and 1, got {validation!r}")
        return split(source, float(validation), seed)
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


def _since_search(past: list[Epoch]) -> list[Epoch]:
    """The epochs since the last search for better optima."""
    last = max((i for i, record in enumerate(past) if record.moved is not None), default=0)
    return past[last:]


def search_due(plan: Plan, past: list[Epoch]) -> bool:
    """After some epochs, and again when the fit has converged or a minibatch epoch is over, while moves are found."""
    if plan.moves is None or plan.components == 1 or not past:
        return False
    searches = [record.moved for record in past if record.moved is not None]
    if len(searches) >= plan.moves.rounds or (searches and searches[-1] == 0):
        return False
    settled = _settled(plan, _since_search(past)) or plan.batch_rows is not None
    return settled or (not searches and len(past) >= plan.moves.after)


def _settled(plan: Plan, past: list[Epoch]) -> bool:
    return len(past) >= 2 and abs(past[-1].loglik - past[-2].loglik) < plan.tol


def converged(plan: Plan, past: list[Epoch]) -> bool:
    """Whether a restart may stop: the likelihood hardly moves, or validation has not risen for a while."""
    if search_due(plan, past):
        return False
    past = _since_search(past)
    if _settled(plan, past):
        return True
    scores = [record.validation for record in past if record.validation is not None]
    return len(scores) > plan.patience and int(np.argmax(scores)) < len(scores) - plan.patience
