"""What people use for such data, beside xdeconv: one table, one run, the same rows and the same start.

python -m benchmarks.peers [--rows 20000] [--k 16] [--passes 20] [--out FOLDER]

Each peer is installed from PyPI into an environment of its own under the folder, and does EM passes there; what is not
there, Bovy's C code, is built by hand: --built extreme-deconvolution=PYTHON names an interpreter that has it. After
each pass its mixture is scored here on held-out rows, in float64 and by one function.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import venv
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

import xdeconv as xd
from benchmarks.common import results as report
from benchmarks.common.machine import about
from xdeconv.fitting.initial import start_mixture
from xdeconv.rows.data import ArraySource
from xdeconv.simulate import _gaia as simulate

WORKER = Path(__file__).with_name("worker.py")
FEW_ROWS = {"astroML": 2_000}  # a pass over 20,000 rows takes it half a minute
NOISE_IGNORED = ("scikit-learn", "pomegranate", "pycave")
NEAR = 0.01  # nat below our likelihood after all passes: the common likelihood
CANNOT = {
    "scikit-learn": "noise, missing values, weights, projections",
    "pomegranate": "noise, projections; weights it takes",
    "pycave": "noise, missing values, weights, projections, a start of one's own but for means; its last release needs "
    "torch < 2 and six, which it does not name",
    "astroML": "missing values, projections, weights, a start of one's own, outliers (all becomes NaN)",
    "pygmmis": "weights, streams; missing values get a variance of 1e10",
    "extreme-deconvolution": "streams, float32; missing values but as projections; it is not on PyPI",
    "xdeconv": "a selection together with factors on errors",
}
INSTALLED = ("scikit-learn", "astroML", "pygmmis", "pomegranate", "pycave", "extreme-deconvolution")
ALSO = {"pycave": ("six",)}  # what a peer needs and does not name
LONG_FITS = {"pycave": 20}  # passes of a peer that cannot be stopped after each
OURS = ("xdeconv float64", "xdeconv float32")


@dataclass
class Measured:
    """What one peer did, or why it did not."""

    name: str
    version: str = ""
    rows: int = 0
    passes: int = 0
    pass_seconds: float = float("nan")
    megabytes: float = float("nan")
    children: float = 0.0
    held_out: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    trouble: str = ""
    others: float = 0.0  # cores that other work on the machine took meanwhile


@dataclass(frozen=True)
class Problem:
    """Rows in coordinates of unit variance, all observed, with full noise; and a start for everybody."""

    X: np.ndarray
    S: np.ndarray
    held_out: xd.Batch
    start: xd.Mixture

    @classmethod
    def simulated(cls, rows: int, k: int) -> Problem:
        batch = simulate.gaia(rows + rows // 4, missing=False).batch.to(dtype=xd.Batch.from_arrays([[0.0]]).dtype)
        shift, scale = batch.x.mean(1), batch.x.std(1)
        batch = batch.standardized(shift, scale)
        X, S = batch.x.T.numpy(), batch.covariance().numpy()
        train = xd.Batch.from_arrays(X[:rows], noise=S[:rows])
        start = start_mixture(ArraySource(train), k, xd.Start(), 0, scale.new_ones(7))
        return cls(X[:rows], S[:rows], xd.Batch.from_arrays(X[rows:], noise=S[rows:]), start)

    def save(self, path: Path) -> None:
        s = self.start
        np.savez(path, X=self.X, S=self.S, weights=s.weights, means=s.means, covariances=s.covariances)

    def score(self, mixture: xd.Mixture, noise: bool) -> float:
        """Held-out log-likelihood per row; a peer that ignores noise gives the density of the noisy values."""
        batch = self.held_out if noise else xd.Batch(x=self.held_out.x)
        return float(xd.kernels.log_prob(*mixture.tensors("cpu"), batch).double().mean())


def environment(folder: Path, package: str, limit: float) -> tuple[Path, str]:
    """The interpreter of an environment with a package, and why it could not be made."""
    python = folder / package / "bin" / "python"
    if (folder / package / "ready").exists():
        return python, ""
    venv.create(folder / package, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "install", "--quiet", package, *ALSO.get(package, ())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return python, f"pip did not end within {limit:.0f} s"
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        return python, f"pip: {errors[0].removeprefix('ERROR: ')}" if errors else "pip failed"
    (folder / package / "ready").touch()
    return python, ""


@dataclass
class Others:
    """How much of the machine was busy with something else than this process and those that it started (Linux)."""

    began: float = field(default_factory=time.perf_counter)
    before: float = field(default_factory=lambda: Others.seconds())

    @staticmethod
    def seconds() -> float:
        """Seconds of all cores on the work of others since the machine started."""
        counted = Path("/proc/stat").read_text().splitlines()[0].split()[1:8]
        user, nice, system, _, _, irq, soft = (float(word) for word in counted)
        own = sum(os.times()[:4])
        return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK") - own

    def cores(self) -> float:
        return max(0.0, self.seconds() - self.before) / (time.perf_counter() - self.began)


def measure(name: str, python: Path, problem: Problem, folder: Path, passes: int, limit: float) -> Measured:
    """Run the worker and score what it found."""
    rows = min(FEW_ROWS.get(name, len(problem.X)), len(problem.X))
    out = folder / f"{name}.npz"
    what = [name, folder / "problem.npz", out, passes, rows, limit]
    command = [str(python), str(WORKER), *(str(word) for word in what)]
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)} if name in OURS else {"PYTHONPATH": ""}
    watch = Others()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **paths})
    others = watch.cores()
    if done.returncode:
        return Measured(name, trouble=done.stderr.strip().splitlines()[-1])
    found = np.load(out)
    parameters = zip(found["weights"], found["means"], found["covariances"], strict=True)
    mixtures = [xd.Mixture(w / w.sum(), m, (V + V.transpose(0, 2, 1)) / 2) for w, m, V in parameters]
    held_out = [problem.score(mixture, name not in NOISE_IGNORED) for mixture in mixtures]
    seconds = found["seconds"].tolist()
    each = float(np.min(np.diff(seconds))) if len(seconds) > 1 else seconds[0] / LONG_FITS.get(name, 1)
    megabytes, children = float(found["megabytes"]), float(found["children"])
    version, done_passes = str(found["version"]), LONG_FITS.get(name, len(seconds))
    return Measured(name, version, rows, done_passes, each, megabytes, children, held_out, seconds, others=others)


def default_fit(problem: Problem) -> Measured:
    """xd.fit as it comes: EM with moves, until it has converged."""
    began, watch = time.perf_counter(), Others()
    result = xd.fit(problem.X, problem.start.k, noise=problem.S, device="cpu")
    seconds, passes = time.perf_counter() - began, len(result.history)
    score = problem.score(result.mixture, True)
    told = {"held_out": [score], "seconds": [seconds], "others": watch.cores()}
    return Measured("xdeconv, default fit", xd.__version__, len(problem.X), passes, **told)  # type: ignore[arg-type]


def reached(one: Measured, common: float) -> str:
    """Seconds until the common likelihood."""
    times = [s for s, score in zip(one.seconds, one.held_out, strict=True) if score >= common]
    return f"{times[0]:.2f}" if times else f"not in {one.seconds[-1]:.0f} s"


def memory(one: Measured) -> str:
    """Megabytes that the passes added, and those of each process that they started."""
    if np.isnan(one.megabytes):
        return ""
    return f"{one.megabytes:.0f}" + (f" and {one.children:.0f} in each process of its own" if one.children else "")


def write(found: dict) -> None:
    """The section of RESULTS.md."""
    peers = [Measured(**one) for one in found["peers"]]
    k, rows, passes = found["k"], found["rows"], found["passes"]
    lines = []
    for one in peers:
        family = "xdeconv" if one.name.startswith("xdeconv") else one.name
        if one.trouble:
            lines.append([one.name, "", "", "", "", "", "", "", f"did not run: {one.trouble}"])
            continue
        each = one.pass_seconds
        lines.append([
            f"{one.name} {one.version}", f"{one.rows:,}", str(one.passes), f"{1e3 * each:.0f}" if each == each else "",
            f"{1e9 * each / one.rows / k:,.0f}" if each == each else "",
            memory(one), reached(one, found["common"]),
            f"{one.held_out[-1]:.3f}", CANNOT[family],
        ])  # fmt: skip
    header = ["peer", "rows", "passes", "ms of the fastest EM pass", "ns per row and component", "MB more",
              f"s to {found['common']:.3f}", "held-out at the end", "cannot"]  # fmt: skip
    few = ", ".join(f"{name} gets {n:,} rows" for name, n in FEW_ROWS.items())
    body = [
        f"`python -m benchmarks.peers` on {report.describe(found['machine'])} {found['threads']} threads.",
        f"{rows:,} simulated Gaia rows, seven columns of unit variance, full noise, nothing missing; k = {k}, one "
        f"k-means start for all, {passes} EM passes, no floor. Held-out log-likelihood per row of {rows // 4:,} more, "
        "scored by one function; those that ignore the noise are scored as densities of noisy "
        "values. "
        f"The common likelihood is {NEAR} below ours after all passes. MB are what the passes added to the rows. "
        f"For time's sake {few}. Everything runs in float64 but pomegranate, pycave and where said.",
        "Other work on the machine took, in cores: "
        + ", ".join(f"{one.name} {one.others:.1f}" for one in peers if not one.trouble)
        + " (which slows total times more than the fastest pass).",
        report.table(header, lines),
    ]
    report.write_section("Peers", "\n\n".join(body))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--k", type=int, default=16)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--peers", nargs="*", default=list(INSTALLED))
    parser.add_argument("--limit", type=float, default=90, help="seconds for the passes of each peer")
    parser.add_argument("--install-limit", type=float, default=300, help="seconds for each installation")
    parser.add_argument("--built", nargs="*", default=[], metavar="PEER=PYTHON", help="interpreters that have a peer")
    parser.add_argument("--install-only", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("peers"))
    parser.add_argument("--write", type=Path, help="only write RESULTS.md from what an earlier run saved here")
    a = parser.parse_args()
    if a.write:
        return write(json.loads(a.write.read_text()))
    folder = a.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    built = {name: (Path(python), "") for name, _, python in (word.partition("=") for word in a.built)}
    others = [name for name in a.peers if name not in built]
    pythons = {name: environment(folder / "environments", name, a.install_limit) for name in others} | built
    if a.install_only:
        return print({name: trouble or "installed" for name, (_, trouble) in pythons.items()})
    problem = Problem.simulated(a.rows, a.k)
    problem.save(folder / "problem.npz")
    measured = [measure(name, Path(sys.executable), problem, folder, a.passes, a.limit) for name in OURS]
    measured.append(default_fit(problem))
    for name, (python, trouble) in pythons.items():
        one = Measured(name, trouble=trouble) if trouble else measure(name, python, problem, folder, a.passes, a.limit)
        measured.append(one)
        print(name, one.version, one.trouble, one.pass_seconds, one.held_out[-1:], flush=True)
    found = {
        "machine": about(), "threads": os.environ.get("OMP_NUM_THREADS", os.cpu_count()), "rows": a.rows, "k": a.k,
        "passes": a.passes, "common": measured[0].held_out[-1] - NEAR, "peers": [asdict(one) for one in measured],
    }  # fmt: skip
    (folder / "peers.json").write_text(json.dumps(found, indent=1) + "\n")
    return write(found)
