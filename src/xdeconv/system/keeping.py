"""Compiled code is kept on disk for the next process, where there is a folder for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import TypeVar

log = logging.getLogger("xdeconv")
T = TypeVar("T")


def kept(compiled: Callable[[bool], T]) -> T:
    """compiled(True), whose code Numba keeps on disk, or compiled(False) where it has no folder to write to."""
    try:
        return compiled(True)
    except RuntimeError as problem:
        if "no locator available" not in str(problem):
            raise
    except OSError as problem:  # a full disk, or a quota
        _say_not_kept(f" ({problem.strerror or problem})")
        return compiled(False)
    _say_not_kept("")
    return compiled(False)


@cache
def _say_not_kept(why: str) -> None:
    log.warning(
        "compiled CPU kernels cannot be kept on disk%s, so that every process compiles them again: "
        "set NUMBA_CACHE_DIR to a folder that can be written", why,
    )  # fmt: skip
