"""The rows of the paper's experiment: simulated or real, prepared as its text or its code does, cut in three."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

import xdeconv as xd
from xdeconv import Batch
from xdeconv.catalog import gaia
from xdeconv.rows.batch import packed_size
from xdeconv.rows.data import ArraySource, permutation
from xdeconv.simulate import _gaia as simulate

PRESETS = ("paper-2019", "paper-2019-code")
SPLIT_SEED = 2019
SHARES = (0.8, 0.9)  # training rows end at the first, validation rows at the second
PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Rows:
    """Training, validation and test rows on a device, and what they are called."""

    name: str
    preset: str
    train: ArraySource
    validation: ArraySource
    test: ArraySource

    def scores(self, mixture: xd.Mixture) -> dict[str, float]:
        """Mean log-likelihood of each part, exact and, under NAME_filled, with the paper's fill constant."""
        found = {}
        for name in PARTS:
            source: ArraySource = getattr(self, name)
            exact = mean_log_prob(mixture, source.batch)
            missing = float(source.batch.x.isnan().sum()) / source.rows
            found |= {name: exact, f"{name}_filled": gaia.filled(exact, missing)}
        return found


@dataclass(frozen=True)
class Table:
    """Where rows come from: the simulator, or a file with the Gaia archive's names."""

    path: Path | None
    rows: int
    device: str

    @property
    def name(self) -> str:
        return f"simulated, {self.rows:,} rows" if self.path is None else self.path.stem

    @cached_property
    def content(self) -> Any:
        """What xd.open takes."""
        return simulate.gaia(self.rows, device=self.device).to_table() if self.path is None else self.path

    def prepared(self, preset: str) -> Rows:
        """The rows as a preset prepares them, in a random order that never changes, 80/10/10."""
        whole = xd.open(self.content, preset=preset, memory=True).load()
        kind = torch.float32 if self.device == "cuda" else torch.float64
        batch = whole.batch.to(self.device, kind)
        order = permutation(batch.n, SPLIT_SEED, 0).to(self.device)
        ends = [0, *(int(share * batch.n) for share in SHARES), batch.n]
        parts = [replace(whole, batch=batch.rows(order[a:b])) for a, b in pairwise(ends)]
        return Rows(self.name, preset, *parts)


def mean_log_prob(mixture: xd.Mixture, batch: Batch) -> float:
    """Mean log-likelihood of the rows of a batch where they are, in float64: not every mixture is sound in float32."""
    parameters = mixture.tensors(batch.device)
    total = torch.zeros((), dtype=torch.float64, device=batch.device)
    for part in batch.chunks(1 << 20):
        total += xd.kernels.log_prob(*parameters, part.to(dtype=torch.float64)).sum()
    return float(total) / batch.n


def noisier(source: ArraySource, variance: float) -> ArraySource:
    """The rows as if every observed value had this much more variance: T = A + (S + w I) = (A + w I) + S.

    A fit of A to them is a fit of V = A + w I to the rows as they are: the covariances then have w as their floor.
    """
    batch = source.batch
    assert batch.noise is not None
    assert batch.full
    noise = batch.noise.clone()
    noise[[packed_size(a) + a for a in range(batch.p)]] += variance
    return replace(source, batch=replace(batch, noise=noise))


def true_values(rows: int, seed: int, device: str) -> Batch:
    """Values without noise, none missing, of stars that are in no part of the experiment."""
    truth = torch.cat([part.truth for part in simulate.gaia_chunks(rows, seed=seed, device=device)], dim=1)
    return Batch(x=truth)
