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
from ..mixture.modes import find_maxima, log_density, log_excess, one_gaussian
from ..rows.batch import Batch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console
    from rich.table import Table

Array = np.ndarray

COMPONENTS, PRIOR = 10, Prior(w=4.0)  # km^2/s^2, as Bovy, Hogg & Roweis (2009) chose
TOL = 1e-6  # nats per star in an epoch
GAUSSIAN_EPOCHS = 2000  # enough to converge: a Gaussian that has not would be too easy to beat
LABELS, UNITS = ("U", "V", "W"), ("km/s",) * 3
GROUPS = {"Sirius": (9.0, 3.0), "Pleiades": (-12.0, -22.0), "Hyades": (-40.0, -20.0), "Hercules": (-30.0, -50.0)}
NEAR = 8.0  # km/s: how far from a group's place in the literature its maximum may lie
VERDICTS = """A group is a [b]peak[/b] when the U-V density has a maximum within 8 km/s of its place in the literature,
a [b]shoulder[/b] when only the ratio of that density to one Gaussian of the same mean and covariance has one,
and otherwise [b]not resolved[/b]. EM ends in different places from different starts: a verdict on which they do not
agree is not worth much."""
VIEW = {"U": (-90.0, 70.0), "V": (-85.0, 35.0), "W": (-55.0, 40.0)}
WHERE_NAMED = {"Hyades": (-34, -14)}  # points from the cross to its name, where the usual place hides something


@dataclass(frozen=True)
class Settings:
    """Of every fit of the demo."""

    seed: int = 0
    epochs: int = 250
    starts: int = 3
    verbose: bool = False


@dataclass(frozen=True)
class Group:
    """A moving group: its (U, V) in the literature, what the likeliest fit shows, where, at what distance in km/s.

    ``verdicts`` has one for each start, the likeliest first.
    """

    name: str
    literature: tuple[float, float]
    verdict: str
    found: tuple[float, float] | None
    distance: float | None
    verdicts: tuple[str, ...] = ()

    @property
    def agree(self) -> int:
        """How many starts come to the same verdict."""
        return self.verdicts.count(self.verdict)


@dataclass(frozen=True)
class Prediction:
    """How well one tangential component follows from the other, in nats per star, and the gain over one Gaussian.

    ``gains`` has one for each start, the likeliest first; ``gain_error`` is the scatter of that one among stars alone.
    """

    mixture: float
    gaussian: float
    gain_error: float
    gains: tuple[float, ...]

    @property
    def gain(self) -> float:
        return self.gains[0]


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demo found and where it wrote it."""

    mixture: Mixture
    stars: int
    groups: tuple[Group, ...]
    maxima: Array
    prediction: Prediction
    model: Path
    picture: Path
    seconds: float


def run(
    output: str | Path = Path("demo"),
    seed: int = 0,
    verbose: bool = True,
    console: Console | None = None,
    *,
    stars: int | None = None,
    epochs: int = Settings.epochs,
    starts: int = Settings.starts,
) -> Demo:
    """Fit the velocities of Hipparcos stars, say what is seen, and write hipparcos.safetensors and hipparcos.png.

    ``stars`` takes only so many, at random; every fit is made from several ``starts``, of ``epochs`` passes each, the
    likeliest is kept, and what the others say is told beside it. All is decided by ``seed``. Nothing is printed unless
    ``verbose``.
    """
    from rich.console import Console

    began = time.monotonic()
    say = console or Console(quiet=not verbose)
    folder = _folder(output)
    sky = _stars(seed, stars)
    say.print(f"[b]{len(sky)}[/b] main-sequence stars of Hipparcos with parallax/error > 10, two velocities each")

    settings = Settings(seed, epochs, starts, verbose)
    say.print(f"Fitting {COMPONENTS} components to one velocity of each star, to predict the other")
    prediction = predict_other(sky, settings)
    say.print(f"Fitting {COMPONENTS} components to both velocities")
    mixtures = [_described(fitted, sky) for fitted in _fit(sky, COMPONENTS, settings)]
    mixture = mixtures[0]

    maxima, groups = judge_groups(mixtures)
    model, picture = folder / "hipparcos.safetensors", folder / "hipparcos.png"
    mixture.save(model)
    draw(mixture, picture)
    demo = Demo(mixture, len(sky), groups, maxima, prediction, model, picture, time.monotonic() - began)
    _tell(demo, say)
    return demo


def _folder(output: str | Path) -> Path:
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file: the demo needs a folder to write to")
    plot.new_axes()  # fail now rather than after the fit where matplotlib is missing
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
    method, epochs, verbose = EM(prior=PRIOR), settings.epochs, settings.verbose
    seeds = [1000 * settings.seed + start for start in range(settings.starts)]
    results = [fit(batch, components, method=method, seed=s, epochs=epochs, tol=TOL, verbose=verbose) for s in seeds]
    return sorted(results, key=lambda result: -result.loglik)


def _described(result: FitResult, sky: Velocities) -> Mixture:
    order = np.argsort(-result.mixture.weights)
    found = result.mixture
    about = {"data": "Hipparcos (van Leeuwen 2007), main sequence, heliocentric velocities", "stars": len(sky)}
    meta = dict(found.meta or {}) | about
    return Mixture(found.weights[order], found.means[order], found.covariances[order], LABELS, UNITS, meta)


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


# What is shown


def draw(mixture: Mixture, path: str | Path) -> None:
    """The picture: U-V, U-W and V-W, with the components and the moving groups of the literature."""
    axes = plot.new_axes(1, 3)[0]
    for ax, (x, y) in zip(axes, (("U", "V"), ("U", "W"), ("V", "W")), strict=True):
        plot.density_2d(mixture, (x, y), ax, limits=(VIEW[x], VIEW[y]))
        plot.ellipses(mixture, (x, y), ax)
    _mark_groups(axes[0])
    axes[0].figure.suptitle("Velocities near the Sun from Hipparcos: density, components (1σ) and moving groups")
    axes[0].figure.savefig(path, dpi=110)


def _mark_groups(ax: Axes) -> None:
    from matplotlib.patheffects import withStroke

    outline = [withStroke(linewidth=2.5, foreground="white")]
    for name, place in GROUPS.items():
        ax.plot(*place, "P", color="crimson", ms=8, mec="white", zorder=3)
        offset = WHERE_NAMED.get(name, (7, 5))
        ax.annotate(name, place, offset, textcoords="offset points", color="crimson", path_effects=outline, zorder=4)


def _tell(demo: Demo, say: Console) -> None:
    together = one_gaussian(demo.mixture)
    mean, spread = together.means[0], np.sqrt(np.diagonal(together.covariances[0]))
    say.print(_component_table(demo.mixture))
    say.print(
        f"All stars: mean (U, V, W) = ({mean[0]:.1f}, {mean[1]:.1f}, {mean[2]:.1f}) km/s relative to the Sun, "
        f"dispersions ({spread[0]:.1f}, {spread[1]:.1f}, {spread[2]:.1f}) km/s"
    )
    say.print(_group_table(demo), VERDICTS.replace("\n", " "))
    others = [top for top in demo.maxima if all(np.linalg.norm(top - place) > NEAR for place in GROUPS.values())]
    if others:
        say.print("Maxima near none of them: " + ", ".join(f"({u:.0f}, {v:.0f})" for u, v in others))
    say.print(_prediction_line(demo.prediction))
    say.print(f"Wrote {demo.model} and {demo.picture} in {demo.seconds:.0f} s")


def _prediction_line(told: Prediction) -> str:
    spread = f"{min(told.gains):.3f} to {max(told.gains):.3f} over {len(told.gains)} starts"
    return (
        "One velocity of each star held out: given the other, the likeliest fit predicts it better than a Gaussian by "
        f"[b]{told.gain:.3f}[/b] nats per star ({told.mixture:.3f} against {told.gaussian:.3f}); "
        f"± {told.gain_error:.3f} from the scatter among stars alone, {spread}"
    )


def _component_table(mixture: Mixture) -> Table:
    from rich.table import Table

    table = Table(title="Components, velocities in km/s", title_justify="left")
    for title in ("weight", "U", "V", "W", "σ U", "σ V", "σ W"):
        table.add_column(title, justify="right")
    for weight, m, V in zip(mixture.weights, mixture.means, mixture.covariances, strict=True):
        table.add_row(f"{weight:.3f}", *(f"{value:.1f}" for value in (*m, *np.sqrt(np.diagonal(V)))))
    return table


def _group_table(demo: Demo) -> Table:
    from rich.table import Table

    table = Table(title="Moving groups: (U, V) in km/s", title_justify="left")
    for title in ("group", "literature", "here", "starts", "maximum at", "distance"):
        table.add_column(title)
    for group in demo.groups:
        found = "" if group.found is None else "({:.1f}, {:.1f})".format(*group.found)
        distance = "" if group.distance is None else f"{group.distance:.1f}"
        place, agree = "({:.0f}, {:.0f})".format(*group.literature), f"{group.agree} of {len(group.verdicts)}"
        table.add_row(group.name, place, group.verdict, agree, found, distance)
    return table
