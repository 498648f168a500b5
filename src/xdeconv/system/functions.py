"""What a function is made of, in words that another process finds too: another function has other words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor

from .checksums import checksum

DEEPEST = 5  # of things in things: what lies deeper is told by its type alone


def named(function: Any) -> str:
    """A function, or what is called like one, by its name and a checksum of all that it is made of.

    Two lambdas have one name and two closures one code: names, constants, defaults, what it took from around it and
    the numbers, texts and functions of its module that it uses all count.

    >>> def above(limit):
    ...     return lambda x: x > limit
    >>> named(above(1)) == named(above(1)), named(above(1)) == named(above(2))
    (True, False)
    """
    inside = json.dumps(made_of(function))
    return f"{_name(function)} {checksum(inside)}"


def made_of(value: Any, depth: int = 0) -> Any:
    """What a value is made of, as JSON."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if isinstance(value, (type, BuiltinFunctionType, ModuleType)) or depth > DEEPEST:
        return _name(value)
    if isinstance(value, (np.ndarray, np.generic, Tensor)):
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
        return [str(array.dtype), list(array.shape), repr(array) if array.dtype.hasobject else checksum(array)]
    return [_name(value), [made_of(part, depth + 1) for part in _parts(value)]]


def _parts(value: Any) -> list[Any]:
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]  # which is empty
        return [value.__code__, cells, value.__defaults__, value.__kwdefaults__, _around(value)]
    if isinstance(value, CodeType):
        return [value.co_code, value.co_names, *value.co_consts]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if is_dataclass(value):  # without what it keeps for the next time
        return [vars(value).get(field.name) for field in fields(value)]
    if isinstance(value, Mapping):
        return [part for item in value.items() for part in item]
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, (list, tuple)):
        return list(value)
    try:
        return [vars(value)]
    except TypeError:  # it keeps what it is made of to itself
        return []


def _around(function: FunctionType) -> dict[str, Any]:
    """What a function uses of its module; other modules' functions are those of their names."""
    known, names = function.__globals__, function.__code__.co_names
    used = {name: known[name] for name in names if name in known}
    own = (v.__module__ == function.__module__ for v in used.values() if isinstance(v, FunctionType))
    return {n: v if not isinstance(v, FunctionType) or next(own) else _name(v) for n, v in used.items()}


def _name(value: Any) -> str:
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{type(value).__module__}.{type(value).__qualname__}"
