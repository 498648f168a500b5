"""Triton if it is installed; otherwise kernels can be defined, never launched, and cuda.refuses says why."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None


triton = _module("triton")
tl = _module("triton.language")
libdevice = _module("triton.language.extra.libdevice")


def interpreted() -> bool:
    """Whether kernels run on the CPU, one operation at a time."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def jit(**options: Any) -> Any:
    """triton.jit, or nothing without Triton."""
    return (lambda f: f) if triton is None else triton.jit(**options)


def constant(value: Any) -> Any:
    """A number that kernels may read as a global."""
    return value if triton is None else tl.constexpr(value)
