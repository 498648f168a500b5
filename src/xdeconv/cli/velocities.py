"""The demo: velocities of stars near the Sun, from Hipparcos, where each star shows two components of three.

Parallax and proper motion give the velocity across the line of sight, never along it. Stars in all directions together
still tell the whole distribution of (U, V, W): every row has its own projection and its own noise.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .. import plot
from ..catalog import hipparcos
from ..catalog.hipparcos import Velocities
from ..fitting._fit import FitResult, fit
from ..methods import EM
from ..methods.prior import Prior
from ..mixture._mixture import Mixture
from ..mixture.modes import find_maxima, log_density, log_excess
from ..rows.batch import Batch
from .velocities_shown import draw, tell
from .velocity_groups import GROUPS, NEAR, Demo, Group, Prediction

if TYPE_CHECKING:
    from rich.console import Console

Array = np.ndarray

COMPONENTS, PRIOR = 10, Prior(w=4.0)  # km^2/s^2, as Bovy, Hogg & Roweis (2009) chose
TOL = 0.1  # nats of all stars together
GAUSSIAN_EPOCHS = 2000  # enough to converge: a Gaussian that has not would be too easy to beat
NEEDS = "the demo needs matplotlib and the Hipparcos catalogue: pip install 'xdeconv[demo]'"
LABELS, UNITS = ("U", "V", "W"), ("km/s",) * 3


@dataclass(frozen=True)
class Settings:
    """Of every fit of the demo."""

    seed: int = 0
    epochs: int = 250
    starts: int = 3
    moves: str = "auto"
    verbose: bool = False


def run(
    output: str | Path = Path("demo"),
    seed: int = 0,
    verbose: bool = True,
    console: Console | None = None,
    *,
    stars: int | None = None,
    epochs: int = Settings.epochs,
    starts: int = Settings.starts,
    moves: str = Settings.moves,
) -> Demo:
    """Fit the velocities of Hipparcos stars, say what is seen, and write hipparcos.safetensors and hipparcos.png.

    ``stars`` takes only so many, at random. Both velocities are fitted from several ``starts``, each with a search for
    better optima (``moves``) and at most ``epochs`` passes; the likeliest is kept, and whether the others ended in
    the same place is told beside it. All is decided by ``seed``. Nothing is printed unless ``verbose``.
    """
    from rich.console import Console

    began = time.monotonic()
    say = console or Console(quiet=not verbose)
    folder = _folder(output)
    sky = _stars(seed, stars)
    say.print(f"[b]{len(sky)}[/b] main-sequence stars of Hipparcos with parallax/error > 10, two velocities each")

    settings = Settings(seed, epochs, starts, moves, verbose)
    say.print(f"Fitting {COMPONENTS} components to one velocity of each star, to predict the other")
    prediction = predict_other(sky, replace(settings, starts=1, moves="none"))
    say.print(f"Fitting {COMPONENTS} components to both velocities, from {starts} seeds")
    fits = _fit(sky, COMPONENTS, settings)
    mixtures = [_described(fitted, sky) for fitted in fits]
    mixture, spread = mixtures[0], (fits[0].loglik - fits[-1].loglik) * len(sky)

    maxima, groups = judge_groups(mixtures)
    model, picture = folder / "hipparcos.safetensors", folder / "hipparcos.png"
    mixture.save(model)
    draw(mixture, picture)
    demo = Demo(mixture, len(sky), groups, maxima, prediction, model, picture, time.monotonic() - began, spread)
    tell(demo, say)
    return demo


def _folder(output: str | Path) -> Path:
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file: the demo needs a folder to write to")
    try:
        plot.new_axes()  # fail now rather than after the fit
    except ImportError as problem:
        raise ImportError(NEEDS) from problem
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _stars(seed: int, count: int | None) -> Velocities:
    sky = hipparcos.nearby_main_sequence(hipparcos.read())
    if count is None or count >= len(sky):
        return sky
    return sky[np.sort(np.random.default_rng(seed).permutation(len(sky))[:count])]


def _fit(sky: Velocities, components: int, settings: Settings) -> list[FitResult]:
    """A fit from each start, likeliest first."""
    batch = Batch.from_arrays(sky.x, sky.noise, sky.projection)
    seeds = [1000 * settings.seed + start for start in range(settings.starts)]
    results = [
        fit(batch, components, method=EM(prior=PRIOR), moves=settings.moves, seed=seed, epochs=settings.epochs, tol=TOL,
            verbose=settings.verbose)
        for seed in seeds
    ]  # fmt: skip
    return sorted(results, key=lambda result: -result.loglik)


def _described(result: FitResult, sky: Velocities) -> Mixture:
    order = np.argsort(-result.mixture.weights)
    mixture = result.mixture
    about = {"data": "Hipparcos (van Leeuwen 2007), main sequence, heliocentric velocities", "stars": len(sky)}
    meta = dict(mixture.meta or {}) | about
    return Mixture(mixture.weights[order], mixture.means[order], mixture.covariances[order], LABELS, UNITS, meta)


# Prediction


def predict_other(sky: Velocities, settings: Settings) -> Prediction:
    """Fit one tangential component of each star, chosen by lot, and score the other given the first.

    The score is log p(both) - log p(the one that was fitted): what the fits say of values they never saw.
    """
    hidden = np.random.default_rng([settings.seed, 1]).integers(2, size=len(sky))
    x = sky.x.copy()
    x[np.arange(len(sky)), hidden] = np.nan
    seen = replace(sky, x=x)
    many = _fit(seen, COMPONENTS, settings)
    (one,) = _fit(seen, 1, replace(settings, starts=1, verbose=False, epochs=GAUSSIAN_EPOCHS))
    gaussian, *mixtures = (_log_prob(fitted, sky) - _log_prob(fitted, seen) for fitted in (one, *many))
    gains = tuple(float(np.mean(mixture - gaussian)) for mixture in mixtures)
    error = np.std(mixtures[0] - gaussian) / np.sqrt(len(sky))
    return Prediction(float(mixtures[0].mean()), float(gaussian.mean()), float(error), gains)


def _log_prob(fitted: FitResult, sky: Velocities) -> Array:
    return fitted.mixture.log_prob(sky.x, sky.noise, sky.projection)


# Moving groups


def judge_groups(mixtures: Sequence[Mixture]) -> tuple[Array, tuple[Group, ...]]:
    """The maxima (m, 2) of the first mixture's U-V density, and its groups with the verdicts of all mixtures."""
    seen = [_maxima(mixture) for mixture in mixtures]
    lines = [[_judge(name, *tops) for tops in seen] for name in GROUPS]
    groups = tuple(replace(line[0], verdicts=tuple(group.verdict for group in line)) for line in lines)
    return seen[0][0], groups


def _maxima(mixture: Mixture) -> tuple[Array, Array]:
    """Maxima of the U-V density, and of its ratio to one Gaussian."""
    pair = mixture.marginal(["U", "V"])
    starts = np.concatenate([list(GROUPS.values()), pair.means])
    peaks, shoulders = (find_maxima(surface(pair), starts) for surface in (log_density, log_excess))
    return peaks, shoulders


def _judge(name: str, peaks: Array, shoulders: Array) -> Group:
    place = GROUPS[name]
    for verdict, tops in (("peak", peaks), ("shoulder", shoulders)):
        away = np.linalg.norm(tops - place, axis=1)
        if len(tops) and away.min() <= NEAR:
            u, v = tops[away.argmin()]
            return Group(name, place, verdict, (float(u), float(v)), float(away.min()))
    return Group(name, place, "not resolved", None, None)
