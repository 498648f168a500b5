"""Expressions: values, derivatives, and what they refuse."""

import numpy as np
import pytest
import torch

from xdeconv.catalog.expressions import Expression

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
        assert Expression(text).mask(columns).tolist() == [True, False, False, False], text
    assert Expression("0 < ruwe < 1.3").mask(columns).tolist() == [True, False, False, True]
    assert Expression("ruwe != 1.5").mask(columns).tolist() == [True, False, False, True]
    assert Expression("isnan(ruwe)").mask(columns).tolist() == [False, False, True, False]


def test_identifiers_are_compared_exactly():
    ids = np.array([5617123573074688640, 5617123573074688641])
    assert Expression("source_id == 5617123573074688641").mask({"source_id": ids}).tolist() == [False, True]


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
