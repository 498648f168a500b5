"""Words: a method by its name, made for as many rows, components and dimensions as a fit turns out to have.

xd.fit, XDGMM and the command all say these words, and what they mean is decided here alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch

from ..methods import EM, SGD, Method, Prior, suited_batch, suited_step
from ..rows.data import Source
from ..system.ranks import made_by_first
from .weak_prior import weak_prior

Way = Literal["auto", "em", "minibatch-em", "sgd"]
GRADIENT_ROWS = 512  # of a batch of sgd
MANY_ROWS = {"cpu": 5_000_000, "cuda": 500_000_000}  # of a stream: with more, updates come before a pass is over


@dataclass(frozen=True)
class Worded:
    """A method by its name, with a prior, or what EM adds to covariances; without either it gets a weak prior.

    >>> Worded("minibatch-em").method(512, 64, 7).step
    Decaying(start=0.143, delay=1.0, power=0.6)
    """

    way: Way = "auto"
    prior: Prior | None = None
    inflate: float | None = None

    def __post_init__(self) -> None:
        if self.way not in get_args(Way):
            raise ValueError(f"method must be one of {get_args(Way)} or an xd.EM or xd.SGD, got {self.way!r}")

    def batch_rows(self, asked: int | None, k: int, d: int, long: bool) -> int | None:
        """Rows of a batch: those asked for, or what suits; None where every step sees all rows."""
        if self.way == "em" and asked is not None:
            raise ValueError("em sees all rows in every step: for batch_rows, the method is minibatch-em or sgd")
        if asked is not None or self.way == "em" or (self.way == "auto" and not long):
            return asked
        return GRADIENT_ROWS if self.way == "sgd" else suited_batch(k, d)

    def method(self, batch_rows: int | None, k: int, d: int, searched: int = 0) -> Method:
        """The method for batches of so many rows, k components, d dimensions, and a start searched on some rows."""
        if self.way == "sgd":
            inflated = None if self.inflate is None else Prior(w=self.inflate, c=0.0)
            return SGD(prior=self.prior or inflated)
        step = 1.0 if batch_rows is None else suited_step(batch_rows, k, d, searched)
        return EM(step=step, prior=self.prior, inflate=self.inflate or 0.0)


@dataclass(frozen=True)
class Chosen:
    """A method, the rows of its batches, and whether its prior is the fit's own."""

    method: Method
    batch_rows: int | None
    weak: bool


def choose_method(
    source: Source, k: int, device: torch.device, method: Method | Worded, batch_rows: int | None, seed: int = 0,
    searched: int = 0,
) -> Chosen:  # fmt: skip
    """The user's method, or what a word means for the rows, how many there are, and the device."""
    if isinstance(method, Method):
        return Chosen(method, batch_rows, weak=False)
    rows = method.batch_rows(batch_rows, k, source.dim, in_batches(source, device))
    weak = method.prior is None and method.inflate is None
    if weak:
        method = replace(method, prior=made_by_first(lambda: weak_prior(source, seed), device))
    return Chosen(method.method(rows, k, source.dim, min(searched, source.rows)), rows, weak)


def as_words(method: Any) -> Method | Worded:
    """A method, or what a user said instead of one."""
    if method is None or isinstance(method, str):
        return Worded(method or "auto")  # type: ignore[arg-type]
    if not isinstance(method, (Method, Worded)):
        raise ValueError(f"method must be one of {get_args(Way)} or an xd.EM or xd.SGD, got {method!r}")
    return method


def in_batches(source: Source, device: torch.device) -> bool:
    """Whether a stream is so long that updates should come before a pass is over, and is read here at all."""
    if source.resident_bytes or source.rows <= MANY_ROWS[device.type]:
        return False
    return device.type == "cuda" or not source.remote
