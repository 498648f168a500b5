"""What the demo shows: a picture, tables, and how sure one may be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .. import plot
from ..mixture._mixture import Mixture
from ..mixture.modes import one_gaussian
from .outputs import save_picture
from .velocity_groups import GROUPS, NEAR, Demo, Prediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console
    from rich.table import Table

VERDICTS = """A group is a [b]peak[/b] when the U-V density has a maximum within 8 km/s of its place in the literature,
a [b]shoulder[/b] when only the ratio of that density to one Gaussian of the same mean and covariance has one,
and otherwise [b]not resolved[/b]. Resamples: in how many of them, fitted again, the verdict is the same."""
VIEW = {"U": (-90.0, 70.0), "V": (-85.0, 35.0), "W": (-55.0, 40.0)}
WHERE_NAMED = {"Hyades": (-34, -14)}  # points from the cross to its name, where the usual place hides something


def draw(mixture: Mixture, path: str | Path) -> None:
    """The picture: U-V, U-W and V-W, with the components and the moving groups of the literature."""
    axes = plot.new_axes(1, 3)[0]
    for ax, (x, y) in zip(axes, (("U", "V"), ("U", "W"), ("V", "W")), strict=True):
        plot.density_2d(mixture, (x, y), ax, limits=(VIEW[x], VIEW[y]))
        plot.ellipses(mixture, (x, y), ax)
    _mark_groups(axes[0])
    axes[0].figure.suptitle("Velocities near the Sun from Hipparcos: density, components (1σ) and moving groups")
    save_picture(axes[0].figure, Path(path), dpi=110)


def _mark_groups(ax: Axes) -> None:
    from matplotlib.patheffects import withStroke

    outline = [withStroke(linewidth=2.5, foreground="white")]
    for name, place in GROUPS.items():
        ax.plot(*place, "P", color="crimson", ms=8, mec="white", zorder=3)
        offset = WHERE_NAMED.get(name, (7, 5))
        ax.annotate(name, place, offset, textcoords="offset points", color="crimson", path_effects=outline, zorder=4)


def tell(demo: Demo, say: Console) -> None:
    together = one_gaussian(demo.mixture)
    mean, spread = together.means[0], np.sqrt(np.diagonal(together.covariances[0]))
    say.print(_component_table(demo.mixture))
    say.print(
        f"All stars: mean (U, V, W) = ({mean[0]:.1f}, {mean[1]:.1f}, {mean[2]:.1f}) km/s relative to the Sun, "
        f"dispersions ({spread[0]:.1f}, {spread[1]:.1f}, {spread[2]:.1f}) km/s"
    )
    if demo.heights:
        say.print(_seeds_line(demo))
    say.print(_group_table(demo), VERDICTS.replace("\n", " "))
    others = [top for top in demo.maxima if all(np.linalg.norm(top - place) > NEAR for place in GROUPS.values())]
    if others:
        say.print("Maxima near none of them: " + ", ".join(f"({u:.0f}, {v:.0f})" for u, v in others))
    say.print(_prediction_line(demo.prediction))
    say.print(f"Wrote {demo.model} and {demo.picture} in {demo.seconds:.0f} s")


def _seeds_line(demo: Demo) -> str:
    """Whether fits from several seeds end in one place, by how high they ended."""
    if len(demo.heights) == 1:
        return "Fitted from one seed: others end in the same place, as --seeds 3 shows"
    below = ", ".join(f"{max(demo.heights) - height:.1f}" for height in demo.heights)
    return (
        f"From [b]{demo.together} of {len(demo.heights)}[/b] seeds the fit ends in the best place; "
        f"nats of all stars below the best: {below}"
    )


def _prediction_line(told: Prediction) -> str:
    return (
        "One velocity of each star held out: given the other, a fit that never saw it predicts it better than a "
        f"Gaussian by [b]{told.gain:.3f}[/b] ± {told.gain_error:.3f} nats per star ({told.mixture:.3f} against "
        f"{told.gaussian:.3f})"
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
    for title in ("group", "literature", "here", "resamples", "maximum at", "distance"):
        table.add_column(title)
    for group in demo.groups:
        found = "" if group.found is None else "({:.1f}, {:.1f})".format(*group.found)
        distance = "" if group.distance is None else f"{group.distance:.1f}"
        place, agree = "({:.0f}, {:.0f})".format(*group.literature), f"{group.agree} of {len(group.again)}"
        table.add_row(group.name, place, group.verdict, agree, found, distance)
    return table
