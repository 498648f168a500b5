"""Docstrings in numpydoc form with a line for every parameter, and contracts that are declared and not sniffed."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import pytest

import xdeconv as xd

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^Parameters\n-{10}\n(.*?)(?=^\w[^\n]*\n-{3,}\n|\Z)", flags=re.DOTALL | re.MULTILINE)
SNIFFING = re.compile(r"hasattr\(|getattr\([^)]*None\)")

SNIFFERS = {"rows/tables.py", "system/machine.py"}  # other libraries' tables, and the operating system


def public() -> Iterator[tuple[str, Any]]:
    """(name, function or class) of everything public, methods among them."""
    for name in xd.__all__:
        thing = getattr(xd, name)
        if inspect.isclass(thing) and issubclass(thing, Warning):
            continue
        for where, item in of_module(name, thing) if isinstance(thing, ModuleType) else [(name, thing)]:
            yield where, item
            if inspect.isclass(item):
                yield from methods(where, item)


def of_module(name: str, module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The public functions and classes of a public module, and of public modules inside it."""
    for inner in getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]:
        thing = getattr(module, inner)
        if isinstance(thing, ModuleType) and thing.__name__.startswith(module.__name__):
            yield from of_module(f"{name}.{inner}", thing)
        elif callable(thing) and getattr(thing, "__module__", "").startswith(module.__name__):
            yield f"{name}.{inner}", thing


def methods(where: str, kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods that a class of ours defines, or takes over from one of ours."""
    ours = [base for base in reversed(kind.__mro__) if base.__module__.startswith("xdeconv.")]
    for name, thing in {name: thing for base in ours for name, thing in vars(base).items()}.items():
        if not name.startswith("_") and (isinstance(thing, classmethod | staticmethod) or inspect.isfunction(thing)):
            yield f"{where}.{name}", getattr(kind, name)


def parameters(thing: Any) -> list[str]:
    if inspect.isclass(thing) and issubclass(thing, Protocol):  # which is not called
        return []
    return [name for name in inspect.signature(thing).parameters if name not in ("self", "cls")]


def described(thing: Any) -> set[str]:
    """The parameters that a docstring has a typed line for; a contract's methods are described in the contract."""
    return {name for text in docs(thing) for name in lines_for(text)}


def docs(thing: Any) -> list[str]:
    """The docstring of a function or class, or those of a method and of what it overrides."""
    where, _, name = thing.__qualname__.rpartition(".")
    kind = getattr(inspect.getmodule(thing), where, None)
    if not inspect.isclass(kind) or inspect.isclass(thing):
        return [inspect.getdoc(thing) or ""]
    return [inspect.getdoc(vars(base)[name]) or "" for base in kind.__mro__ if name in vars(base)]


def lines_for(text: str) -> set[str]:
    """The parameters that a section Parameters has a typed line for."""
    section = SECTION.search(text)
    lines = section[1].splitlines() if section else []
    typed = [line.split(" : ")[0] for line in lines if " : " in line and not line.startswith(" ")]
    return {name.strip().lstrip("*") for names in typed for name in names.split(",")}


THINGS = dict(public())


def left_out(name: str) -> list[str]:
    return [parameter for parameter in parameters(THINGS[name]) if parameter not in described(THINGS[name])]


@pytest.mark.parametrize("name", list(THINGS))
def test_every_parameter_has_a_line_and_a_type(name):
    assert not left_out(name), f"the docstring of {name} has no line for {', '.join(left_out(name))}"


@pytest.mark.parametrize("name", list(THINGS))
def test_no_parameter_is_described_that_does_not_exist(name):
    known = set(parameters(THINGS[name]))
    assert described(THINGS[name]) <= known, f"{name} has no {sorted(described(THINGS[name]) - known)}"


def test_the_words_of_fit():
    """At most 35: rows first, then the model, the way to it, and the machine; those of 0.1 that went are gone."""
    words = parameters(xd.fit)
    assert len(words) <= 35
    order = ["data", "components", "columns", "noise", "error", "projection", "weight", "log_prior", "label", "labels",
             "units", "mixture", "start", "restarts", "seed", "method", "moves", "batch_rows", "epochs", "tol",
             "validation", "patience", "standardize", "cache", "device", "dtype", "options", "checkpoint", "verbose",
             "callback"]  # fmt: skip
    assert [word for word in words if word in order] == order
    assert not {"deterministic", "backend", "skip", "resume", "checkpoint_seconds"} & set(words)


def sniffing() -> set[str]:
    package = ROOT / "src" / "xdeconv"
    return {path.relative_to(package).as_posix() for path in package.rglob("*.py") if SNIFFING.search(path.read_text())}


def test_contracts_are_declared_and_not_sniffed():
    """No hasattr and no getattr with None, but in one file of rows and one of system."""
    assert sniffing() == SNIFFERS, f"declare what may be asked instead, in {sorted(sniffing() - SNIFFERS)}"
