"""Expressions: values, derivatives, and what they refuse."""

import re

import numpy as np
import pytest
import torch

from xdeconv.catalog.expressions import Condition, Expression

CASES = [
    "a + 2 * b - c / 3", "a * b / c", "a ** 2 + b ** -1.5", "2 ** a", "a ** b", "-a + +b", "sqrt(a) * exp(-b)",
    "log(a) + log10(b)", "sin(a) * cos(b) * tan(c / 4)", "arcsin(a / 9) + arccos(b / 9) + arctan(c)",
    "arcsinh(a) + sinh(b / 3) + cosh(c / 3) + tanh(a)", "abs(a - 2) * b", "degrees(a) + radians(b)",
    "arctan2(a, b)", "hypot(a, b)", "a * 10 ** (0.2 * b - 2)", "a % 2.5", "pi * a",
]  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_derivatives_are_those_of_autograd(text):
    rng = np.random.default_rng(0)
    columns = {name: rng.uniform(0.5, 4.0, 20) for name in "abc"}
    value, partials = Expression(text).partials(columns)
    leaves = {name: torch.tensor(v, requires_grad=True) for name, v in columns.items()}
    functions = {name: getattr(torch, name) for name in ("sqrt", "exp", "log", "log10", "sin", "cos", "tan", "arcsin",
                 "arccos", "arctan", "arcsinh", "sinh", "cosh", "tanh", "abs", "arctan2", "hypot")}  # fmt: skip
    functions |= {"degrees": torch.rad2deg, "radians": torch.deg2rad, "pi": np.pi}
    expected = eval(text, functions, leaves)  # the test's own text, in Python's own meaning
    expected.sum().backward()
    assert np.allclose(value, expected.detach().numpy())
    assert set(partials) == set(Expression(text).names)
    for name, slope in partials.items():
        assert np.allclose(slope, leaves[name].grad.numpy()), name


def test_conditions():
    columns = {"ruwe": np.array([1.0, 1.5, np.nan, 1.2]), "g": np.array([10.0, 10.0, 10.0, 19.0])}
    for text in ("ruwe < 1.4 and g < 18", "(ruwe < 1.4) & (g < 18)", "not (ruwe >= 1.4 or g >= 18) and ruwe == ruwe"):
        assert Condition(text).mask(columns).tolist() == [True, False, False, False], text
    assert Condition("0 < ruwe < 1.3").mask(columns).tolist() == [True, False, False, True]
    assert Condition("ruwe != 1.5").mask(columns).tolist() == [True, False, False, True]
    assert Condition("isnan(ruwe)").mask(columns).tolist() == [False, False, True, False]


def test_identifiers_are_compared_exactly():
    ids = np.array([5617123573074688640, 5617123573074688641])
    assert Condition("source_id == 5617123573074688641").mask({"source_id": ids}).tolist() == [False, True]


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "a.b", "a[0]", "(lambda: 1)()", "[a]", "open(a)", "a if b else c", "f'{a}'", "a +", "1j",
     "sqrt(a, b)", "sqrt(x=a)", "(a := 1)", "a.__class__", "None"],
)  # fmt: skip
def test_anything_but_arithmetic_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        Expression(text)


def test_what_cannot_be_differentiated_is_refused():
    with pytest.raises(ValueError, match="cannot be differentiated"):
        Expression("where(a > 1, a, b)").partials({"a": np.ones(2), "b": np.ones(2)})


# Conditions as in pandas.query

FRAME = {
    "x": np.array([0.2, 0.9, np.nan, 1.4, 2.0]),
    "y": np.array([1.0, 2.0, 3.0, np.nan, 0.0]),
    "flag": np.array([1.0, 0.0, np.nan, 1.0, 0.0]),
    "name": np.array(["a", None, "b", "c", "None"], dtype=object),
    "id": np.arange(5) + 2**60,
}


def held(text):
    return Condition(text).mask(FRAME).tolist()


@pytest.mark.parametrize(
    "text",
    ["x > 0.5 & x < 1.5", "x > 0.5 | y > 2 & x < 1", "y == 1 | x > 1 & y < 5", "(x > 0.5) & (x < 1.5)",
     "x > 0.5 and y < 2.5 | y == 0", "0.5 < x < 1.5 & y > 1"],
)  # fmt: skip
def test_and_and_or_bind_as_in_pandas(text):
    import pandas as pd

    frame = pd.DataFrame({name: FRAME[name] for name in ("x", "y")})
    assert held(text) == [i in frame.query(text).index for i in range(5)]


def test_a_missing_value_is_never_true():
    assert held("flag") == [True, False, False, True, False]
    assert held("not flag") == held("~flag") == [False, True, False, False, True]
    assert held("not (x > 1)") == [True, True, False, False, False]
    assert held("x > 1 or y > 2") == [False, False, True, True, True]
    assert held("not (x > 1 and y > 2)") == [True, True, False, False, True]
    assert held("name != 'a'") == [False, False, True, True, True]
    assert held("name == 'None'") == [False, False, False, False, True]
    assert held("isnan(x) | flag") == [True, False, True, True, False]
    assert np.isnan(Expression("where(x > 1, 5, 6)").value(FRAME)).tolist() == [False, False, True, False, False]


def test_conditions_have_three_answers():
    """As in SQL: of every pair of true, false and unknown."""
    answers = {1.0: True, 0.0: False, np.nan: None}
    a, b = (np.array(part) for part in zip(*((x, y) for x in answers for y in answers), strict=True))
    both = {(True, True): True, (True, None): None, (None, True): None, (None, None): None}
    pairs = [(answers.get(x), answers.get(y)) for x, y in zip(a, b, strict=True)]
    right = [both.get(pair, False) for pair in pairs]
    opposite = [None if part is None else not part for part in right]
    columns = {"a": a, "b": b}
    for text, truths in (("a == 1 & b == 1", right), ("not (a == 0 | b == 0)", right), ("~a | ~b", opposite),
                         ("not (a & b)", opposite)):  # fmt: skip
        assert Condition(text).mask(columns).tolist() == [part is True for part in truths], text
        value = Expression(text).value(columns)
        assert [None if np.isnan(v) else bool(v) for v in value] == truths, text


@pytest.mark.parametrize("text", ["'abc'", "nan", "1", "pi", "x + 1", "x & 4 == 4 + 1 and 3", "-x", "sqrt(x)", "not 1",
                                  "x in (1, 2)", "x > 1 and 'abc'", "x << 2 > 1"])  # fmt: skip
def test_what_is_not_a_condition_is_refused(text):
    with pytest.raises(
        ValueError, match=r"condition is wanted|only be compared|neither arithmetic|use \+|compare with"
    ):
        Condition(text)


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_condition_is_refused(text):
    with pytest.raises(ValueError, match="the condition is empty"):
        held(text)


def test_what_only_the_rows_tell_is_refused_too():
    with pytest.raises(ValueError, match=r"column x is not a condition: it has the value 0\.2"):
        held("x")
    with pytest.raises(ValueError, match="column name is text"):
        held("name")
    with pytest.raises(ValueError, match=r"'name > 5' compares text with a number"):
        held("name > 5")
    with pytest.raises(ValueError, match="compares text with a number"):
        held("x == 'abc'")


@pytest.mark.parametrize(
    ("text", "instead"),
    [("x = 1", "write =="), ("x > 1 AND y < 2", "write and, or, not"), ("x > 1 && y < 2", "write & and |"),
     ("x <> 1", "write !="), ("x > 1 || NOT y", "write & and |; and, or, not"), ("x in [1, 2]", "x == 1 | x == 2")],
)  # fmt: skip
def test_what_other_languages_write_is_told_what_to_write_here(text, instead):
    with pytest.raises(ValueError, match=re.escape(instead)):
        Condition(text)
    with pytest.raises(ValueError, match=r"invalid syntax$"):
        Condition("x == 'a = b AND c' y")


def test_a_column_called_e_is_that_column():
    assert Condition("e < 0.5").names == ("e",)


def test_a_condition_without_columns_holds_in_every_row():
    assert held("1 < 2") == [True] * 5


def test_deep_nesting_is_refused():
    with pytest.raises(ValueError, match=r"nested too deeply|cannot read"):
        Expression("+".join("a" * 2000))
    with pytest.raises(ValueError, match=r"nested too deeply|cannot read"):
        Expression("-" * 300 + "a")
    assert Expression("+".join("a" * 50)).value({"a": np.ones(1)}) == 50


# Whole numbers


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"])
def test_whole_numbers_of_few_bits_do_not_wrap_around(kind):
    top = min(np.iinfo(kind).max, 2**31 - 1) if kind != "bool" else 1
    columns = {"n": np.array([top, 1, 0]).astype(kind), "m": np.array([top, 1, 1]).astype(kind)}
    n, m = ([int(value) for value in columns[name]] for name in "nm")
    for text in ("n * m", "n + m", "n - m", "n - m - 2", "-n", "-n * m", "n % 7", "2 - n", "abs(n - m)", "n * m - n"):
        right = [eval(text, {"abs": abs}, {"n": i, "m": j}) for i, j in zip(n, m, strict=True)]
        assert Expression(text).value(columns).tolist() == right, text
    assert np.allclose(Expression("sqrt(n) + n ** -2 + n / 3").value(columns)[:2], np.sqrt(n[:2]) + np.power(
        n[:2], -2.0) + np.array(n[:2]) / 3, rtol=1e-15)  # fmt: skip
    assert Condition("n - m < 0").mask(columns).tolist() == [False, False, True]
    assert np.isnan(Expression("m % n").value(columns)[2])


def test_a_remainder_of_an_identifier_is_exact():
    ids = np.array([5617123573074688640, 5617123573074688641, 5617123573074688643])
    for text in ("id % 10 == 1", "id - 5617123573074688640 == 1", "(id + 4) % 10 == 5"):
        assert Condition(text).mask({"id": ids}).tolist() == [False, True, False], text
    large = np.array([2**64 - 1, 2**63], dtype=np.uint64)
    assert Condition("id == 18446744073709551615").mask({"id": large}).tolist() == [True, False]
    assert Condition("id / 4 > 3e18").mask({"id": large}).tolist() == [True, False]
    assert Expression("id * id").value({"id": ids}) == pytest.approx(5617123573074688640.0**2)
