"""The paper's three methods, our own default, and the two with and without a floor under the covariances."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

import xdeconv as xd
from benchmarks.paper.rows import Rows, noisier
from xdeconv.rows.data import ArraySource

FLOOR = 1e-3  # the paper's w
WARM_ROWS = 200_000  # enough for the kernels that large batches use
START = xd.Start(coordinates="raw", covariances="identity", epochs=10, batch_rows=50_000)


@dataclass(frozen=True)
class Recipe:
    """How one curve of the experiment is fitted: as the paper set it, or with ``method`` None by xd.fit's default."""

    title: str
    method: Any = None
    batch_rows: int | None = None
    floor: float = 0.0  # of the covariances, exactly: V = A + floor I


def recipes(batch_rows: int = 500, step: float = 1e-2, rate: float = 1e-2) -> Mapping[str, Recipe]:
    """Every method by its short name; the first four are the experiment, the others settle what the floor does."""
    minibatch = xd.EM(step=xd.Stepped(step, {10: 0.5}), average=False)
    gradients = xd.SGD(rate=xd.Stepped(rate, {10: 0.1}), average=False)
    return {
        "em": Recipe("existing EM", xd.EM(inflate=FLOOR)),
        "minibatch": Recipe("minibatch EM", replace(minibatch, inflate=FLOOR), batch_rows),
        "sgd": Recipe("SGD", replace(gradients, trace_penalty=FLOOR), batch_rows),
        "xdeconv": Recipe("xdeconv"),
        "minibatch-free": Recipe("minibatch EM, no floor", minibatch, batch_rows),
        "minibatch-floor": Recipe("minibatch EM, floor", minibatch, batch_rows, FLOOR),
        "sgd-free": Recipe("SGD, no floor", gradients, batch_rows),
        "sgd-floor": Recipe("SGD, floor", gradients, batch_rows, FLOOR),
    }


EXPERIMENT = ("em", "minibatch", "sgd", "xdeconv")
FLOOR_QUESTION = ("minibatch-free", "minibatch-floor", "sgd-free", "sgd-floor")
TITLES = {name: recipe.title for name, recipe in recipes().items()}


def fitted(recipe: Recipe, train: ArraySource, k: int, seed: int, epochs: int | None = None) -> xd.FitResult:
    """One fit; the paper's run 20 epochs from k-means with identity covariances, in raw units, and keep the last."""
    device = str(train.batch.device)
    if recipe.method is None:
        return xd.fit(train, k, seed=seed, device=device, epochs=epochs)
    rows = noisier(train, recipe.floor) if recipe.floor else train
    result = xd.fit(
        rows, k, method=recipe.method, batch_rows=recipe.batch_rows, seed=seed, epochs=epochs or 20, tol=0.0,
        start=START, standardize=False, device=device, moves="none",
    )  # fmt: skip
    return replace(result, mixture=raised(result.mixture, recipe.floor)) if recipe.floor else result


def raised(mixture: xd.Mixture, variance: float) -> xd.Mixture:
    """The mixture with a variance added to every coordinate of every component."""
    covariances = mixture.covariances + variance * np.eye(mixture.d)
    return xd.Mixture(mixture.weights, mixture.means, covariances, mixture.labels, mixture.units)


def timed(call: Callable[[], xd.FitResult]) -> tuple[xd.FitResult, float]:
    """What a fit found, and its seconds with everything included."""
    settle()
    began = time.perf_counter()
    result = call()
    settle()
    return result, time.perf_counter() - began


def settle() -> None:
    """Wait for the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def warm_up(recipe: Recipe, rows: Rows, k: int, moves: bool) -> None:
    """Compile what a fit will run: a few batches, or an epoch of all rows and, with ``moves``, up to the first search.

    The search is the same code for every k, so that it needs to be met once. On a GPU, our own fit is also met in
    float64, in which it continues where float32 does not hold its covariances.
    """
    train = rows.train
    if recipe.batch_rows is not None:
        train = replace(train, batch=train.batch.rows(slice(0, max(10 * recipe.batch_rows, 2 * k))))
    epochs = 12 if moves and recipe.method is None else 1
    rows.scores(fitted(recipe, train, k, seed=0, epochs=epochs).mixture)
    if recipe.method is None and train.batch.device.type == "cuda":
        some = replace(train, batch=train.batch.rows(slice(0, WARM_ROWS)))
        xd.fit(some, k, seed=0, device=str(train.batch.device), dtype="float64", epochs=epochs)
