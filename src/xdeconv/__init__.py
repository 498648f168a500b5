"""Extreme deconvolution: the density of the true values behind noisy, incomplete data.

Public names are listed once, in ``__init__.pyi``, and imported on first use: importing xdeconv imports no torch.
"""

from ast import ImportFrom, parse
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"


def _public() -> dict[str, tuple[str, str]]:
    """{public name: (module, name there)}, from the list in ``__init__.pyi``."""
    lines = parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    imports = [line for line in lines if isinstance(line, ImportFrom)]
    return {n.asname or n.name: (f".{line.module or ''}", n.name) for line in imports for n in line.names}


_PUBLIC = _public()
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'xdeconv' has no attribute {name!r}")
    module, there = _PUBLIC[name]
    room = import_module(module, __name__)
    return import_module(f"{module.rstrip('.')}.{there}", __name__) if there not in vars(room) else vars(room)[there]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
