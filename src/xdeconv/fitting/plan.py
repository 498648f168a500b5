"""Plan: every setting of a fit, resolved from what the user said, the size of the data and the device."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch

from ..kernels.options import Options
from ..methods import EM, SGD, Accelerated, Method, Prior, Structure, as_structure, described, suited_batch, suited_step
from ..methods.accelerated import DOUBLE, SINGLE
from ..methods.structures import FULL
from ..mixture._mixture import Mixture, refuse_no_mixture
from ..mixture.background import Background
from ..mixture.inflation import Inflated
from ..mixture.tails import StudentT
from ..rows.data import ArraySource, Source, as_source
from ..rows.resident import Cache
from ..search.moves import Moves
from ..system.files import checksum
from ..system.ranks import made_by_first
from .beside import told
from .checkpoint import Checkpoint
from .initial import Start
from .weak_prior import weak_prior

log = logging.getLogger("xdeconv")
Way = Literal["em", "minibatch-em", "sgd"]
MANY_ROWS = {"cpu": 5_000_000, "cuda": 500_000_000}  # of a stream: with more, updates come before a pass is over
NAMED_FILES = 100  # that settings name one by one
ARRAYS = ("noise", "error", "projection", "weight", "log_prior", "label", "background")


@dataclass(frozen=True)
class Plan:
    """Every setting of a fit, resolved; ``weak`` says that a prior of the method is the fit's own, not the user's."""

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
    said: tuple[str, ...] = ()

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
        }  # fmt: skip

    def method_for(self, dtype: torch.dtype) -> Method:
        """The method as it runs in a number type: EM on full passes is accelerated, unless it was told not to be."""
        method = self.method
        if not isinstance(method, EM) or not method.accelerate or self.batch_rows is not None:
            return method
        if method.step != 1.0 or method.inflate:
            return method
        return Accelerated(method, SINGLE if dtype == torch.float32 else DOUBLE)


def choose_moves(
    moves: Moves | str | None, method: Method | None, source: Source, given: Mixture | None, heavy: bool = False
) -> Moves | None:
    """The search: the user's, or by default one unless components have names: fixed, with log-priors, or given."""
    named: dict[str, Moves | None] = {"none": None, "auto": Moves(), "bovy": Moves(criterion="bovy")}
    held = (method is not None and method.fixed is not None) or source.has_log_prior
    if moves is None:
        moves = "none" if held or heavy or given is not None else "auto"
    if not isinstance(moves, (str, Moves)) or (isinstance(moves, str) and moves not in named):
        raise ValueError(f"moves must be one of {list(named)} or an xd.Moves, got {moves!r}")
    resolved = named[moves] if isinstance(moves, str) else moves
    if resolved is not None and heavy:
        raise ValueError("moves are tried on Gaussian components: tails= needs moves='none'")
    if resolved is not None and held:
        raise ValueError("moves replace components: Fixed parameters and log_prior, which name them, need moves='none'")
    return resolved


def choose_tails(tails: Any, given: Mixture | None) -> StudentT | None:
    """The tails of components: the user's, or those of the mixture that a fit starts from."""
    if tails is None:
        return None if given is None else given.tails
    if isinstance(tails, (int, float)) and not isinstance(tails, bool):
        return StudentT(float(tails))
    if not isinstance(tails, StudentT):
        raise ValueError(f"tails must be an xd.StudentT(...), or its nu, got {tails!r}")
    return tails


def choose_method(
    source: Source, k: int, device: torch.device, method: Method | None, batch_rows: int | None, seed: int = 0
) -> tuple[Method, int | None]:
    """The method and the batch size: the user's, or what suits the rows, how many there are, and the device."""
    if method is not None:
        return method, batch_rows
    if batch_rows is None and in_batches(source, device):
        batch_rows = suited_batch(k, source.dim)
    step = 1.0 if batch_rows is None else suited_step(batch_rows, k, source.dim)
    return EM(step=step, prior=made_by_first(lambda: weak_prior(source, seed), device)), batch_rows


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


def named_method(name: Way, prior: Prior | None, size: tuple[int, int, int], inflate: float | None = None) -> Method:
    """The method that a word stands for, in XDGMM and in the command; ``size`` is rows of a batch, k and d.

    >>> named_method("minibatch-em", None, (512, 64, 7)).step
    Decaying(start=0.143, delay=1.0, power=0.8)
    """
    if name == "sgd":
        return SGD(prior=Prior(w=inflate, c=0.0) if prior is None and inflate is not None else prior)
    return EM(step=1.0 if name == "em" else suited_step(*size), prior=prior, inflate=inflate or 0.0)


def in_batches(source: Source, device: torch.device) -> bool:
    """Whether a stream is so long that updates should come before a pass is over, and is read here at all."""
    if source.resident_bytes or source.rows <= MANY_ROWS[device.type]:
        return False
    return device.type == "cuda" or not source.remote


def stamp_of(source: Source) -> dict[str, Any]:
    """What changes when the rows do; of very many files, one checksum of all that there is to say."""
    stamp = source.stamp()
    files = stamp.get("files", ())
    if len(files) <= NAMED_FILES:
        return stamp
    return {
        **stamp,
        "files": {"count": len(files), "checksum": checksum(np.frombuffer(json.dumps(files).encode(), "u1"))},
    }


def count_components(components: Any, mixture: Mixture | None, source: Source) -> int:
    if components is None and mixture is None:
        raise ValueError("give components (how many) or mixture (to start from)")
    if mixture is None:
        return at_least(1, components, "components")
    refuse_no_mixture(mixture)
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
