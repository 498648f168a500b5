"""Conditions in ADQL, which archives speak: the same rows, or an error that names what ADQL lacks.

Both languages agree on missing values: what compares one is neither true nor false.
"""

from __future__ import annotations

import ast
import re

from .expressions import Condition

FUNCTIONS = {
    "sqrt": "SQRT", "exp": "EXP", "log": "LOG", "log10": "LOG10", "sin": "SIN", "cos": "COS", "tan": "TAN",
    "arcsin": "ASIN", "arccos": "ACOS", "arctan": "ATAN", "arctan2": "ATAN2", "abs": "ABS", "radians": "RADIANS",
    "degrees": "DEGREES", "floor": "FLOOR", "round": "ROUND",
}  # fmt: skip
ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "=", ast.NotEq: "<>"}
TESTS = {"isnan": "IS NULL", "isfinite": "IS NOT NULL"}
WHOLE = "1.0"  # times whole numbers: archives divide these without a remainder


def in_adql(condition: str, beside: bool = True) -> str:
    """A condition of ``where=`` in ADQL, in brackets where it stands ``beside`` others and needs them.

    >>> in_adql("0 < x < 1 | y == 'a' & good")
    "((0 < x AND x < 1) OR (y = 'a' AND good = 'true'))"
    """
    tree = Condition(condition).expression.tree
    made = _condition(tree, condition)
    return f"({made})" if beside and isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.Or) else made


def _condition(node: ast.expr, text: str) -> str:
    """What is true or false."""
    if isinstance(node, ast.BoolOp):
        word = " AND " if isinstance(node.op, ast.And) else " OR "
        return word.join(_bracketed(part, text) for part in node.values)
    if isinstance(node, ast.UnaryOp):
        return f"NOT ({_condition(node.operand, text)})"
    if isinstance(node, ast.Compare):
        sides = [_number(side, text) for side in (node.left, *node.comparators)]
        signs = [COMPARISONS[type(op)] for op in node.ops]
        return " AND ".join(f"{a} {sign} {b}" for a, sign, b in zip(sides, signs, sides[1:], strict=False))
    if isinstance(node, ast.Name):
        return f"{_column(node.id)} = 'true'"  # as the Gaia archive has flags
    if isinstance(node, ast.Call) and isinstance(node.args[0], ast.Name):
        return f"{_number(node.args[0], text)} {TESTS[ast.unparse(node.func)]}"
    raise _lacks(node, text)


def _bracketed(node: ast.expr, text: str) -> str:
    """A part of a condition, in brackets where it has several parts itself."""
    several = isinstance(node, ast.BoolOp) or (isinstance(node, ast.Compare) and len(node.ops) > 1)
    return f"({_condition(node, text)})" if several else _condition(node, text)


def _number(node: ast.expr, text: str) -> str:
    """What is compared: a column, a number, a text, or arithmetic."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return "'" + node.value.replace("'", "''") + "'"
    if isinstance(node, ast.Constant) and not isinstance(node.value, bool):
        return repr(node.value)
    if isinstance(node, ast.Name) and node.id not in ("True", "False", "nan", "inf"):
        return "PI()" if node.id == "pi" else _column(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return f"-{_operand(node.operand, text)}" if isinstance(node.op, ast.USub) else _number(node.operand, text)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return f"POWER({_number(node.left, text)}, {_number(node.right, text)})"
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        first = f"{WHOLE} * " if isinstance(node.op, ast.Div) else ""
        return f"{first}{_operand(node.left, text)} {ARITHMETIC[type(node.op)]} {_operand(node.right, text)}"
    return _called(node, text)


def _called(node: ast.expr, text: str) -> str:
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    if not isinstance(node, ast.Call) or name not in (*FUNCTIONS, "hypot"):
        raise _lacks(node, text)
    if name == "hypot":
        return f"SQRT({' + '.join(f'POWER({_number(part, text)}, 2)' for part in node.args)})"
    return f"{FUNCTIONS[name]}({', '.join(_number(part, text) for part in node.args)})"


def _operand(node: ast.expr, text: str) -> str:
    """A part of arithmetic, in brackets where it is more than a word."""
    simple = not isinstance(node, (ast.BinOp, ast.UnaryOp)) or (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
    )
    return _number(node, text) if simple else f"({_number(node, text)})"


def _column(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z]\w*", name) else '"' + name.replace('"', '""') + '"'


def _lacks(node: ast.expr, text: str) -> ValueError:
    return ValueError(f"{text!r} has {ast.unparse(node)!r}, which ADQL does not know: leave it out of the query, and "
                      "say it when the table is opened (where=, --where)")  # fmt: skip
