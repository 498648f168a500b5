"""The paper's figures from the runs of the experiment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import xdeconv as xd
from benchmarks.paper.methods import EXPERIMENT, TITLES
from benchmarks.paper.store import Run
from xdeconv.catalog.sky import galactic

COLORS = {"em": "tab:green", "minibatch": "tab:blue", "sgd": "tab:orange", "xdeconv": "k"}
SAMPLES = 100_000
LANDMARKS = {"LMC": (-79.5, -32.9), "SMC": (-57.2, -44.3)}  # Galactic longitude and latitude


def new_figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def figure_1(runs: Sequence[Run], published: dict[int, dict[str, tuple[float, float]]]) -> Any:
    """Left: training log-likelihood against seconds at the largest k. Right: seconds of training against k."""
    figure = new_figure(11, 4.2)
    left, right = figure.subplots(1, 2)
    largest = max(run["k"] for run in runs)
    for method in EXPERIMENT:
        mine = [run for run in runs if run["method"] == method]
        for run in mine:
            if run["k"] == largest and run["curve"]:
                left.plot(*zip(*run["curve"], strict=True), color=COLORS[method], label=TITLES[method], marker=".")
        sizes = sorted({run["k"] for run in mine})
        means = [np.mean([run["seconds"] for run in mine if run["k"] == k]) for k in sizes]
        right.loglog(sizes, means, color=COLORS[method], marker="o", label=TITLES[method])
        if method != "xdeconv" and published:
            minutes = [published[k][method][0] for k in published]
            right.loglog(list(published), 60 * np.array(minutes), color=COLORS[method], ls=":", marker="x", alpha=0.6)
    _trim(left, runs, largest)
    left.set(xscale="log", xlabel="seconds", ylabel="training log-likelihood per row", title=f"K = {largest}, one run")
    right.set(
        xlabel="K",
        ylabel="seconds of training",
        title="dotted: as the paper's authors recorded them" if published else "",
    )
    sizes = sorted({run["k"] for run in runs} | set(published))
    right.set_xticks(sizes, [str(k) for k in sizes])
    right.minorticks_off()
    left.legend()
    right.legend()
    return figure


def _trim(ax: Any, runs: Sequence[Run], k: int) -> None:
    """Leave out the first epochs, whose likelihood would flatten the rest; the axis says where it begins."""
    ends = [run["curve"][-1][1] for run in runs if run["k"] == k and run["curve"]]
    starts = [run["curve"][1][1] for run in runs if run["k"] == k and len(run["curve"]) > 1]
    if ends and starts:
        low, high = max(min(starts), min(ends) - 1.5), max(ends)
        ax.set_ylim(low - 0.02 * (high - low) - 1e-3, high + 0.05 * (high - low) + 1e-3)


def figure_2(mixture: xd.Mixture, rows: np.ndarray) -> Any:
    """Density on the sky of draws from a mixture beside that of rows (2, n) of ra and dec, in Galactic coordinates."""
    drawn = mixture.marginal(["ra", "dec"]).sample(SAMPLES, seed=0).T
    figure = new_figure(12, 3.6)
    axes = figure.subplots(1, 2, subplot_kw={"projection": "mollweide"})
    inside = np.abs(drawn[1]) <= 90
    beyond = int((~inside).sum())
    title = f"{SAMPLES:,} draws from K = {mixture.k}" + (f" ({beyond:,} beyond a pole)" if beyond else "")
    top = None
    for ax, sky, name in zip(axes, (rows, drawn[:, inside]), (f"{rows.shape[1]:,} rows", title), strict=True):
        density, edges = sky_density(sky)
        top = top or density[density > 0].max()
        mesh = _sky(ax, density, edges, top)
        ax.set_title(name, fontsize=10)
    figure.colorbar(mesh, ax=axes, label="share of stars per square degree", shrink=0.8)
    return figure


def sky_density(sky: np.ndarray, bins: int = 90) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Share per square degree in cells of equal area (b, -l), and the edges of -l and b in radians."""
    (l, _), (b, _) = galactic(False, wrap=-180.0)({"ra": np.mod(sky[0], 360.0), "dec": sky[1]})
    wide, high = np.linspace(-np.pi, np.pi, 2 * bins + 1), np.linspace(-1, 1, bins + 1)
    counts, _, _ = np.histogram2d(np.sin(np.radians(b)), -np.radians(l), bins=(high, wide))
    degrees = 4 * np.pi * (180 / np.pi) ** 2 / counts.size
    return counts / sky.shape[1] / degrees, (wide, np.arcsin(high))


def _sky(ax: Any, density: np.ndarray, edges: tuple[np.ndarray, np.ndarray], top: float) -> Any:
    from matplotlib.colors import LogNorm

    mesh = ax.pcolormesh(*edges, np.maximum(density, top / 1e3), norm=LogNorm(top / 300, top), cmap="inferno")
    mesh.set_rasterized(True)
    for name, (l, b) in LANDMARKS.items():
        ax.annotate(name, (-np.radians(l), np.radians(b)), (8, -12), textcoords="offset points", color="w", fontsize=7)
    ax.set_xticklabels([])
    ax.tick_params(labelsize=7)
    ax.grid(alpha=0.2)
    return mesh


def save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=130)
    return path
