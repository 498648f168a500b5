"""First calls: what a new process pays for a plain call of 5,000 rows, beside one that only imports torch and numba."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from tempfile import TemporaryDirectory

import numpy as np

IMPORTS = "import torch, numba"
CALL = """
import numpy as np
import xdeconv as xd
rng = np.random.default_rng(0)
error = rng.uniform(0.1, 1.0, size=(5000, 2))
centers = np.array([[0, 0], [4, 1], [-3, 4], [3, -4], [-4, -4]])
X = rng.normal(centers[rng.integers(5, size=5000)], 1.0) + error * rng.normal(size=(5000, 2))
xd.fit(X, 5, error=error)
"""
ROUNDS = 5


def first_calls() -> list[list[str]]:
    """Seconds more than the imports alone: with what is compiled kept, and with nothing compiled yet."""
    _seconds(CALL)
    pairs = [(_seconds(IMPORTS), _seconds(IMPORTS + CALL)) for _ in range(ROUNDS)]
    bare, kept = (float(np.median(times)) for times in zip(*pairs, strict=True))
    cold = []
    for _ in range(2):
        with TemporaryDirectory() as folder:
            cold.append(_seconds(IMPORTS + CALL, NUMBA_CACHE_DIR=folder))
    title = "5,000 rows, d = 2, k = 5"
    return [[title, f"{kept - bare:.2f}"], [f"{title}, nothing compiled yet", f"{min(cold) - bare:.2f}"]]


def _seconds(code: str, **environment: str) -> float:
    """Seconds of a process that runs some code."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | environment, capture_output=True)
    return time.perf_counter() - began
