"""Expressions over columns, such as "parallax * 10 ** (0.2 * g - 2)" or "ruwe < 1.4": parsed, never run as code.

An expression is a tree of whitelisted arithmetic. Values and first derivatives come from one walk of the tree
(forward differentiation), so that a derived feature carries exact Jacobians.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

Array = np.ndarray
Columns = Mapping[str, Array]
Partials = dict[str, Any]

LN10 = float(np.log(10.0))
CONSTANTS = {"pi": float(np.pi), "e": float(np.e), "nan": float("nan"), "inf": float("inf"), "True": 1.0, "False": 0.0}
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
    "isnan": np.isnan, "isfinite": np.isfinite, "where": np.where, "minimum": np.minimum, "maximum": np.maximum,
    "floor": np.floor, "round": np.round,
}  # fmt: skip
COMPARE: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
MASKS: dict[type[ast.operator], Callable[..., Any]] = {ast.BitAnd: np.logical_and, ast.BitOr: np.logical_or}


@dataclass(frozen=True)
class Expression:
    """Arithmetic over named columns.

    >>> Expression("a / b").partials({"a": np.array([1.0]), "b": np.array([2.0])})
    (array([0.5]), {'a': array([0.5]), 'b': array([-0.25])})
    """

    text: str

    def __post_init__(self) -> None:
        _check(self.tree, self.text)

    @cached_property
    def tree(self) -> ast.expr:
        """The parsed expression."""
        try:
            return ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
            raise ValueError(f"cannot read the expression {self.text!r}: {problem}") from problem

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns it reads, in the order of their first mention."""
        calls = {id(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        found = [n for n in ast.walk(self.tree) if isinstance(n, ast.Name) and id(n) not in calls]
        found.sort(key=lambda node: (node.lineno, node.col_offset))
        return tuple(dict.fromkeys(node.id for node in found if node.id not in CONSTANTS))

    def value(self, columns: Columns) -> Any:
        """The value in each row; NaN where a column is missing or a function is not defined."""
        with np.errstate(all="ignore"):
            return _value(self.tree, columns)

    def mask(self, columns: Columns) -> Array:
        """The rows where a condition holds; a comparison with a missing value does not."""
        return np.asarray(self.value(columns), dtype=bool)

    def partials(self, columns: Columns) -> tuple[Any, Partials]:
        """The value in each row, and its derivative with respect to each column."""
        with np.errstate(all="ignore"):
            return _dual(self.tree, columns, self.text)


def _check(node: ast.expr, text: str) -> None:
    """Refuse anything that is not arithmetic, a comparison or a known function of columns."""
    known = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Name, ast.Constant)
    for part in ast.walk(node):
        if isinstance(part, ast.expr) and not isinstance(part, known):
            raise ValueError(f"{text!r} has {ast.unparse(part)!r}, which is neither arithmetic nor a comparison")
        if isinstance(part, ast.Constant) and not isinstance(part.value, (int, float, str)):
            raise ValueError(f"{text!r} has {ast.unparse(part)!r}, which is no number")
        if isinstance(part, ast.Call):
            _check_call(part, text)


def _check_call(node: ast.Call, text: str) -> None:
    name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
    if name not in SMOOTH and name not in LOGICAL:
        raise ValueError(f"{text!r} calls {name!r}; the functions are {', '.join([*SMOOTH, *LOGICAL])}")
    wanted = len(SMOOTH[name][1]) if name in SMOOTH else {"where": 3, "minimum": 2, "maximum": 2}.get(name, 1)
    if node.keywords or len(node.args) != wanted:
        raise ValueError(f"{text!r}: {name} takes {wanted} argument{'s' * (wanted > 1)}")


def _number(node: ast.Constant) -> Any:
    return node.value if isinstance(node.value, str) else float(node.value)  # type: ignore[arg-type]


def _name(node: ast.Name, columns: Columns) -> Any:
    if node.id not in columns:
        return CONSTANTS[node.id]
    column = columns[node.id]
    return column.astype(float) if column.dtype.kind == "f" and column.dtype != float else column


def _value(node: ast.expr, columns: Columns) -> Any:
    if isinstance(node, ast.Constant):
        return _number(node)
    if isinstance(node, ast.Name):
        return _name(node, columns)
    if isinstance(node, ast.BinOp):
        function = MASKS[type(node.op)] if type(node.op) in MASKS else _binary(node)[0]
        return function(_value(node.left, columns), _value(node.right, columns))
    if isinstance(node, ast.UnaryOp):
        inner = _value(node.operand, columns)
        return np.logical_not(inner) if isinstance(node.op, (ast.Not, ast.Invert)) else _signed(node.op, inner)
    if isinstance(node, ast.BoolOp):
        join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        return reduce(join, [np.asarray(_value(part, columns), dtype=bool) for part in node.values])
    if isinstance(node, ast.Compare):
        return _compare(node, columns)
    assert isinstance(node, ast.Call)
    name = node.func.id  # type: ignore[attr-defined]
    function = SMOOTH[name][0] if name in SMOOTH else LOGICAL[name]
    return function(*(_value(part, columns) for part in node.args))


def _compare(node: ast.Compare, columns: Columns) -> Any:
    # Whole numbers stay so: an identifier must not be rounded to a float.
    sides: list[Any] = [part.value if isinstance(part, ast.Constant) else _value(part, columns)
             for part in (node.left, *node.comparators)]  # fmt: skip
    unknown = [op for op in node.ops if type(op) not in COMPARE]
    if unknown:
        raise ValueError(f"{ast.unparse(node)!r}: compare with < <= > >= == or !=")
    found = [COMPARE[type(op)](a, b) for op, a, b in zip(node.ops, sides, sides[1:], strict=False)]
    missing = [np.isnan(side) for side in sides if np.asarray(side).dtype.kind == "f"]
    return reduce(np.logical_and, [*found, *(np.logical_not(m) for m in missing)])


def _binary(node: ast.BinOp) -> tuple[Callable[..., Any], tuple[Callable[..., Any], ...]]:
    if type(node.op) not in BINARY:
        raise ValueError(f"{ast.unparse(node)!r}: use + - * / ** % (and & | for conditions)")
    return BINARY[type(node.op)]


def _signed(op: ast.unaryop, inner: Any) -> Any:
    return -inner if isinstance(op, ast.USub) else +inner


def _dual(node: ast.expr, columns: Columns, text: str) -> tuple[Any, Partials]:
    """Value and partial derivatives of a node."""
    if isinstance(node, ast.Constant):
        return _number(node), {}
    if isinstance(node, ast.Name):
        value = _name(node, columns)
        return value, ({node.id: np.ones_like(value, dtype=float)} if node.id in columns else {})
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value, inner = _dual(node.operand, columns, text)
        return _signed(node.op, value), {name: _signed(node.op, d) for name, d in inner.items()}
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        return _chain(*_binary(node), (node.left, node.right), columns, text)
    name = node.func.id if isinstance(node, ast.Call) else ""  # type: ignore[attr-defined]
    if isinstance(node, ast.Call) and name in SMOOTH:
        return _chain(*SMOOTH[name], tuple(node.args), columns, text)
    raise ValueError(f"{text!r} cannot be differentiated at {ast.unparse(node)!r}")


def _chain(
    function: Callable[..., Any], slopes: tuple[Callable[..., Any], ...], parts: tuple[ast.expr, ...],
    columns: Columns, text: str,
) -> tuple[Any, Partials]:  # fmt: skip
    """The chain rule; a part without columns needs no slope."""
    values, inner = zip(*(_dual(part, columns, text) for part in parts), strict=True)
    total: Partials = {}
    for slope, partials in zip(slopes, inner, strict=True):
        outer = slope(*values) if partials else None
        for name, d in partials.items():
            total[name] = total.get(name, 0.0) + outer * d
    return function(*values), total
