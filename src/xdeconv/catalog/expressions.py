"""Expressions over columns, such as "parallax * 10 ** (0.2 * g - 2)" or "ruwe < 1.4": parsed, never run as code.

An expression is a tree of whitelisted arithmetic. Values and first derivatives come from one walk of the tree
(forward differentiation), so that a derived feature carries exact Jacobians. Conditions have three answers: what
compares a missing value is neither true nor false, nor is its negation. & and | bind as in pandas.query: as and, or;
`BP-RP`, in backticks, is the column of that name.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..system.text import counted
from .evaluating import (
    BINARY,
    COMPARE,
    CONSTANTS,
    LOGICAL,
    SMOOTH,
    TESTS,
    Columns,
    Partials,
    dual,
    is_truth,
    truth,
    value,
)

Array = np.ndarray
LONGEST_SHOWN = 200  # characters of an expression in an error
# What other languages write, and what to write here.
ELSEWHERE = {r"&&|\|\|": "& and |", r"\b(AND|OR|NOT)\b": "and, or, not", r"<>": "!=", r"(?<![<>=!])=(?!=)": "=="}
DEPTH = 100  # of nested operations


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
            raise ValueError(f"cannot read the expression {shown!r}: {reason}{_instead(text)}") from problem

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
            return value(self.tree, columns)

    def partials(self, columns: Columns) -> tuple[Any, Partials]:
        """The value in each row, and its derivative with respect to each column."""
        with np.errstate(all="ignore"):
            return dual(self.tree, columns, self.text)


@dataclass(frozen=True)
class Condition:
    """A condition on rows; what is not a comparison, a flag or several of them is refused.

    >>> x = np.array([0.2, 0.9, np.nan])
    >>> Condition("x > 0.5 & x < 1 | x == 0.2").mask({"x": x}).tolist()
    [True, True, False]
    """

    text: str

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("the condition is empty: leave it out (where=, --where) to keep all rows")
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
            true, known = truth(self.expression.tree, columns)
        rows = len(next(iter(columns.values()))) if columns else 1
        return np.array(np.broadcast_to(np.logical_and(true, known), (rows,)))


def _instead(text: str) -> str:
    """What to write in place of what other languages write."""
    words = [word for pattern, word in ELSEWHERE.items() if re.search(pattern, re.sub(r"'[^']*'|\"[^\"]*\"", "", text))]
    return f" (write {'; '.join(words)})" if words else ""


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
            raise ValueError(f"{text!r} has {ast.unparse(part)!r}: compare with < <= > >= == or !=, "
                             "with several things as x == 1 | x == 2")  # fmt: skip
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
    flag = isinstance(node, ast.Name) and node.id not in ("pi", "nan", "inf")
    constant = isinstance(node, ast.Constant) and isinstance(node.value, bool)
    if not (is_truth(node) or flag or constant):
        raise ValueError(f"{text!r} has {ast.unparse(node)!r} where a condition is wanted: compare it with something")


def _check_call(node: ast.Call, text: str) -> None:
    name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
    if name not in SMOOTH and name not in LOGICAL and name not in TESTS:
        raise ValueError(f"{text!r} calls {name!r}; the functions are {', '.join([*SMOOTH, *LOGICAL, *TESTS])}")
    wanted = len(SMOOTH[name][1]) if name in SMOOTH else {"where": 3, "minimum": 2, "maximum": 2}.get(name, 1)
    if node.keywords or len(node.args) != wanted:
        raise ValueError(f"{text!r}: {name} takes {counted(wanted, 'argument')}")
