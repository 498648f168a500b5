"""Evaluating: values, truths and first derivatives of a parsed expression, each by one walk of its tree."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

Columns = Mapping[str, np.ndarray]
Partials = dict[str, Any]
Truth = tuple[Any, Any]  # whether a condition holds, and whether that is known

LN10 = float(np.log(10.0))
CONSTANTS = {"pi": float(np.pi), "nan": float("nan"), "inf": float("inf"), "True": 1.0, "False": 0.0}
# name: (function, derivative of each argument)
SMOOTH: dict[str, tuple[Callable[..., Any], tuple[Callable[..., Any], ...]]] = {
    "sqrt": (np.sqrt, (lambda x: 0.5 / np.sqrt(x),)),
    "exp": (np.exp, (np.exp,)),
    "log": (np.log, (lambda x: 1 / x,)),
    "log10": (np.log10, (lambda x: 1 / (LN10 * x),)),
    "sin": (np.sin, (np.cos,)),
    "cos": (np.cos, (lambda x: -np.sin(x),)),
    "tan": (np.tan, (lambda x: 1 / np.cos(x) ** 2,)),
    "arcsin": (np.arcsin, (lambda x: 1 / np.sqrt(1 - x * x),)),
    "arccos": (np.arccos, (lambda x: -1 / np.sqrt(1 - x * x),)),
    "arctan": (np.arctan, (lambda x: 1 / (1 + x * x),)),
    "arcsinh": (np.arcsinh, (lambda x: 1 / np.sqrt(1 + x * x),)),
    "sinh": (np.sinh, (np.cosh,)),
    "cosh": (np.cosh, (np.sinh,)),
    "tanh": (np.tanh, (lambda x: 1 - np.tanh(x) ** 2,)),
    "abs": (np.abs, (np.sign,)),
    "radians": (np.radians, (lambda x: np.pi / 180,)),
    "degrees": (np.degrees, (lambda x: 180 / np.pi,)),
    "arctan2": (np.arctan2, (lambda y, x: x / (x * x + y * y), lambda y, x: -y / (x * x + y * y))),
    "hypot": (np.hypot, (lambda x, y: x / np.hypot(x, y), lambda x, y: y / np.hypot(x, y))),
}
BINARY: dict[type[ast.operator], tuple[Callable[..., Any], tuple[Callable[..., Any], ...]]] = {
    ast.Add: (operator.add, (lambda x, y: 1.0, lambda x, y: 1.0)),
    ast.Sub: (operator.sub, (lambda x, y: 1.0, lambda x, y: -1.0)),
    ast.Mult: (operator.mul, (lambda x, y: y, lambda x, y: x)),
    ast.Div: (np.divide, (lambda x, y: 1 / y, lambda x, y: -x / (y * y))),
    ast.Pow: (np.power, (lambda x, y: y * np.power(x, y - 1), lambda x, y: np.log(x) * np.power(x, y))),
    ast.Mod: (np.mod, (lambda x, y: 1.0, lambda x, y: -np.floor(x / y))),
}
LOGICAL: dict[str, Callable[..., Any]] = {
    "where": np.where,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "floor": np.floor,
    "round": np.round,
}
TESTS: dict[str, Callable[..., Any]] = {"isnan": np.isnan, "isfinite": np.isfinite}
COMPARE: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip


EXACT = (ast.Add, ast.Sub, ast.Mult, ast.Mod)  # of whole numbers: a whole number again
LARGEST = 2**63 - 2**14  # of the whole numbers that are computed with as such: a float of one more could round to 2**63


def _number(node: ast.Constant) -> Any:
    """A text as it is, a number as a float, but for whole numbers that int64 holds."""
    if isinstance(node.value, str):
        return node.value
    whole = type(node.value) is int and abs(node.value) < LARGEST
    return node.value if whole else float(node.value)  # type: ignore[arg-type]


def _name(node: ast.Name, columns: Columns) -> Any:
    if node.id not in columns:
        return CONSTANTS[node.id]
    column = columns[node.id]
    return column.astype(float) if column.dtype.kind == "f" and column.dtype != float else column


def is_truth(node: ast.expr) -> bool:
    """Whether a node is true or false, and not a number."""
    test = isinstance(node, ast.Call) and ast.unparse(node.func) in TESTS
    negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert))
    return isinstance(node, (ast.Compare, ast.BoolOp)) or test or negated


def value(node: ast.expr, columns: Columns) -> Any:
    """The value of a node in each row."""
    if isinstance(node, ast.Constant):
        return _number(node)
    if isinstance(node, ast.Name):
        return _widened(_as_number(node, columns))
    if is_truth(node):
        true, known = truth(node, columns)
        return np.where(known, np.where(true, 1.0, 0.0), np.nan)
    if isinstance(node, ast.BinOp):
        return _computed(node.op, value(node.left, columns), value(node.right, columns))
    if isinstance(node, ast.UnaryOp):
        return _signed(node.op, value(node.operand, columns))
    assert isinstance(node, ast.Call)
    name = node.func.id  # type: ignore[attr-defined]
    if name == "where":
        true, known = truth(node.args[0], columns)
        return np.where(known, np.where(true, *(value(part, columns) for part in node.args[1:])), np.nan)
    function = SMOOTH[name][0] if name in SMOOTH else LOGICAL[name]
    return function(*(value(part, columns) for part in node.args))


def _widened(values: Any) -> Any:
    """Whole numbers and flags as int64, or floats: in the int16 of a catalogue 200 * 200 is not 40000."""
    array = np.asarray(values)
    if array.dtype.kind not in "biu" or array.dtype == np.int64:
        return values
    return array.astype(float if array.dtype == np.uint64 and array.max(initial=0) > LARGEST else np.int64)


def _computed(op: ast.operator, a: Any, b: Any) -> Any:
    """Arithmetic, of whole numbers exact where int64 holds the result: an identifier's remainder is not a float's."""
    function = BINARY[type(op)][0]
    rough = function(np.asarray(a, dtype=float), np.asarray(b, dtype=float))
    whole = all(np.asarray(part).dtype.kind == "i" for part in (a, b))
    if not whole or not isinstance(op, EXACT) or not np.all(np.abs(rough) < LARGEST):  # NaN: a remainder of nothing
        return rough
    return function(a, b)


def _as_number(node: ast.Name, columns: Columns) -> Any:
    value = _name(node, columns)
    if np.asarray(value).dtype.kind in "OUS":
        raise ValueError(f"column {node.id} is text, which is not a number")
    return value


# Conditions


def truth(node: ast.expr, columns: Columns) -> Truth:
    """Whether a condition holds in each row, and whether that is known."""
    if isinstance(node, ast.Compare):
        return _compare(node, columns)
    if isinstance(node, ast.BoolOp):
        parts = [truth(part, columns) for part in node.values]
        return reduce(_both if isinstance(node.op, ast.And) else _either, parts)
    if isinstance(node, ast.UnaryOp):
        true, known = truth(node.operand, columns)
        return np.logical_not(true), known
    if isinstance(node, ast.Call):
        return TESTS[node.func.id](value(node.args[0], columns)), True  # type: ignore[attr-defined]
    if isinstance(node, ast.Constant):
        return bool(node.value), True
    return _flag(node, columns)


def _both(a: Truth, b: Truth) -> Truth:
    false = (a[1] & ~np.asarray(a[0])) | (b[1] & ~np.asarray(b[0]))
    return np.logical_and(a[0], b[0]), np.logical_and(a[1], b[1]) | false


def _either(a: Truth, b: Truth) -> Truth:
    true = np.logical_and(*a) | np.logical_and(*b)
    return np.logical_or(a[0], b[0]), np.logical_and(a[1], b[1]) | true


def _flag(node: ast.expr, columns: Columns) -> Truth:
    """A column of true and false, or of 1 and 0."""
    assert isinstance(node, ast.Name)
    values = np.asarray(_as_number(node, columns))
    known = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(values.shape, dtype=bool)
    true = values == 1
    odd = known & ~true & (values != 0)
    if odd.any():
        raise ValueError(f"column {node.id} is not a condition: it has the value {values[odd][0]}; compare it with "
                         "something")  # fmt: skip
    return true, known


def _compare(node: ast.Compare, columns: Columns) -> Truth:
    # Whole numbers stay so: an identifier must not be rounded to a float.
    sides = [_side(part, columns) for part in (node.left, *node.comparators)]
    texts = [np.asarray(side).dtype.kind in "OUS" for side in sides]
    if any(texts) and not all(texts):
        raise ValueError(f"{ast.unparse(node)!r} compares text with a number")
    known = reduce(np.logical_and, [~_missing(side) for side in sides])
    filled = [_filled(side) for side in sides]
    answers = [COMPARE[type(op)](a, b) for op, a, b in zip(node.ops, filled, filled[1:], strict=False)]
    return reduce(np.logical_and, answers), known


def _side(part: ast.expr, columns: Columns) -> Any:
    if isinstance(part, ast.Constant):
        return part.value
    return _name(part, columns) if isinstance(part, ast.Name) else value(part, columns)


def _missing(side: Any) -> Any:
    values = np.asarray(side)
    if values.dtype.kind == "O":
        return np.array([value is None for value in values.ravel()]).reshape(values.shape)
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, dtype=bool)


def _filled(side: Any) -> Any:
    """Text with "" for what is missing; numbers as they are."""
    values = np.asarray(side)
    return np.where(_missing(side), "", values).astype(str) if values.dtype.kind == "O" else side


def _signed(op: ast.unaryop, inner: Any) -> Any:
    return -inner if isinstance(op, ast.USub) else +inner


def dual(node: ast.expr, columns: Columns, text: str) -> tuple[Any, Partials]:
    """Value and partial derivatives of a node."""
    if isinstance(node, ast.Constant):
        return _number(node), {}
    if isinstance(node, ast.Name):
        value = np.asarray(_as_number(node, columns), dtype=float)
        return value, ({node.id: np.ones_like(value)} if node.id in columns else {})
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value, inner = dual(node.operand, columns, text)
        return _signed(node.op, value), {name: _signed(node.op, d) for name, d in inner.items()}
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        return _chain(*BINARY[type(node.op)], (node.left, node.right), columns, text)
    name = node.func.id if isinstance(node, ast.Call) else ""  # type: ignore[attr-defined]
    if isinstance(node, ast.Call) and name in SMOOTH:
        return _chain(*SMOOTH[name], tuple(node.args), columns, text)
    raise ValueError(f"{text!r} cannot be differentiated at {ast.unparse(node)!r}")


def _chain(
    function: Callable[..., Any], slopes: tuple[Callable[..., Any], ...], parts: tuple[ast.expr, ...],
    columns: Columns, text: str,
) -> tuple[Any, Partials]:  # fmt: skip
    """The chain rule; a part without columns needs no slope."""
    values, inner = zip(*(dual(part, columns, text) for part in parts), strict=True)
    total: Partials = {}
    for slope, partials in zip(slopes, inner, strict=True):
        outer = slope(*values) if partials else None
        for name, d in partials.items():
            total[name] = total.get(name, 0.0) + outer * d
    return function(*values), total
