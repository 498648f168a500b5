"""Compiled code is kept on disk for the next process, where there is a folder for it; what is compiled now is said."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from numba import njit
from numba.core.event import Event, Listener, install_listener

from .progress import tell, telling

log = logging.getLogger("xdeconv")
T = TypeVar("T")
_njit: Any = njit  # whose annotations know not all options
LOOP: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
LANES = {"reassoc", "contract", "arcp", "nsz"}  # never nnan or ninf: NaN is how failure is seen


def kept(compiled: Callable[[bool], T]) -> T:
    """compiled(True), whose code Numba keeps on disk, or compiled(False) where it has no folder to write to."""
    try:
        with telling():
            return compiled(True)
    except RuntimeError as problem:
        if "no locator available" not in str(problem):
            raise
    except OSError as problem:  # a full disk, or a quota
        _say_not_kept(f" ({problem.strerror or problem})")
        return compiled(False)
    _say_not_kept("")
    return compiled(False)


def compiled_loop(function: Callable[..., None], signature: Any, what: str) -> Callable[..., None]:
    """A loop in Python, compiled for a signature unless the disk has it, which is said before it begins."""
    with install_listener("numba:compile", _Saying(function, what)):
        return kept(lambda keep: _njit(signature, cache=keep, **LOOP)(function))


def compiled_sum(function: Callable[..., None], signature: Any, what: str) -> Callable[..., None]:
    """The same, whose sums may be added up in another order, the same every time: in lanes."""
    with install_listener("numba:compile", _Saying(function, what)):
        return kept(lambda keep: _njit(signature, cache=keep, fastmath=LANES, **LOOP)(function))


def inner(function: T) -> T:
    """A function that compiled loops alone call: nothing is compiled by which Python could, a tenth of all."""
    return _njit(no_cpython_wrapper=True, **LOOP)(function)


class _Saying(Listener):
    """Says that a function is being compiled; what is read from the disk makes no event."""

    def __init__(self, function: Callable[..., None], what: str) -> None:
        self.function, self.what = function, what

    def on_start(self, event: Event) -> None:
        if event.data["dispatcher"].py_func is self.function:
            say_compiling(self.what)

    def on_end(self, event: Event) -> None:
        """Whoever keeps the code tells what was going on before."""


@cache
def say_compiling(what: str) -> None:
    """Say, once in a process, what is being compiled; only code generation calls this, so that it is true."""
    log.info("compiling CPU kernels for %s (they are kept for the next time)", what)
    tell(f"compiling CPU kernels for {what}")


@cache
def _say_not_kept(why: str) -> None:
    log.warning(
        "compiled CPU kernels cannot be kept on disk%s, so that every process compiles them again: "
        "set NUMBA_CACHE_DIR to a folder that can be written", why,
    )  # fmt: skip
