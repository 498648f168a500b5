"""Expressions over columns, such as "parallax * 10 ** (0.2 * g - 2)" or "ruwe < 1.4": parsed, never run as code.

An expression is a tree of whitelisted arithmetic. Values and first derivatives come from one walk of the tree
(forward differentiation), so that a derived feature carries exact Jacobians. Conditions have three answers: what
compares a missing value is neither true nor false, nor is its negation. & and | bind as in pandas.query: as and, or;
`BP-RP`, in backticks, is the column of that name.
"""

from __future__ import annotations

import ast
import io
import operator
import re
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

Array = np.ndarray
Columns = Mapping[str, Array]
Partials = dict[str, Any]

LN10 = float(np.log(10.0))
LONGEST_SHOWN = 200  # characters of an expression in an error
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
DEPTH = 100  # of nested operations
Truth = tuple[Any, Any]  # whether a condition holds, and whether that is known


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
        text, quoted = _without_quotes(self.text.strip())
        try:
            return _Named(quoted).visit(ast.parse(_with_words(text), mode="eval")).body
        except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError) as problem:
            reason = problem.msg if isinstance(problem, SyntaxError) else problem
            shown = self.text if len(self.text) <= LONGEST_SHOWN else f"{self.text[:LONGEST_SHOWN]}..."
            raise ValueError(f"cannot read the expression {shown!r}: {reason}") from problem

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns it reads, in the order of their first mention."""
        calls = {id(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        nodes = [n for n in ast.walk(self.tree) if isinstance(n, ast.Name) and id(n) not in calls]
        nodes.sort(key=lambda node: (node.lineno, node.col_offset))
        return tuple(dict.fromkeys(node.id for node in nodes if node.id not in CONSTANTS))

    def value(self, columns: Columns) -> Any:
        """The value in each row; NaN where a column is missing or a function is not defined."""
        with np.errstate(all="ignore"):
            return _value(self.tree, columns)

    def partials(self, columns: Columns) -> tuple[Any, Partials]:
        """The value in each row, and its derivative with respect to each column."""
        with np.errstate(all="ignore"):
            return _dual(self.tree, columns, self.text)


@dataclass(frozen=True)
class Condition:
    """A condition on rows; what is not a comparison, a flag or several of them is refused.

    >>> x = np.array([0.2, 0.9, np.nan])
    >>> Condition("x > 0.5 & x < 1 | x == 0.2").mask({"x": x}).tolist()
    [True, True, False]
    """

    text: str

    def __post_init__(self) -> None:
        _check_condition(self.expression.tree, self.text)

    @cached_property
    def expression(self) -> Expression:
        """What is asked of the columns."""
        return Expression(self.text)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns it reads, in the order of their first mention."""
        return self.expression.names

    def mask(self, columns: Columns) -> Array:
        """The rows where it is known to hold."""
        with np.errstate(all="ignore"):
            true, known = _truth(self.expression.tree, columns)
        rows = len(next(iter(columns.values()))) if columns else 1
        return np.array(np.broadcast_to(np.logical_and(true, known), (rows,)))


def _without_quotes(text: str) -> tuple[str, dict[str, str]]:
    """The text with a plain word for each `name in backticks`, and what the words stand for."""
    quoted: dict[str, str] = {}

    def word(match: re.Match[str]) -> str:
        quoted[f"quoted_{len(quoted)}_"] = match[1]
        return f"quoted_{len(quoted) - 1}_"

    return re.sub(r"`([^`]+)`", word, text), quoted


class _Named(ast.NodeTransformer):
    """Puts names of columns, which may be any text, in the place of words."""

    def __init__(self, quoted: Mapping[str, str]) -> None:
        self.quoted = quoted

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.quoted.get(node.id, node.id)
        return node


def _with_words(text: str) -> str:
    """The text with and, or in place of & and |, which in Python bind closer than comparisons."""
    words = {"&": " and ", "|": " or "}
    parts = list(tokenize.generate_tokens(io.StringIO(text).readline))
    lines = text.splitlines(keepends=True)
    for part in reversed(parts):
        if part.type == tokenize.OP and part.string in words:
            (row, start), (_, end) = part.start, part.end
            lines[row - 1] = lines[row - 1][:start] + words[part.string] + lines[row - 1][end:]
    return "".join(lines)


def _check(node: ast.expr, text: str) -> None:
    """Refuse anything that is not arithmetic, a comparison or a known function of columns."""
    known = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Name, ast.Constant)
    _check_depth(node, text)
    compared = {id(side) for part in ast.walk(node) if isinstance(part, ast.Compare)
                for side in (part.left, *part.comparators)}  # fmt: skip
    for part in ast.walk(node):
        if isinstance(part, ast.expr) and not isinstance(part, known):
            raise ValueError(f"{text!r} has {ast.unparse(part)!r}, which is neither arithmetic nor a comparison")
        if isinstance(part, ast.Constant):
            _check_constant(part, text, id(part) in compared)
        if isinstance(part, ast.BinOp) and type(part.op) not in BINARY:
            raise ValueError(f"{text!r} has {ast.unparse(part)!r}: use + - * / ** % (and & | for conditions)")
        if isinstance(part, ast.Compare) and any(type(op) not in COMPARE for op in part.ops):
            raise ValueError(f"{text!r} has {ast.unparse(part)!r}: compare with < <= > >= == or !=")
        if isinstance(part, ast.Call):
            _check_call(part, text)
    _check_parts(node, text)


def _check_depth(node: ast.expr, text: str) -> None:
    level: list[ast.AST] = [node]
    for _ in range(2 * DEPTH):
        level = [child for part in level for child in ast.iter_child_nodes(part)]
        if not level:
            return
    raise ValueError(f"the expression {text[:60]!r} is nested too deeply")


def _check_constant(node: ast.Constant, text: str, compared: bool) -> None:
    if not isinstance(node.value, (int, float, str)):
        raise ValueError(f"{text!r} has {ast.unparse(node)!r}, which is not a number")
    if isinstance(node.value, str) and not compared:
        raise ValueError(f"{text!r} has the text {node.value!r}, which can only be compared with a column")


def _check_parts(node: ast.expr, text: str) -> None:
    """Refuse numbers where conditions are joined."""
    for part in ast.walk(node):
        if isinstance(part, ast.BoolOp):
            for side in part.values:
                _check_condition(side, text)
        if isinstance(part, ast.UnaryOp) and isinstance(part.op, (ast.Not, ast.Invert)):
            _check_condition(part.operand, text)
        if isinstance(part, ast.Call) and ast.unparse(part.func) == "where":
            _check_condition(part.args[0], text)


def _check_condition(node: ast.expr, text: str) -> None:
    """Refuse what cannot be true or false; a column may be a flag, which only its values can tell."""
    call = isinstance(node, ast.Call) and ast.unparse(node.func) in TESTS
    flag = isinstance(node, ast.Name) and node.id not in ("pi", "nan", "inf")
    constant = isinstance(node, ast.Constant) and isinstance(node.value, bool)
    negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert))
    if not (isinstance(node, (ast.Compare, ast.BoolOp)) or call or flag or constant or negated):
        raise ValueError(f"{text!r} has {ast.unparse(node)!r} where a condition is wanted: compare it with something")


def _check_call(node: ast.Call, text: str) -> None:
    name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
    if name not in SMOOTH and name not in LOGICAL and name not in TESTS:
        raise ValueError(f"{text!r} calls {name!r}; the functions are {', '.join([*SMOOTH, *LOGICAL, *TESTS])}")
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


def _is_truth(node: ast.expr) -> bool:
    """Whether a node is true or false, and no number."""
    test = isinstance(node, ast.Call) and ast.unparse(node.func) in TESTS
    negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert))
    return isinstance(node, (ast.Compare, ast.BoolOp)) or test or negated


def _value(node: ast.expr, columns: Columns) -> Any:
    if isinstance(node, ast.Constant):
        return _number(node)
    if isinstance(node, ast.Name):
        return _as_number(node, columns)
    if _is_truth(node):
        true, known = _truth(node, columns)
        return np.where(known, np.where(true, 1.0, 0.0), np.nan)
    if isinstance(node, ast.BinOp):
        return BINARY[type(node.op)][0](_value(node.left, columns), _value(node.right, columns))
    if isinstance(node, ast.UnaryOp):
        return _signed(node.op, _value(node.operand, columns))
    assert isinstance(node, ast.Call)
    name = node.func.id  # type: ignore[attr-defined]
    if name == "where":
        true, known = _truth(node.args[0], columns)
        return np.where(known, np.where(true, *(_value(part, columns) for part in node.args[1:])), np.nan)
    function = SMOOTH[name][0] if name in SMOOTH else LOGICAL[name]
    return function(*(_value(part, columns) for part in node.args))


def _as_number(node: ast.Name, columns: Columns) -> Any:
    value = _name(node, columns)
    if np.asarray(value).dtype.kind in "OUS":
        raise ValueError(f"column {node.id} is text, which is not a number")
    return value


# Conditions


def _truth(node: ast.expr, columns: Columns) -> Truth:
    """Whether a condition holds in each row, and whether that is known."""
    if isinstance(node, ast.Compare):
        return _compare(node, columns)
    if isinstance(node, ast.BoolOp):
        parts = [_truth(part, columns) for part in node.values]
        return reduce(_both if isinstance(node.op, ast.And) else _either, parts)
    if isinstance(node, ast.UnaryOp):
        true, known = _truth(node.operand, columns)
        return np.logical_not(true), known
    if isinstance(node, ast.Call):
        return TESTS[node.func.id](_value(node.args[0], columns)), True  # type: ignore[attr-defined]
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
    return _name(part, columns) if isinstance(part, ast.Name) else _value(part, columns)


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


def _dual(node: ast.expr, columns: Columns, text: str) -> tuple[Any, Partials]:
    """Value and partial derivatives of a node."""
    if isinstance(node, ast.Constant):
        return _number(node), {}
    if isinstance(node, ast.Name):
        value = _as_number(node, columns)
        return value, ({node.id: np.ones_like(value, dtype=float)} if node.id in columns else {})
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value, inner = _dual(node.operand, columns, text)
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
    values, inner = zip(*(_dual(part, columns, text) for part in parts), strict=True)
    total: Partials = {}
    for slope, partials in zip(slopes, inner, strict=True):
        outer = slope(*values) if partials else None
        for name, d in partials.items():
            total[name] = total.get(name, 0.0) + outer * d
    return function(*values), total
