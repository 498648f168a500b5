"""What telescopes do to catalogues, put right: python -m benchmarks.telescopes [--pygmmis PYTHON] [--write].

Two clusters in 30 % of uniform background, with that background and with a broad Gaussian instead; errors that are
quoted at 1 / 1.3 of their size, between 0.2 and 1 from row to row, with and without factors that are fitted, and the
spread of probabilities (plot.pit) of unseen rows from the smallest errors to the largest; rows of Student's t with
three degrees of freedom, by one component with its tails and by Gaussian ones. Scores are of unseen rows. Then rows
that were cut, pygmmis on its own example, what one data set can say of a figure, and what "auto" chooses (minutes).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

import numpy as np
from scipy.stats import multivariate_t

import xdeconv as xd
from benchmarks.common.machine import about
from benchmarks.common.results import describe, table, write_section
from benchmarks.telescopes import choosing, selection, sureness

BOX = xd.Uniform([0.0, 0.0], [10.0, 10.0])
V = np.array([[[0.5, 0.2], [0.2, 0.4]], [[0.3, -0.1], [-0.1, 0.6]]])
CLUSTERS = xd.Mixture([0.5, 0.5], [[3.0, 3.0], [7.0, 6.0]], V, background=BOX, background_weight=0.3)
BROAD = xd.Mixture([1.0], [[5.0, 5.0]], [np.eye(2) * 100 / 12])
CENTRES, WIDTHS = np.array([[0.0, 0.0], [3.0, 1.0]]), np.array([[0.5, 0.3], [0.4, 0.6]])
FACTOR = 1.3
SHAPE = np.array([[1.0, 0.5, 0.0], [0.5, 2.0, 0.3], [0.0, 0.3, 0.5]])


def field(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """3,000 rows of two clusters in a background, and their noise."""
    noise = np.random.default_rng(seed).uniform(0.05, 0.3, size=(3000, 2)) ** 2
    return CLUSTERS.sample(3000, seed, noise=noise), noise


def clusters(seed: int, background: xd.Uniform | xd.Mixture) -> tuple[float, np.ndarray]:
    """The weight of the background, and variances over the true ones (4,), of a fit to 3,000 rows."""
    X, noise = field(seed)
    found = xd.fit(X, 2, noise=noise, background=background).mixture
    order = np.argsort(found.means[:, 0])
    return found.background_weight, (found.covariances[order] / V)[:, [0, 1], [0, 1]].ravel()


def quoted(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """20,000 rows of two clusters, and their errors as they are quoted."""
    rng = np.random.default_rng(seed)
    z, error = rng.choice(2, size=20_000, p=[0.6, 0.4]), rng.uniform(0.2, 1.0, size=(20_000, 2))
    true = CENTRES[z] + WIDTHS[z] * rng.normal(size=error.shape)
    return true + FACTOR * error * rng.normal(size=error.shape), error


def inflation(seed: int) -> tuple[np.ndarray, np.ndarray, list[list[float]]]:
    """Factors (2,), their standard errors, and spreads by quintiles of error without and with factors."""
    (X, error), (unseen, unseen_error) = quoted(seed), quoted(seed + 99)
    spreads, order = [], np.argsort(unseen_error[:, 1])
    for wanted in (None, xd.Inflation()):
        found = xd.fit(X, 2, error=error, inflation=wanted).mixture
        u = xd.plot.pit(found, unseen, error=unseen_error)[:, 1]
        spreads.append([float(np.std(u[part])) for part in np.array_split(order, 5)])
    assert found.inflation is not None
    return found.inflation.factors[0], found.inflation.standard_errors[0], spreads


def tails(seed: int) -> list[float]:
    """Scores of 20,000 unseen rows by one component of Student's t and by 1, 2, 4 and 8 Gaussian ones; and nu."""
    X, unseen = (
        multivariate_t(np.zeros(3), SHAPE, df=3, seed=s).rvs(n) for s, n in ((seed, 2000), (seed + 99, 20_000))
    )
    heavy = xd.fit(X, 1, tails=xd.StudentT()).mixture
    assert heavy.tails is not None
    assert heavy.tails.nu is not None
    return [heavy.score(unseen), *(xd.fit(X, k).mixture.score(unseen) for k in (1, 2, 4, 8)), heavy.tails.nu]


def beside(seeds: int) -> str:
    """Tables of backgrounds, errors and tails."""
    rows = []
    for name, background in (("uniform", BOX), ("a broad Gaussian, fixed", BROAD)):
        found = [clusters(seed, background) for seed in range(seeds)]
        b, ratios = np.array([f[0] for f in found]), np.mean([f[1] for f in found], axis=0)
        rows.append([name, f"{b.mean():.3f}", f"{np.abs(b - 0.3).max():.3f}", ", ".join(f"{r:.2f}" for r in ratios)])
    header = ["background", "weight (0.3)", "largest error", "mean variances over the true ones"]
    text = f"{table(header, rows)}\n\n"
    wide = [inflation(seed) for seed in range(seeds)]
    factors, said = np.array([w[0] for w in wide]), np.array([w[1] for w in wide])
    text += "Fitted factors on errors (1.3): " + ", ".join(f"{f:.3f}" for f in factors.ravel())
    text += f". Largest deviation {100 * np.abs(factors / FACTOR - 1).max():.1f} %, "
    text += f"root mean square {100 * np.sqrt(np.mean((factors / FACTOR - 1) ** 2)):.1f} %, "
    text += f"standard errors as said {100 * np.mean(said / factors):.1f} %.\n\n"
    shown = [[name, *(f"{v:.4f}" for v in np.mean([w[2][i] for w in wide], axis=0))]
             for i, name in enumerate(("errors as quoted", "fitted factors"))]  # fmt: skip
    text += table(["spread of probabilities (0.2887)", *(f"quintile {q}" for q in range(1, 6))], shown) + "\n\n"
    scores = np.array([tails(seed) for seed in range(seeds)])
    names = ["Student's t", *(f"{k} Gaussian" for k in (1, 2, 4, 8)), "nu (3)"]
    text += table(["seed", *names], [[str(i), *(f"{v:.3f}" for v in row)] for i, row in enumerate(scores)])
    return text


def main() -> None:
    """Print the tables, and write them where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=["beside", "selection", "sureness", "pygmmis", "choosing"], nargs="+",
                        default=["beside", "selection", "sureness", "pygmmis"], help="some parts of it")  # fmt: skip
    parser.add_argument("--data-sets", type=int, default=50, help="that tell how sure what is found is")
    parser.add_argument("--pygmmis", help="a Python that has pygmmis, to compare with")
    parser.add_argument("--sizes", type=int, nargs="+", default=[400, 4_000], help="rows to compare with pygmmis on")
    parser.add_argument("--write", action="store_true", help="write the tables to RESULTS.md")
    told = parser.parse_args()
    parts = {
        "beside": ("backgrounds, errors and tails", lambda: beside(told.seeds)),
        "selection": ("rows that were selected", lambda: selected(told.seeds, told.data_sets)),
        "sureness": ("what one data set can say", lambda: sure(told.data_sets)),
        "pygmmis": ("pygmmis on its own example",
                    lambda: selection.against_pygmmis(told.pygmmis, told.sizes, told.seeds)),
        "choosing": ("how many components", lambda: choosing.chosen(told.seeds)),
    }  # fmt: skip
    for name, (title, made) in parts.items():
        if name in told.only and (name != "pygmmis" or told.pygmmis):
            report(f"Telescopes: {title}", made(), told.write)


def selected(seeds: int, data_sets: int) -> str:
    """Tables of rows that were cut."""
    return "\n\n".join([selection.cuts(seeds), selection.three_dimensions(seeds), selection.coverage(data_sets)])


def sure(data_sets: int) -> str:
    """Tables of what one data set can say of rows that were cut, and of clusters in a background."""
    return sureness.cuts(selection.stars, data_sets) + "\n\n" + sureness.clusters(field, CLUSTERS, data_sets)


def report(title: str, text: str, write: bool) -> None:
    """Print tables, and write them where asked."""
    print(text)
    if write:
        write_section(title, f"{describe(about())}\n\n{text}\n")


if __name__ == "__main__":
    main()
