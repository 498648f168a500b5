"""The demo: velocities of stars near the Sun, from Hipparcos, where each star shows two components of three.

Parallax and proper motion give the velocity across the line of sight, never along it. Stars in all directions together
still tell the whole distribution of (U, V, W): every row has its own projection and its own noise.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from ..rows.data import ArraySource
from ..studies._bootstrap import resampled
from .velocities_shown import draw, tell
from .velocity_groups import GROUPS, NEAR, Demo, Group, Prediction

if TYPE_CHECKING:
    from rich.console import Console

Array = np.ndarray

COMPONENTS, WIDTH = 10, 4.0  # km^2/s^2 of the prior, as Bovy, Hogg & Roweis (2009) chose
PRIOR = Prior(w=WIDTH)
TOL = 0.1  # nats of all stars together
RESAMPLES, AGAIN_TOL = 10, 1.0  # of the stars, and nats that may be left of fits to them
GAUSSIAN_EPOCHS = 2000  # enough to converge: a Gaussian that has not would be too easy to beat
NEEDS = "the demo needs matplotlib and the Hipparcos catalogue: pip install 'xdeconv[demo]'"
LABELS, UNITS = ("U", "V", "W"), ("km/s",) * 3


@dataclass(frozen=True)
class Settings:
    """Of every fit of the demo."""

    seed: int = 0
    epochs: int = 250
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
    moves: str = Settings.moves,
    resamples: int = RESAMPLES,
    seeds: int = 1,
) -> Demo:
    """Fit the velocities of Hipparcos stars, say what is seen, and write hipparcos.safetensors and hipparcos.png.

    ``stars`` takes only so many, at random. Both velocities are fitted, with a search for better optima (``moves``) and
    at most ``epochs`` passes. With more ``seeds`` the fit is made from each, the best is kept, and whether they end in
    one place is told. It is repeated from where it ended on so many ``resamples`` of the stars, and in how many of them
    a moving group is seen is told beside it. All is decided by ``seed``. Nothing is printed unless
    ``verbose``.
    """
    from rich.console import Console

    began = time.monotonic()
    say = console or Console(quiet=not verbose)
    folder = _folder(output)
    sky = _stars(seed, stars)
    say.print(f"[b]{len(sky):,}[/b] main-sequence stars of Hipparcos with parallax/error > 10, two velocities each")

    settings = Settings(seed, epochs, moves, verbose)
    say.print(f"Fitting {COMPONENTS} components to both velocities")
    ends = [_fit(sky, COMPONENTS, replace(settings, seed=seed + more)) for more in range(seeds)]
    heights = tuple(_height(end, len(sky)) for end in ends)
    mixture = _described(ends[int(np.argmax(heights))], sky)
    say.print(f"Fitting again on {resamples} resamples of the stars")
    maxima, groups = judge_groups([mixture, *_again(sky, mixture, settings, resamples)])
    say.print("Fitting one velocity of each star, to predict the other")
    prediction = predict_other(sky, replace(settings, moves="none"))

    model, picture = folder / "hipparcos.safetensors", folder / "hipparcos.png"
    mixture.save(model)
    draw(mixture, picture)
    demo = Demo(mixture, len(sky), groups, maxima, prediction, model, picture, time.monotonic() - began, heights)
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


def _fit(sky: Velocities, components: int, settings: Settings) -> FitResult:
    return fit(
        _batch(sky), components, method=EM(prior=PRIOR), moves=settings.moves, seed=settings.seed,
        epochs=settings.epochs, tol=TOL, verbose=settings.verbose,
    )  # fmt: skip


def _height(end: FitResult, stars: int) -> float:
    """What the fit makes as large as it can: the log-likelihood of all stars, and the logarithm of the prior."""
    log_weights, _, covariances = end.mixture.tensors()
    return stars * end.loglik + float(PRIOR.log_density(log_weights.exp(), covariances))


def _again(sky: Velocities, mixture: Mixture, settings: Settings, draws: int) -> list[Mixture]:
    """What the fit becomes on rows drawn again, each beginning where the fit ended."""
    rows = [resampled(ArraySource(_batch(sky)), settings.seed, draw) for draw in range(draws)]
    options: dict[str, Any] = {"method": EM(prior=PRIOR), "epochs": settings.epochs, "tol": AGAIN_TOL, "verbose": False}
    return [replace(fit(each, mixture=mixture, **options).mixture, labels=LABELS) for each in rows]


def _batch(sky: Velocities) -> Batch:
    return Batch.from_arrays(sky.x, sky.noise, sky.projection)


def _described(result: FitResult, sky: Velocities) -> Mixture:
    order = np.argsort(-result.mixture.weights)
    mixture = result.mixture
    about = {"data": "Hipparcos (van Leeuwen 2007), main sequence, heliocentric velocities", "stars": len(sky)}
    meta = dict(mixture.meta or {}) | about
    return Mixture(mixture.weights[order], mixture.means[order], mixture.covariances[order], LABELS, UNITS, meta)


# Prediction


def predict_other(sky: Velocities, settings: Settings, components: int = COMPONENTS) -> Prediction:
    """Fit one tangential component of each star, chosen by lot, and score the other given the first.

    The score is log p(both) - log p(the one that was fitted): what the fits say of values they never saw. One number
    per star says little of three dimensions, so that spare components overfit: where two Gaussians are the truth, two
    components gain all of the 0.29 nat that are possible, five 0.27, and ten 0.23 after 20 passes and 0.15 at the end.
    """
    hidden = np.random.default_rng([settings.seed, 1]).integers(2, size=len(sky))
    x = sky.x.copy()
    x[np.arange(len(sky)), hidden] = np.nan
    seen = replace(sky, x=x)
    many, one = (
        _fit(seen, components, settings),
        _fit(seen, 1, replace(settings, verbose=False, epochs=GAUSSIAN_EPOCHS)),
    )
    mixture, gaussian = (_log_prob(fitted, sky) - _log_prob(fitted, seen) for fitted in (many, one))
    error = np.std(mixture - gaussian) / np.sqrt(len(sky))
    return Prediction(float(mixture.mean()), float(gaussian.mean()), float(error))


def _log_prob(fitted: FitResult, sky: Velocities) -> Array:
    return fitted.mixture.log_prob(sky.x, sky.noise, sky.projection)


# Moving groups


def judge_groups(mixtures: Sequence[Mixture]) -> tuple[Array, tuple[Group, ...]]:
    """The maxima (m, 2) of the first mixture's U-V density, and its groups with the verdicts of the other mixtures."""
    seen = [_maxima(mixture) for mixture in mixtures]
    lines = [[_judge(name, *tops) for tops in seen] for name in GROUPS]
    groups = tuple(replace(line[0], again=tuple(group.verdict for group in line[1:])) for line in lines)
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
