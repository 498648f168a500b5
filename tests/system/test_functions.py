"""Functions are told apart by all that they are made of, and alike in every process."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from xdeconv.system.functions import named

HERE, LIMIT = Path(__file__).parent, 5.0


def closure(limit):
    return lambda x: x > limit


def nested(limit):
    return lambda x: [y > 2 for y in x] if limit else [y > 3 for y in x]


def default(limit):
    def kept(x, limit=limit, *, other=3):
        return x > limit

    return kept


def keyword(limit):
    def kept(x, *, limit=limit):
        return x > limit

    return kept


def by_module(x):
    return x > LIMIT


def by_another(x):
    return by_module(x)


class Kept:
    """A function with a memory."""

    def __init__(self, limit):
        self.limit = limit

    def __call__(self, x):
        return x > self.limit


MAKERS = {
    "closure": closure, "default": default, "keyword": keyword, "partial": lambda limit: partial(max, limit),
    "keyword of partial": lambda limit: partial(max, key=limit), "object": Kept, "method": lambda v: Kept(v).__call__,
    "array": lambda limit: closure(np.full(5000, float(limit))), "tensor": lambda v: closure(torch.full((9,), v)),
    "set": lambda limit: closure({limit, 3}), "dict": lambda limit: closure({"a": [limit]}),
}  # fmt: skip


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_what_it_holds_tells_a_function_from_another(make):
    assert named(make(1)) == named(make(1))
    assert named(make(1)) != named(make(2))


def test_what_it_uses_of_its_module_counts(monkeypatch):
    before = named(by_module), named(by_another), named(nested(1))
    assert (named(by_module), named(by_another), named(nested(1))) == before
    monkeypatch.setattr(sys.modules[__name__], "LIMIT", 6.0)
    assert named(by_module) != before[0]
    assert named(by_another) != before[1]


def test_a_function_that_calls_itself_has_an_end():
    def again(x):
        return again(x - 1) if x else 0

    assert named(again) == named(again)


SAID = """
import test_functions as all_
from xdeconv.system.functions import named
print([named(make(1)) for make in [*all_.MAKERS.values(), all_.nested]], named(all_.by_another))
"""


@pytest.mark.processes
def test_another_process_says_the_same():
    said = [
        subprocess.run([sys.executable, "-c", SAID], capture_output=True, text=True, check=True, cwd=HERE)
        for _ in range(2)
    ]
    assert said[0].stdout == said[1].stdout
