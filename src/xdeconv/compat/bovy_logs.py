"""The two log files of a call of extreme_deconvolution: every call is appended to what is there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..methods import Fixed

Array = np.ndarray


def free_parameters(fixed: Fixed, k: int, d: int) -> int:
    """Parameters that a fit may change: weights that sum to 1, means, and symmetric covariances."""
    held = {name: int(fixed.mask(name, k, torch.device("cpu")).sum()) for name in ("weights", "means", "covariances")}
    return max(0, k - held["weights"] - 1) + (k - held["means"]) * d + (k - held["covariances"]) * (d * (d + 1) // 2)


def criteria(average: float, n: int, free: int) -> dict[str, float]:
    """AIC and MDL of a fit whose log-likelihood is ``average`` per row; less is better.

    >>> criteria(-1.0, 1, 5)
    {'AIC': 12.0, 'MDL': 1.0}
    """
    return {"AIC": 2.0 * free - 2.0 * n * average, "MDL": 0.5 * free * math.log(n) - n * average}


def append_logs(
    logfile: str, settings: Mapping[str, Any], start: Sequence[Array], end: Sequence[Array],
    path: Sequence[float], notes: Mapping[int, str], facts: Mapping[str, float],
) -> None:  # fmt: skip
    """Append settings, start, steps, end and criteria to LOGFILE_c.log, and the steps to LOGFILE_loglike.log."""
    lines = [f"# {name} = {value}" for name, value in settings.items()] + _component_lines("start", start)
    for step, value in enumerate(path):
        lines += [f"# {notes[step]}"] if step in notes else []
        lines.append(f"{value:.12g}")
    lines += _component_lines("end", end) + [f"# {name} = {value:.12g}" for name, value in facts.items()]
    _append(f"{logfile}_c.log", [*lines, ""])
    _append(f"{logfile}_loglike.log", [f"{value:.12g}" for value in path] + ["", ""])


def _component_lines(when: str, parameters: Sequence[Array]) -> list[str]:
    """A comment per component: weight, mean, and the upper triangle of the covariance, line by line."""
    weights, means, covariances = parameters
    upper = np.triu_indices(means.shape[1])
    return [
        f"# {when} {j}: weight {w:.12g}; mean {_numbers(m)}; covariance {_numbers(V[upper])}"
        for j, (w, m, V) in enumerate(zip(weights, means, covariances, strict=True))
    ]


def _numbers(values: Array) -> str:
    return " ".join(f"{value:.12g}" for value in values)


def _append(path: str, lines: Sequence[str]) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
