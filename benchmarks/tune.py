"""Step size, batch size and prior of the minibatch methods, searched for on held-out rows: how far off are defaults?

python -m benchmarks.tune [--data gaia.parquet] [--trials 40] [--methods minibatch sgd] [--out FOLDER]

The search is optuna's (pip install 'xdeconv[tune]'); ``--sampler qmc`` tries points of a Sobol sequence instead and needs
nothing but SciPy, on a GPU for example. Every trial is one fit of a few epochs in standardised coordinates; the best
settings are fitted again with other seeds and scored on test rows, beside the defaults.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import xdeconv as xd
from benchmarks import results as report
from benchmarks.machine import about
from benchmarks.paper_rows import PRESETS, Rows, Table
from xdeconv.plan import STREAM_BATCH

Settings = dict[str, float]
SLACK = 0.02  # nat that defaults may lose
METHODS = ("minibatch", "sgd")


@dataclass(frozen=True)
class Space:
    """The logarithmic ranges that are searched, and the settings that a user gets without saying anything."""

    ranges: Mapping[str, tuple[float, float]]
    default: Settings


def space(method: str, rows: int) -> Space:
    """Batches may grow to a sixteenth of the rows; a default batch of more than that is cut to it."""
    largest = max(128.0, rows / 16)
    batch = float(min(STREAM_BATCH, largest)) if method == "minibatch" else min(500.0, largest)
    default = {"step": 0.1, "batch_rows": batch} if method == "minibatch" else {"step": 1e-2, "batch_rows": batch}
    ranges = {"step": (1e-3, 0.5), "batch_rows": (64.0, largest), "w": (1e-7, 1e-1), "power": (0.3, 1.0)}
    return Space(ranges, {**default, "w": 0.0, "power": 0.6 if method == "minibatch" else 0.0})


def method_of(name: str, settings: Settings, scale: float) -> Any:
    """The method with a step that decays and an inverse-Wishart prior of w times the data's mean variance."""
    step, power = settings["step"], settings["power"]
    schedule = xd.Decaying(step, power=power) if power else step
    prior = xd.Prior(w=settings["w"] * scale) if settings["w"] else None
    return xd.EM(step=schedule, prior=prior) if name == "minibatch" else xd.SGD(rate=schedule, prior=prior)


@dataclass(frozen=True)
class Objective:
    """Held-out log-likelihood of a method's settings."""

    method: str
    rows: Rows
    k: int
    epochs: int
    moves: bool

    def fit(self, settings: Settings, seed: int) -> xd.Mixture:
        train = self.rows.train
        scale = float(np.mean(np.var(train.batch.x.cpu().numpy()[5:], axis=1, where=~train.batch.x[5:].isnan().cpu().numpy())))
        return xd.fit(
            train, self.k, method=method_of(self.method, settings, scale), batch_rows=round(settings["batch_rows"]),
            epochs=self.epochs, tol=0.0, seed=seed, device=str(train.batch.device), moves="auto" if self.moves else None,
        ).mixture  # fmt: skip

    def __call__(self, settings: Settings, seed: int = 0) -> float:
        """Validation log-likelihood; minus infinity where a fit fails."""
        try:
            return self.rows.scores(self.fit(settings, seed))["validation"]
        except (ArithmeticError, ValueError) as problem:
            print(f"  {settings}: {problem}")
            return -np.inf
