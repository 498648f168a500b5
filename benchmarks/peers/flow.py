"""A noise-aware normalising flow beside the plain call, on the same rows, with ten times its time and more.

python -m benchmarks.peers.flow [--cases spiral ...] [--times 10 100] [--most 60] [--write]

Needs zuko (pip install zuko), which nothing else of this project does. The density of the true values is a neural
spline flow; that of a noisy row x = v + L u, L L^T = S, is an average over draws of u. Their proposal, a flow too, is
given the row and its errors and learnt with the other by the importance-weighted bound (Dockhorn, Ritchie, Yu and
Murray 2020). A tenth of the rows, which the flow is not trained on, says which of its states is kept.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import xdeconv as xd
from benchmarks.common import results as report
from benchmarks.common.machine import about
from benchmarks.fits.measure import small
from benchmarks.small.problems import PROBLEMS
from xdeconv.rows.batch import Batch
from xdeconv.simulate import _gaia as simulate

DRAWS, JUDGING, SCORING = 16, 64, 512  # draws of the proposal per row: to learn, to judge states, and to score
BATCH, RATE = 256, 2e-3
HIDDEN, TRANSFORMS = (64, 64), 3
SCORED = 2000  # rows held out
LOOKS = 12  # at the likelihood of the tenth, before each time limit


@dataclass(frozen=True)
class Case:
    """Rows without gaps to fit, rows that are only scored, and how many components ours has."""

    title: str
    train: Batch
    held_out: Batch
    k: int


def of_small(name: str) -> Case:
    """One of the small problems."""
    rng, problem = np.random.default_rng(2026), PROBLEMS[name]
    train, held_out = problem.draw(problem.n, rng), problem.draw(SCORED, rng)
    return Case(f"{name}, {problem.n:,} rows, d = {train.d}, k = {problem.k}", train, held_out, problem.k)


def clusters() -> Case:
    """Five Gaussians in two dimensions: what a mixture is made for."""
    case = small()
    return Case(case.title, case.train, case.held_out.rows(slice(0, SCORED)), case.k)


def sky(rows: int = 20_000, k: int = 16) -> Case:
    """Simulated Gaia rows in seven columns of unit variance, full noise, nothing missing."""
    batch = simulate.gaia(rows + SCORED, missing=False).batch.to(dtype=torch.float64)
    batch = batch.standardized(batch.x.mean(1), batch.x.std(1))
    plain = Batch.from_arrays(batch.x.T.numpy(), noise=batch.covariance().numpy())
    train, held_out = plain.rows(slice(0, rows)), plain.rows(slice(rows, None))
    return Case(f"{rows:,} simulated rows, d = 7, k = {k}", train, held_out, k)


CASES: dict[str, Callable[[], Case]] = {
    "clusters": clusters, "ring": lambda: of_small("ring"), "spiral": lambda: of_small("spiral"),
    "tails": lambda: of_small("tails"), "sky": sky,
}  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """Values (n, d), factors of their noise (n, d, d) and what proposals are told of them (n, 2d), scaled."""

    x: Tensor
    L: Tensor
    told: Tensor

    @classmethod
    def of(cls, batch: Batch, middle: Tensor, scale: Tensor) -> Rows:
        """In units of a scale, which the flow learns best in."""
        x = ((batch.x.T - middle) / scale).float()
        S = batch.covariance().expand(batch.n, -1, -1) / (scale[:, None] * scale)
        L = torch.linalg.cholesky(S).float()
        return cls(x, L, torch.cat([x, L.diagonal(dim1=1, dim2=2).log()], 1))

    def pick(self, some: Tensor | slice) -> Rows:
        """Some of the rows."""
        return Rows(self.x[some], self.L[some], self.told[some])


class NoisyFlow(nn.Module):
    """A flow for true values, and one that proposes noise for rows."""

    def __init__(self, d: int) -> None:
        super().__init__()
        zuko = _zuko()
        self.density = zuko.flows.NSF(d, transforms=TRANSFORMS, hidden_features=HIDDEN)
        self.proposal = zuko.flows.MAF(d, context=2 * d, transforms=2, hidden_features=HIDDEN)

    def forward(self, rows: Rows, draws: int) -> Tensor:
        """Log-densities (n,) of noisy rows: of the average over draws, which is low where these are few."""
        u, log_q = self.proposal(rows.told).rsample_and_log_prob((draws,))
        values = rows.x - (rows.L @ u[..., None])[..., 0]
        log_noise = -0.5 * u.square().sum(-1) - 0.5 * u.shape[-1] * math.log(2 * math.pi)
        return (self.density().log_prob(values) + log_noise - log_q).logsumexp(0) - math.log(draws)


def _zuko() -> Any:
    try:
        import zuko
    except ImportError:
        raise SystemExit("this comparison needs zuko, which is not installed: pip install zuko") from None
    return zuko


@torch.no_grad()
def score(flow: NoisyFlow, rows: Rows, draws: int, each: int = 100) -> float:
    """Mean log-density of rows, in the units that they are in."""
    parts = [flow(rows.pick(slice(i, i + each)), draws) for i in range(0, len(rows.x), each)]
    return float(torch.cat(parts).double().mean())


@dataclass
class Training:
    """A flow that learns, and its best state so far by rows that it does not learn from."""

    flow: NoisyFlow
    rows: Rows
    judge: Rows
    steps: int = 0
    best: float = -math.inf
    kept: dict[str, Tensor] = field(default_factory=dict)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.Adam(self.flow.parameters(), lr=RATE)

    def until(self, seconds: float) -> NoisyFlow:
        """Learn until so many seconds have been spent in all; the flow in its best state."""
        while self.seconds < seconds:
            began = time.perf_counter()
            self._learn(began + (seconds - self.seconds) / LOOKS)
            self._look()
            self.seconds += time.perf_counter() - began
        best = copy.deepcopy(self.flow)
        best.load_state_dict(self.kept)
        return best

    def _learn(self, end: float) -> None:
        while time.perf_counter() < end:
            some = torch.randint(len(self.rows.x), (BATCH,))
            loss = -self.flow(self.rows.pick(some), DRAWS).mean()
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.flow.parameters(), 5.0)
            self.optimizer.step()
            self.steps += 1

    def _look(self) -> None:
        value = score(self.flow, self.judge, JUDGING)
        if value > self.best or not self.kept:
            self.best, self.kept = value, copy.deepcopy(self.flow.state_dict())


def compare(case: Case, times: Sequence[float], most: float) -> list[list[str]]:
    """Lines of the table: ours, and the flow after so many times our seconds, as far as ``most`` seconds allow."""
    xd.fit(case.train, case.k, seed=1)  # compiled before it is timed
    began = time.perf_counter()
    mixture = xd.fit(case.train, case.k, seed=0).mixture
    ours = time.perf_counter() - began
    lines = [[case.title, "xd.fit", f"{ours:.2f}", "", f"{mixture.score(case.held_out):.4f}"]]
    torch.manual_seed(0)
    middle, scale = case.train.x.mean(1), case.train.x.std(1)
    rows, held_out = (Rows.of(batch, middle, scale) for batch in (case.train, case.held_out))
    order = torch.randperm(len(rows.x))
    tenth = len(order) // 10
    training = Training(NoisyFlow(case.train.d), rows.pick(order[tenth:]), rows.pick(order[:tenth]))
    for factor in times:
        limit = min(factor * ours, most)
        if training.seconds < limit:
            flow = training.until(limit)
            value = score(flow, held_out, SCORING) - float(scale.log().sum())
            ratio = training.seconds / ours
            lines.append([case.title, "flow", f"{training.seconds:.2f}", f"{ratio:.0f}", f"{value:.4f}"])
            print(*lines[-1], f"{training.steps} steps", sep="  ", flush=True)
    return lines


def main() -> None:
    """Compare, print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--times", nargs="*", type=float, default=[10, 100, 1000], help="of our seconds, for the flow")
    parser.add_argument("--most", type=float, default=60, help="seconds of training, at most")
    parser.add_argument("--write", action="store_true", help="write the table to RESULTS.md")
    chosen = parser.parse_args()
    version = _zuko().__version__
    lines = [line for name in chosen.cases for line in compare(CASES[name](), sorted(chosen.times), chosen.most)]
    header = ["rows", "what", "seconds", "of ours", f"held out, {SCORED:,} rows"]
    text = report.table(header, lines)
    print(text)
    if chosen.write:
        head = (f"`python -m benchmarks.peers.flow`, zuko {version}: a neural spline flow, noise by importance "
                f"sampling with a learnt proposal, {DRAWS} draws to learn and {SCORING:,} to score; at most "
                f"{chosen.most:.0f} s. {report.describe(about())} {torch.get_num_threads()} threads.")  # fmt: skip
        report.write_section("A noise-aware flow", f"{head}\n\n{text}")


if __name__ == "__main__":
    main()
