"""A class is abstract or final: nothing is inherited from a class that has objects of its own."""

import importlib
import inspect
import pkgutil

import xdeconv


def modules():
    names = [module.name for module in pkgutil.walk_packages(xdeconv.__path__, "xdeconv.")]
    return [importlib.import_module(name) for name in names if not name.endswith("__main__")]


def test_a_class_is_abstract_or_final():
    classes = {c for module in modules() for _, c in inspect.getmembers(module, inspect.isclass)}
    ours = [c for c in classes if c.__module__.startswith("xdeconv")]
    assert len(ours) > 200
    inherited = [(base, c) for c in ours for base in c.__bases__ if base in ours]
    assert [(base, c) for base, c in inherited if not inspect.isabstract(base)] == []
